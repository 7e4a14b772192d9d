"""Knows the four queue policies: who is looked at next, and what one that does not fit does to the others."""

from trackside.domain.pool import QueuePolicy
from trackside.schedule.backfill import latest_start_ms
from trackside.schedule.bookkeeping import Books
from trackside.schedule.evict import plan_eviction
from trackside.schedule.fit import best
from trackside.schedule.place import place
from trackside.schedule.pools import LOOK_AGAIN_MS, Lock, PoolState
from trackside.schedule.queue import PRIORITIES, Entry
from trackside.schedule.room import Need, NodeRoom
from trackside.schedule.values import PRIORITY_MAX, Decision, Preempt, Start

HINTS_FEW = 8  # with more machines to try, the index is quicker


def run_pass(books: Books, pool: PoolState, decisions: list[Decision]) -> None:
    """Start what can start in a pool now, by its policy."""
    if pool.pool is None:
        return
    _start_claimed(books, pool, decisions)
    if pool.policy is QueuePolicy.TRAVERSAL:
        _traverse(books, pool, decisions)
    elif pool.policy is QueuePolicy.TIERED:
        if _head_first(books, pool, decisions, (PRIORITY_MAX,)):
            _traverse(books, pool, decisions)
    else:
        _head_first(books, pool, decisions, PRIORITIES)


def _head_first(
    books: Books, pool: PoolState, decisions: list[Decision], priorities: range | tuple[int, ...]
) -> bool:
    """Start jobs in order until one does not fit: it takes the lock. Say whether nobody holds it."""
    while True:
        head = _head(pool, priorities)
        if head is None:
            pool.lock = None
            return True
        if _set_aside(pool, head) or _start(books, pool, head, decisions):
            continue
        if not _evict(books, pool, head, decisions):
            break
    now, lock = books.now_ms, pool.lock
    assert pool.pool is not None
    hold_ms = None if pool.policy is QueuePolicy.FIFO else pool.pool.lock_seconds * 1000
    if lock is None or lock.job_id != head.request.job_id:
        pool.lock = Lock(head.request.job_id, now, hold_ms)
    elif lock.hold_ms is not None and lock.until_ms is not None and now >= lock.until_ms:
        _traverse(books, pool, decisions)
        # Twice as long each time: however long others run, the head's turn comes.
        pool.lock = Lock(head.request.job_id, now, lock.hold_ms * 2)
    if pool.backfill_due and pool.looked_ms + LOOK_AGAIN_MS <= now:
        _backfill(books, pool, head, decisions)
    return False


def _traverse(books: Books, pool: PoolState, decisions: list[Decision]) -> None:
    """Start everything that fits, in the order of the queue."""
    _fill(books, pool, decisions, None)
    for priority in PRIORITIES:
        if not any(pool.evictable[:priority]):
            break
        while (head := pool.queue.head(pool.shares, priority)) is not None:
            if not _set_aside(pool, head) and not _evict(books, pool, head, decisions):
                break
    pool.backfill_due = False


def _head(pool: PoolState, priorities: range | tuple[int, ...]) -> Entry | None:
    for priority in priorities:
        head = pool.queue.head(pool.shares, priority)
        if head is not None:
            return head
    return None


def _set_aside(pool: PoolState, entry: Entry) -> bool:
    """Set a job aside that no room would help: it blocks nobody."""
    kind = "size" if entry.shape.too_large else pool.over_quota(entry.request, entry.shape.total)
    if kind is None:
        return False
    assert entry.lane is not None
    pool.park(entry.lane, kind)
    return True


def _start(books: Books, pool: PoolState, entry: Entry, decisions: list[Decision]) -> bool:
    if entry.shape.blocked:
        return False
    fits_cap = not pool.capped or pool.within_cap(entry.shape.total)
    nodes = _room_for(pool, entry) if fits_cap else None
    if nodes is None:
        pool.queue.block(entry.shape)
        return False
    decisions.append(Start(entry.request.job_id, books.start(pool, entry, nodes)))
    return True


def _room_for(pool: PoolState, entry: Entry) -> list[NodeRoom] | None:
    shape = entry.shape
    if shape.single is not None:
        index, hints = pool.queue.index, shape.hints
        few = hints is not None and len(hints) <= HINTS_FEW
        one = best(hints, shape.single) if hints is not None and few else index.best(shape.single)
        return None if one is None else [one]
    return _gang_room(pool, entry) if pool.queue.may_fit(shape) else None


def _evict(books: Books, pool: PoolState, entry: Entry, decisions: list[Decision]) -> bool:
    """Make others give way; the job then has a promise and stands in the queue no longer."""
    plan = plan_eviction(pool, entry, books.now_ms) if entry.request.evicts else None
    if plan is None:
        if entry.evict_seen is None or books.now_ms >= entry.evict_tried_ms + LOOK_AGAIN_MS:
            entry.evict_tried_ms = books.now_ms
        entry.evict_seen = pool.freed.mark
        return False
    victims, nodes = plan
    books.claim(pool, entry, nodes, victims)
    decisions += [Preempt(held.request.job_id, entry.request.job_id) for held in victims]
    return True


def _start_claimed(books: Books, pool: PoolState, decisions: list[Decision]) -> None:
    """Start those whose promised room has drained, or who fit elsewhere by now."""
    for claim in list(pool.claims.values()):
        entry = claim.entry
        if not pool.within_cap():  # its own claim is counted, and those it replaces have not drained yet
            continue
        nodes = claim.nodes if _drained(claim.nodes, entry) else _gang_room(pool, entry)
        if nodes is not None:
            books.unclaim(pool, claim)
            decisions.append(Start(entry.request.job_id, books.start(pool, entry, nodes)))


def _drained(nodes: list[NodeRoom], entry: Entry) -> bool:
    """Say whether nobody holds what was promised."""
    needs: dict[NodeRoom, list[Need]] = {}
    for node, need in zip(nodes, entry.shape.needs, strict=True):
        needs.setdefault(node, []).append(need)
    return all(node.has_free(wanted) for node, wanted in needs.items())


def _gang_room(pool: PoolState, entry: Entry) -> list[NodeRoom] | None:
    nodes = place(pool.nodes, entry.shape.ask)
    if nodes is not None:
        for node, need in zip(nodes, entry.shape.needs, strict=True):
            node.claim(need, -1)  # it is held for good in a moment
    return nodes


def _backfill(books: Books, pool: PoolState, head: Entry, decisions: list[Decision]) -> None:
    """Start jobs behind the head that have ended before it can start at the latest."""
    pool.backfill_due, pool.looked_ms = False, books.now_ms
    if not pool.queue.has_limited():
        return
    latest = latest_start_ms(pool, head.shape.ask, books.now_ms)
    if latest is not None:
        _fill(books, pool, decisions, latest - books.now_ms)


def _fill(books: Books, pool: PoolState, decisions: list[Decision], budget_ms: int | None) -> None:
    queue = pool.queue
    quick = budget_ms is None and not queue.preempted
    for priority in PRIORITIES:
        # Most of the time there is room for one: only if there is more, everybody is put in order.
        first = queue.first(pool.shares, priority) if quick else None
        if first is not None:
            _try(books, pool, first, decisions)
        if not queue.open or (quick and first is None):
            continue
        for entry in queue.in_order(pool.shares, priority, budget_ms):
            _try(books, pool, entry, decisions)


def _try(books: Books, pool: PoolState, entry: Entry, decisions: list[Decision]) -> None:
    if not _set_aside(pool, entry) and _start(books, pool, entry, decisions):
        pool.queue.prune(node for node, _, _ in pool.held[entry.request.job_id].slots.values())
