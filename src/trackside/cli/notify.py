"""The verbs about notifications: notify ls, add, rm, test."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trackside.cli import OWN
from trackside.cli.errors import CliError, ExitCode, Usage
from trackside.cli.session import Column, Session, verb

FORMATS = "json, slack, dingtalk, wecom or lark"
SECRET_BYTES_MAX = 4096

notify_app = typer.Typer(help="Who is told of jobs.", no_args_is_help=True, rich_markup_mode=None)
TopicArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic's name.")]


@notify_app.command("ls")
@verb
def notify_ls(session: Session) -> None:
    """List the topics; the addresses of webhooks are not shown in full."""
    topics = session.api.client.get(f"{OWN}/topics").get("topics") or []
    if session.as_json:
        session.emit({"topics": topics})
        return
    session.table(
        [
            Column("NAME", lambda topic: topic["name"]),
            Column("FORMAT", lambda topic: topic["format"]),
            Column("ADDRESS", lambda topic: topic["address"]),
            Column("SIGNED", lambda topic: "yes" if topic["signed"] else "no"),
            Column("JOBS", _jobs),
            Column("EVENTS", lambda topic: ", ".join(topic["events"])),
        ],
        topics,
    )


@notify_app.command("add")
@verb
def notify_add(
    session: Session,
    name: TopicArgument,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="A webhook's address; - reads it from stdin.")
    ] = None,
    email: Annotated[str | None, typer.Option("--email", metavar="ADDRESS", help="Or a mailbox.")] = None,
    form: Annotated[str | None, typer.Option("--format", help=f"{FORMATS} (json).")] = None,
    secret_file: Annotated[
        str | None,
        typer.Option("--secret-file", metavar="FILE", help="Holds what signs the messages; - is stdin."),
    ] = None,
    events: Annotated[
        str | None, typer.Option("--events", metavar="NAME,…", help="Only these, such as JobFailed.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Of all jobs, not only of those that name it.")
    ] = False,
    workspace: Annotated[
        str | None, typer.Option("--workspace", metavar="ID", help="With --all: only of this workspace.")
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="For every project of the server; admins only.")
    ] = False,
) -> None:
    """Add a topic, or replace it: somebody who is told of jobs."""
    if (url is None) == (email is None):
        raise Usage("a topic has an address", f"trackside notify add {name} --url https://host/path")
    if url == "-" and secret_file == "-":  # noqa: S105 - no secret but a name for stdin
        raise Usage("only one of --url and --secret-file can be read from stdin")
    body = {
        "url": _read("-") if url == "-" else url,
        "email": email,
        "format": form,
        "secret": None if secret_file is None else _read(secret_file),
        "events": None if events is None else [event.strip() for event in events.split(",")],
        "follows_all": everything,
        "workspace_id": workspace,
        "all_projects": all_projects,
    }
    _put(session, name, {key: value for key, value in body.items() if value not in (None, False)})


@notify_app.command("rm")
@verb
def notify_rm(session: Session, name: TopicArgument) -> None:
    """Remove a topic; what it was not told yet it will not be told."""
    session.api.client.delete(f"{OWN}/topics/{name}")
    if session.as_json:
        session.emit({"deleted": name})
    else:
        session.out(f"Removed {name}")


@notify_app.command("test")
@verb
def notify_test(session: Session, name: TopicArgument) -> None:
    """Send a test message to a topic, now."""
    outcome: dict[str, Any] = session.api.client.post(f"{OWN}/topics/{name}/test", {})
    if not outcome["delivered"]:
        raise CliError(f"{name} was not told: {outcome['why']}", code=ExitCode.UNEXPECTED)
    if session.as_json:
        session.emit({"test": outcome})
    else:
        session.out(f"{name} was told")


def _put(session: Session, name: str, body: dict[str, Any]) -> None:
    import json

    topic = session.api.client.call("PUT", f"{OWN}/topics/{name}", body=json.dumps(body).encode())
    if session.as_json:
        session.emit({"topic": topic})
        return
    session.out(f"Stored {topic['name']}: {topic['format']} to {topic['address']}")
    session.talk(f"It is told of {_jobs(topic)}; see whether it hears: trackside notify test {name}")


def _jobs(topic: dict[str, Any]) -> str:
    if not topic["follows_all"]:
        return "jobs that name it"
    of = "all projects" if topic["all_projects"] else "the project"
    where = f"workspace {topic['workspace_id']} of " if topic["workspace_id"] else ""
    return f"all jobs of {where}{of}"


def _read(file: str) -> str:
    try:
        text = sys.stdin.read(SECRET_BYTES_MAX) if file == "-" else Path(file).read_text()
    except OSError as error:
        raise Usage(f"cannot read {file}: {error.strerror}") from error
    return text[:SECRET_BYTES_MAX].strip()
