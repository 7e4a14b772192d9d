"""Knows which machines a job must have: by their labels, and how close together its tasks must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

# Labels that say where a machine stands.
CABINET = "cabinet"
HYPERINSTANCE = "hyperinstance"
HYPERINSTANCE_GROUP = "hyperinstanceGroup"
SLICE = "slice"
HOSTNAME = "kubernetes.io/hostname"  # a label that every machine has: its name


class Operator(StrEnum):
    """How a label is compared."""

    IN = "in"
    NOT_IN = "not_in"  # true of a machine without the label, too
    EXISTS = "exists"
    ABSENT = "absent"
    ABOVE = "above"  # both are whole numbers
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must be true of one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Say whether labels meet the condition."""
        value = labels.get(self.key)
        if self.operator in (Operator.EXISTS, Operator.ABSENT):
            return (value is not None) is (self.operator is Operator.EXISTS)
        if self.operator in (Operator.IN, Operator.NOT_IN):
            return (value in self.values) is (self.operator is Operator.IN)
        number, limit = _whole(value), _whole(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator is Operator.ABOVE else number < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Where a job's tasks must go, all or nothing. Tasks on one machine are together at every level."""

    terms: tuple[tuple[Condition, ...], ...] = ()  # a machine must meet all conditions of one of these
    within: str | None = None  # all tasks on machines that have this label's value in common
    group_level: str | None = None  # the same for each group of tasks, by rank
    group_size: int = 1  # the last group may be smaller

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Say whether a machine with such labels may be used."""
        return not self.terms or any(all(one.holds(labels) for one in term) for term in self.terms)

    @property
    def grouped(self) -> bool:
        """Say whether groups must be together: one task always is."""
        return self.group_level is not None and self.group_size > 1


def area_of(node_id: str, labels: Mapping[str, str], level: str) -> tuple[int, str]:
    """Return where a machine stands; one without the label stands alone."""
    value = labels.get(level)
    return (1, node_id) if value is None else (0, value)


def all_labels(node_id: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a machine's labels with those that every machine has."""
    return {**labels, HOSTNAME: node_id}


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
