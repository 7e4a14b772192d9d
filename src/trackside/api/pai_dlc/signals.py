"""Knows the signals asked for; says of none that it was delivered, since nothing here delivers any."""

import secrets
import signal as signals
from typing import Any

import msgspec

from trackside.api.operation import Call
from trackside.api.pai_dlc.checks import chosen, now_ms, one_of, page, time_text
from trackside.api.pai_dlc.ids import job_id, path_job, pod_id
from trackside.api.pai_dlc.search import ORDERS
from trackside.api.pai_dlc.wire_reports import (
    SIGNAL_SCOPES,
    Signal,
    SignalAnswer,
    SignalBody,
    SignalPage,
    SignalTarget,
)
from trackside.domain.errors import Invalid, NotFound
from trackside.domain.job import Job, task_names

PAGE_SIZE_DEFAULT = 20
STATUSES = ("Succeeded", "Failed", "Stopped", "Running", "Pending")  # only Failed and Stopped occur here
SORT_KEYS = ("GmtCreateTime", "GmtCreated", "GmtModified")
_SIGNAL_NAMES = tuple(one.name for one in signals.Signals)
_NOT_SENT = (
    "Failed",
    "SignalFailed",
    "not delivered: this server cannot send signals to running pods yet; the request was kept",
)
_TOO_LATE = ("Stopped", "StoppedByJobEnded", "not delivered: the job was over when the signal was asked for")


async def create_signal(call: Call) -> SignalAnswer:
    """Keep a signal that was asked for, and say that it was not delivered."""
    assert isinstance(call.body, SignalBody)
    job = path_job(call)
    name = one_of("Signal", (call.body.signal or "").upper(), _SIGNAL_NAMES)
    target = call.body.target or SignalTarget()
    scope = one_of("Target.Scope", target.scope or _scope(target), SIGNAL_SCOPES)
    status, reason, message = _TOO_LATE if job.final else _NOT_SENT
    now = time_text(now_ms())
    made = Signal(
        signal_id=f"oper{now_ms():x}{secrets.token_hex(4)}",
        signal=name,
        status=status,
        reason=reason,
        message=message,
        scope=scope,
        roles=_roles(job, target) if scope == "roles" else [],
        pod_names=_pods(job, target) if scope == "pods" else [],
        gmt_created=now,
        gmt_modified=now,
    )
    value: dict[str, Any] = msgspec.to_builtins(made)
    await call.services.documents.put(call.caller, _kind(job), made.signal_id, value)
    return _answer(call, job, made)


async def get_signal(call: Call) -> SignalAnswer:
    """Return one signal of a job."""
    job, wanted = path_job(call), call.path["SignalId"]
    found = await call.services.documents.get(call.caller, _kind(job), wanted)
    if found is None:
        raise NotFound(f"the job {job_id(job)} has no signal {wanted[:80]!r}")
    return _answer(call, job, msgspec.convert(found, Signal))


async def list_signals(call: Call) -> SignalPage:
    """Return the signals of a job."""
    job = path_job(call)
    offset, limit = page(call, size=PAGE_SIZE_DEFAULT)
    chosen(call, "SortBy", SORT_KEYS)  # a signal never changes, so that all keys give one order
    status = chosen(call, "Status", STATUSES)
    kept = await call.services.documents.list(call.caller, _kind(job))
    found = [
        one for one in (msgspec.convert(value, Signal) for _, value in kept) if status in ("", one.status)
    ]
    found.sort(key=lambda one: one.signal_id, reverse=chosen(call, "Order", ORDERS, "desc") == "desc")
    return SignalPage(
        job_id=job_id(job),
        signals=found[offset : offset + limit],
        total_count=len(found),
        page_number=offset // limit + 1,
        page_size=limit,
        request_id=call.request_id,
    )


async def forget_signals(call: Call, job: Job) -> None:
    """Drop the signals of a job that is deleted."""
    for signal_id, _ in await call.services.documents.list(call.caller, _kind(job)):
        await call.services.documents.delete(call.caller, _kind(job), signal_id)


def _kind(job: Job) -> str:
    return f"pai_dlc.signal.{job.short_id}"


def _answer(call: Call, job: Job, made: Signal) -> SignalAnswer:
    return SignalAnswer(**msgspec.structs.asdict(made), job_id=job_id(job), request_id=call.request_id)


def _scope(target: SignalTarget) -> str:
    if target.pod_names:
        return "pods"
    return "roles" if target.roles else "job"


def _roles(job: Job, target: SignalTarget) -> list[str]:
    if not target.roles:
        raise Invalid("Target.Roles is missing: Scope is roles")
    known = [role.name for role in job.spec.roles]
    return [one_of("Target.Roles", role.lower(), known) for role in target.roles]


def _pods(job: Job, target: SignalTarget) -> list[str]:
    if not target.pod_names:
        raise Invalid("Target.PodNames is missing: Scope is pods")
    known = [pod_id(job, name) for name in task_names(job.spec)]
    return [one_of("Target.PodNames", pod, known) for pod in target.pod_names]
