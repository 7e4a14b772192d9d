"""Knows identity policies: what a caller may do to which thing, and which statement says so.

`decide` is the only place where that is decided. A statement that denies wins over all that allow, and what
no statement allows is denied. Actions match in any case, everything else exactly; `*` stands for any text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

ANYTHING = "*"
TAG_KEY = "g:ResourceTag/"  # followed by the tag's own key
USER_NAME_KEY = "g:UserName"
POOL_TYPE_KEY = "modelarts:poolType"
POOL_ID_KEY = "modelarts:poolId"
OWN_KEY = "trackside:own"  # whether the caller submitted the job
RESOURCE_KEYS = (TAG_KEY, POOL_TYPE_KEY, POOL_ID_KEY, OWN_KEY)
CALLER_KEYS = (USER_NAME_KEY,)


class Effect(StrEnum):
    """What a statement does."""

    ALLOW = "Allow"
    DENY = "Deny"


class Operator(StrEnum):
    """How a condition compares. With several values, one must match; for the Not ones, none may."""

    STRING_EQUALS = "StringEquals"
    STRING_NOT_EQUALS = "StringNotEquals"
    STRING_LIKE = "StringLike"
    STRING_NOT_LIKE = "StringNotLike"
    BOOL = "Bool"


# The value is None where the thing has no such attribute: then only the Not operators hold.
_HOLDS: dict[Operator, Callable[[str | None, tuple[str, ...]], bool]] = {
    Operator.STRING_EQUALS: lambda value, wanted: value in wanted,
    Operator.STRING_NOT_EQUALS: lambda value, wanted: value not in wanted,
    Operator.STRING_LIKE: lambda value, wanted: value is not None and like_any(wanted, value),
    Operator.STRING_NOT_LIKE: lambda value, wanted: value is None or not like_any(wanted, value),
    Operator.BOOL: lambda value, wanted: value in wanted,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Hold a statement to what the caller or the thing is like."""

    operator: Operator
    key: str
    values: tuple[str, ...]

    @property
    def about_thing(self) -> bool:
        """Say whether it can be checked only where the thing is known."""
        return self.key not in CALLER_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Allow or deny some actions, on some things, under some conditions; all of them must hold."""

    effect: Effect
    actions: tuple[str, ...]
    resources: tuple[str, ...] = (ANYTHING,)
    conditions: tuple[Condition, ...] = ()
    sid: str = ""

    @property
    def about_thing(self) -> bool:
        """Say whether it depends on which thing is asked for."""
        return ANYTHING not in self.resources or any(one.about_thing for one in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A named list of statements."""

    name: str
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """The one thing a call is about: all it is called by, and its attributes by condition key."""

    names: tuple[str, ...]  # "trainJob:ID", "trainJob:NAME", "pool:ID"
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether it is allowed, and the statement that says so; without one nothing allowed it."""

    allowed: bool
    policy: str | None = None
    statement: int | None = None  # counted from 1
    sid: str = ""

    @property
    def text(self) -> str:
        """Return the decision as half a sentence."""
        if self.policy is None:
            return "no statement allows it"
        named = (
            f"statement {self.statement}{f' ({self.sid})' if self.sid else ''} of the policy {self.policy}"
        )
        return f"{named} {'allows' if self.allowed else 'denies'} it"


class Row(NamedTuple):
    """A statement and where it stands."""

    policy: str
    number: int  # counted from 1
    statement: Statement


def decide(policies: Iterable[Policy], action: str, *, user: str, thing: Thing | None) -> Decision:
    """Decide one question. `thing` is None where a call is about no single thing that is known.

    Then a statement that depends on the thing cannot allow, because it might not hold, and denies, because
    it might.
    """
    return _decide(_rows_about(policies, action), user, thing)


class Book:
    """The policies of one caller, with what they say of an action remembered where that never varies."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = tuple(policies)
        self._settled: dict[str, Decision] = {}
        self._rows: dict[str, tuple[Row, ...]] = {}

    def decide(self, action: str, *, user: str, look: Callable[[], Thing | None]) -> Decision:
        """Decide one question; `look` finds the thing and is called only if it matters.

        Both memories hold one entry per action asked for: ask only for actions of operations.
        """
        settled = self._settled.get(action)
        if settled is not None:
            return settled
        rows = self._rows.get(action)
        if rows is None:
            rows = self._rows[action] = _rows_about(self.policies, action)
        if any(row.statement.conditions or row.statement.about_thing for row in rows):
            return _decide(rows, user, look())
        decision = self._settled[action] = _decide(rows, user, None)
        return decision


def like(pattern: str, text: str) -> bool:
    """Say whether a text matches a pattern in which `*` stands for any text. Takes linear time."""
    first, *rest = pattern.split(ANYTHING)
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first) or len(text) < len(first) + len(last) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def like_any(patterns: Iterable[str], text: str) -> bool:
    """Say whether a text matches one of some patterns."""
    return any(like(pattern, text) for pattern in patterns)


def _rows_about(policies: Iterable[Policy], action: str) -> tuple[Row, ...]:
    wanted = action.lower()
    return tuple(
        Row(policy.name, number, statement)
        for policy in policies
        for number, statement in enumerate(policy.statements, start=1)
        if any(like(pattern.lower(), wanted) for pattern in statement.actions)
    )


def _decide(rows: Iterable[Row], user: str, thing: Thing | None) -> Decision:
    allowing: Decision | None = None
    for row in rows:
        if not _applies(row.statement, user, thing):
            continue
        allowed = row.statement.effect is Effect.ALLOW
        decision = Decision(allowed=allowed, policy=row.policy, statement=row.number, sid=row.statement.sid)
        if not allowed:
            return decision
        allowing = allowing or decision
    return allowing or Decision(allowed=False)


def _applies(statement: Statement, user: str, thing: Thing | None) -> bool:
    caller = {USER_NAME_KEY: user}
    if not all(_holds(one, caller) for one in statement.conditions if not one.about_thing):
        return False
    if not statement.about_thing:
        return True
    if thing is None:
        return statement.effect is Effect.DENY
    if ANYTHING not in statement.resources and not any(
        like_any(statement.resources, name) for name in thing.names
    ):
        return False
    return all(_holds(one, thing.attributes) for one in statement.conditions if one.about_thing)


def _holds(condition: Condition, attributes: Mapping[str, str]) -> bool:
    return _HOLDS[condition.operator](attributes.get(condition.key), condition.values)
