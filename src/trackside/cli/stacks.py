"""The verb that shows where the workers of a job stood when it seemed to hang."""

from typing import Annotated

import typer

from trackside.cli.jobs import JobArgument
from trackside.cli.session import Session, verb


@verb
def stacks(
    session: Session,
    job: JobArgument,
    worker: Annotated[str | None, typer.Option("--worker", "-w", help="Of this worker alone.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", min=1, help="Of this attempt alone.")] = None,
) -> None:
    """Show the stacks that were taken when a job seemed to hang, the newest last."""
    from trackside.cli.resolve import find_job
    from trackside.cli.views import machine
    from trackside.cli.words import UNKNOWN, date_and_clock

    found = find_job(session.api, job)
    taken, matching = session.api.stacks(found.id, task=worker, attempt=attempt)
    if session.as_json:
        session.emit({"stacks": [machine(one) for one in taken], "matching": matching})
        return
    for one in taken:
        number = UNKNOWN if one.attempt is None else str(one.attempt)
        session.out(
            f"=== {one.task}, attempt {number}, {date_and_clock(one.taken_at_ms, utc=session.utc)} ==="
        )
        session.out(one.text.rstrip("\n"))
    if not matching:
        session.talk(f"No stacks are kept of {found.name}: they are taken when a job seems to hang.")
    elif len(taken) < matching:
        session.talk(f"{len(taken)} of {matching}. The others: --worker NAME, --attempt N")
