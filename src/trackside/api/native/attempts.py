"""Knows the rows of Trackside's own API that tell of single attempts."""

import re

import msgspec

from trackside.api.native import PREFIX
from trackside.api.native.views_attempts import (
    AttemptList,
    AttemptView,
    view_attempt,
    view_attempts,
)
from trackside.api.operation import Call, Operation, Param, Streamed
from trackside.domain.errors import Invalid
from trackside.domain.job import Job, Record

LINES_DEFAULT, LINES_MAX = 200, 10_000
LINE_MAX = 2**53
ZIP = "application/zip"
ORDERS = ("desc", "asc")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)


class AttemptLog(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of what a task printed in one attempt, counted from 1 at its start."""

    task: str
    first_line: int
    last_line: int
    text: str


async def list_attempts(call: Call) -> AttemptList:
    """List a job's attempts, the oldest first."""
    job = call.services.jobs.show(call.caller, call.path["job_id"])
    return view_attempts(job, now_ms=call.services.attempts.now_ms())


async def show_attempt(call: Call) -> AttemptView:
    """Show everything known of one attempt."""
    job, record = _found(call)
    return view_attempt(job, record, now_ms=call.services.attempts.now_ms())


async def show_attempt_log(call: Call) -> AttemptLog:
    """Return some lines of what a task printed in one attempt."""
    base_line = call.query_one("base_line")
    found = await call.services.attempts.log_lines(
        call.caller,
        call.path["job_id"],
        _number(call),
        call.path["task"],
        base_line=None if base_line is None else int(base_line),
        count=int(call.query_one("lines") or LINES_DEFAULT),
        descending=(call.query_one("order") or ORDERS[0]) == "desc",
    )
    return AttemptLog(
        task=call.path["task"], first_line=found.first_line, last_line=found.last_line, text=found.text
    )


async def export_attempt(call: Call) -> Streamed:
    """Return everything of one attempt as a ZIP file."""
    job, record = _found(call)
    described = view_attempt(job, record, now_ms=call.services.attempts.now_ms())
    content = msgspec.json.format(msgspec.json.encode(described), indent=2) + b"\n"
    name = f"{_NOT_IN_NAMES.sub('-', job.spec.name)}-attempt-{record.number}.zip"
    return Streamed(
        content=call.services.attempts.export(call.caller, job, record, content),
        media_type=ZIP,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _found(call: Call) -> tuple[Job, Record]:
    return call.services.attempts.find(call.caller, call.path["job_id"], _number(call))


def _number(call: Call) -> int:
    given = call.path["number"]
    if not _NUMBER.fullmatch(given):
        raise Invalid(f"attempts are counted 1, 2, …: {given[:20]!r} is none")
    return int(given)


OPERATIONS = (
    Operation(
        name="ListAttempts",
        method="GET",
        path=f"{PREFIX}/jobs/{{job_id}}/attempts",
        action="trackside:job:get",
        handler=list_attempts,
        summary="List a job's attempts: why each ended, what was done about it, what it cost",
        response=AttemptList,
    ),
    Operation(
        name="ShowAttempt",
        method="GET",
        path=f"{PREFIX}/jobs/{{job_id}}/attempts/{{number}}",
        action="trackside:job:get",
        handler=show_attempt,
        summary="Show everything known of one attempt: every task's end with its evidence, in order",
        response=AttemptView,
    ),
    Operation(
        name="ShowAttemptLog",
        method="GET",
        path=f"{PREFIX}/jobs/{{job_id}}/attempts/{{number}}/logs/{{task}}",
        action="trackside:job:get",
        handler=show_attempt_log,
        summary="Return lines of what a task printed in one attempt, the last ones if not told otherwise",
        response=AttemptLog,
        query=(
            Param(name="lines", type=int, minimum=1, maximum=LINES_MAX),
            Param(name="base_line", type=int, minimum=0, maximum=LINE_MAX),
            Param(name="order", choices=ORDERS),
        ),
    ),
    Operation(
        name="ExportAttempt",
        method="GET",
        path=f"{PREFIX}/jobs/{{job_id}}/attempts/{{number}}/export",
        action="trackside:job:get",
        handler=export_attempt,
        summary="Return everything of one attempt as a ZIP file: record, logs, samples, events, stacks",
        media_type=ZIP,
    ),
)
