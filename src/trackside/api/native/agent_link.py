"""Knows how a node's agent talks to the server: hello, orders, reports."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from trackside import __version__
from trackside.api import native
from trackside.api.native.node_clocks import NodeClocks, boot_ms
from trackside.api.operation import Call, Operation, Param
from trackside.domain import rules
from trackside.domain.errors import Invalid
from trackside.domain.exchange import Hello, Orders, RefusedReport, Report, ReportAck, ReportBatch
from trackside.domain.job import Job, JobId, NodeId
from trackside.domain.phase import Phase
from trackside.domain.readings import Readings, jobs_of, readings_of, without
from trackside.domain.wording import counted
from trackside.ports import JobStore, Update
from trackside.service.errands import Errands

ORDER_WAIT_SECONDS_MAX = 60.0
DISK_BYTES_MAX = 2**62
GONE_REMEMBERED_MAX = 10_000
PREFIX = f"{native.PREFIX}/agent"

log = logging.getLogger(__name__)


class Nodes(Protocol):
    """What the link needs of the engine."""

    def hello(self, hello: Hello) -> None: ...
    def seen(self, node_id: NodeId) -> None: ...
    async def orders(self, node_id: NodeId, version: int, *, wait_seconds: float) -> Orders: ...
    def changed(self) -> None: ...


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a server tells an agent that says hello."""

    interval_seconds: float


class AgentLink:
    """Answers agents: applies their reports exactly once and hands out their orders."""

    def __init__(
        self,
        *,
        engine: Nodes,
        store: JobStore,
        append_readings: Callable[[list[Readings]], Awaitable[None]],
        wake: Callable[[], None],
        interval_seconds: float,
        errands: Errands,
        boot_ms: Callable[[], int] = boot_ms,
        note_disk: Callable[[NodeId, int, int], None] = lambda *_: None,
    ) -> None:
        self._note_disk = note_disk
        self._errands = errands
        self._engine = engine
        self._store = store
        self._append_readings = append_readings
        self._wake = wake
        self._interval_seconds = interval_seconds
        self._boot_ms = boot_ms
        self._node_clocks = NodeClocks()
        self._gone: set[JobId] = set()
        self.reports_applied = 0

    def operations(self) -> tuple[Operation, ...]:
        """Return the three operations of the link."""
        action = "trackside:agent:report"
        return (
            Operation(
                name="AgentHello",
                method="POST",
                path=f"{PREFIX}/hello",
                action=action,
                handler=self._hello,
                summary="A node's agent introduces itself",
                body=Hello,
                response=Welcome,
            ),
            Operation(
                name="AgentOrders",
                method="GET",
                path=f"{PREFIX}/orders",
                action=action,
                handler=self._orders,
                summary="Wait for a node's orders",
                response=Orders,
                query=(
                    Param(name="node", required=True, max_length=256),
                    Param(name="version", type=int, required=True, minimum=0),
                    Param(name="wait", type=int, minimum=0, maximum=int(ORDER_WAIT_SECONDS_MAX)),
                    Param(name="disk_bytes", type=int, minimum=0, maximum=DISK_BYTES_MAX),
                    Param(name="disk_free_bytes", type=int, minimum=0, maximum=DISK_BYTES_MAX),
                ),
            ),
            Operation(
                name="AgentReports",
                method="POST",
                path=f"{PREFIX}/reports",
                action=action,
                handler=self._reports,
                summary="Take a node's reports; the answer says what is durable",
                body=ReportBatch,
                response=ReportAck,
            ),
        )

    async def _hello(self, call: Call) -> Welcome:
        self._engine.hello(call.body)
        self._wake()
        return Welcome(interval_seconds=self._interval_seconds)

    async def _orders(self, call: Call) -> Orders:
        node = call.query_one("node")
        assert node is not None, "the parameter is required"
        version = int(call.query_one("version") or 0)
        wait = float(call.query_one("wait") or 0)
        disk = call.query_one("disk_bytes"), call.query_one("disk_free_bytes")
        if disk[0] is not None and disk[1] is not None:
            self._note_disk(NodeId(node), int(disk[0]), int(disk[1]))
        return await self._engine.orders(NodeId(node), version, wait_seconds=wait)

    async def _reports(self, call: Call) -> ReportAck:
        batch: ReportBatch = call.body
        if not batch.reports:
            raise Invalid("a batch needs at least one report")
        self._engine.seen(batch.node_id)
        # Samples first: appending one twice changes nothing, so a crash in between is harmless.
        readings = self._wanted(batch)
        if readings:
            await self._append_readings(readings)
        told = _Told(self._errands.told)
        others = self._related(batch)
        if others:  # measurements change no job: that they came need not be noted
            await self._store.apply_reports(batch.node_id, batch.stream, others, told.apply)
        self._hand_on(batch)
        self.reports_applied += len(batch.reports)
        if told.orders:
            self._engine.changed()
        if told.changed:
            self._wake()
        refused = tuple(_refused(report) for report in batch.reports if not report.understood)
        if refused:
            log.warning("%s of node %s: %s", counted(len(refused), "report"), batch.node_id, refused[0].why)
        return ReportAck(through=max(report.seq for report in batch.reports), refused=refused)

    def _hand_on(self, batch: ReportBatch) -> None:
        """Tell who sent a node on errands what came of them."""
        for report in batch.reports:
            if report.answered is not None:
                self._errands.answered(report.answered)
            elif report.ended is not None:
                self._errands.task_ended(report.ended.key)

    def _related(self, batch: ReportBatch) -> list[Report]:
        """Return what changes jobs, with the exits told by the server's clock."""
        now_ms = self._boot_ms()
        if batch.sent_boot_ms is not None:
            self._node_clocks.see(batch.node_id, batch.sent_boot_ms, now_ms)
        others = [report for report in batch.reports if report.measured is None and report.understood]
        return [self._node_clocks.related(batch.node_id, report, now_ms) for report in others]

    def _wanted(self, batch: ReportBatch) -> list[Readings]:
        """Return the readings of jobs that still exist: a deleted job must not come back as numbers."""
        every: list[Readings] = []
        for report in batch.reports:
            if report.measured is not None:
                every += report.measured.readings or readings_of(report.measured.samples)
        jobs = frozenset[JobId]().union(*map(jobs_of, every))
        gone = frozenset(job_id for job_id in jobs if self._is_gone(job_id))
        if not gone:
            return every
        left = [without(readings, gone) for readings in every]
        return [readings for readings in left if readings is not None]

    def _is_gone(self, job_id: JobId) -> bool:
        """Say whether a job was deleted: remembered, for asking the store costs more than taking its samples,
        and a node may have hours of them. Ids are never given twice."""
        if job_id in self._gone:
            return True
        if self._store.get(job_id) is not None:
            return False
        if len(self._gone) >= GONE_REMEMBERED_MAX:
            self._gone.clear()
        self._gone.add(job_id)
        return True


def _refused(report: Report) -> RefusedReport:
    why = (
        f"its kind is not known to this server's version ({__version__}): update the server before its agents"
    )
    return RefusedReport(seq=report.seq, why=why)


class _Told:
    """Applies reports and remembers whether somebody must be woken."""

    def __init__(self, answered_before: Callable[[str], bool]) -> None:
        self._answered_before = answered_before
        self.changed = False
        self.orders = False

    def apply(self, job: Job, report: Report) -> Update | None:
        if report.answered is not None and self._answered_before(report.answered.id):
            return None
        change = rules.apply_report(job, report)
        if change is None:
            return None
        moved, events = change
        self.changed = self.changed or moved is not job
        self.orders = self.orders or (moved.ending is not None and job.ending is None)
        self.orders = self.orders or moved.phase is Phase.RESTARTING
        return Update(job=moved, events=events)
