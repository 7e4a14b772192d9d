"""Knows whether a job's affinity could ever be met on empty machines; a refusal says what would fit."""

from collections.abc import Sequence

from trackside.domain.affinity import Affinity, all_labels, area_of
from trackside.domain.errors import Exhausted, Invalid
from trackside.domain.job import JobSpec
from trackside.domain.resources import Capacity, Resources
from trackside.ports import Node

LABELS_SHOWN = 12


def allowed_nodes(spec: JobSpec, nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the machines whose labels a job accepts, or refuse it if there are none."""
    affinity = spec.affinity
    if affinity is None or not affinity.terms or not nodes:
        return nodes
    allowed = [node for node in nodes if affinity.allows(all_labels(node.id, node.labels))]
    if not allowed:
        pairs = sorted({f"{key}={value}" for node in nodes for key, value in node.labels.items()})
        known = ", ".join(pairs[:LABELS_SHOWN]) or "none"
        raise Invalid(f"no machine of the pool has the labels the job asks for; the labels are: {known}")
    return allowed


def check_near(spec: JobSpec, nodes: Sequence[Node]) -> None:
    """Refuse a job whose tasks could never be as close together as it asks, even on empty machines."""
    affinity = spec.affinity
    if affinity is None or not nodes or not (affinity.within or affinity.grouped):
        return
    needs = [role.resources for role in spec.roles for _ in range(role.count)]
    # Large tasks first packs better; what fits as it was asked for fits too.
    large_first = sorted(needs, key=lambda one: (one.cards, one.memory_bytes, one.cpu_cores), reverse=True)
    orders = (needs,) if affinity.grouped else (large_first, needs)
    if not any(_fits(affinity, order, nodes) for order in orders):
        near, largest = _near_text(affinity), _largest(affinity, needs, nodes)
        raise Exhausted(f"{spec.node_count} tasks of this size never fit {near}{largest}")


def _fits(affinity: Affinity, needs: Sequence[Resources], nodes: Sequence[Node]) -> bool:
    size = affinity.group_size if affinity.grouped else len(needs)
    for area in _areas(nodes, affinity.within):
        near = [[n.capacity for n in part] for part in _areas(area, affinity.group_level)]
        near = near if affinity.grouped else [[node.capacity for node in area]]
        groups = (needs[first : first + size] for first in range(0, len(needs), size))
        if all(any(_take(part, group) for part in near) for group in groups):
            return True
    return False


def _take(free: list[Capacity], needs: Sequence[Resources]) -> bool:
    """Take room for tasks from machines, all or nothing."""
    left = list(free)
    for need in needs:
        place = next((i for i, capacity in enumerate(left) if capacity.fits(need)), None)
        if place is None:
            return False
        left[place] = left[place].less(need)
    free[:] = left
    return True


def _areas(nodes: Sequence[Node], level: str | None) -> list[list[Node]]:
    if level is None:
        return [list(nodes)]
    found: dict[tuple[int, str], list[Node]] = {}
    for node in nodes:
        found.setdefault(area_of(node.id, node.labels, level), []).append(node)
    return list(found.values())


def _largest(affinity: Affinity, needs: Sequence[Resources], nodes: Sequence[Node]) -> str:
    """Say how many tasks would fit, where all are alike."""
    unlabelled = [
        level for level in (affinity.within, affinity.group_level) if level and not _known(nodes, level)
    ]
    hint = f"; no machine has the label {unlabelled[0]}, so each stands alone" if unlabelled else ""
    if any(need != needs[0] for need in needs):
        return hint
    low, high = 0, len(needs) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(affinity, needs[:middle], nodes) else (low, middle - 1)
    return f"; the largest that fits has {low} of these tasks{hint}"


def _known(nodes: Sequence[Node], level: str) -> bool:
    return any(level in node.labels for node in nodes)


def _near_text(affinity: Affinity) -> str:
    whole = f"into one {affinity.within}" if affinity.within else ""
    groups = (
        f"in groups of {affinity.group_size}, each in one {affinity.group_level}" if affinity.grouped else ""
    )
    return f"{groups}{', all ' if groups and whole else ''}{whole}"
