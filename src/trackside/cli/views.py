"""Knows the shape of Trackside's own answers (/api/trackside/v1) and how they are given on as --json."""

from typing import Any

import msgspec

from trackside.cli.words import FINAL_PHASES, iso


class ReasonView(msgspec.Struct, kw_only=True):
    """Why something is where it is."""

    text: str = ""
    code: str = ""
    certainty: str = "unknown"
    task: str | None = None
    evidence: list[str] = []
    hint: str | None = None


class TaskView(msgspec.Struct, kw_only=True):
    """One task of the current attempt."""

    name: str
    state: str = ""
    exit_code: int | None = None
    signal: int | None = None
    node: str | None = None
    attempt: int | None = None
    cards: list[int] = []
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    duration_ms: int | None = None
    reason: ReasonView | None = None


class RecordView(msgspec.Struct, kw_only=True):
    """One attempt."""

    number: int = 1
    start_type: str = ""
    queued_at_ms: int | None = None
    running_at_ms: int | None = None
    ended_at_ms: int | None = None
    duration_ms: int | None = None
    reason: ReasonView | None = None
    culprit: str | None = None


class JobView(msgspec.Struct, kw_only=True):
    """One job as the native API tells it."""

    id: str
    name: str
    phase: str
    number: int | None = None
    owner: str = ""
    description: str = ""
    reason: ReasonView | None = None
    suspicion: ReasonView | None = None
    created_at_ms: int | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    records: list[RecordView] = []
    tasks: list[TaskView] = []
    workers: int = 0

    @property
    def final(self) -> bool:
        """Say whether the job is over."""
        return self.phase in FINAL_PHASES

    @property
    def why(self) -> str:
        """Return the one sentence that explains the job."""
        known = self.suspicion or self.reason
        return known.text if known else ""

    @property
    def alive(self) -> int:
        """Return how many tasks run."""
        return sum(task.state == "running" for task in self.tasks)

    @property
    def well(self) -> int:
        """Return how many tasks run, or succeeded once the job is over."""
        return sum(task.exit_code == 0 for task in self.tasks) if self.final else self.alive

    def took_ms(self, now_ms: int) -> int | None:
        """Return how long it ran, or has run so far."""
        if self.started_at_ms is None:
            return None
        return (self.ended_at_ms if self.ended_at_ms is not None else now_ms) - self.started_at_ms

    @property
    def culprit(self) -> str | None:
        """Return the task that decided the job's fate, if one did."""
        named = self.reason.task if self.reason else None
        return named or next((record.culprit for record in reversed(self.records) if record.culprit), None)


class AheadView(msgspec.Struct, kw_only=True):
    """A job that goes first; of other projects only its size is told."""

    job_id: str | None = None
    name: str | None = None
    user: str | None = None
    priority: int = 1
    tasks: int = 1
    cpu_cores: float = 0
    memory_bytes: int = 0
    cards: int = 0


class EstimateView(msgspec.Struct, frozen=True, kw_only=True):
    """When a job starts, as far as the server can tell."""

    earliest_ms: int | None = None
    likely_ms: int | None = None
    latest_ms: int | None = None
    why: str = ""


class PendingView(msgspec.Struct, kw_only=True):
    """What a job waits for."""

    text: str
    code: str = ""
    position: int = 1
    waiting: int = 1
    ahead: list[AheadView] = []
    free: dict[str, float] = {}
    estimate: EstimateView = EstimateView()
    hints: list[str] = []


class ExplainView(msgspec.Struct, kw_only=True):
    """Why a job is where it is."""

    phase: str
    reason: ReasonView | None = None
    pending: PendingView | None = None


class LostView(msgspec.Struct, kw_only=True):
    """What was lost at most."""

    text: str | None = None
    unit: str = ""
    total_unit_ms: float = 0
    by_cause: dict[str, float] = {}
    losses: list[dict[str, Any]] = []


class RecoveryView(msgspec.Struct, kw_only=True):
    """One try to bring a job back."""

    text: str = ""
    level: str = ""
    scenario: str = ""
    result: str = ""
    carried_out: bool = False
    charged: bool = True
    reason: ReasonView | None = None
    task: str | None = None
    started_at_ms: int | None = None
    ended_at_ms: int | None = None
    isolated: dict[str, Any] | None = None
    note: str | None = None


class ExitView(msgspec.Struct, kw_only=True):
    """How one task ended, counted from the first that did."""

    task: str
    exit_code: int | None = None
    signal: int | None = None
    after_first_ms: int | None = None
    stopped_by_us: bool = False


class TaskEndView(TaskView, kw_only=True):
    """One start of one task and what was seen of its end."""

    rank: int = 0
    start: int = 1
    again: bool = False
    stopped_by_us: bool = False
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    oom_kills_before: int | None = None
    oom_kills_after: int | None = None
    host_oom: str | None = None
    traceback: str | None = None
    collective_error: str | None = None
    full: list[dict[str, Any]] = []
    device_faults: list[dict[str, Any]] = []


class AttemptLinks(msgspec.Struct, kw_only=True):
    """Where to read on."""

    attempt: str = ""
    export: str = ""
    metrics: str | None = None
    logs: dict[str, str] = {}


class AttemptView(RecordView, kw_only=True):
    """One attempt; in a list of them, without its exits and tasks."""

    text: str = ""
    placed_at_ms: int | None = None
    started_at_ms: int | None = None
    others: str | None = None
    pattern: str | None = None
    same_cause: list[int] = []
    recover: str | None = None
    recoveries: list[RecoveryView] = []
    lost: LostView | None = None
    job_lost: LostView | None = None
    links: AttemptLinks = msgspec.field(default_factory=AttemptLinks)
    exits: list[ExitView] = []
    tasks: list[TaskEndView] = []

    @property
    def failed(self) -> bool:
        """Say whether it is over for a reason that somebody may want to know more of."""
        return self.ended_at_ms is not None and (self.reason is None or self.reason.code != "completed")


class AttemptsView(msgspec.Struct, kw_only=True):
    """The attempts of a job and what they lost together."""

    attempts: list[AttemptView] = []
    lost: LostView | None = None


class StacksView(msgspec.Struct, kw_only=True):
    """Where the processes of a task stood at one moment."""

    task: str
    attempt: int | None = None
    taken_at_ms: int | None = None
    text: str = ""


class SeriesView(msgspec.Struct, kw_only=True):
    """One metric of one task: [ms, value] pairs, gaps left out."""

    task: str
    metric: str
    card: int | None = None
    labels: dict[str, str] = {}
    points: list[tuple[int, float | None]] = []


def machine(view: msgspec.Struct) -> dict[str, Any]:
    """Return a view for --json: times in UTC ISO, durations in seconds, everything else as it is."""
    shown: dict[str, Any] = _machine(msgspec.to_builtins(view))
    return shown


def _machine(value: Any) -> Any:
    if isinstance(value, list):
        return [_machine(item) for item in value]
    if not isinstance(value, dict):
        return value
    shown: dict[str, Any] = {}
    for key, item in value.items():
        if key.endswith("_at_ms"):
            shown[key.removesuffix("_ms")] = iso(item)
        elif key == "duration_ms":
            shown["duration_seconds"] = None if item is None else item / 1000
        else:
            shown[key] = _machine(item)
    return shown
