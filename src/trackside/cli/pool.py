"""The verbs about pools (ls, show, create, set, quota, rm) and machines (lock, drain, unlock, label)."""

from typing import Annotated, Any

import typer

from trackside.cli import OWN
from trackside.cli.errors import Usage
from trackside.cli.session import Column, Session, verb
from trackside.domain.wording import size_text

GIB = 1024**3
POLICIES = "fifo, traversal, step-polling or tiered"

pool_app = typer.Typer(help="Parts of the machines.", no_args_is_help=True, rich_markup_mode=None)
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The machine's name.")]
ShareOption = Annotated[
    list[str] | None,
    typer.Option("--share", metavar="FLAVOR=COUNT", help="So many of a flavor; repeatable."),
]
NodeOption = Annotated[
    list[str] | None, typer.Option("--node", metavar="NODE", help="A whole machine; repeatable.")
]
PolicyOption = Annotated[str | None, typer.Option("--policy", help=f"The queue policy: {POLICIES}.")]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="A sentence about it.")]


@pool_app.command("ls")
@verb
def pool_ls(session: Session) -> None:
    """List the pools, what is held of them and how many jobs wait."""
    pools = session.api.client.get(f"{OWN}/pools").get("pools") or []
    if session.as_json:
        session.emit({"pools": pools})
        return
    session.table(
        [
            Column("POOL", lambda pool: pool["id"]),
            Column("KIND", lambda pool: pool["kind"]),
            Column("POLICY", lambda pool: pool["policy"]),
            Column("CORES", lambda pool: _of(pool, "cpu_cores"), right=True),
            Column("MEMORY", _memory, right=True),
            Column("GPUS", lambda pool: _of(pool, "gpus"), right=True),
            Column("NPUS", lambda pool: _of(pool, "npus"), right=True),
            Column("RUNNING", lambda pool: str(pool["running"]), right=True),
            Column("WAITING", lambda pool: str(pool["waiting"]), right=True),
        ],
        pools,
    )


@pool_app.command("show")
@verb
def pool_show(session: Session, pool: PoolArgument) -> None:
    """Show a pool, its machines and its quotas."""
    _tell(session, session.api.client.get(f"{OWN}/pools/{pool}"))


@pool_app.command("create")
@verb
def pool_create(
    session: Session,
    pool: Annotated[str, typer.Argument(metavar="NAME", help="Its id: lower-case letters, digits, hyphens.")],
    share: ShareOption = None,
    node: NodeOption = None,
    policy: PolicyOption = None,
    description: DescriptionOption = None,
) -> None:
    """Make a pool of a share of all machines, or of whole ones."""
    if bool(share) == bool(node):
        raise Usage("a pool is made of shares or of machines", "--share cpu.1c2g=2, or --node NAME")
    body = {"name": pool, **_wanted(share, node, policy, description)}
    _tell(session, session.api.client.post(f"{OWN}/pools", body))


@pool_app.command("set")
@verb
def pool_set(
    session: Session,
    pool: PoolArgument,
    share: ShareOption = None,
    node: NodeOption = None,
    policy: PolicyOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a pool; what is not named stays."""
    wanted = _wanted(share, node, policy, description)
    if not wanted:
        raise Usage("nothing to change", f"trackside pool set {pool} --policy traversal")
    _tell(session, _patch(session, pool, wanted))


@pool_app.command("quota")
@verb
def pool_quota(
    session: Session,
    pool: PoolArgument,
    user: Annotated[str | None, typer.Option("--user", help="Whose; * is everybody else.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="Whose; * is every other.")] = None,
    cores: Annotated[float | None, typer.Option("--cores", min=0, help="The most cores at once.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="The most memory: 64GiB.")] = None,
    cards: Annotated[int | None, typer.Option("--cards", min=0, help="The most cards.")] = None,
    none: Annotated[bool, typer.Option("--none", help="No limit any more.")] = False,
) -> None:
    """Limit what a user or a project may hold in a pool at once."""
    from trackside.cli.jobfile import memory_gib

    if (user is None) == (project is None):
        raise Usage(
            "a quota is of a user or of a project", f"trackside pool quota {pool} --user ann --cores 4"
        )
    if none == any(amount is not None for amount in (cores, memory, cards)):
        raise Usage("give amounts, or --none", f"trackside pool quota {pool} --user ann --cores 4")
    quota = {
        "holder": "project" if user is None else "user",
        "name": project if user is None else user,
        "cpu_cores": cores,
        "memory_bytes": None if memory is None else round(memory_gib(memory) * GIB),
        "cards": cards,
    }
    _tell(session, _patch(session, pool, {"quotas": [quota]}))


@pool_app.command("rm")
@verb
def pool_rm(session: Session, pool: PoolArgument) -> None:
    """Delete a pool in which every job is over."""
    session.api.client.delete(f"{OWN}/pools/{pool}")
    if session.as_json:
        session.emit({"deleted": pool})
    else:
        session.out(f"Deleted {pool}")


@pool_app.command("lock")
@verb
def pool_lock(session: Session, node: NodeArgument) -> None:
    """Let a machine take no new jobs."""
    _act(session, node, "lock")


@pool_app.command("drain")
@verb
def pool_drain(
    session: Session,
    node: NodeArgument,
    evict: Annotated[
        bool, typer.Option("--evict", help="End its jobs now and queue them again, to run elsewhere.")
    ] = False,
) -> None:
    """Let a machine become empty: no new jobs, and those it has go on to their ends."""
    _act(session, node, "drain", evict=evict)


@pool_app.command("unlock")
@verb
def pool_unlock(session: Session, node: NodeArgument) -> None:
    """Let a machine take jobs again."""
    _act(session, node, "unlock")


@pool_app.command("label")
@verb
def pool_label(
    session: Session,
    node: NodeArgument,
    labels: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="Labels to set; KEY= takes one away.")
    ],
) -> None:
    """Say where a machine stands or what it is like: cabinet=A1, hyperinstance=H3, or anything else."""
    import json

    body = json.dumps({"labels": dict(_label(text) for text in labels)}).encode()
    answer = session.api.client.call("PATCH", f"{OWN}/nodes/{node}", body=body)
    if session.as_json:
        session.emit({"node": answer})
    else:
        session.out(f"{answer['id']}: {_labels(answer) or 'no labels'}")


def _label(text: str) -> tuple[str, str | None]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise Usage(f"a label is given as KEY=VALUE, not {text!r}", "for example: cabinet=A1")
    return key, value or None


def _labels(node: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(node["labels"].items()))


def _act(session: Session, node: str, action: str, **more: bool) -> None:
    answer = session.api.client.post(f"{OWN}/nodes/{node}/actions", {"action": action, **more})
    if session.as_json:
        session.emit({"node": answer})
    else:
        session.out(f"{answer['id']} is {answer['state']}")


def _wanted(
    share: list[str] | None, node: list[str] | None, policy: str | None, description: str | None
) -> dict[str, Any]:
    wanted = {
        "shares": [_share(text) for text in share] if share else None,
        "nodes": node or None,
        "policy": policy,
        "description": description,
    }
    return {key: value for key, value in wanted.items() if value is not None}


def _share(text: str) -> dict[str, Any]:
    flavor, found, count = text.partition("=")
    if not found or not flavor or not count.isdecimal():
        raise Usage(f"--share takes FLAVOR=COUNT, not {text!r}", "for example: --share cpu.1c2g=2")
    return {"flavor": flavor, "count": int(count)}


def _patch(session: Session, pool: str, wanted: dict[str, Any]) -> Any:
    import json

    return session.api.client.call("PATCH", f"{OWN}/pools/{pool}", body=json.dumps(wanted).encode())


def _tell(session: Session, pool: Any) -> None:
    if session.as_json:
        session.emit({"pool": pool})
        return
    session.out(f"{pool['id']}: {pool['kind']}, {pool['policy']}")
    if pool["description"]:
        session.out(pool["description"])
    session.out(f"cores {_of(pool, 'cpu_cores')}, memory {_memory(pool)}, cards {_cards(pool)} held of all")
    session.out(f"{pool['running']} running, {pool['waiting']} waiting")
    for share in pool["shares"]:
        session.out(f"share: {share['count']} of {share['flavor']}")
    for node in pool["nodes"]:
        labels = f"; {_labels(node)}" if node["labels"] else ""
        session.out(f"node: {node['id']} ({node['ip']}), {node['state']}{labels}")
    for quota in pool["quotas"]:
        session.out(f"quota of {quota['holder']} {quota['name']}: {_quota(quota)}")


def _quota(quota: dict[str, Any]) -> str:
    memory = quota["memory_bytes"]
    amounts = (
        (quota["cpu_cores"], f"{quota['cpu_cores'] or 0:g} cores"),
        (memory, size_text(memory or 0)),
        (quota["cards"], f"{quota['cards']} cards"),
    )
    return ", ".join(text for amount, text in amounts if amount is not None)


def _of(pool: dict[str, Any], key: str) -> str:
    return f"{pool['held'][key]:g}/{pool['capacity'][key]:g}"


def _memory(pool: dict[str, Any]) -> str:
    return f"{size_text(pool['held']['memory_bytes'])}/{size_text(pool['capacity']['memory_bytes'])}"


def _cards(pool: dict[str, Any]) -> str:
    held, there = pool["held"], pool["capacity"]
    return f"{held['gpus'] + held['npus']}/{there['gpus'] + there['npus']}"
