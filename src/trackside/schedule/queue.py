"""Knows the order in which the jobs of one pool wait: by priority, fairness between projects, and age.

Jobs that ask for the same are of one shape. A shape that does not fit is blocked, and all its jobs with it,
until room comes back where one of its tasks fits: nothing ever looks at all waiting jobs. The jobs of a shape
stand in lanes, one per priority and project, because a project's share decides which lane is next.
"""

import heapq
from collections.abc import Iterable, Iterator

from trackside.schedule.fit import Roles
from trackside.schedule.index import NodeIndex
from trackside.schedule.place import Ask, ask_of
from trackside.schedule.room import Need, NodeRoom
from trackside.schedule.values import PRIORITY_MAX, Request

PRIORITIES = range(PRIORITY_MAX, -1, -1)  # the highest first
FOREVER_MS = 2**62
SHARE_MAX = 2**62
Age = tuple[int, int, int, str]  # preempted ones first, then by creation


class Entry:
    """One waiting job."""

    __slots__ = ("age", "evict_seen", "evict_tried_ms", "lane", "priority", "request", "shape")

    def __init__(self, request: Request, shape: "Shape") -> None:
        self.request = request
        self.shape = shape
        self.priority = min(max(request.priority, 0), PRIORITY_MAX)
        self.age: Age = (0 if request.front else 1, request.created_at_ms, request.number, request.job_id)
        self.lane: Lane | None = None  # None: it does not stand in the queue any more
        self.evict_seen: int | None = (
            None  # nobody could make room for it: up to there in the log of freed room,
        )
        self.evict_tried_ms = 0  # at that time


class Shape:
    """What some jobs ask for alike."""

    __slots__ = (
        "ask",
        "blocked",
        "hints",
        "kind",
        "lanes",
        "least",
        "needs",
        "roles",
        "single",
        "too_large",
        "total",
        "waiting",
    )

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.roles = roles = ask.roles
        self.total = total_of(roles)
        self.needs = tuple(need for need, count in roles for _ in range(count))  # by rank
        smallest = min((need for need, _ in roles), key=lambda need: need.cards)
        self.kind = smallest.kind
        self.least = (  # a machine with less of any of these takes none of its tasks
            smallest.cards,
            min(need.cpu for need, _ in roles),
            min(need.memory for need, _ in roles),
            self.total.cards if len(roles) == 1 else 0,  # on all machines together
        )
        self.single = (
            self.needs[0] if len(self.needs) == 1 and ask.where is None else None
        )  # the need of its only task, if that may go anywhere
        self.lanes: list[dict[tuple[str, str, int], Lane]] = [{} for _ in PRIORITIES]
        self.waiting = 0
        self.blocked = False
        self.too_large = False
        self.hints: dict[NodeRoom, None] | None = None  # the only machines where it can fit; None: not known


class Lane:
    """Jobs of one shape, priority and project (and, where it has a quota, user), by age."""

    __slots__ = ("entries", "key", "least_ms", "parked", "priority", "project", "shape")

    def __init__(self, shape: Shape, priority: int, key: tuple[str, str, int]) -> None:
        self.shape, self.priority, self.key = shape, priority, key
        self.project, _, limit_bits = key
        self.least_ms = (
            1000 << (limit_bits - 1) if limit_bits else FOREVER_MS
        )  # none of its limits is shorter
        self.entries: list[tuple[Age, int, Entry]] = []
        self.parked: str | None = None  # which quota it would exceed: "project" or "user"

    def top(self) -> Entry | None:
        """Return the oldest job that still stands here."""
        entries = self.entries
        while entries and entries[0][2].lane is not self:
            heapq.heappop(entries)
        return entries[0][2] if entries else None


class JobQueue:
    """The waiting jobs of a pool."""

    def __init__(self) -> None:
        self.shapes: dict[Ask, Shape] = {}
        self.open: dict[Shape, None] = {}  # shapes with waiting jobs that may fit
        self.blocked: dict[Shape, None] = {}  # shapes with waiting jobs that do not fit now
        self._fronts: list[dict[str, list[tuple[Age, int, Lane]]]] = [{} for _ in PRIORITIES]
        self.index = NodeIndex()
        self.preempted = 0  # how many wait that were preempted: they go before fairness
        self._pushed = 0  # sets equal rows of the heaps apart

    def shape_of(self, request: Request) -> Shape:
        """Return the shape of a request, the same object for the same needs."""
        ask = ask_of(request)
        return self.shapes.get(ask) or Shape(ask)

    def push(self, entry: Entry, key: tuple[str, str, int]) -> None:
        """Let a job stand in the lane of that key."""
        shape = entry.shape
        if shape.waiting == 0:
            self.shapes[shape.ask] = shape
            (self.blocked if shape.blocked else self.open)[shape] = None
        shape.waiting += 1
        self.preempted += entry.request.front
        lane = shape.lanes[entry.priority].get(key)
        if lane is None:
            lane = shape.lanes[entry.priority][key] = Lane(shape, entry.priority, key)
        entry.lane = lane
        self._pushed += 1
        heapq.heappush(lane.entries, (entry.age, self._pushed, entry))
        if lane.top() is entry:
            self.refresh(lane)

    def drop(self, entry: Entry) -> None:
        """Take a job out of the queue."""
        lane, shape = entry.lane, entry.shape
        assert lane is not None
        entry.lane = None
        shape.waiting -= 1
        self.preempted -= entry.request.front
        if lane.top() is None:
            del shape.lanes[lane.priority][lane.key]
        else:
            self.refresh(lane)
        if shape.waiting == 0:
            del self.shapes[shape.ask]
            self.open.pop(shape, None)
            self.blocked.pop(shape, None)
            shape.blocked, shape.hints = False, None

    def refresh(self, lane: Lane) -> None:
        """Let a lane whose first job changed, or that may start again, be found."""
        top = lane.top()
        if top is not None and lane.parked is None:
            front = self._fronts[lane.priority].setdefault(lane.project, [])
            _first(front)  # keeps what is out of date from piling up
            self._pushed += 1
            heapq.heappush(front, (top.age, self._pushed, lane))

    def head(self, shares: dict[str, int], priority: int) -> Entry | None:
        """Return the first job of a priority that is not set aside: the least served project's oldest."""
        found: tuple[int, int, Age] | None = None
        entry: Entry | None = None
        gone = []
        for project, front in self._fronts[priority].items():
            top: Entry | None = None
            if front:
                age, _, lane = front[0]
                if lane.parked is None and lane.entries:
                    top = lane.entries[0][2]
                    if top.age is not age or top.lane is not lane:  # the row may be out of date
                        top = None
            if top is None and (top := _first(front)) is None:
                gone.append(project)
                continue
            key = (top.age[0], shares.get(project, 0), top.age)
            if found is None or key < found:
                found, entry = key, top
        for project in gone:
            del self._fronts[priority][project]
        return entry

    def first(self, shares: dict[str, int], priority: int) -> Entry | None:
        """Return what in_order would yield first, for less; nobody who was preempted may wait."""
        found: Entry | None = None
        least = SHARE_MAX
        for shape in self.open:
            for lane in shape.lanes[priority].values():
                share = shares.get(lane.project, 0)
                if share > least or lane.parked:
                    continue
                oldest = lane.entries[0][2]  # a lane is never empty, but its first row may be out of date
                top = oldest if oldest.lane is lane else lane.top()
                if top is not None and (found is None or share < least or top.age < found.age):
                    found, least = top, share
        return found

    def in_order(
        self, shares: dict[str, int], priority: int, budget_ms: int | None = None
    ) -> Iterator[Entry]:
        """Yield the jobs of a priority whose shape may fit (and that end within the budget), in order.

        Between two of them the caller starts the job, sets its lane aside or blocks its shape: shares only
        grow meanwhile, so that a row of the heap is never better than it says.
        """
        rows: list[tuple[tuple[int, int, Age], Lane]] = []
        for shape in self.open:
            for lane in shape.lanes[priority].values():
                if lane.parked or (budget_ms is not None and lane.least_ms > budget_ms):
                    continue
                first = lane.entries[0][2]  # a lane is never empty, but its first row may be out of date
                top = first if first.lane is lane else lane.top()
                if top is not None:
                    age = top.age
                    rows.append(((age[0], shares.get(lane.project, 0), age), lane))
        heapq.heapify(rows)
        while rows:
            key, lane = rows[0]
            top = lane.top()
            if top is None or lane.parked or lane.shape.blocked or not _ends_within(top, budget_ms):
                heapq.heappop(rows)
                continue
            current = _key(top, shares)
            if current == key:
                yield top
                if not self.open:
                    return
            else:
                heapq.heapreplace(rows, (current, lane))

    def prune(self, taken: Iterable[NodeRoom]) -> None:
        """Block the shapes of single tasks that might have fitted only where room was taken now."""
        for node in taken:
            for shape in [shape for shape in self.open if shape.hints is not None and node in shape.hints]:
                hints, need = shape.hints, shape.single
                if hints is not None and need is not None and not any(one.fits(need) for one in hints):
                    self.block(shape)

    def has_limited(self) -> bool:
        """Say whether a job with a limit, of a shape that may fit, waits."""
        return any(
            lane.least_ms < FOREVER_MS and not lane.parked
            for shape in self.open
            for level in shape.lanes
            for lane in level.values()
        )

    def may_fit(self, shape: Shape, node: NodeRoom | None = None) -> bool:
        """Say whether a shape may fit, now that a machine has more room; no means no."""
        if shape.single is not None:
            return node is None or node.fits(shape.single)
        if node is not None and shape.ask.where is not None and not shape.ask.where.allows(node):
            return False
        if len(shape.roles) > 1:
            return node is None or any(node.fits(need) for need, _ in shape.roles)
        need, count = shape.roles[0]
        if shape.total.cards > self.index.free_cards[need.kind]:
            return False
        if node is not None and not node.fits(need):
            return False
        return self.index.places(need) >= count

    def block(self, shape: Shape) -> None:
        """Take note that a shape does not fit."""
        shape.blocked, shape.hints = True, None
        self.open.pop(shape, None)
        self.blocked[shape] = None

    def unblock(self, shape: Shape, node: NodeRoom | None) -> None:
        """Take note that a shape may fit again; with a machine: there only."""
        if shape.blocked:
            shape.blocked, shape.hints = False, {} if node is not None else None
            self.blocked.pop(shape, None)
            self.open[shape] = None
        if node is None:
            shape.hints = None
        elif shape.hints is not None:
            shape.hints[node] = None

    def freed(self, node: NodeRoom) -> None:
        """Unblock the shapes of which a task fits on a machine that has more room than before."""
        free, cpu, memory, in_all = node.cards, node.cpu, node.memory, self.index.free_cards
        fitting = []
        for shape in self.blocked:  # the cheap checks first: this is done whenever a task ends
            kind, (cards, cores, size, gang_cards) = shape.kind, shape.least
            if cards > free[kind] or cores > cpu or size > memory or gang_cards > in_all[kind]:
                continue
            if self.may_fit(shape, node):
                fitting.append(shape)
        for shape in fitting:
            self.unblock(shape, node)
        for shape in self.open:
            if shape.hints is not None:
                shape.hints[node] = None

    def lanes(self) -> Iterator[Lane]:
        """Yield every lane."""
        for shape in self.shapes.values():
            for level in shape.lanes:
                yield from level.values()


def total_of(roles: Roles) -> Need:
    """Return what all tasks need together; cards of both kinds count alike."""
    return Need(
        sum(need.cpu * count for need, count in roles),
        sum(need.memory * count for need, count in roles),
        sum(need.cards * count for need, count in roles),
        0,
        None,
    )


def _key(entry: Entry, shares: dict[str, int]) -> tuple[int, int, Age]:
    return entry.age[0], shares.get(entry.request.project_id, 0), entry.age


def _ends_within(entry: Entry, budget_ms: int | None) -> bool:
    limit = entry.request.max_seconds
    return budget_ms is None or (limit is not None and limit * 1000 <= budget_ms)


def _first(front: list[tuple[Age, int, Lane]]) -> Entry | None:
    while front:
        age, _, lane = front[0]
        top = lane.top() if lane.parked is None else None
        if top is not None and top.age == age:
            return top
        heapq.heappop(front)
    return None
