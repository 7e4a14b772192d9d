"""Knows the row of Trackside's own API that makes faults on purpose."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation
from trackside.service.chaos import Chaos, Injected

ACTION = "trackside:chaos:inject"


class FaultRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which fault, for which task; with `random`, the seed chooses what is left out."""

    fault: str | None = None
    task: str | None = None
    seconds: float | None = None
    amount: float | None = None
    random: bool = False
    seed: int | None = None


class FaultView(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of it; `done` is false where the node refused, and `text` says why."""

    fault: str
    task: str
    seconds: float | None
    amount: float | None
    seed: int | None
    done: bool
    text: str
    at_ms: int


def operations(chaos: Chaos) -> tuple[Operation, ...]:
    """Return the row."""

    async def inject_fault(call: Call) -> FaultView:
        asked: FaultRequest = call.body
        injected = await chaos.inject(
            call.caller,
            call.path["job_id"],
            word=asked.fault,
            task=asked.task,
            seconds=asked.seconds,
            amount=asked.amount,
            random=asked.random,
            seed=asked.seed,
        )
        return _view(injected)

    return (
        Operation(
            name="InjectFault",
            method="POST",
            path=f"{PREFIX}/jobs/{{job_id}}/faults",
            action=ACTION,
            handler=inject_fault,
            summary="Make a fault on purpose and return what the task's node answered",
            body=FaultRequest,
            response=FaultView,
        ),
    )


def _view(injected: Injected) -> FaultView:
    fault, answered = injected.injection, injected.answered
    return FaultView(
        fault=fault.word,
        task=fault.task,
        seconds=fault.seconds,
        amount=fault.amount,
        seed=injected.seed,
        done=answered.done,
        text=answered.text,
        at_ms=answered.at_ms,
    )
