"""The verb that starts a job: from a file, or from a command line alone."""

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trackside.cli.errors import Usage
from trackside.cli.session import Session, verb


@verb
def submit(
    session: Session,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A job file, .yaml or .toml.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="What every worker runs, by sh -c.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="How many workers.")] = None,
    flavor: Annotated[
        str | None, typer.Option("--flavor", help="The size of each: trackside flavor ls.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="K=V", help="An environment variable.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the file: parameters.lr=0.1."),
    ] = None,
    wait_for_it: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --wait: give up then.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the request and send nothing.")] = False,
) -> None:
    """Start a job from a job file or a command."""
    flags = {"command": command, "name": name, "workers": workers, "flavor": flavor}
    job = job_from(file, flags, env or [], settings or [])
    if dry_run:
        from trackside.cli.jobfile import create_body

        if "code" in job:
            job["code_dir"] = "obs://code/" if job.pop("code") else None
        session.emit({"body": create_body(job)})
        return
    _submit(session, job, file, wait_for_it=wait_for_it, timeout=timeout)


def job_from(
    file: Path | None, flags: dict[str, Any], env: Sequence[str], settings: Sequence[str]
) -> dict[str, Any]:
    """Return the job in the words of a job file: the file, then the flags, then --set."""
    from trackside.cli.jobfile import apply_settings, check_keys, read_file

    if file is None and flags["command"] is None:
        raise Usage(
            "nothing to run: there is neither a job file nor a command",
            "trackside submit -c 'python train.py'",
        )
    job = read_file(file) if file else {}
    job |= {key: value for key, value in flags.items() if value is not None}
    if flags["command"] is not None:
        job.pop("boot_file", None)
    if env:
        job["env"] = {**(job.get("env") or {}), **dict(_pair(item) for item in env)}
    apply_settings(job, settings)
    check_keys(job)
    if not job.get("name"):
        job["name"] = _made_up_name(file, str(job.get("command") or "job"))
    if file is not None and isinstance(job.get("code"), str):
        job["code"] = str(file.parent / job["code"])
    return job


def _submit(
    session: Session, job: dict[str, Any], file: Path | None, *, wait_for_it: bool, timeout: float | None
) -> None:
    from trackside.cli.follow import conclude, watch
    from trackside.cli.jobfile import create_body
    from trackside.cli.upload import upload_code
    from trackside.cli.views import machine

    if job.get("code"):
        job["code_dir"], sent = upload_code(session.api, Path(str(job.pop("code"))), str(job["name"]))
        session.talk(f"Uploaded {sent}")
    body = create_body(job)
    session.talk(f"Checked {file or 'the command'}: {_summary(body)}")
    made = session.api.job(session.api.create(body)["metadata"]["id"])
    if not session.as_json:
        _announce(session, made.id, made.name)
    elif not wait_for_it:
        session.emit({"job": machine(made)})
    if wait_for_it:
        session.talk("Ctrl+C leaves it running.")
        raise typer.Exit(conclude(session, watch(session, made, timeout)))


def _announce(session: Session, job_id: str, name: str) -> None:
    from trackside.cli.session import Column

    if session.terminal:
        session.out(f"Submitted {name} ({job_id[:8]})  next: trackside logs -f {name}")
    else:
        session.table(
            [Column("ID", lambda row: row[0]), Column("NAME", lambda row: row[1])], [(job_id, name)]
        )


def _summary(body: dict[str, Any]) -> str:
    from trackside.domain.wording import counted

    resource = body["spec"]["resource"]
    own = resource.get("main_container_customized_flavor", {})
    parts = [counted(resource["node_count"], "worker")]
    parts += [f"flavor {resource['flavor_id']}"] if "flavor_id" in resource else []
    parts += [f"{own['cpu_core_num']:g} cores each"] if "cpu_core_num" in own else []
    parts += [f"{own['mem_size']:g} GiB each"] if "mem_size" in own else []
    parts += [f"{own['accelerator_num']} cards each"] if "accelerator_num" in own else []
    return ", ".join(parts)


def _pair(item: str) -> tuple[str, str]:
    key, found, value = item.partition("=")
    if not found or not key:
        raise Usage(f"--env takes K=V, not {item!r}")
    return key, value


def _made_up_name(file: Path | None, command: str) -> str:
    base = file.stem if file else Path(command.split()[0] if command.split() else "job").name
    return f"{re.sub(r'[^0-9A-Za-z_-]+', '-', base).strip('-')[:50] or 'job'}-{secrets.token_hex(3)}"
