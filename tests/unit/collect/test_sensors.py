"""When tasks are read and shipped, and what the first and the last sample of a task cover."""

import resource
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.collect.workload import MIB, Clock, next_pass, one, task, used
from trackside.collect.probe import ExitTotals
from trackside.collect.sensors import Sensors, boot_ms
from trackside.domain.metric import Metric

INTERVAL_MS = 5_000
CPU = Metric.CPU_PERCENT
MEMORY = Metric.MEMORY_PERCENT


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def patient(clock: Clock) -> Iterator[Sensors]:
    """Sensors whose first pass is far away: only `remove` ships."""
    with Sensors(1_000_000_000, clock=clock) as made:
        yield made


@pytest.fixture
def sensors(clock: Clock) -> Iterator[Sensors]:
    with Sensors(INTERVAL_MS, clock=clock) as made:
        yield made


def test_without_tasks_there_is_nothing_to_read_but_a_time_to_look(sensors: Sensors, clock: Clock) -> None:
    assert clock() < sensors.next_read_ms() <= clock() + INTERVAL_MS
    clock.skip_to(sensors.next_read_ms())
    assert sensors.read(1) == []
    assert sensors.next_read_ms() > clock()


def test_an_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Sensors(0)


def test_a_young_task_is_read_every_second_and_shipped_once(patient: Sensors, clock: Clock) -> None:
    with task(memory_bytes=1000 * MIB) as ours:
        clock.catch_up()
        patient.add(ours.probe)
        for mib in (0, 200, 0, 200, 100):
            ours.do(f"hold({mib})")
            assert patient.next_read_ms() == clock() + 1_000
            clock.skip_to(patient.next_read_ms())
            assert patient.read(clock()) == []
        assert patient.next_read_ms() > clock() + 10_000  # grown up
        mean = one(patient.remove(ours.key, 7, None), MEMORY).value
        assert mean == pytest.approx(10.7, abs=1.2)


def test_an_older_task_is_read_with_the_others_only(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        for _ in range(3):
            next_pass(sensors, clock)
        first_ms = sensors.next_read_ms()
        next_pass(sensors, clock)
        assert sensors.next_read_ms() - first_ms == INTERVAL_MS
        assert first_ms % INTERVAL_MS == 0


def test_a_read_before_its_time_reads_nothing(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        due_ms = sensors.next_read_ms()
        assert sensors.read(clock()) == []
        assert sensors.next_read_ms() == due_ms


def test_a_sliver_of_an_interval_waits_for_the_next_pass(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        clock.skip_to(sensors.next_read_ms() + INTERVAL_MS - 300)
        sensors.add(ours.probe)
        clock.skip_to(clock() + 300)
        assert sensors.read(clock()) == []
        assert next_pass(sensors, clock)


def test_samples_name_their_task_and_bear_the_given_time(sensors: Sensors, clock: Clock) -> None:
    with task("worker-7") as ours:
        sensors.add(ours.probe)
        clock.skip_to(clock() + 2 * INTERVAL_MS)
        samples = sensors.read(1_700_000_000_123)
        assert {(s.job_id, s.task, s.at_ms, s.card) for s in samples} == {
            ("job", "worker-7", 1_700_000_000_123, None)
        }
        assert {s.metric for s in samples} == {
            CPU,
            MEMORY,
            Metric.MEMORY_PEAK_BYTES,
            Metric.IO_BYTES,
            Metric.DISK_READ_BYTES_PER_SECOND,
            Metric.DISK_WRITE_BYTES_PER_SECOND,
            Metric.NETWORK_RECEIVE_BYTES_PER_SECOND,
            Metric.NETWORK_SEND_BYTES_PER_SECOND,
        }


def test_a_job_of_a_moment_has_its_whole_life_in_one_sample(patient: Sensors, clock: Clock) -> None:
    born_ms = boot_ms()
    with task(cores=2.0, memory_bytes=1000 * MIB) as ours:
        clock.catch_up()
        patient.add(ours.probe)
        ours.do("burn(0.3)")
        ours.do("hold(100)")
        totals = ours.finish()
        samples = patient.remove(ours.key, totals.ended_boot_ms, totals)
    lived = (totals.ended_boot_ms - born_ms) / 1000
    assert one(samples, CPU).value / 100 * 2.0 * lived == pytest.approx(totals.cpu_seconds, rel=0.15)
    assert one(samples, MEMORY).value == pytest.approx(totals.max_rss_bytes / MIB / 10)
    assert totals.max_rss_bytes > 100 * MIB


def test_all_samples_of_a_task_add_up_to_what_the_shim_counted(sensors: Sensors, clock: Clock) -> None:
    born_ms = boot_ms()
    with task() as ours:
        clock.catch_up()
        sensors.add(ours.probe)
        samples = []
        for _ in range(3):
            ours.do("[(start('c'), tell('c', 'burn(0.05)'), end('c')) for _ in range(4)] and burn(0.1)")
            samples += next_pass(sensors, clock)
        ours.do("burn(0.2)")
        clock.skip_to(clock() + 1_000)
        totals = ours.finish()
        ended_ms = clock()
        samples += sensors.remove(ours.key, ended_ms, replace(totals, ended_boot_ms=ended_ms))
    assert used(samples, CPU, born_ms) / 100 == pytest.approx(totals.cpu_seconds, rel=0.1)
    assert len([s for s in samples if s.metric == CPU]) == 4
    assert samples[-1].at_ms == ended_ms
    assert one([s for s in samples if s.at_ms == ended_ms], MEMORY).value > 0


def test_a_task_that_is_over_waits_for_its_totals(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        began_ms = next_pass(sensors, clock)[0].at_ms
        ours.do("burn(0.3)")
        clock.skip_to(clock() + 1_000)
        totals = replace(ours.finish(), ended_boot_ms=clock())
        ended_ms = totals.ended_boot_ms
        ours.shim.kill()
        ours.shim.wait()
        for _ in range(3):
            clock.skip_to(sensors.next_read_ms())
            assert sensors.read(clock()) == []
        samples = sensors.remove(ours.key, ended_ms, totals)
        assert 0.29 <= used(samples, CPU, began_ms) / 100 <= 0.5


def test_a_reading_that_fails_is_not_due_again_at_once(patient: Sensors, clock: Clock) -> None:
    with task() as ours:
        patient.add(ours.probe)
        clock.skip_to(patient.next_read_ms())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                patient.read(clock())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert patient.next_read_ms() > clock()
        clock.skip_to(patient.next_read_ms())
        patient.read(clock())
        assert one(patient.remove(ours.key, 1, None), MEMORY)


def test_a_tail_of_a_few_milliseconds_is_not_a_sample(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        shipped_ms = next_pass(sensors, clock)[0].at_ms
        totals = ExitTotals(cpu_seconds=9, max_rss_bytes=1, ended_boot_ms=shipped_ms + 20)
        assert sensors.remove(ours.key, shipped_ms + 20, totals) == []


def test_more_processor_time_than_the_machine_has_is_never_shown(sensors: Sensors, clock: Clock) -> None:
    with task(cores=1.0) as ours:
        sensors.add(ours.probe)
        totals = ExitTotals(cpu_seconds=1e6, max_rss_bytes=1, ended_boot_ms=clock() + 1_000)
        assert one(sensors.remove(ours.key, 1, totals), CPU).value <= 100 * 1024


def test_totals_below_what_was_seen_give_no_negative_rate(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        ours.do("burn(0.1)")
        next_pass(sensors, clock)
        totals = ExitTotals(
            cpu_seconds=0, max_rss_bytes=0, read_bytes=0, write_bytes=0, ended_boot_ms=clock() + 900
        )
        samples = sensors.remove(ours.key, 5, totals)
        assert one(samples, CPU).value == 0
        assert all(s.value >= 0 for s in samples)


def test_a_task_found_running_counts_from_then(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        ours.do("burn(0.4)")
        clock.skip_to(clock() + 60_000)
        sensors.add(ours.probe)
        began_ms = clock()
        ours.do("burn(0.1)")
        samples = next_pass(sensors, clock)
        assert used(samples, CPU, began_ms) / 100 == pytest.approx(0.1, abs=0.05)


def test_adding_twice_and_removing_twice_is_harmless(sensors: Sensors, clock: Clock) -> None:
    with task() as ours:
        sensors.add(ours.probe)
        sensors.add(ours.probe)
        assert len([s for s in next_pass(sensors, clock) if s.metric == CPU]) == 1
        sensors.remove(ours.key, 1, None)
        assert sensors.remove(ours.key, 1, None) == []


def test_a_task_that_is_gone_before_it_is_added_does_not_stop_the_others(
    sensors: Sensors, clock: Clock
) -> None:
    with task("gone") as gone:
        gone.finish()
    with task() as ours:
        sensors.add(gone.probe)
        sensors.add(ours.probe)
        samples = next_pass(sensors, clock)
        assert one(samples, MEMORY)
        assert not [s for s in samples if s.task == "gone"]
