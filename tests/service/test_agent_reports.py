"""A node's reports, as they come: in rows or one by one, of jobs that are there and jobs that are gone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from trackside.api.message import Answer, Request
from trackside.config import Settings
from trackside.domain.exchange import Hello, Measured, Noted, Report, ReportAck, ReportBatch, TaskKey
from trackside.domain.job import Job, JobId, JobSpec, NodeId, ProjectId, Role, TaskName
from trackside.domain.metric import Sample
from trackside.domain.phase import Phase
from trackside.domain.readings import Readings, readings_of
from trackside.domain.resources import Capacity, Resources
from trackside.ports import EventQuery, SeriesKey, Update
from trackside.wiring import Parts, build

NODE, HERE, GONE = NodeId("node"), JobId("here"), JobId("gone")
AT_MS = 1_700_000_000_000
OLD_BODY = b"""{"node_id":"node","stream":"old","reports":[{"seq":7,"started":null,"ended":null,"noted":null,
"measured":{"samples":[
{"job_id":"here","task":"w","metric":"loss","at_ms":1700000000000,"value":0.5,"card":null,"labels":[["a","b"]]},
{"job_id":"gone","task":"w","metric":"loss","at_ms":1700000000000,"value":0.5,"card":null,"labels":[]},
{"job_id":"here","task":"w","metric":"gpu_percent","at_ms":1700000000001,"value":7,"card":3,"labels":[]}]}}]}"""

Post = Callable[[bytes], Awaitable[tuple[int, bytes]]]


def job(number: int) -> Job:
    role = Role(name="worker", count=1, resources=Resources(cpu_cores=1, memory_bytes=1 << 30))
    return Job(
        id=HERE,
        short_id="here000000000000",
        number=number,
        project_id=ProjectId("p"),
        owner="admin",
        spec=JobSpec(name="here", roles=(role,), command="true"),
        phase=Phase.SUCCEEDED,
        created_at_ms=1,
    )


def with_server(folder: Path, check: Callable[[Parts, Post], Awaitable[None]]) -> None:
    """Build a server that knows one job and one node, and check something of it."""

    async def run() -> None:
        kept = {"metrics_raw_days": 10_000, "metrics_rollup_days": 10_000}
        parts = build(Settings(data_dir=str(folder / "data"), run_agent=False, **kept))
        await parts.places.stores.start()
        try:
            await parts.places.stores.identities.put_project(ProjectId("p"), "p")
            await parts.places.stores.jobs.insert(ProjectId("p"), lambda number: Update(job=job(number)))
            capacity = Capacity(cpu_cores=1, memory_bytes=1 << 30)
            parts.work.engine.hello(
                Hello(node_id=NODE, agent_pid=1, host_ip="127.0.0.1", capacity=capacity, version="1")
            )
            await check(parts, lambda body: post(parts, body))
        finally:
            parts.places.stores.close()
            parts.places.appender.close()
            parts.places.metrics.close()

    asyncio.run(run())


async def post(parts: Parts, body: bytes) -> tuple[int, bytes]:
    """Send a body to the reports' address; return status and answer."""
    token = (parts.places.data_dir / "agent" / "token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    answer = parts.app(Request("POST", b"/api/trackside/v1/agent/reports", b"", headers, body))
    if not isinstance(answer, Answer):
        answer = await answer
    assert isinstance(answer.content, bytes)
    return answer.status, answer.content


def batch(*reports: Report) -> bytes:
    return msgspec.json.encode(ReportBatch(node_id=NODE, stream="s", reports=reports))


def measured(seq: int, *samples: Sample) -> Report:
    return Report(seq=seq, measured=Measured(readings=readings_of(samples)))


def through(answer: tuple[int, bytes]) -> int:
    assert answer[0] == 200, answer
    return msgspec.json.decode(answer[1], type=ReportAck).through


def stored(parts: Parts) -> dict[SeriesKey, dict[int, float]]:
    return parts.places.metrics.means(HERE, task=None, start_ms=0, end_ms=AT_MS + 10**6, step_ms=1)


def test_samples_told_one_by_one_are_still_taken(tmp_path: Path) -> None:
    async def check(parts: Parts, post: Post) -> None:
        assert through(await post(OLD_BODY)) == 7
        assert stored(parts) == {
            SeriesKey("w", "loss", None, (("a", "b"),)): {AT_MS: 0.5},
            SeriesKey("w", "gpu_percent", 3): {AT_MS + 1: 7.0},
        }
        assert parts.places.appender.appended == 2

    with_server(tmp_path, check)


def test_rows_of_a_job_that_is_gone_are_left_out(tmp_path: Path) -> None:
    async def check(parts: Parts, post: Post) -> None:
        rows = [Sample(one, "w", "loss", AT_MS + at, float(at)) for one in (GONE, HERE) for at in (0, 1)]
        only_gone = measured(2, Sample(GONE, "w", "loss", AT_MS, 1.0))
        assert through(await post(batch(measured(1, *rows), only_gone))) == 2
        assert through(await post(batch(only_gone))) == 2
        assert stored(parts) == {SeriesKey("w", "loss"): {AT_MS: 0.0, AT_MS + 1: 1.0}}
        assert parts.places.metrics.latest([GONE], since_ms=0) == {}

    with_server(tmp_path, check)


def test_what_changes_a_job_is_applied_once_however_measurements_come_between(tmp_path: Path) -> None:
    async def check(parts: Parts, post: Post) -> None:
        def noted(seq: int) -> Report:
            said = Noted(key=TaskKey(HERE, 1, TaskName("w")), at_ms=AT_MS, message=f"note {seq}")
            return Report(seq=seq, noted=said)

        def tick(seq: int) -> Report:
            return measured(seq, Sample(HERE, "w", "loss", AT_MS + seq, 1.0))

        first, second = batch(tick(1), noted(2), tick(3)), batch(tick(4), noted(5), noted(6), tick(7))
        assert [through(await post(one)) for one in (first, first, second, first, second)] == [3, 3, 7, 3, 7]
        page = await parts.places.stores.jobs.events(EventQuery(job_id=HERE))
        assert [event.message for event in page.events] == ["note 2", "note 5", "note 6"]
        assert len(stored(parts)[SeriesKey("w", "loss")]) == 4

    with_server(tmp_path, check)


def test_a_kind_of_report_nobody_knows_here_is_refused_by_number_and_the_others_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(parts: Parts, post: Post) -> None:
        key = {"job_id": HERE, "attempt": 1, "task": "w"}
        note = {"key": key, "at_ms": AT_MS, "message": "heard"}
        answer = {"key": key, "id": "x", "kind": "profile", "at_ms": AT_MS, "done": True, "text": "fast"}
        reports = [
            {"seq": 1, "profiled": {"key": key, "flames": 7}},
            {"seq": 2, "noted": note},
            {"seq": 3, "answered": answer},
        ]
        body = msgspec.json.encode({"node_id": NODE, "stream": "s", "reports": reports})
        status, said = await post(body)
        ack = msgspec.json.decode(said, type=ReportAck)
        assert (status, ack.through) == (200, 3)
        [refused] = ack.refused
        assert refused.seq == 1
        assert "not known to this server's version" in refused.why
        page = await parts.places.stores.jobs.events(EventQuery(job_id=HERE))
        assert [event.message for event in page.events] == ["heard", "profile of w: fast"]

    with_server(tmp_path, check)
    assert "1 report of node node" in caplog.text


def test_readings_that_make_no_sense_are_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    async def check(parts: Parts, post: Post) -> None:
        (good,) = readings_of([Sample(HERE, "w", "loss", AT_MS, 1.0)])
        for bad in (
            Readings(series=b"nonsense", times_ms=good.times_ms, values=good.values),
            replace(good, values=bytes(16)),
            replace(good, times_ms=()),
        ):
            body = batch(Report(seq=1, measured=Measured(readings=(good, bad))))
            status, _ = await post(body)
            assert status == 400
        assert stored(parts) == {}

    with_server(tmp_path, check)
