"""Knows what the query of ListJobs asks for: what the store can answer, and what is looked at job by job."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trackside.api.operation import Call
from trackside.api.pai_dlc import declared
from trackside.api.pai_dlc.checks import (
    DAY_MS,
    chosen,
    commas,
    flag,
    number,
    one_of,
    page,
    window,
)
from trackside.api.pai_dlc.ids import short_id
from trackside.api.pai_dlc.phases import PHASES_CALLED, STATUSES
from trackside.api.pai_dlc.translate_job import requested
from trackside.api.pai_dlc.wire_create import ACCESSIBILITIES, JOB_TYPES, CreateJobBody
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.domain.timing import running_ms
from trackside.ports import JobQuery

PAGE_SIZE_DEFAULT = 20
WINDOW_MS = 7 * DAY_MS
NUMBER_MAX = 2**53
OTHER_KINDS = ("job", "hetero_job")  # of the jobs made through other APIs
SORT_KEYS = {
    "DisplayName": "name",
    "JobType": "kind",
    "Status": "phase",
    "GmtCreateTime": "created_at",
    "GmtFinishTime": "ended_at",
}
ORDERS = ("desc", "asc")
TIME_FIELDS = ("GmtCreateTime", "GmtFinishTime")
NAME_MODES = ("wildcard", "exact")
PAYMENT_TYPES = ("PrePaid", "Spot", "PostPaid")
OVERSOLD = (
    "ForbiddenQuotaOverSold",
    "ForceQuotaOverSold",
    "AcceptQuotaOverSold-true",
    "AcceptQuotaOverSold-false",
)

Look = Callable[[Job], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A query for the store, and what each job must satisfy besides."""

    query: JobQuery
    looks: tuple[Look, ...]
    possible: bool = True  # False: nothing can match


def to_search(call: Call, *, now: int) -> Search:
    """Return what is asked for, or say which parameter cannot be."""
    offset, limit = page(call, size=PAGE_SIZE_DEFAULT)
    status = chosen(call, "Status", STATUSES)
    phases = PHASES_CALLED[status] if status else frozenset()
    ids = _short_ids(call)
    mode = chosen(call, "DisplayNameSearchMode", NAME_MODES, "wildcard")
    name = call.query_one("DisplayName")
    pools = (*commas(call.query_one("ResourceId")), *commas(call.query_one("ResourceIds")))
    query = JobQuery(
        project_id=call.caller.project_id,
        workspace_id=_workspace(call),
        short_ids=tuple(one for one in ids if one is not None),
        names=(name,) if name and mode == "exact" else (),
        names_like=(name,) if name and mode == "wildcard" else (),
        descriptions_like=_like(call.query_one("Description")),
        phases=phases,
        kinds=_kinds(chosen(call, "JobType", JOB_TYPES)),
        owners=(call.caller.user,) if flag(call, "ShowOwn") else (),
        pool_ids=pools,
        tags=_tags(call.query_one("Tags")),
        sort_by=SORT_KEYS[chosen(call, "SortBy", SORT_KEYS, "GmtCreateTime")],
        descending=chosen(call, "Order", ORDERS, "desc") == "desc",
        offset=offset,
        limit=limit,
        **_times(call, now),
    )
    nobody = bool(ids) and not query.short_ids
    possible = not nobody and not (status and not phases)
    return Search(query=query, looks=tuple(_looks(call, now)), possible=possible)


def _short_ids(call: Call) -> list[str | None]:
    one = call.query_one("JobId")
    return [short_id(given) for given in ((one,) if one else commas(call.query_one("JobIds")))]


def _workspace(call: Call) -> str | None:
    if not flag(call, "FromAllWorkspaces"):
        return call.query_one("WorkspaceId")
    if not flag(call, "ShowOwn"):
        raise Invalid("FromAllWorkspaces=true needs ShowOwn=true")
    return None


def _kinds(job_type: str) -> tuple[str, ...]:
    if not job_type:
        return ()
    return (job_type, *OTHER_KINDS) if job_type == declared.OTHERS_TYPE else (job_type,)


def _like(text: str | None) -> tuple[str, ...]:
    return (text,) if text else ()


def _times(call: Call, now: int) -> dict[str, Any]:
    field = chosen(call, "TimeRangeField", TIME_FIELDS, "GmtCreateTime")
    start_ms, end_ms = window(call, now=now, before_ms=WINDOW_MS)
    word = "created" if field == "GmtCreateTime" else "ended"
    bounds = {f"{word}_from_ms": start_ms}
    return bounds | {f"{word}_to_ms": end_ms} if call.query_one("EndTime") else bounds


def _tags(text: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not text:
        return ()
    try:
        tags = json.loads(text)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, dict) or not all(isinstance(one, str | None) for one in tags.values()):
        raise Invalid(f'Tags must be a JSON object of texts such as {{"team":"a"}}, not {text[:64]!r}')
    return tuple((key, () if value is None else (value,)) for key, value in tags.items())


def _looks(call: Call, now: int) -> list[Look]:
    looks = [make(value) for name, make in _LOOK_FOR.items() if (value := call.query_one(name)) is not None]
    ranged = _numeric_range(call, now)
    return [*looks, ranged] if ranged else looks


def _body(job: Job) -> CreateJobBody:
    return declared.declared_body(job.spec)


def _setting(name: str) -> Callable[[str], Look]:
    return lambda value: lambda job: (_body(job).settings or {}).get(name) == value


def _owner_like(value: str) -> Look:
    return lambda job: value.lower() in job.owner.lower()


def _accessible(value: str) -> Look:
    one_of("Accessibility", value, ACCESSIBILITIES)
    return lambda job: (_body(job).accessibility or declared.DEFAULT_ACCESSIBILITY) == value


def _paid(value: str) -> Look:
    one_of("PaymentType", value, PAYMENT_TYPES)
    return lambda job: payment_type(job) == value


def payment_type(job: Job) -> str:
    """Return what a job runs on in the vendor's words: spot, a pool it named, or the pool of all."""
    body = _body(job)
    if any(item.spot_spec or item.use_spot_instance for item in body.job_specs or ()):
        return "Spot"
    return "PrePaid" if declared.resource_id(job.spec) else "PostPaid"


def _image_like(value: str) -> Look:
    return lambda job: any(value.lower() in (item.image or "").lower() for item in _body(job).job_specs or ())


def _command_like(value: str) -> Look:
    def look(job: Job) -> bool:
        body = _body(job)
        commands = (body.user_command, *(item.user_command for item in body.job_specs or ()))
        return any(value.lower() in (command or "").lower() for command in commands)

    return look


def _reason_like(value: str) -> Look:
    return lambda job: value.lower() in (job.reason.text if job.reason else "").lower()


def _assigned(value: str) -> Look:
    wanted = one_of("EnableAssignNode", value.lower(), ("true", "false")) == "true"
    return lambda job: any(item.assign_node_spec for item in _body(job).job_specs or ()) is wanted


def _oversold(value: str) -> Look:
    kind, _, used = one_of("OversoldInfo", value, OVERSOLD).partition("-")
    # No job here ever uses resources that are idle elsewhere.
    return lambda job: (_body(job).settings or {}).get("OversoldType") == kind and used != "true"


# One row per parameter the store cannot answer: how its value becomes a look at one job.
_LOOK_FOR: dict[str, Callable[[str], Look]] = {
    "Accessibility": _accessible,
    "BusinessUserId": _setting("BusinessUserId"),
    "Caller": _setting("Caller"),
    "PipelineId": _setting("PipelineId"),
    "PaymentType": _paid,
    "UserIdForFilter": lambda value: lambda job: job.owner == value,
    "Username": _owner_like,
    "TemplateId": lambda value: lambda job: _body(job).template_id == value,
    "ResourceQuotaName": lambda value: lambda job: value.lower() in job.spec.pool_id.lower(),
    "ImageSearch": _image_like,
    "UserCommandSearch": _command_like,
    "ReasonSearch": _reason_like,
    "EnableAssignNode": _assigned,
    "OversoldInfo": _oversold,
}
LOOKED_AT = tuple(_LOOK_FOR)

NUMBER_OF: dict[str, Callable[[Job, int], int]] = {
    "Duration": lambda job, now: running_ms(job, now_ms=now) // 1000,
    "NodeCount": lambda job, _: job.spec.node_count,
    "Priority": lambda job, _: declared.priority(job.spec, _body(job)),
    "RequestCPU": lambda job, _: requested(job, "cpu_cores"),
    "RequestGPU": lambda job, _: requested(job, "cards"),
    "RequestMemory": lambda job, _: requested(job, "memory_bytes"),
}


def _numeric_range(call: Call, now: int) -> Look | None:
    bounds: dict[str, Any] = {name: call.query_one(name) for name in ("NumericRangeMin", "NumericRangeMax")}
    field = chosen(call, "NumericRangeField", NUMBER_OF)
    if not field:
        if any(bounds.values()):
            raise Invalid(f"NumericRangeField is missing; it may be {', '.join(NUMBER_OF)}")
        return None
    least = number(call, "NumericRangeMin", 0, least=0, most=NUMBER_MAX)
    most = number(call, "NumericRangeMax", NUMBER_MAX, least=0, most=NUMBER_MAX)
    return lambda job: least <= NUMBER_OF[field](job, now) <= most
