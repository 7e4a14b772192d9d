"""A job file's words become the v2 create body; what is wrong in it is named."""

from pathlib import Path
from typing import Any

import pytest

from trackside.cli.errors import CliError, ExitCode
from trackside.cli.jobfile import KEYS, apply_settings, create_body, memory_gib, read_file

EVERYTHING = """
name: llama-sft
description: a try
code_dir: obs://code/llama/
boot_file: train.py
workers: 8
flavor: gpu.1x
cpu: 4
memory: 16GiB
gpus: 1
env: {A: 1, B: true}
parameters: {lr: 0.1, warm: null}
inputs:
  data_url: obs://data/in/
outputs:
  train_url: {url: obs://data/out/, local_dir: /tmp/out, access: env}
pool: team-a
max_hours: 3
priority: 2
preemptible: true
engine: torch-2
image: registry/torch:2
working_dir: /work
local_code_dir: /home/work/code
annotations: {fault-tolerance/job-retry-num: 3}
notify: {ops: [JobFailed, JobHanged]}
"""


def test_every_key_is_translated(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(EVERYTHING)
    job = read_file(path)
    assert set(job) == set(KEYS) - {"command", "code"}
    assert create_body(job) == {
        "kind": "job",
        "metadata": {
            "name": "llama-sft",
            "description": "a try",
            "annotations": {"fault-tolerance/job-retry-num": "3"},
        },
        "algorithm": {
            "code_dir": "obs://code/llama/",
            "boot_file": "train.py",
            "working_dir": "/work",
            "local_code_dir": "/home/work/code",
            "environments": {"A": "1", "B": "true"},
            "parameters": [{"name": "lr", "value": "0.1"}, {"name": "warm", "value": ""}],
            "inputs": [{"name": "data_url", "remote": {"obs": {"obs_url": "obs://data/in/"}}}],
            "outputs": [
                {
                    "name": "train_url",
                    "remote": {"obs": {"obs_url": "obs://data/out/"}},
                    "local_dir": "/tmp/out",
                    "access_method": "env",
                }
            ],
            "engine": {"engine_id": "torch-2", "image_url": "registry/torch:2"},
        },
        "spec": {
            "resource": {
                "node_count": 8,
                "flavor_id": "gpu.1x",
                "pool_id": "team-a",
                "main_container_customized_flavor": {
                    "cpu_core_num": 4.0,
                    "mem_size": 16.0,
                    "accelerator_num": 1,
                },
            },
            "auto_stop": {"time_unit": "HOURS", "duration": 3},
            "notification": {"topic_urn": "ops", "events": ["JobFailed", "JobHanged"]},
            "schedule_policy": {"priority": 2, "preemptible": True},
        },
    }


def test_toml_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('name = "t"\ncommand = "true"\nworkers = 2\n[env]\nA = 1\n')
    body = create_body(read_file(path))
    assert body["spec"] == {"resource": {"node_count": 2}}
    assert body["algorithm"] == {"command": "true", "environments": {"A": "1"}}


@pytest.mark.parametrize(
    ("job", "message", "hint"),
    [
        ({"nam": "x"}, "no key 'nam'", "did you mean name?"),
        ({"zzz": 1}, "no key 'zzz'", "the keys are: name,"),
        ({"command": "true"}, "no name", "--name"),
        ({"name": "x"}, "nothing to run", "command:"),
        ({"name": "x", "boot_file": "a.py"}, "boot_file needs the code", "code:"),
        ({"name": "x", "command": "a", "boot_file": "b"}, "both given", "keep one"),
        ({"name": "x", "command": "a", "workers": 0}, "workers must be a whole number, at least 1", None),
        ({"name": "x", "command": "a", "workers": True}, "workers must be a whole number", None),
        ({"name": "x", "command": "a", "workers": 1.5}, "workers must be a whole number", None),
        ({"name": "x", "command": "a", "cpu": float("nan")}, "cpu must be a number above 0", None),
        ({"name": "x", "command": "a", "memory": "much"}, "'much' is not an amount of memory", "16GiB"),
        ({"name": "x", "command": "a", "memory": -1}, "not an amount of memory", "16GiB"),
        ({"name": "x", "command": "a", "max_hours": 0.5}, "max_hours must be a whole number", None),
        ({"name": "x", "command": "a", "env": ["A=1"]}, "env is not a map", "env: {NAME: value}"),
        ({"name": "x", "command": "a", "env": {"A": [1]}}, "env.A must be one value", None),
        ({"name": "x", "command": "a", "inputs": {"d": {}}}, "inputs.d names no place", "obs://"),
        ({"name": "x", "command": "a", "inputs": {"d": {"uri": "y"}}}, "inputs.d has no key 'uri'", "url"),
        ({"name": "x", "command": ["a"]}, "command must be text", None),
        ({"name": "x", "command": "a", "notify": ["ops"]}, "notify must be text", None),
        ({"name": "x", "command": "a", "notify": {"a": [], "b": []}}, "notify names one topic", "ops"),
        ({"name": "x", "command": "a", "notify": {"a": "JobFailed"}}, "to a list of events", "ops"),
        ({"name": "x", "command": "a", "preemptible": "yes"}, "preemptible must be true or false", None),
    ],
)
def test_what_is_wrong_is_named(job: dict[str, Any], message: str, hint: str | None) -> None:
    with pytest.raises(CliError) as refused:
        create_body(job)
    assert refused.value.code is ExitCode.REFUSED
    assert message in refused.value.message
    assert (hint or "") in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "gib"), [(16, 16), ("16GiB", 16), ("512 MiB", 0.5), ("2T", 2048), ("1.5g", 1.5)]
)
def test_memory_in_gib(text: object, gib: float) -> None:
    assert memory_gib(text) == gib


def test_settings_change_the_file() -> None:
    job: dict[str, Any] = {"name": "a", "parameters": {"lr": 1}}
    apply_settings(job, ["workers=4", "parameters.lr=0.5", "env.A=x=y", "name=b"])
    assert job == {"name": "b", "parameters": {"lr": 0.5}, "workers": 4, "env": {"A": "x=y"}}


@pytest.mark.parametrize("setting", ["workers", "=4", "name.x=1"])
def test_a_setting_that_is_none_is_refused(setting: str) -> None:
    with pytest.raises(CliError, match="--set") as refused:
        apply_settings({"name": "a"}, [setting])
    assert refused.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("job.yaml", b"a: [", "cannot be read"),
        ("job.toml", b"a = ", "cannot be read"),
        ("job.yaml", b"- a\n- b\n", "is not a map"),
        ("job.yaml", b"\xff\xfe", "not text in UTF-8"),
        ("job.yaml", b"", "is not a map"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CliError, match=message):
        read_file(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="No such file"):
        read_file(tmp_path / "job.yaml")
