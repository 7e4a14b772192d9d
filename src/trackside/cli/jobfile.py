"""Knows the friendly words of a job file and what they are in a ModelArts v2 create body."""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trackside.cli.errors import Refused, Usage

FILE_BYTES_MAX = 1024 * 1024
GIB_OF_UNIT = {
    "": 1.0,
    "g": 1.0,
    "gb": 1.0,
    "gib": 1.0,
    "gi": 1.0,
    "m": 1 / 1024,
    "mb": 1 / 1024,
    "mib": 1 / 1024,
}
GIB_OF_UNIT |= {"mi": 1 / 1024, "t": 1024.0, "tb": 1024.0, "tib": 1024.0, "ti": 1024.0}

# Every key of a job file and what it means; docs/cli.md shows the same table.
KEYS = {
    "name": "the job's name: letters, digits, - and _, at most 64",
    "description": "a sentence about it",
    "command": "what every worker runs, by sh -c",
    "code": "a local directory that is uploaded first",
    "code_dir": "obs:// directory with the code, instead of `code`",
    "boot_file": "a Python file below the code directory, instead of `command`",
    "workers": "how many workers (1)",
    "flavor": "the size of each worker: trackside flavor ls",
    "cpu": "cores of each worker, instead of the flavor's",
    "memory": "memory of each worker: 16GiB",
    "gpus": "cards of each worker",
    "env": "environment variables: a map",
    "parameters": "passed as --name=value: a map",
    "inputs": "name: obs://bucket/key, staged before the start",
    "outputs": "name: obs://bucket/key, uploaded while it runs and at its end",
    "pool": "where it waits and runs: trackside pool ls",
    "max_hours": "stop it when it has run this long",
    "priority": "0 to 3; more is sooner",
    "preemptible": "whether a job of higher priority may take its place",
    "engine": "the id of a prepared environment",
    "image": "a container image",
    "working_dir": "the directory the command starts in",
    "local_code_dir": "where the code is put",
    "annotations": "a map of strings",
    "notify": "a topic that is told of it (trackside notify ls), or a map of a topic to its events",
}
CHANNEL_KEYS = ("url", "local_dir", "access")


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a job file; YAML unless it ends in .toml."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise Usage(f"{path} is larger than a job file may be ({FILE_BYTES_MAX:,} bytes)")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Usage(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Usage(f"{path} is not text in UTF-8") from error
    content = _toml(path, text) if path.suffix == ".toml" else _yaml(path, text)
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise Refused(f"{path} is not a map of names to values", "begin with: name: my-job")
    return content


def apply_settings(job: dict[str, Any], settings: Sequence[str]) -> None:
    """Apply --set KEY=VALUE; a dot reaches into a map: parameters.lr=0.1."""
    import yaml

    for setting in settings:
        key, found, text = setting.partition("=")
        if not found or not key:
            raise Usage(f"--set takes KEY=VALUE, not {setting!r}", "for example: --set workers=4")
        outer, _, inner = key.partition(".")
        value = yaml.safe_load(text) if text else ""
        if not inner:
            job[outer] = value
            continue
        place = job.setdefault(outer, {})
        if not isinstance(place, dict):
            raise Usage(f"--set {key}: {outer} is not a map")
        place[inner] = value


def check_keys(job: Mapping[str, Any]) -> None:
    """Refuse keys that no job file has."""
    for key in job:
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the keys are: {', '.join(KEYS)}"
            raise Refused(f"a job file has no key {key!r}", hint)


def create_body(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the v2 create body for a job; `code` must have become `code_dir` before."""
    check_keys(job)
    name = _text(job, "name")
    if not name:
        raise Refused("the job has no name", "add: name: my-job, or give --name")
    metadata = {
        "name": name,
        "description": _text(job, "description"),
        "annotations": _strings(job, "annotations"),
    }
    spec = {
        "resource": _resource(job),
        "auto_stop": _auto_stop(job),
        "schedule_policy": _filled(
            {"priority": _integer(job, "priority", 0), "preemptible": _boolean(job, "preemptible")}
        ),
        "notification": _notification(job),
    }
    return {"kind": "job", "metadata": _filled(metadata), "algorithm": _algorithm(job), "spec": _filled(spec)}


def memory_gib(value: object) -> float:
    """Return an amount of memory in GiB: 16, "16GiB", "512 MiB"."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return float(value)
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(value))
    unit = GIB_OF_UNIT.get(found[2].lower()) if found else None
    if found is None or unit is None or float(found[1]) <= 0:
        raise Refused(f"memory: {value!r} is not an amount of memory", "write 16GiB or 512MiB")
    return float(found[1]) * unit


def _algorithm(job: Mapping[str, Any]) -> dict[str, Any]:
    command, boot_file, code_dir = (_text(job, key) for key in ("command", "boot_file", "code_dir"))
    if command and boot_file:
        raise Refused("command and boot_file are both given", "keep one of them")
    if not command and not boot_file:
        raise Refused(
            "nothing to run: there is neither a command nor a boot_file", "add: command: python train.py"
        )
    if boot_file and not code_dir:
        raise Refused(
            "boot_file needs the code it lies in", "add: code: ./dir, or code_dir: obs://bucket/dir/"
        )
    return _filled(
        {
            "command": command,
            "code_dir": code_dir,
            "boot_file": boot_file,
            "working_dir": _text(job, "working_dir"),
            "local_code_dir": _text(job, "local_code_dir"),
            "environments": _strings(job, "env"),
            "parameters": [{"name": k, "value": v} for k, v in _strings(job, "parameters").items()],
            "inputs": _channels(job, "inputs"),
            "outputs": _channels(job, "outputs"),
            "engine": _filled({"engine_id": _text(job, "engine"), "image_url": _text(job, "image")}),
        }
    )


def _resource(job: Mapping[str, Any]) -> dict[str, Any]:
    own = {
        "cpu_core_num": _number(job, "cpu"),
        "mem_size": None if job.get("memory") is None else memory_gib(job["memory"]),
        "accelerator_num": _integer(job, "gpus", 0),
    }
    return _filled(
        {
            "node_count": _integer(job, "workers", 1) or 1,
            "flavor_id": _text(job, "flavor"),
            "pool_id": _text(job, "pool"),
            "main_container_customized_flavor": _filled(own),
        }
    )


def _auto_stop(job: Mapping[str, Any]) -> dict[str, Any]:
    hours = _integer(job, "max_hours", 1)
    return {} if hours is None else {"time_unit": "HOURS", "duration": hours}


def _notification(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return who is told: `notify: ops`, or `notify: {ops: [JobFailed]}`."""
    given = job.get("notify")
    if given is None:
        return {}
    topics = given if isinstance(given, dict) else {_text(job, "notify"): None}
    if len(topics) != 1:
        raise Refused("notify names one topic", "write: notify: ops, or notify: {ops: [JobFailed]}")
    [(topic, events)] = topics.items()
    if not isinstance(topic, str) or not isinstance(events, list | None):
        raise Refused("notify is a topic, or a map of a topic to a list of events", "write: notify: ops")
    return _filled({"topic_urn": topic, "events": [str(event) for event in events or ()]})


def _channels(job: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    channels = job.get(key) or {}
    if not isinstance(channels, dict):
        raise Refused(
            f"{key} is not a map of names to obs:// addresses",
            f"write: {key}: {{data_url: obs://bucket/key/}}",
        )
    return [_channel(key, str(name), value) for name, value in channels.items()]


def _channel(key: str, name: str, value: object) -> dict[str, Any]:
    given = value if isinstance(value, dict) else {"url": value}
    strange = [part for part in given if part not in CHANNEL_KEYS]
    if strange:
        raise Refused(f"{key}.{name} has no key {strange[0]!r}", f"the keys are: {', '.join(CHANNEL_KEYS)}")
    url = given.get("url")
    if not isinstance(url, str) or not url:
        raise Refused(f"{key}.{name} names no place", f"write: {name}: obs://bucket/key/")
    return _filled(
        {
            "name": name,
            "remote": {"obs": {"obs_url": url}},
            "local_dir": given.get("local_dir"),
            "access_method": given.get("access"),
        }
    )


def _strings(job: Mapping[str, Any], key: str) -> dict[str, str]:
    values = job.get(key) or {}
    if not isinstance(values, dict):
        raise Refused(f"{key} is not a map of names to values", f"write: {key}: {{NAME: value}}")
    for name, value in values.items():
        if isinstance(value, dict | list):
            raise Refused(f"{key}.{name} must be one value, not a {type(value).__name__}")
    return {str(name): _scalar(value) for name, value in values.items()}


def _scalar(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(job: Mapping[str, Any], key: str) -> str | None:
    value = job.get(key)
    if value is None:
        return None
    if isinstance(value, dict | list | bool):
        raise Refused(f"{key} must be text, not {value!r}")
    return str(value).strip()


def _number(job: Mapping[str, Any], key: str) -> float | None:
    value = job.get(key)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise Refused(f"{key} must be a number above 0, not {value!r}")
    return float(value)


def _integer(job: Mapping[str, Any], key: str, least: int) -> int | None:
    value = job.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Refused(f"{key} must be a whole number, at least {least}, not {value!r}")
    return value


def _boolean(job: Mapping[str, Any], key: str) -> bool | None:
    value = job.get(key)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{key} must be true or false, not {value!r}")
    return value


def _filled(parts: dict[str, Any]) -> dict[str, Any]:
    """Return what was said: nothing that is None or empty."""
    return {key: value for key, value in parts.items() if value not in (None, "", {}, [])}


def _toml(path: Path, text: str) -> Any:
    return _parsed(path, tomllib.loads, text, tomllib.TOMLDecodeError)


def _yaml(path: Path, text: str) -> Any:
    import yaml

    return _parsed(path, yaml.safe_load, text, yaml.YAMLError)


def _parsed(path: Path, parse: Callable[[str], Any], text: str, problem: type[Exception]) -> Any:
    try:
        return parse(text)
    except problem as error:
        first = " ".join(str(error).split())
        raise Refused(f"{path} cannot be read: {first}") from error
