"""The verbs about access: policy ls, show, put, rm, try; user grant and revoke."""

from pathlib import Path
from typing import Annotated, Any

import typer

from trackside.cli import OWN
from trackside.cli.catalog import user_app
from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import Column, Session, verb

policy_app = typer.Typer(help="Who may do what.", no_args_is_help=True, rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The policy's name.")]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]


@policy_app.command("ls")
@verb
def policy_ls(session: Session) -> None:
    """List the policies and who has them."""
    policies = session.api.client.get(f"{OWN}/policies").get("policies") or []
    if session.as_json:
        session.emit({"policies": policies})
        return
    session.table(
        [
            Column("NAME", lambda policy: policy["name"]),
            Column("KIND", lambda policy: "built in" if policy["built_in"] else "own"),
            Column("STATEMENTS", lambda policy: str(len(policy["document"]["Statement"])), right=True),
            Column("USERS", lambda policy: ", ".join(policy["users"])),
        ],
        policies,
    )


@policy_app.command("show")
@verb
def policy_show(session: Session, name: NameArgument) -> None:
    """Print a policy as the JSON that `put` takes."""
    policy = session.api.client.get(f"{OWN}/policies/{name}")
    if session.as_json:
        session.emit({"policy": policy})
        return
    import json

    session.talk(f"{name}: {', '.join(policy['users']) or 'nobody'} has it")
    session.out(json.dumps(policy["document"], indent=2, ensure_ascii=False))


@policy_app.command("put")
@verb
def policy_put(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, JSON or YAML.")],
    name: Annotated[str | None, typer.Option("--name", help="Its name; without, the file's.")] = None,
) -> None:
    """Store or replace a policy; it counts at once."""
    import json

    from trackside.cli.jobfile import read_file

    stored = session.api.client.call(
        "PUT", f"{OWN}/policies/{name or file.stem}", body=json.dumps(read_file(file)).encode()
    )
    if session.as_json:
        session.emit({"policy": stored})
        return
    session.out(f"Stored {stored['name']}; {', '.join(stored['users']) or 'nobody'} has it")


@policy_app.command("rm")
@verb
def policy_rm(session: Session, name: NameArgument) -> None:
    """Remove a policy that nobody has."""
    session.api.client.delete(f"{OWN}/policies/{name}")
    if session.as_json:
        session.emit({"deleted": name})
    else:
        session.out(f"Removed {name}")


@policy_app.command("try")
@verb
def policy_try(
    session: Session,
    user: UserArgument,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="For example modelarts:trainJob:get.")],
    job: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Done to this job.")] = None,
) -> None:
    """Say whether a user may do something, and which statement says so."""
    from trackside.cli.resolve import find_job

    asked = {"user": user, "action": action}
    if job is not None:
        asked["job"] = find_job(session.api, job).id
    answer: dict[str, Any] = session.api.client.post(f"{OWN}/policies/try", asked)
    if session.as_json:
        session.emit({"answer": answer})
    else:
        session.out(f"{'yes' if answer['allowed'] else 'no'}: {answer['text']}")
        session.talk(f"{user} has {', '.join(answer['policies']) or 'no policy at all'}")
    if not answer["allowed"]:
        raise typer.Exit(ExitCode.NOT_ALLOWED)


@user_app.command("grant")
@verb
def user_grant(session: Session, user: UserArgument, policy: NameArgument) -> None:
    """Give a user a policy, beside those it has."""
    _told(session, session.api.client.call("PUT", f"{OWN}/users/{user}/policies/{policy}"))


@user_app.command("revoke")
@verb
def user_revoke(session: Session, user: UserArgument, policy: NameArgument) -> None:
    """Take a policy from a user, at once."""
    _told(session, session.api.client.delete(f"{OWN}/users/{user}/policies/{policy}"))


def _told(session: Session, grant: Any) -> None:
    if not isinstance(grant, dict):
        raise CliError("the server answered without the user's policies", code=ExitCode.UNEXPECTED)
    if session.as_json:
        session.emit({"user": grant["user"], "policies": grant["policies"]})
    else:
        session.out(f"{grant['user']} has {', '.join(grant['policies']) or 'no policy at all'}")
