"""Knows what was decided about a machine, beside what it says of itself: its state and its labels."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trackside.domain.affinity import HOSTNAME
from trackside.domain.errors import Invalid

LABELS_MAX = 64
_KEY = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?\Z")
_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")


class NodeState(StrEnum):
    """What was decided about a machine."""

    OPEN = "open"
    LOCKED = "locked"  # takes nothing new
    DRAINING = "draining"  # takes nothing new, because it is to be emptied


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecision:
    """What somebody decided about a machine."""

    state: NodeState = NodeState.OPEN
    labels: Mapping[str, str] = field(default_factory=dict)
    isolated_cards: frozenset[int] = frozenset()
    why: str = ""  # what was wrong with it, if a fault decided
    emptied_by: str | None = None  # who wants its jobs to leave it; None: they go on to their ends

    def turned(self, state: NodeState, *, emptied_by: str | None = None) -> "NodeDecision":
        """Return the decision with another state; an open machine gives out all its cards again."""
        if emptied_by is not None and state is not NodeState.DRAINING:
            raise Invalid("only a node that is drained can evict its jobs")
        if state is NodeState.OPEN:
            return replace(self, state=state, isolated_cards=frozenset(), why="", emptied_by=None)
        return replace(self, state=state, emptied_by=emptied_by)

    def isolated(self, cards: Collection[int], why: str) -> "NodeDecision":
        """Return the decision that these cards, or with none the machine, take nothing new."""
        state = self.state if cards else NodeState.LOCKED
        return replace(self, state=state, isolated_cards=self.isolated_cards | frozenset(cards), why=why)

    def labelled(self, changes: Mapping[str, str | None]) -> "NodeDecision":
        """Return the decision with labels set, or (None) taken away."""
        merged = {**self.labels, **changes}
        labels = {key: value for key, value in merged.items() if value is not None}
        for key, value in changes.items():
            _check_label(key, value)
        if len(labels) > LABELS_MAX:
            raise Invalid(f"a node has at most {LABELS_MAX} labels")
        return replace(self, labels=labels)


def decision_document(decision: NodeDecision, *, by: str, at_ms: int) -> dict[str, Any]:
    """Return the decision as plain JSON values, with who made it."""
    return {
        "state": decision.state.value,
        "labels": dict(decision.labels),
        "cards": sorted(decision.isolated_cards),
        "why": decision.why,
        "emptied_by": decision.emptied_by,
        "by": by,
        "at_ms": at_ms,
    }


def read_decision(document: Mapping[str, Any]) -> NodeDecision:
    """Return the decision that was written down."""
    return NodeDecision(
        state=NodeState(document["state"]),
        labels=document.get("labels", {}),
        isolated_cards=frozenset(document.get("cards", ())),
        why=document.get("why", ""),
        emptied_by=document.get("emptied_by"),
    )


def _check_label(key: str, value: str | None) -> None:
    if key == HOSTNAME:
        raise Invalid(f"the label {HOSTNAME} is the node's name and cannot be set")
    if not _KEY.match(key):
        raise Invalid(
            f"{key[:64]!r} is not a label: use letters, digits, dots, slashes, hyphens, underscores"
        )
    if value is not None and not _VALUE.match(value):
        raise Invalid(f"the label {key} takes 1 to 63 letters, digits, dots, hyphens and underscores")
