"""The page that Prometheus scrapes, read back with Prometheus's own parsers."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.unit.persistence.making import PROJECT, make_job
from trackside.api.exposition import SERVER_FAMILIES, TASK_HELP, MetricsPage, Sources, chosen_format
from trackside.api.exposition_text import OPENMETRICS, TEXT, Family, Row, render
from trackside.api.tally import Tallies
from trackside.domain.errors import Unavailable
from trackside.domain.exposition import metric_name, unwrap_label, wrap_label
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job, JobId, NodeId, ProjectId, Task, TaskName, TaskState
from trackside.domain.metric import Metric
from trackside.domain.phase import Phase
from trackside.domain.resources import Resources
from trackside.ports import JobPage, JobQuery, SeriesKey

ROOT = Path(__file__).parents[3]
NOW_MS = 1_700_000_000_000
STARTED_MS = NOW_MS - 30_000


class Clock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 1_000


class FixedJobs:
    """The two questions the page asks of the job store."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = tuple(jobs)

    async def active(self) -> tuple[Job, ...]:
        return tuple(job for job in self._jobs if not job.final)

    async def search(self, query: JobQuery) -> JobPage:
        found = [j for j in self._jobs if j.project_id == query.project_id and j.phase in query.phases]
        return JobPage(jobs=(), matching=len(found), total=len(self._jobs))


class FixedMetrics:
    """The one question the page asks of the metric store."""

    def __init__(self, series: dict[JobId, dict[SeriesKey, tuple[int, float]]], *, up: bool = True) -> None:
        self._series = series
        self._up = up

    def latest(
        self, job_ids: Sequence[JobId], *, since_ms: int
    ) -> dict[JobId, dict[SeriesKey, tuple[int, float]]]:
        if not self._up:
            raise Unavailable("the metric store is away")
        found = {
            job_id: {
                key: point for key, point in self._series.get(job_id, {}).items() if point[0] >= since_ms
            }
            for job_id in job_ids
        }
        return {job_id: newest for job_id, newest in found.items() if newest}


def task(name: str, state: TaskState = TaskState.RUNNING) -> Task:
    return Task(
        name=TaskName(name),
        role="worker",
        index=0,
        rank=0,
        attempt=1,
        node_id=NodeId("n1"),
        resources=Resources(cpu_cores=1, memory_bytes=1),
        state=state,
        started_at_ms=STARTED_MS,
    )


def running(number: int, *tasks: Task, name: str = "llama", project: ProjectId = PROJECT) -> Job:
    job = replace(make_job(number), phase=Phase.RUNNING, tasks=tasks, project_id=project)
    return replace(job, spec=replace(job.spec, name=name))


def page_of(
    jobs: Sequence[Job],
    series: dict[JobId, dict[SeriesKey, tuple[int, float]]] | None = None,
    *,
    up: bool = True,
    tallies: Tallies | None = None,
    caller_of_token: Any = None,
) -> MetricsPage:
    async def projects() -> Sequence[ProjectId]:
        return [PROJECT]

    sources: Any = Sources(
        version="1.2.3",
        tallies=tallies or Tallies(),
        jobs=FixedJobs(jobs),  # type: ignore[arg-type]
        metrics=FixedMetrics(series or {}, up=up),  # type: ignore[arg-type]
        clock=Clock(),
        nodes=lambda: (),
        projects=projects,
        own={"trackside_supervise_failures": lambda: 3, "trackside_metric_queue_bytes": lambda: None},
        sample_seconds=5,
    )
    return MetricsPage(sources, caller_of_token=caller_of_token)


def samples(page: MetricsPage, headers: dict[str, str] | None = None) -> dict[str, float]:
    """Return the page's numbers by name and labels, the same from both formats."""
    found = []
    for accept, read in (("text/plain", read_text), ("application/openmetrics-text", read_openmetrics)):
        raw = asyncio.run(page({"accept": accept, **(headers or {})}))
        assert raw.status is None
        families = list(read(raw.content.decode()))
        found.append(
            {
                one.name
                + "".join(f" {name}={value}" for name, value in sorted(one.labels.items())): one.value
                for family in families
                for one in family.samples
            }
        )
    assert found[0] == found[1]
    return found[0]


def test_a_running_task_has_its_latest_values() -> None:
    job = running(1, task("worker-0"))
    found = samples(
        page_of(
            [job],
            {
                job.id: {
                    SeriesKey("worker-0", "cpu_percent"): (NOW_MS - 1_000, 42.5),
                    SeriesKey("worker-0", "gpu_percent"): (NOW_MS - 1_000, 5.0),
                    SeriesKey("worker-0", "gpu_percent", 1): (NOW_MS - 1_000, 7.0),
                    SeriesKey("worker-0", "custom.loss", None, (("task", "x"),)): (NOW_MS - 1_000, 0.25),
                }
            },
        )
    )
    labels = f"job_id={job.id} job_name=llama task=worker-0"
    assert found[f"trackside_task_cpu_percent {labels}"] == 42.5
    assert found[f"trackside_task_gpu_percent {labels}"] == 5
    assert found[f"trackside_task_gpu_percent card=1 {labels}"] == 7
    assert found[f"trackside_task_custom_loss {labels} x_7461736b==x"] == 0.25
    assert found[f"trackside_job_info job_id={job.id} job_name=llama kind=job"] == 1


@pytest.mark.parametrize("media_type", [TEXT, OPENMETRICS])
def test_what_ends_as_a_count_is_a_counter_where_it_can_be_one(media_type: str) -> None:
    job = running(1, task("worker-0"))
    told = {"steps_total": 5.0, "debt_total": -1.0, "seen_total": 2.0, "seen": 1.0, "loss": 0.5}
    series = {
        SeriesKey("worker-0", f"custom.{name}"): (NOW_MS - 1_000, value) for name, value in told.items()
    }
    page = page_of([job], {job.id: series})
    text = asyncio.run(page({"accept": media_type})).content.decode()
    read = read_openmetrics if media_type == OPENMETRICS else read_text
    kinds = {
        one.name.removeprefix("trackside_task_custom_"): family.type
        for family in read(text)
        for one in family.samples
        if one.name.startswith("trackside_task_custom_")
    }
    gauges = dict.fromkeys(("debt_total", "seen_total", "seen", "loss"), "gauge")
    assert kinds == {"steps_total": "counter", **gauges}


def test_what_does_not_run_or_is_old_is_not_on_the_page() -> None:
    job = running(1, task("worker-0"), task("worker-1", TaskState.ENDED), task("worker-2"))
    cpu = {
        "worker-0": NOW_MS - 61_000,  # too old
        "worker-1": NOW_MS - 1_000,  # ended
        "worker-2": STARTED_MS - 1,  # of its run before
    }
    series = {SeriesKey(name, "cpu_percent"): (at_ms, 1.0) for name, at_ms in cpu.items()}
    assert not [name for name in samples(page_of([job], {job.id: series})) if "trackside_task" in name]


def test_the_server_tells_of_itself() -> None:
    tallies = Tallies()
    for status, seconds in ((200, 0.5), (201, 0.25), (404, 1.0)):
        count = tallies.of("modelarts_v2", "ShowJob")[status // 100]
        count[0] += 1
        count[1] += seconds
    queued = replace(make_job(2), phase=Phase.QUEUED)
    jobs = [running(1), queued, replace(make_job(3), phase=Phase.FAILED)]
    found = samples(page_of(jobs, tallies=tallies))
    where = "dialect=modelarts_v2 operation=ShowJob"
    assert found[f"trackside_request_duration_seconds_count {where} status=2xx"] == 2
    assert found[f"trackside_request_duration_seconds_sum {where} status=2xx"] == 0.75
    assert found[f"trackside_request_duration_seconds_count {where} status=4xx"] == 1
    phases = {name: value for name, value in found.items() if name.startswith("trackside_jobs ")}
    assert phases == {
        f"trackside_jobs phase={phase}": float(phase in (Phase.RUNNING, Phase.QUEUED, Phase.FAILED))
        for phase in Phase
    }
    assert found["trackside_queue_jobs"] == 1
    waited = (NOW_MS - queued.records[-1].queued_at_ms) / 1000 if queued.records else 0
    assert found["trackside_queue_oldest_seconds"] == max(0, waited)
    assert found["trackside_supervise_failures_total"] == 3
    assert found["trackside_build_info version=1.2.3"] == 1
    assert found["trackside_nodes state=up"] == 0
    assert "trackside_metric_queue_bytes" not in found
    assert found["trackside_metric_store_up"] == 1


def test_a_store_that_is_away_costs_the_tasks_and_not_the_page() -> None:
    found = samples(page_of([running(1, task("worker-0"))], up=False))
    assert found["trackside_metric_store_up"] == 0
    assert found["trackside_jobs phase=running"] == 1


def test_a_token_shows_its_own_project() -> None:
    mine, other = running(1, name="mine"), running(2, name="theirs", project=ProjectId("other"))
    callers = {"good": Caller(user="u", project_id=PROJECT, role=UserRole.VIEWER)}
    page = page_of([mine, other], caller_of_token=callers.get)
    refusals: list[dict[str, str]] = [{}, {"authorization": "Bearer bad"}, {"authorization": "Basic good"}]
    for headers in refusals:
        raw = asyncio.run(page(headers))
        assert raw.status == 401
        assert raw.headers["www-authenticate"] == "Bearer"
        assert b"mine" not in raw.content
    accepted: list[dict[str, str]] = [{"authorization": "Bearer good"}, {"x-auth-token": "good"}]
    for headers in accepted:
        names = " ".join(samples(page, headers))
        assert "job_name=mine" in names
        assert "theirs" not in names


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;q=0.1, text/plain", TEXT),
        ("application/openmetrics-text;q=none", TEXT),
    ],
)
def test_the_format_is_negotiated(accept: str, expected: str) -> None:
    assert chosen_format(accept) == expected


@given(
    metric=st.text(min_size=1),
    labels=st.dictionaries(st.text(min_size=1), st.text(), max_size=3),
    value=st.floats(),
)
def test_whatever_a_job_calls_its_metrics_the_page_can_be_read(
    metric: str, labels: dict[str, str], value: float
) -> None:
    if any("\ud800" <= c <= "\udfff" for c in metric + "".join([*labels, *labels.values()])):
        return  # the stores take no such names
    wrapped = tuple(wrap_label(name, text) for name, text in labels.items())
    family = Family(metric_name("custom." + metric), "gauge", "Told by the job itself.")
    for media_type, read in ((TEXT, read_text), (OPENMETRICS, read_openmetrics)):
        page = render([(family, [Row(wrapped, value)])], media_type).decode()
        (one,) = [one for found in read(page) for one in found.samples]
        assert one.name == family.name
        assert one.value == pytest.approx(value, nan_ok=True)
        assert dict(unwrap_label(*pair) for pair in one.labels.items()) == labels


def test_every_name_of_the_page_is_documented_and_nothing_else() -> None:
    table = (ROOT / "docs/prometheus.md").read_text().split("## Keeping samples")[0]
    documented = set(re.findall(r"^\| `(trackside_\w+)` \|", table, re.M))
    assert documented == {family.sample_name for family in SERVER_FAMILIES}


def test_every_metric_has_its_help_and_nothing_else() -> None:
    assert set(TASK_HELP) == set(Metric)
