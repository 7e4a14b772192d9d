"""Knows what a job must satisfy before it is accepted; every refusal says what to change."""

import re
from collections.abc import Iterator, Sequence

from trackside.domain.errors import Exhausted, Invalid, ObjectNotFound
from trackside.domain.job import JobSpec
from trackside.domain.resources import Capacity
from trackside.domain.wording import size_text
from trackside.ports import ObjectStore

TASKS_MAX = 1024
ENVIRONMENTS_MAX = 100
COMMAND_LENGTH_MAX = 32_768
PARAMETERS_MAX = 500
CHANNELS_MAX = 50
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_ROLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}\Z")
_RESERVED_ENV = ("MA_", "TRACKSIDE_")
_SETTABLE_ENV = frozenset({"MA_HANG_DETECT_TIME"})


def check_spec(spec: JobSpec) -> None:
    """Refuse a job that could not run, whatever machine it got."""
    if not spec.command and not (spec.code_dir and spec.boot_file) and not all(r.command for r in spec.roles):
        raise Invalid("a job needs either a command, or both code_dir and boot_file")
    _check_sizes(spec)
    _check_names(spec)
    for text in _texts(spec):
        if "\0" in text:
            raise Invalid("NUL characters are not allowed anywhere in a job")


async def check_objects(spec: JobSpec, objects: ObjectStore) -> None:
    """Refuse URLs that are not in the store's form, and code or inputs that are not there."""
    for url in (spec.code_dir, spec.log_export_url, *(c.url for c in (*spec.inputs, *spec.outputs))):
        if url:
            objects.check_url(url)
    for what, url in _needed(spec):
        if not await objects.exists(url):
            raise ObjectNotFound(f"{what}: there is nothing at {url}")


def check_fits(spec: JobSpec, nodes: Sequence[Capacity]) -> None:
    """Refuse a job of which one task is larger than every machine there is."""
    for role in spec.roles:
        need = role.resources
        if nodes and not any(node.fits(need) for node in nodes):
            largest = max(nodes, key=lambda node: (node.gpus + node.npus, node.cpu_cores))
            cards = f", {need.cards} {need.accelerator} cards" if need.cards else ""
            raise Invalid(
                f"{role.name} needs {need.cpu_cores:g} cores and {size_text(need.memory_bytes)}{cards} "
                f"on one machine; the largest has {largest.cpu_cores:g} cores, "
                f"{size_text(largest.memory_bytes)}, {largest.gpus} GPUs and {largest.npus} NPUs"
            )


def check_total_fits(spec: JobSpec, nodes: Sequence[Capacity]) -> None:
    """Refuse a job whose tasks could not all run at once even on empty machines."""
    free = list(nodes)
    for role in spec.roles:
        for index in range(role.count if free else 0):
            slot = next((i for i, node in enumerate(free) if node.fits(role.resources)), None)
            if slot is None:
                raise Exhausted(
                    f"{spec.node_count} tasks of this size can never run at once here: there is room for "
                    f"{index} of {role.name}; use fewer nodes or a smaller flavor"
                )
            free[slot] = free[slot].less(role.resources)


def _check_sizes(spec: JobSpec) -> None:
    limits = (
        ("nodes", spec.node_count, TASKS_MAX),
        ("environment variables", len(spec.environments), ENVIRONMENTS_MAX),
        ("parameters", len(spec.parameters), PARAMETERS_MAX),
        ("inputs and outputs", len(spec.inputs) + len(spec.outputs), CHANNELS_MAX),
        ("characters in the command", len(spec.command or ""), COMMAND_LENGTH_MAX),
    )
    for what, count, most in limits:
        if count > most:
            raise Invalid(f"a job may have at most {most:,} {what}, this one has {count:,}")
    if spec.node_count < 1:
        raise Invalid("a job needs at least one node")
    for role in spec.roles:
        if role.resources.cpu_cores <= 0 or role.resources.memory_bytes <= 0:
            raise Invalid("a task needs some CPU and some memory")


def _check_names(spec: JobSpec) -> None:
    for role in spec.roles:
        if not _ROLE_NAME.match(role.name):
            raise Invalid(f"{role.name!r} is not a role name: use letters, digits, - and _")
    for name in spec.environments:
        if not _ENV_NAME.match(name):
            raise Invalid(f"{name!r} is not a name for an environment variable: use [A-Za-z_][A-Za-z0-9_]*")
        if name.startswith(_RESERVED_ENV) and name not in _SETTABLE_ENV:
            raise Invalid(f"the environment variable {name} is reserved: names may not start with MA_")
    seen: set[str] = set()
    for channel in (*spec.inputs, *spec.outputs):
        if not _CHANNEL_NAME.match(channel.name):
            raise Invalid(f"{channel.name!r} is not a name for an input or output")
        if channel.name in seen:
            raise Invalid(f"two inputs or outputs are called {channel.name!r}")
        seen.add(channel.name)


def _needed(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if spec.code_dir:
        yield "code_dir", spec.code_dir
        if spec.boot_file:
            yield "boot_file", boot_file_url(spec)
    for channel in spec.inputs:
        yield f"input {channel.name}", channel.url


def boot_file_url(spec: JobSpec) -> str:
    """Return the whole URL of the boot file, which may be given whole or below code_dir."""
    boot, code = spec.boot_file or "", (spec.code_dir or "").rstrip("/")
    return boot if "://" in boot or boot.startswith("/") else f"{code}/{boot}"


def _texts(spec: JobSpec) -> Iterator[str]:
    yield from (spec.name, spec.description, spec.command or "", spec.boot_file or "", spec.working_dir or "")
    for pairs in (spec.parameters, spec.environments.items(), spec.annotations.items()):
        for name, value in pairs:
            yield name
            yield value
