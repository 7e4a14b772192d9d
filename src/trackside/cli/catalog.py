"""The verbs about what a server offers and who may use it: flavor, user."""

from typing import Annotated, Any

import typer

from trackside.cli.session import Column, Session, verb

flavor_app = typer.Typer(
    help="The sizes of worker that jobs can ask for.", no_args_is_help=True, rich_markup_mode=None
)
user_app = typer.Typer(help="Who may use the server.", no_args_is_help=True, rich_markup_mode=None)


@flavor_app.command("ls")
@verb
def flavor_ls(session: Session) -> None:
    """List the flavors."""
    flavors = session.api.flavors()
    if session.as_json:
        session.emit({"flavors": flavors})
        return
    session.table(
        [
            Column("FLAVOR", lambda flavor: flavor.get("flavor_id", "")),
            Column("TYPE", lambda flavor: flavor.get("flavor_type", "")),
            Column("CORES", lambda flavor: _of(flavor, "cpu", "core_num"), right=True),
            Column("MEMORY", _memory, right=True),
            Column(
                "CARDS",
                lambda flavor: _of(flavor, "gpu", "unit_num") or _of(flavor, "npu", "unit_num") or "0",
                right=True,
            ),
            Column(
                "CARD",
                lambda flavor: _of(flavor, "gpu", "product_name") or _of(flavor, "npu", "product_name"),
            ),
        ],
        flavors,
    )


@user_app.command("ls")
@verb
def user_ls(session: Session) -> None:
    """List the users."""
    users = session.api.users()
    if session.as_json:
        session.emit({"users": users})
        return
    session.table(
        [
            Column("NAME", lambda user: user.get("name", "")),
            Column("ROLE", lambda user: user.get("role", "")),
            Column("PROJECT", lambda user: user.get("project_id", "")),
            Column("ACCESS KEY", lambda user: user.get("access_key", "")),
        ],
        users,
    )


@user_app.command("add")
@verb
def user_add(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")],
    role: Annotated[str, typer.Option("--role", help="admin, user or viewer.")] = "user",
) -> None:
    """Add a user and print its keys; they are shown this once."""
    made = session.api.add_user(name, role)
    if session.as_json:
        session.emit({"user": made, "endpoint": session.api.endpoint})
        return
    session.talk(f"Added {name} ({role}). Keep these: they are not shown again.")
    session.out(f"TRACKSIDE_ENDPOINT={session.api.endpoint}")
    for key in ("project_id", "access_key", "secret_key"):
        session.out(f"TRACKSIDE_{key.upper()}={made[key]}")
    session.out(f"TRACKSIDE_TOKEN={made['token']}")


@user_app.command("rm")
@verb
def user_rm(
    session: Session, name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
) -> None:
    """Remove a user; its keys stop working at once."""
    session.api.delete_user(name)
    if session.as_json:
        session.emit({"deleted": name})
    else:
        session.out(f"Removed {name}")


def _of(flavor: dict[str, Any], part: str, key: str) -> str:
    value = ((flavor.get("flavor_info") or {}).get(part) or {}).get(key)
    return "" if value is None else str(value)


def _memory(flavor: dict[str, Any]) -> str:
    amount = _of(flavor, "memory", "size")
    return f"{amount} {_of(flavor, 'memory', 'unit') or 'GB'}" if amount else ""
