"""The verb that makes faults on purpose."""

from typing import Annotated, Any

import typer

from trackside.cli import OWN
from trackside.cli.errors import ExitCode, Usage
from trackside.cli.session import Session, verb

FAULTS = ("kill", "freeze", "exhaust-memory", "fill-shm", "slow", "cut-off")


@verb
def chaos(
    session: Session,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A name, the beginning of an id, or @last.")],
    fault: Annotated[
        str | None, typer.Argument(metavar="FAULT", help=f"One of: {', '.join(FAULTS)}.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="NAME", help="For example worker-1.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="How long it lasts (30).")] = None,
    amount: Annotated[
        float | None,
        typer.Option("--amount", help="kill: the signal; fill-shm, slow: percent.", metavar="N"),
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Let a seed choose what is not said.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="The same seed, the same choice.")] = None,
) -> None:
    """Make a fault on purpose: kill a worker, freeze it, starve it; to see what becomes of the job."""
    from trackside.cli.resolve import find_job

    if fault is not None and fault not in FAULTS:
        raise Usage(f"no fault is called {fault!r}", f"the faults are: {', '.join(FAULTS)}")
    if fault is None and not random:
        raise Usage("which fault?", f"one of {', '.join(FAULTS)}; or --random")
    if seed is not None and not random:
        raise Usage("--seed needs --random", f"trackside chaos {job} --random --seed {seed}")
    found = find_job(session.api, job)
    asked = {
        "fault": fault,
        "task": task,
        "seconds": seconds,
        "amount": amount,
        "random": random,
        "seed": seed,
    }
    told: dict[str, Any] = session.api.client.post(
        f"{OWN}/jobs/{found.id}/faults", {key: value for key, value in asked.items() if value is not None}
    )
    _tell(session, found.name, told)
    if not told["done"]:
        raise typer.Exit(ExitCode.REFUSED)


def _tell(session: Session, name: str, told: dict[str, Any]) -> None:
    if session.as_json:
        session.emit({"fault": told})
        return
    if told["seed"] is not None:
        session.talk(f"seed {told['seed']}")
    verdict = "done" if told["done"] else "refused"
    session.out(f"{told['fault']} of {told['task']} ({name}) {verdict}: {told['text']}")
    if told["done"]:
        session.talk(f"see what becomes of it: trackside events {name}")
