"""Knows the page that Prometheus scrapes: Trackside itself, and what every running task uses right now.

Knows its names, its two formats and who may read it; gathers nothing but through the ports. A task that no
longer runs is not on the page: its series end with the next scrape and not minutes later.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trackside.api.exposition_text import OPENMETRICS, TEXT, Family, Row, render
from trackside.api.operation import Raw
from trackside.api.tally import Tallies
from trackside.domain.errors import Unavailable
from trackside.domain.exposition import metric_name, wrap_label
from trackside.domain.identity import Caller
from trackside.domain.job import Job, JobId, ProjectId, TaskState
from trackside.domain.metric import Metric
from trackside.domain.phase import FINAL, Phase
from trackside.ports import Clock, JobQuery, JobStore, MetricStore, Node, SeriesKey

log = logging.getLogger(__name__)

FRESH_MS_MIN = 60_000  # an older sample is no latest value any more
NODE_SILENT_MS = 60_000

BUILD = Family("trackside_build", "info", "The version that runs.")
REQUESTS = Family(
    "trackside_request_duration_seconds", "summary", "Requests, and the time they took, by their operation."
)
JOBS = Family("trackside_jobs", "gauge", "Jobs by phase.")
NODES = Family("trackside_nodes", "gauge", "Machines with an agent, by whether it is heard of.")
JOB_INFO = Family("trackside_job", "info", "What a running job is called.")
STORE_UP = Family("trackside_metric_store_up", "gauge", "Whether the metric store answered for this page.")

# What a server tells of itself with one number each; where a value is not known, the name is left out.
OWN = (
    Family("trackside_queue_jobs", "gauge", "Jobs that wait for room."),
    Family("trackside_queue_oldest_seconds", "gauge", "How long the job that waits longest has waited."),
    Family("trackside_supervise_failures", "counter", "Supervising rounds that failed."),
    Family("trackside_reports_applied", "counter", "Reports of agents that were taken."),
    Family("trackside_samples_appended", "counter", "Samples that were taken."),
    Family("trackside_samples_dropped", "counter", "Samples that were refused or lost."),
    Family("trackside_metric_blocks_damaged", "counter", "Damaged blocks of samples that were left out."),
    Family("trackside_notifications_sent", "counter", "Notifications that were heard."),
    Family("trackside_notifications_given_up", "counter", "Notifications that nobody heard."),
    Family("trackside_metric_queue_bytes", "gauge", "What waits to be shipped to the remote metric store."),
)
SERVER_FAMILIES = (BUILD, REQUESTS, JOBS, NODES, JOB_INFO, STORE_UP, *OWN)
# By the metric: what a card's number means, and what stands for all cards of the task.
TASK_HELP: Mapping[str, str] = {
    Metric.CPU_PERCENT: "Processor time, of the cores the task was given.",
    Metric.MEMORY_PERCENT: "Working set, of the memory the task was given.",
    Metric.MEMORY_PEAK_BYTES: "The most memory the task ever held; with cgroups page cache included.",
    Metric.SHM_USED_BYTES: "Shared memory of the task, files in /dev/shm included.",
    Metric.DISK_READ_BYTES_PER_SECOND: "What the task reads from disks.",
    Metric.DISK_WRITE_BYTES_PER_SECOND: "What the task writes to disks.",
    Metric.IO_BYTES: "What read and write calls have moved since the task began.",
    Metric.LOG_BYTES: "How much the task has printed since it began.",
    Metric.NETWORK_RECEIVE_BYTES_PER_SECOND: "What the task receives.",
    Metric.NETWORK_SEND_BYTES_PER_SECOND: "What the task sends.",
    Metric.GPU_PERCENT: "How busy the GPUs are: each card, and without one the mean.",
    Metric.GPU_MEMORY_PERCENT: "GPU memory in use: each card, and without one the mean.",
    Metric.GPU_MEMORY_USED_BYTES: "GPU memory in use: each card, and without one the sum.",
    Metric.GPU_POWER_WATTS: "What the GPUs draw: each card, and without one the sum.",
    Metric.GPU_TEMPERATURE_CELSIUS: "How hot the GPUs are: each card, and without one the hottest.",
    Metric.GPU_ECC_ERRORS: "Memory errors of the GPU that were not corrected, since its driver was loaded.",
    Metric.GPU_XID: "The XID error that the driver has just told of.",
    Metric.GPU_PROCESSES: "Processes of the task that hold memory of the GPU.",
    Metric.GPU_FOREIGN_PROCESSES: "Processes of others that hold memory of the GPU.",
    Metric.NPU_PERCENT: "How busy the NPUs are: each card, and without one the mean.",
    Metric.NPU_MEMORY_PERCENT: "NPU memory in use: each card, and without one the mean.",
    Metric.NPU_MEMORY_USED_BYTES: "NPU memory in use: each card, and without one the sum.",
    Metric.NPU_POWER_WATTS: "What the NPUs draw: each card, and without one the sum.",
    Metric.NPU_TEMPERATURE_CELSIUS: "How hot the NPUs are: each card, and without one the hottest.",
    Metric.NPU_ERROR_CODE: "The error code of the NPU; 0 is none.",
    Metric.NPU_HEALTHY: "Whether the driver calls the NPU healthy.",
}
CUSTOM_HELP = "Told by the job itself."
TOTAL = "_total"

Counted = Callable[[], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the page's numbers come from."""

    version: str
    tallies: Tallies
    jobs: JobStore
    metrics: MetricStore
    clock: Clock
    nodes: Callable[[], Sequence[Node]]
    projects: Callable[[], Awaitable[Sequence[ProjectId]]]
    own: Mapping[str, Counted]  # by the name of a family of OWN
    sample_seconds: float


class MetricsPage:
    """Answer a scrape."""

    def __init__(self, sources: Sources, *, caller_of_token: Callable[[str], Caller | None] | None) -> None:
        """`caller_of_token` None leaves the page open; else a token is asked for and shows its project."""
        self._from = sources
        self._caller_of_token = caller_of_token

    async def __call__(self, headers: Mapping[str, str]) -> Raw:
        """Return the page in the format that was asked for, or why not."""
        project: ProjectId | None = None
        if self._caller_of_token is not None:
            caller = self._caller_of_token(_token(headers))
            if caller is None:
                return _unauthenticated()
            project = caller.project_id
        media_type = chosen_format(headers.get("accept", ""))
        active = await self._from.jobs.active()
        ended = await self._ended()
        text = await asyncio.to_thread(self._render, active, ended, project, media_type)
        return Raw(content=text, media_type=media_type, headers={"cache-control": "no-store"})

    async def _ended(self) -> Counter[Phase]:
        counts: Counter[Phase] = Counter()
        for project_id in await self._from.projects():
            for phase in FINAL:
                query = JobQuery(project_id=project_id, phases=frozenset({phase}), limit=0)
                counts[phase] += (await self._from.jobs.search(query)).matching
        return counts

    def _render(
        self, active: Sequence[Job], ended: Counter[Phase], project: ProjectId | None, media_type: str
    ) -> bytes:
        shown = [job for job in active if project in (None, job.project_id)]
        up, tasks = self._tasks(shown)
        phases = ended + Counter(job.phase for job in active)
        families = [
            (BUILD, [Row((("version", self._from.version),), 1)]),
            (REQUESTS, self._requests()),
            (JOBS, [Row((("phase", phase.value),), phases[phase]) for phase in Phase]),
            (NODES, self._nodes()),
            *self._own(active),
            (STORE_UP, [Row((), int(up))]),
            (JOB_INFO, [_job_info(job) for job in shown]),
            *tasks,
        ]
        return render(families, media_type)

    def _requests(self) -> list[Row]:
        rows = []
        for dialect, operation, status, count, seconds in self._from.tallies.rows():
            labels = (("dialect", dialect), ("operation", operation), ("status", status))
            rows += [Row(labels, count, "_count"), Row(labels, seconds, "_sum")]
        return rows

    def _nodes(self) -> list[Row]:
        now = self._from.clock.monotonic_ms()
        silent = sum(now - node.seen_monotonic_ms > NODE_SILENT_MS for node in self._from.nodes())
        heard = len(self._from.nodes()) - silent
        return [Row((("state", "up"),), heard), Row((("state", "silent"),), silent)]

    def _own(self, active: Sequence[Job]) -> list[tuple[Family, list[Row]]]:
        waiting = [job for job in active if job.phase is Phase.QUEUED]
        since = min((job.records[-1].queued_at_ms for job in waiting if job.records), default=None)
        known: dict[str, Counted] = {
            "trackside_queue_jobs": lambda: len(waiting),
            "trackside_queue_oldest_seconds": lambda: (
                0 if since is None else max(0, self._from.clock.now_ms() - since) / 1000
            ),
            **self._from.own,
        }
        values = [(family, known[family.name]()) for family in OWN if family.name in known]
        return [(family, [Row((), value)]) for family, value in values if value is not None]

    def _tasks(self, jobs: Sequence[Job]) -> tuple[bool, list[tuple[Family, list[Row]]]]:
        """Return whether the store answered, and a family per metric."""
        running = {job.id: job for job in jobs if _started(job)}
        fresh_ms = max(FRESH_MS_MIN, int(3000 * self._from.sample_seconds))
        since_ms = self._from.clock.now_ms() - fresh_ms
        try:
            newest = self._from.metrics.latest(list(running), since_ms=since_ms) if running else {}
        except Unavailable as error:
            log.warning("the metrics page goes without tasks: %s", error)
            return False, []
        rows: dict[str, list[Row]] = {}
        helps: dict[str, str] = {}
        for job_id, series in newest.items():
            for key, value in _of_running_tasks(running[JobId(job_id)], series):
                name = metric_name(key.metric)
                helps[name] = TASK_HELP.get(key.metric, CUSTOM_HELP)
                rows.setdefault(name, []).append(Row(_labels(running[JobId(job_id)], key), value))
        return True, [(_family(name, helps[name], rows), rows[name]) for name in sorted(rows)]


def chosen_format(accept: str) -> str:
    """Return the media type to answer with: OpenMetrics to who prefers it, else plain text."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.001}
    for choice in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in choice.split(";"))
        if media_type in quality:
            quality[media_type] = max(quality[media_type], _quality(parameters))
    wants_openmetrics = quality["application/openmetrics-text"] >= quality["text/plain"]
    return OPENMETRICS if wants_openmetrics else TEXT


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _token(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-auth-token", "")


def _unauthenticated() -> Raw:
    problem = {"code": "401", "message": "This page asks for a bearer token of a user."}
    return Raw(content=msgspec.json.encode(problem), status=401, headers={"www-authenticate": "Bearer"})


def _started(job: Job) -> bool:
    return any(task.state is TaskState.RUNNING for task in job.tasks)


def _of_running_tasks(
    job: Job, series: Mapping[SeriesKey, tuple[int, float]]
) -> Iterable[tuple[SeriesKey, float]]:
    """Return the values of tasks that run, measured since they were last started."""
    since = {task.name: task.started_at_ms or 0 for task in job.tasks if task.state is TaskState.RUNNING}
    names: Mapping[str, int] = {str(name): at_ms for name, at_ms in since.items()}
    return [(key, v) for key, (at_ms, v) in series.items() if key.task in names and at_ms >= names[key.task]]


def _family(name: str, help_text: str, every: Mapping[str, Sequence[Row]]) -> Family:
    """Return what a name is: a count by its ending, if it can be one and its family is nobody else's."""
    stem = name.removesuffix(TOTAL)
    if (
        stem != name
        and {stem, f"{stem}_created"}.isdisjoint(every)
        and all(row.value >= 0 for row in every[name])
    ):
        return Family(stem, "counter", help_text)
    return Family(name, "gauge", help_text)


def _labels(job: Job, key: SeriesKey) -> tuple[tuple[str, str], ...]:
    card = () if key.card is None else (("card", str(key.card)),)
    own = tuple(wrap_label(name, value) for name, value in key.labels)
    return (("job_id", job.id), ("job_name", job.spec.name), ("task", key.task), *card, *own)


def _job_info(job: Job) -> Row:
    return Row((("job_id", job.id), ("job_name", job.spec.name), ("kind", job.spec.kind)), 1)
