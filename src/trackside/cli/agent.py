"""The verbs about this machine's agent: run it in the foreground, see whether it runs, stop it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import Session, verb

agent_app = typer.Typer(
    help="This machine's agent, which starts and watches tasks.", no_args_is_help=True, rich_markup_mode=None
)
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="The data directory (~/.trackside).")
]


@agent_app.command("run")
@verb
def agent_run(
    session: Session,
    data_dir: DataDir = None,
    node: Annotated[str | None, typer.Option("--node", help="The machine's id (its host name).")] = None,
    task_user: Annotated[
        str | None, typer.Option("--task-user", help="Who tasks run as when the agent is root (nobody).")
    ] = None,
) -> None:
    """Run the agent in the foreground, for a service manager; `trackside serve` starts one by itself."""
    del session
    command = [sys.executable, "-m", "trackside.agent", "--data-dir", str(_place(data_dir))]
    command += ["--node", node] if node else []
    command += ["--task-user", task_user] if task_user else []
    # Keys of whoever starts it are none of the agent's business, nor of its tasks.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKSIDE_")}
    os.execve(sys.executable, command, environment)  # noqa: S606


@agent_app.command("status")
@verb
def agent_status(session: Session, data_dir: DataDir = None) -> None:
    """Say whether an agent runs here; the exit code is 3 when none does."""
    from trackside.agent.control import agent_pid

    place = _place(data_dir)
    pid = agent_pid(place) if place.is_dir() else None
    if session.as_json:
        session.emit({"data_dir": str(place), "pid": pid})
        if pid is None:
            raise typer.Exit(ExitCode.NOT_FOUND)
    elif pid is None:
        raise CliError(
            f"no agent runs on {place}", code=ExitCode.NOT_FOUND, hint="trackside serve starts one"
        )
    else:
        session.out(f"An agent runs on {place} (process {pid})")


@agent_app.command("stop")
@verb
def agent_stop(
    session: Session,
    data_dir: DataDir = None,
    with_tasks: Annotated[
        bool, typer.Option("--with-tasks", help="End its tasks too; without it they run on.")
    ] = False,
) -> None:
    """Stop this machine's agent."""
    from trackside.agent.control import agent_pid, stop_agent

    place = _place(data_dir)
    pid = agent_pid(place) if place.is_dir() else None
    if place.is_dir():
        stop_agent(place, with_tasks=with_tasks)
    if session.as_json:
        session.emit({"data_dir": str(place), "stopped": pid})
    else:
        session.out(f"Stopped the agent of {place}" if pid else f"No agent ran on {place}")


def _place(data_dir: Path | None) -> Path:
    from trackside.cli.settings import data_dir as default

    return (data_dir or default()).expanduser().absolute()
