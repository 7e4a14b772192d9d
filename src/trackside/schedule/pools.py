"""Knows one pool: its machines, who holds how much of it, the quotas, and who keeps the lock."""

from collections.abc import Iterable, Iterator

from trackside.domain.job import JobId
from trackside.domain.pool import Pool, QueuePolicy, Quota
from trackside.domain.resources import GIB
from trackside.schedule.place import Ask, fits_empty
from trackside.schedule.queue import Age, Entry, JobQueue, Lane, Shape, total_of
from trackside.schedule.room import MICRO, Need, NodeLog, NodeRoom
from trackside.schedule.values import PRIORITY_MAX, Request

PPM = 1_000_000  # shares are parts per million of the pool
LOOK_AGAIN_MS = 1_000  # what costs a look at many jobs is looked at again after this long at the earliest
KNOWN_SHAPES_MAX = 4096
HISTORY_MAX = 64  # how many ended jobs estimates learn from
_NOTHING = Need(0, 0, 0, 0, None)


class Held:
    """A job that holds room, and where."""

    __slots__ = ("draining", "pool", "request", "shape", "since_ms", "slots")

    def __init__(self, request: Request, shape: Shape, pool: "PoolState", since_ms: int) -> None:
        self.request, self.shape, self.pool, self.since_ms = request, shape, pool, since_ms
        self.slots: dict[int, tuple[NodeRoom, Need, tuple[int, ...]]] = {}  # by rank
        self.draining = False

    @property
    def until_ms(self) -> int | None:
        """Return when it ends at the latest; None: nobody knows."""
        limit = self.request.max_seconds
        return None if limit is None else self.since_ms + limit * 1000

    @property
    def priority(self) -> int:
        """Return its priority."""
        return min(max(self.request.priority, 0), PRIORITY_MAX)

    @property
    def evictable(self) -> bool:
        """Say whether it may be told to make room."""
        return self.request.preemptible and not self.draining


class Claim:
    """Room that is promised to a job while those it replaces drain."""

    __slots__ = ("entry", "nodes", "victims")

    def __init__(self, entry: Entry, nodes: list[NodeRoom], victims: tuple[JobId, ...]) -> None:
        self.entry, self.nodes, self.victims = entry, nodes, victims


class Lock:
    """The head of the queue keeps all room that comes free, until then; None: until it starts."""

    __slots__ = ("hold_ms", "job_id", "until_ms")

    def __init__(self, job_id: JobId, now_ms: int, hold_ms: int | None) -> None:
        self.job_id, self.hold_ms = job_id, hold_ms
        self.until_ms = None if hold_ms is None else now_ms + hold_ms


class PoolState:
    """Everything about one pool that changes."""

    def __init__(self, pool_id: str) -> None:
        self.id = pool_id
        self.pool: Pool | None = None  # None: jobs wait for a pool that does not exist
        self.nodes: list[NodeRoom] = []  # by id
        self.members: dict[NodeRoom, None] = {}  # the same, to ask who belongs to it
        self.queue = JobQueue()
        self.held: dict[JobId, Held] = {}
        self.claims: dict[JobId, Claim] = {}
        self.lock: Lock | None = None
        self.shares: dict[str, int] = {}
        self.evictable = [0] * (PRIORITY_MAX + 1)  # running jobs that may be preempted, by priority
        self.freed = NodeLog()
        self.backfill_due = False
        self.looked_ms = 0  # when backfill was last looked at
        self.ended: list[tuple[int, int | None]] = []  # how long jobs ran, and how long they might have
        self._used: dict[tuple[str, str], list[int]] = {}  # by ("project" or "user", name)
        self._accounts: dict[
            tuple[str, str], tuple[list[int], ...]
        ] = {}  # where a user's job in a project counts
        self._too_large: dict[Ask, bool] = {}
        self._total = _NOTHING
        self._parked: dict[tuple[str, str], list[Lane]] = {}

    @property
    def policy(self) -> QueuePolicy:
        """Return how the queue is worked off."""
        return self.pool.policy if self.pool else QueuePolicy.FIFO

    def set_nodes(self, nodes: Iterable[NodeRoom]) -> None:
        """Take over which machines the pool has, and their sizes."""
        self.nodes = sorted(nodes, key=lambda node: node.id)
        self.members = dict.fromkeys(self.nodes)
        self.queue.index.reset(self.nodes)
        self._too_large.clear()
        self._total = Need(
            sum(node.size.cpu for node in self.nodes),
            sum(node.size.memory for node in self.nodes),
            sum(node.size.cards for node in self.nodes),
            0,
            None,
        )
        for kind, project in list(self._used):
            if kind == "project":
                self._set_share(project)

    def too_large(self, ask: Ask) -> bool:
        """Say whether a gang would not fit even if nobody held anything."""
        known = self._too_large.get(ask)
        if known is None:
            if len(self._too_large) >= KNOWN_SHAPES_MAX:
                self._too_large.clear()
            known = not (self._cap_holds(total_of(ask.roles)) and fits_empty(self.nodes, ask))
            self._too_large[ask] = known
        return known

    def lane_key(self, request: Request, priority: int) -> tuple[str, str, int]:
        """Return which lane of its shape a job stands in."""
        user = request.user if self.quota("user", request.user) else ""
        locks = self.policy is not QueuePolicy.TRAVERSAL
        if self.policy is QueuePolicy.TIERED:
            locks = priority == PRIORITY_MAX
        # Backfill looks for jobs that end in time: those of like limits stand together.
        limit = (request.max_seconds or 0).bit_length() if locks else 0
        return request.project_id, user, limit

    def quota(self, kind: str, name: str) -> Quota | None:
        """Return the quota of a project or a user."""
        if self.pool is None:
            return None
        if kind == "project":
            return self.pool.project_quotas.get(name, self.pool.project_quota)
        return self.pool.user_quotas.get(name, self.pool.user_quota)

    def used(self, kind: str, name: str) -> Need:
        """Return what a project or a user holds, claims among it."""
        used = self._used.get((kind, name))
        return _NOTHING if used is None else Need(used[0], used[1], used[2], 0, None)

    def quota_text(self, request: Request, total: Need) -> str:
        """Say which limit of which quota a job would exceed."""
        kind = self.over_quota(request, total) or "project"
        name = request.project_id if kind == "project" else request.user
        quota = self.quota(kind, name)
        over = None if quota is None else _exceeded(quota, self.used(kind, name), total)
        if over is None:
            return f"the quota of the {kind} {name} in the pool {self.id} is used up"
        limit, holds, needs = over
        return f"the {kind} {name} may hold {limit} in the pool {self.id} and holds {holds}; it needs {needs}"

    def over_quota(self, request: Request, total: Need) -> str | None:
        """Return whose quota the job would exceed: "project", "user", or nobody's."""
        pool = self.pool
        if pool is None or not (
            pool.project_quota or pool.user_quota or pool.project_quotas or pool.user_quotas
        ):
            return None
        for kind, name in (("project", request.project_id), ("user", request.user)):
            quota = self.quota(kind, name)
            if quota is not None and not _within(quota, self.used(kind, name), total):
                return kind
        return None

    def within_cap(self, more: Need = _NOTHING, less: Need = _NOTHING) -> bool:
        """Say whether the pool's jobs would hold no more than its cap with more given, or some given back."""
        used = self.used("pool", "")
        more = Need(more.cpu - less.cpu, more.memory - less.memory, more.cards - less.cards, 0, None)
        return self._cap_holds(more, used)

    def over_cap(self, more: Need) -> tuple[str, str, str] | None:
        """Return the limit of the pool's share that more would exceed, what is in use, and the more."""
        cap = self.pool.cap if self.pool else None
        return None if cap is None else _exceeded(cap, self.used("pool", ""), more)

    @property
    def capped(self) -> bool:
        """Say whether the pool is a share of its machines."""
        return self.pool is not None and self.pool.cap is not None

    def book(self, request: Request, need: Need, times: int = 1) -> None:
        """Count what a job holds for its project, its user and the pool; times -1: holds no longer."""
        cpu, memory, cards = need.cpu * times, need.memory * times, need.cards * times
        for used in self._accounts.get((request.project_id, request.user)) or self._account(request):
            used[0] += cpu
            used[1] += memory
            used[2] += cards
        self._set_share(request.project_id)
        if times < 0 and self._parked:
            self.unpark("project", request.project_id)
            self.unpark("user", request.user)
        if times < 0 and self.capped:  # room under the cap helps on every machine
            for shape in list(self.queue.blocked):
                self.queue.unblock(shape, None)

    def park(self, lane: Lane, kind: str) -> None:
        """Set a lane aside until its project or its user holds less, or (kind "size") the pool is larger."""
        top = lane.top()
        assert top is not None
        lane.parked = kind
        names = {"project": top.request.project_id, "user": top.request.user}
        self._parked.setdefault((kind, names.get(kind, "")), []).append(lane)

    def unpark(self, kind: str, name: str = "") -> None:
        """Let lanes that were set aside be looked at again where that makes sense."""
        for lane in self._parked.pop((kind, name), []):
            top = lane.top()
            if top is None:
                continue
            lane.parked = None
            still = "size" if lane.shape.too_large else self.over_quota(top.request, lane.shape.total)
            if still is not None:
                self.park(lane, still)
            else:
                self.queue.refresh(lane)

    def order_key(self, entry: Entry) -> tuple[int, int, int, Age]:
        """Return where a job stands in the line now: the smallest goes first."""
        share = self.shares.get(entry.request.project_id, 0)
        return -entry.priority, entry.age[0], share, entry.age

    def passed_over(self, entry: Entry) -> bool:
        """Say whether a job changes nothing by coming: it does not fit and nobody minds."""
        tiered = self.policy is QueuePolicy.TIERED and entry.priority < PRIORITY_MAX
        if not entry.shape.blocked or not (tiered or self.policy is QueuePolicy.TRAVERSAL):
            return False
        return not any(self.evictable[: entry.priority])

    def entries(self) -> Iterator[Entry]:
        """Yield every job that waits here."""
        for lane in self.queue.lanes():
            yield from (entry for _, _, entry in lane.entries if entry.lane is lane)
        yield from (claim.entry for claim in self.claims.values())

    def _cap_holds(self, more: Need, used: Need = _NOTHING) -> bool:
        cap = self.pool.cap if self.pool else None
        return cap is None or _within(cap, used, more)

    def _account(self, request: Request) -> tuple[list[int], ...]:
        keys = (("project", str(request.project_id)), ("user", request.user), ("pool", ""))
        found = tuple(self._used.setdefault(key, [0, 0, 0]) for key in keys)
        self._accounts[request.project_id, request.user] = found
        return found

    def _set_share(self, project: str) -> None:
        used, total = self._used[("project", project)], self._total
        share = used[0] * PPM // total.cpu if total.cpu else 0
        if total.memory:
            share = max(share, used[1] * PPM // total.memory)
        self.shares[project] = max(share, used[2] * PPM // total.cards) if total.cards else share


def without(nodes: Iterable[NodeRoom], gone: Iterable[Held]) -> list[NodeRoom]:
    """Return copies of the machines as they are once some jobs have given their room back."""
    scratch = {node.id: node.scratch() for node in nodes}
    for held in gone:
        for node, need, _ in held.slots.values():
            if node.id in scratch:
                scratch[node.id].claim(need, -1)
    return list(scratch.values())


def _within(quota: Quota, used: Need, more: Need) -> bool:
    limits = (
        (quota.cpu_cores, MICRO, used.cpu + more.cpu),
        (quota.memory_bytes, 1, used.memory + more.memory),
        (quota.cards, 1, used.cards + more.cards),
    )
    return all(limit is None or wanted <= round(limit * unit) for limit, unit, wanted in limits)


def _exceeded(quota: Quota, used: Need, more: Need) -> tuple[str, str, str] | None:
    """Return the first limit that would be exceeded, what is used and what is wanted, as people read them."""
    memory = None if quota.memory_bytes is None else quota.memory_bytes / GIB
    rows = (
        ("cards", quota.cards, used.cards, more.cards),
        ("cores", quota.cpu_cores, used.cpu / MICRO, more.cpu / MICRO),
        ("GiB", memory, used.memory / GIB, more.memory / GIB),
    )
    for what, limit, holds, needs in rows:
        if limit is not None and holds + needs > limit + 1e-6:
            return f"{limit:g} {what}", f"{holds:g}", f"{needs:g}"
    return None
