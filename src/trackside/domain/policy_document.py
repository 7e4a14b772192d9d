"""Knows how a policy is written down: in the vendors' own form, and what is wrong with one that is not.

{"Version": "1", "Statement": [{"Sid": …, "Effect": "Allow", "Action": […], "Resource": […],
"Condition": {"StringEquals": {"g:ResourceTag/team": ["a"]}}}]}. One text may stand for a list of one.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trackside.domain.errors import Invalid
from trackside.domain.policy import (
    ANYTHING,
    CALLER_KEYS,
    OWN_KEY,
    RESOURCE_KEYS,
    TAG_KEY,
    Condition,
    Effect,
    Operator,
    Policy,
    Statement,
)

VERSION = "1"
STATEMENTS_MAX = 100
ITEMS_MAX = 200  # actions, resources or values of one list
TEXT_LENGTH_MAX = 256
RESOURCE_KINDS = ("trainJob:", "pool:")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_ACTION = re.compile(r"\*|[A-Za-z*]+:[A-Za-z0-9:*]+")
_DOCUMENT_FIELDS = ("Version", "Statement")
_STATEMENT_FIELDS = ("Sid", "Effect", "Action", "Resource", "Condition")
_BOOLS = ("true", "false")


def read_policy(name: str, document: Any) -> Policy:
    """Return the policy a document describes, or say what is wrong with it and where."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"{name[:80]!r} is not a policy name: use up to 64 letters, digits, dots, - and _")
    _check_fields(document, _DOCUMENT_FIELDS, "the policy")
    told = document.get("Statement")
    statements = told if isinstance(told, list) else [told]
    if not told or len(statements) > STATEMENTS_MAX:
        raise Invalid(f"Statement: a policy has 1 to {STATEMENTS_MAX} statements")
    return Policy(
        name=name,
        statements=tuple(_statement(one, f"Statement[{index}]") for index, one in enumerate(statements)),
    )


def write_policy(policy: Policy) -> dict[str, Any]:
    """Return a policy as a document that reads back the same."""
    return {"Version": VERSION, "Statement": [_written(one) for one in policy.statements]}


def _statement(told: Any, place: str) -> Statement:
    _check_fields(told, _STATEMENT_FIELDS, place)
    effect = told.get("Effect")
    if effect not in tuple(Effect):
        raise Invalid(f"{place}.Effect: it is Allow or Deny, not {_shown(effect)}")
    sid = told.get("Sid", "")
    if not isinstance(sid, str) or len(sid) > TEXT_LENGTH_MAX:
        raise Invalid(f"{place}.Sid: a text of at most {TEXT_LENGTH_MAX} characters is expected")
    actions = _texts(told.get("Action"), f"{place}.Action")
    for action in actions:
        if not _ACTION.fullmatch(action):
            raise Invalid(f"{place}.Action: {action!r} is not an action such as modelarts:trainJob:get")
    resources = _texts(told.get("Resource", ANYTHING), f"{place}.Resource")
    for resource in resources:
        if resource != ANYTHING and not resource.startswith(RESOURCE_KINDS):
            raise Invalid(f"{place}.Resource: {resource!r} is not *, trainJob:… or pool:…")
    conditions = tuple(_conditions(told.get("Condition") or {}, f"{place}.Condition"))
    return Statement(
        effect=Effect(effect), actions=actions, resources=resources, conditions=conditions, sid=sid
    )


def _conditions(told: Any, place: str) -> Iterator[Condition]:
    _check_fields(told, tuple(Operator), place)
    for operator, keys in told.items():
        if not isinstance(keys, Mapping):
            raise Invalid(f"{place}.{operator}: keys with their values are expected")
        for key, values in keys.items():
            where = f"{place}.{operator}.{key}"
            yield _condition(Operator(operator), _known_key(key, where), values, where)


def _condition(operator: Operator, key: str, told: Any, place: str) -> Condition:
    values = _texts(_as_texts(told), place)
    if operator is Operator.BOOL:
        values = tuple(value.lower() for value in values)
        if not set(values) <= set(_BOOLS):
            raise Invalid(f"{place}: Bool takes true or false")
    if (operator is Operator.BOOL) is not (key == OWN_KEY):
        raise Invalid(f"{place}: {OWN_KEY} goes with Bool, and nothing else does")
    return Condition(operator=operator, key=key, values=values)


def _known_key(key: Any, place: str) -> str:
    """Return the key as it is spelt here; a tag's own key counts as it is."""
    for known in (*RESOURCE_KEYS, *CALLER_KEYS):
        if known == TAG_KEY:
            if str(key).lower().startswith(TAG_KEY.lower()) and len(key) > len(TAG_KEY):
                return TAG_KEY + str(key)[len(TAG_KEY) :]
        elif str(key).lower() == known.lower():
            return known
    names = ", ".join((f"{TAG_KEY}KEY", *RESOURCE_KEYS[1:], *CALLER_KEYS))
    raise Invalid(f"{place}: this key is not known here; there are {names}")


def _texts(told: Any, place: str) -> tuple[str, ...]:
    items = [told] if isinstance(told, str) else told
    if not isinstance(items, list | tuple) or not items or len(items) > ITEMS_MAX:
        raise Invalid(f"{place}: a text or a list of 1 to {ITEMS_MAX} texts is expected")
    for item in items:
        if not isinstance(item, str) or not item or len(item) > TEXT_LENGTH_MAX:
            raise Invalid(f"{place}: {_shown(item)} is not a text of 1 to {TEXT_LENGTH_MAX} characters")
    return tuple(items)


def _as_texts(told: Any) -> Any:
    if isinstance(told, bool):
        return str(told).lower()
    return [_as_texts(one) for one in told] if isinstance(told, list) else told


def _check_fields(told: Any, known: tuple[str, ...], place: str) -> None:
    if not isinstance(told, Mapping):
        raise Invalid(f"{place}: an object with {', '.join(known)} is expected")
    for name in told:
        if name not in known:
            raise Invalid(f"{place}: {_shown(name)} is not known here; there are {', '.join(known)}")


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _written(statement: Statement) -> dict[str, Any]:
    conditions: dict[str, dict[str, list[str]]] = {}
    for one in statement.conditions:
        conditions.setdefault(str(one.operator), {})[one.key] = list(one.values)
    return {
        **({"Sid": statement.sid} if statement.sid else {}),
        "Effect": str(statement.effect),
        "Action": list(statement.actions),
        "Resource": list(statement.resources),
        **({"Condition": conditions} if conditions else {}),
    }
