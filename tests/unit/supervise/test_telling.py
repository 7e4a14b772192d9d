"""Reasons of waiting become events when they become others, and not too often."""

from dataclasses import replace

from tests.unit.domain.builders import a_job
from tests.unit.schedule.building import World, machine, request
from trackside.domain.job import JobId
from trackside.supervise.telling import EVERY_MS, LOOK_EVERY_MS, SOURCE, Telling


def test_one_event_per_change_and_minute() -> None:
    world = World(machine(cores=2))
    world.queue(request("busy", 2), request("one", 1, at=1))
    jobs = [replace(a_job(1), id=JobId(name)) for name in ("busy", "one")]
    telling, now = Telling(), 10 * EVERY_MS
    (event,) = telling.events(world.core, jobs, now)
    assert (event.job_id, event.source) == ("one", SOURCE)
    assert event.message == "waiting: needs 1 core and 1.0 GiB on one machine; 0 cores free in all"
    assert telling.events(world.core, jobs, now + EVERY_MS) == [], "nothing changed"
    world.queue(request("head", 2, priority=3, at=2))
    world.end("busy")  # the head starts
    world.end("head")
    assert telling.events(world.core, jobs, now + 2 * EVERY_MS) == [], "it does not wait any more"


def test_a_reason_that_changes_quickly_is_told_a_minute_later() -> None:
    world = World(machine(cores=3, gpus=2))
    world.queue(request("busy", 2, gpus=1), request("small", 1, at=1))
    world.queue(request("head", 1, gpus=2, at=2), request("one", 1, at=3))
    jobs = [replace(a_job(1), id=JobId("one"))]
    telling, now = Telling(), 10 * EVERY_MS
    assert "0 cores free in all" in telling.events(world.core, jobs, now)[0].message
    world.end("small")
    assert telling.events(world.core, jobs, now + LOOK_EVERY_MS - 1) == [], "not looked at that often"
    assert telling.events(world.core, jobs, now + EVERY_MS - 1) == [], "not told that often"
    (event,) = telling.events(world.core, jobs, now + EVERY_MS + LOOK_EVERY_MS)
    assert event.message.startswith("waiting: it would fit, but a job that needs 2 GPUs")
