"""Knows how Trackside's own API shows where tasks stood when their job seemed to hang."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation, Param
from trackside.service.stacks import Stacks

PATH = f"{PREFIX}/jobs/{{job_id}}/stacks"


class StacksView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the processes of a task stood at one moment."""

    task: str
    attempt: int | None  # of the job; None: it is not known any more
    taken_at_ms: int
    text: str


class StacksList(msgspec.Struct, frozen=True, kw_only=True):
    """The newest stacks of a job, the oldest of them first; `matching` counts what is kept."""

    stacks: list[StacksView]
    matching: int


async def list_stacks(call: Call) -> StacksList:
    """Return the stacks that were taken of a job."""
    attempt = call.query_one("attempt")
    found, matching = await call.services.stacks.shown(
        call.caller,
        call.path["job_id"],
        task=call.query_one("task"),
        record=None if attempt is None else int(attempt),
    )
    return StacksList(stacks=[_view(one) for one in found], matching=matching)


def _view(one: Stacks) -> StacksView:
    return StacksView(
        task=one.snapshot.task, attempt=one.record, taken_at_ms=one.snapshot.at_ms, text=one.text
    )


OPERATIONS = (
    Operation(
        name="ListJobStacks",
        method="GET",
        path=PATH,
        action="trackside:job:get",
        handler=list_stacks,
        summary="Return where the tasks of a job stood when it seemed to hang",
        response=StacksList,
        query=(
            Param(name="task", max_length=128),
            Param(name="attempt", type=int, minimum=1, maximum=1_000_000),
        ),
    ),
)
