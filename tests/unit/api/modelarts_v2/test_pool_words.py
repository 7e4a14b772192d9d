"""The words of pools: annotations, quotas, amounts, and the monitor's steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.persistence.making import make_job, make_spec, make_task
from trackside.api.modelarts_v2.pool_monitor import DISK_VALUE_OF, METRIC_OF, PoolMonitor, steps
from trackside.api.modelarts_v2.pool_words import (
    annotations_of,
    change_of,
    cores_text,
    memory_text,
    parse_memory,
    parse_quota,
    quota_text,
)
from trackside.api.modelarts_v2.translate_pools import workload_counts
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.domain.phase import Phase
from trackside.domain.pool import QueuePolicy, Quota
from trackside.domain.resources import GIB, Accelerator, Capacity, Resources
from trackside.ports import SeriesKey
from trackside.service.node_disks import Disk
from trackside.service.pool_record import Holder, PoolChange, changed, decode, default_record, encode

NOW_MS = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS + 12_345
AMOUNTS = st.one_of(st.none(), st.integers(0, 1000))
QUOTAS = st.builds(
    Quota,
    cpu_cores=st.one_of(st.none(), st.integers(0, 10_000).map(lambda n: n / 100)),
    memory_bytes=st.one_of(st.none(), st.integers(0, 2**50)),
    cards=AMOUNTS,
).filter(lambda quota: quota != Quota())


@given(QUOTAS)
def test_a_quota_reads_as_it_was_written(quota: Quota) -> None:
    assert parse_quota("here", quota_text(quota)) == quota


@given(
    policy=st.sampled_from(list(QueuePolicy)),
    seconds=st.integers(1, 1000),
    description=st.text(st.characters(categories=["L", "N", "Zs"]), max_size=20),
    quotas=st.dictionaries(
        st.tuples(st.sampled_from(list(Holder)), st.sampled_from(["*", "ann", "p.1", "b-c"])),
        QUOTAS,
        max_size=5,
    ),
)
def test_annotations_say_all_that_makes_a_pool(
    policy: QueuePolicy, seconds: int, description: str, quotas: dict[tuple[Holder, str], Quota]
) -> None:
    change = PoolChange(
        policy=policy,
        lock_seconds=seconds,
        description=description,
        quotas=dict(quotas),
        annotations={"mine": "kept"},
    )
    record = changed(default_record(1, QueuePolicy.FIFO), change)
    again = changed(default_record(1, QueuePolicy.FIFO), change_of(annotations_of(record)))
    assert again == record
    assert decode(encode(record)) == record


def test_null_takes_away_and_absent_leaves() -> None:
    record = changed(
        default_record(1, QueuePolicy.FIFO),
        change_of({"trackside.pool/quota.user": "cpu=1", "own": "x", "os.modelarts/description": "d"}),
    )
    assert record.pool.user_quota == Quota(cpu_cores=1)
    same = changed(record, change_of({}))
    assert same == record
    bare = changed(
        record, change_of({"trackside.pool/quota.user": None, "own": None, "os.modelarts/description": None})
    )
    assert (bare.pool.user_quota, bare.annotations, bare.description) == (None, {}, "")


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"os.modelarts.pool/scheduler.queue.strategy": "best"}, "fifo traversal step-polling tiered"),
        ({"trackside.pool/lock-seconds": "soon"}, "whole number of seconds"),
        ({"trackside.pool/quota.everyone": "cpu=1"}, "of a project or of a user"),
        ({"trackside.pool/quota.user": "cpu"}, "cpu=4,memory=8Gi,cards=2"),
        ({"trackside.pool/quota.user": "cpu=1,cpu=2"}, "cpu=4,memory=8Gi,cards=2"),
        ({"trackside.pool/quota.user": "cpu=-1"}, "not a number"),
        ({"trackside.pool/quota.user": "memory=8 apples"}, "512Mi or 8Gi"),
        ({"trackside.pool/quota.user": "colour=red"}, "cpu=4,memory=8Gi,cards=2"),
    ],
)
def test_words_that_mean_nothing_are_refused(annotations: dict[str, str | None], says: str) -> None:
    with pytest.raises(Invalid, match=says.replace(".", r"\.")):
        change_of(annotations)


def test_amounts_are_written_as_kubernetes_does() -> None:
    assert [cores_text(cores) for cores in (0, 2, 0.1, 1.5)] == ["0", "2", "100m", "1500m"]
    assert [memory_text(size) for size in (0, GIB, 3 * 2**20, 1025)] == ["0", "1Gi", "3Mi", "1025"]
    assert [parse_memory("x", text) for text in ("1Gi", "1.5Gi", "2M", "7")] == [
        GIB,
        3 * GIB // 2,
        2 * 10**6,
        7,
    ]


def test_the_documented_example_of_statistics() -> None:
    told = workload_counts({("job", Phase.QUEUED): 234})
    (item,) = told.items
    assert (told.total, item.type, item.total) == (234, "train", 234)
    assert (item.status.queue, item.status.pending, item.status.running) == (234, 0, 0)


def test_kinds_and_phases_add_up() -> None:
    counts = {("job", phase): place for place, phase in enumerate(Phase, 1)}
    told = workload_counts({**counts, ("hetero_job", Phase.LOST): 100})
    assert told.total == sum(counts.values()) + 100
    status = told.items[0].status
    assert status.abnormal == counts["job", Phase.LOST] + counts["job", Phase.CREATE_FAILED] + 100
    assert status.running == counts["job", Phase.RUNNING] + counts["job", Phase.RESTARTING]
    assert workload_counts({}).items[0].status.failed == 0


@pytest.mark.parametrize(
    ("time_range", "period", "first", "count"),
    [
        ("-1.-1.60", "60", -60, 60),
        ("-1.-1.60", "3600", None, 1),
        (f"{NOW_MS - 600_000}.-1.5", "60", -10, 5),
        (f"{NOW_MS - 600_000}.{NOW_MS}.-1", "60", -10, 10),
        (f"-1.{NOW_MS - 600_000}.10", "60", -20, 10),
        ("-1.-1.1440", "60", -1440, 1440),
    ],
)
def test_the_steps_a_range_asks_for(time_range: str, period: str, first: int | None, count: int) -> None:
    found = steps(time_range, period, NOW_MS)
    assert len(found) == count
    if first is not None:
        assert found[0] == NOW_MS // MINUTE_MS * MINUTE_MS + first * MINUTE_MS


@pytest.mark.parametrize(
    ("time_range", "period"),
    [
        ("now", "60"),
        ("-1.-1.60", "61"),
        ("-1.-1.1441", "60"),
        ("-1.-1.0", "60"),
        ("9.8.-1", "60"),
        ("1.2", "60"),
    ],
)
def test_a_range_that_cannot_be_told_is_refused(time_range: str, period: str) -> None:
    with pytest.raises(Invalid):
        steps(time_range, period, NOW_MS)


def monitored(statistic: str, step_minutes: int = 1) -> dict[str, list[float]]:
    """Watch two tasks in a pool of eight cores and four cards for four minutes; one starts in the third."""
    gpus = Resources(cpu_cores=2, memory_bytes=GIB, cards=2, accelerator=Accelerator.GPU)
    job: Job = make_job(
        spec=make_spec(),
        tasks=(make_task(0, resources=gpus), make_task(1, resources=gpus)),
        phase=Phase.RUNNING,
    )
    minutes = [minute * MINUTE_MS for minute in range(4)]
    pool = Capacity(cpu_cores=8, memory_bytes=8 * GIB, gpus=4)
    monitor = PoolMonitor("pool", pool, range(0, 4 * MINUTE_MS, step_minutes * MINUTE_MS))
    monitor.add(
        job,
        {
            SeriesKey("worker-0", Metric.CPU_PERCENT): dict.fromkeys(minutes[:3], 100.0),
            SeriesKey("worker-1", Metric.CPU_PERCENT): {minutes[2]: 50.0},
            SeriesKey("worker-0", Metric.GPU_PERCENT): {minutes[0]: 80.0},
            SeriesKey("worker-0", Metric.GPU_PERCENT, 0): {minutes[1]: 99.0},  # one card: not the task's
            SeriesKey("worker-0", "custom.loss"): {minutes[0]: 1.0},
            SeriesKey("worker-9", Metric.CPU_PERCENT): {minutes[0]: 7.0},
        },
    )
    return {
        one.metric.metric_name: [point.statistics[0].value for point in one.data_points]
        for one in monitor.answer(statistic)
    }


def test_the_monitor_is_in_percent_of_the_pool() -> None:
    told = monitored("maximum")
    assert set(told) == {*METRIC_OF, *DISK_VALUE_OF}
    assert told["cpuUsage"] == [25.0, 25.0, 37.5, -1.0]
    assert told["gpuUtil"] == [40.0, -1.0, -1.0, -1.0]
    assert told["npuUtil"] == told["diskCapacity"] == [-1.0] * 4


def test_the_monitor_tells_the_disks_where_they_were_told() -> None:
    disks = {MINUTE_MS: Disk(8 * 2**20, 2 * 2**20), 2 * MINUTE_MS: Disk(0, 0)}
    steps = range(0, 3 * MINUTE_MS, MINUTE_MS)
    monitor = PoolMonitor("pool", Capacity(cpu_cores=8, memory_bytes=GIB), steps, disks)
    told = {
        one.metric.metric_name: [(point.unit, point.statistics[0].value) for point in one.data_points]
        for one in monitor.answer("average")
    }
    absent = ("Megabytes", -1.0)
    assert told["diskCapacity"] == [absent, ("Megabytes", 8.0), absent]
    assert told["diskAvailableCapacity"] == [absent, ("Megabytes", 2.0), absent]
    assert told["diskUsedRate"][1] == ("Percent", 75.0)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("maximum", [25.0, 37.5]),
        ("minimum", [25.0, 37.5]),
        ("sum", [50.0, 37.5]),
        ("average", [25.0, 37.5]),
        ("sampleCount", [2, 1]),
    ],
)
def test_longer_periods_tell_the_statistic_of_their_minutes(statistic: str, expected: list[float]) -> None:
    assert monitored(statistic, step_minutes=2)["cpuUsage"] == expected
