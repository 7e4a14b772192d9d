"""Knows what a search of training jobs means: its keys, operators and order. Refuses what it cannot do."""

from collections.abc import Callable
from typing import Any

from trackside.api.modelarts_v2.checks import one_of, parse_time_ms
from trackside.api.modelarts_v2.phases import PHASES_CALLED
from trackside.api.modelarts_v2.wire_request import (
    FILTER_KEYS,
    FILTER_OPERATORS,
    ORDERS,
    PAGE_MAX,
    SORT_KEYS,
    TRAIN_TYPES,
    Filter,
    JobSearchBody,
)
from trackside.domain.errors import Invalid
from trackside.domain.identity import Caller
from trackside.domain.phase import Phase
from trackside.ports import JobQuery

DEFAULT_WORKSPACE = "0"

SORT_COLUMN_OF = {
    "create_time": "created_at",
    "name": "name",
    "phase": "phase",
    "status": "phase",
    "user_name": "owner",
    "start_time": "started_at",
    "end_time": "ended_at",
}

# What a filter gives the query: a field of JobQuery and its value.
Narrowing = Callable[[Filter], dict[str, Any]]


def to_query(body: JobSearchBody, caller: Caller) -> JobQuery:
    """Return what a search asks for, or say which of its words is not known."""
    if body.tags:
        raise Invalid("tags are not offered; use filters")
    if body.host_ips:
        raise Invalid("host_ips is not offered; use filters")
    one_of("train_type", body.train_type or "job", TRAIN_TYPES)
    order = one_of("order", body.order or "desc", ORDERS)
    sort_by = one_of("sort_by", body.sort_by or "create_time", SORT_KEYS)
    return JobQuery(
        project_id=caller.project_id,
        workspace_id=body.workspace_id or DEFAULT_WORKSPACE,
        sort_by=SORT_COLUMN_OF[sort_by],
        descending=order == "desc",
        offset=body.offset or 0,
        limit=body.limit or PAGE_MAX,
        **narrowings(body.filters or []),
    )


def narrowings(filters: list[Filter]) -> dict[str, Any]:
    """Return the fields of JobQuery that the filters set."""
    fields: dict[str, Any] = {}
    for item in filters:
        found = _narrowing(item)(item)
        if fields.keys() & found.keys():
            raise Invalid(
                f"filters: {item.key} {item.operator} is given twice; give it once with all its values"
            )
        fields |= found
    return fields


def _narrowing(item: Filter) -> Narrowing:
    one_of("filters[].key", item.key, FILTER_KEYS)
    one_of("filters[].operator", item.operator, FILTER_OPERATORS)
    one_of(f"filters[].operator of {item.key}", item.operator, FILTERS[item.key])
    if not item.value:
        raise Invalid(f"filters[].value of {item.key} needs at least one value")
    return FILTERS[item.key][item.operator]


def _texts(field: str) -> Narrowing:
    return lambda item: {field: tuple(item.value)}


def _phases(field: str) -> Narrowing:
    def narrow(item: Filter) -> dict[str, Any]:
        found = frozenset[Phase]()
        for name in item.value:
            found |= PHASES_CALLED[one_of(f"filters[].value of {item.key}", name, PHASES_CALLED)]
        return {field: found}

    return narrow


def _between(from_field: str, to_field: str) -> Narrowing:
    def narrow(item: Filter) -> dict[str, Any]:
        if len(item.value) != 2:
            raise Invalid(f"filters[].value of {item.key} between needs two values: from and to")
        first, last = (parse_time_ms(f"filters[].value of {item.key}", text) for text in item.value)
        if first > last:
            raise Invalid(f"filters[].value of {item.key} between: from is later than to")
        return {from_field: first, to_field: last}

    return narrow


_PHASE = {"in": _phases("phases"), "not": _phases("not_phases")}
_KIND = {"in": _texts("kinds")}
FILTERS: dict[str, dict[str, Narrowing]] = {
    "id": {"in": _texts("ids")},
    "name": {"like": _texts("names_like"), "in": _texts("names"), "not": _texts("not_names")},
    "phase": _PHASE,
    "status": _PHASE,
    "user_name": {"in": _texts("owners"), "not": _texts("not_owners")},
    "create_time": {"between": _between("created_from_ms", "created_to_ms")},
    "end_time": {"between": _between("ended_from_ms", "ended_to_ms")},
    "kind": _KIND,
    "job_type": _KIND,
    "description": {"like": _texts("descriptions_like")},
    "pool_id": {"in": _texts("pool_ids")},
}
