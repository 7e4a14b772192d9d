"""Why a command cannot be executed: each cause really provoked, in a forked process."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trackside.agent import child
from trackside.agent.record import Plan


def plan(folder: Path, *argv: str, **more: Any) -> Plan:
    made: dict[str, Any] = {
        "key": "job.1.worker-0",
        "argv": list(argv),
        "env": {"PATH": f"{folder}/bin:/usr/bin:/bin"},
        "cwd": str(folder),
        "must_exist": None,
        "log": os.devnull,
        "grace_seconds": 1,
        "user": None,
        "covers": [],
        "cgroup_joins": [],
        "cgroup_unified": None,
        "oom_file": None,
        "memory_peak_file": None,
        "tmp_dir": str(folder),
    }
    return Plan(**(made | more))  # type: ignore[typeddict-item]


def refusal(of: Plan) -> str:
    """Run a plan in a fork; return what it says, or "" if the command ran."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        child.run(of, null, write_fd)
    os.close(write_fd)
    with open(read_fd, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    return str(json.loads(told)["message"]) if told else ""


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_command_that_can_run_says_nothing(tmp_path: Path) -> None:
    assert refusal(plan(tmp_path, "true")) == ""
    assert refusal(plan(tmp_path, script(tmp_path / "ok", "#!/bin/sh\n"))) == ""


def test_each_obstacle_has_its_words(tmp_path: Path) -> None:
    assert refusal(plan(tmp_path, "no-such-program")).startswith("no such file: no-such-program.")
    assert refusal(plan(tmp_path, f"{tmp_path}/none")).startswith(f"no such file: {tmp_path}/none.")
    closed = script(tmp_path / "closed", "#!/bin/sh\n", 0o644)
    assert refusal(plan(tmp_path, closed)).startswith(f"no permission to run {closed}.")
    plain = script(tmp_path / "plain", "hello")
    assert refusal(plan(tmp_path, plain)).startswith(f"{plain} is not a program.")
    lost = script(tmp_path / "lost", "#!/opt/nope/python -u\n")
    assert refusal(plan(tmp_path, lost)) == (
        f"the interpreter /opt/nope/python, named in the first line of {lost}, does not exist"
    )
    windows = script(tmp_path / "windows", "#!/bin/sh\r\necho\r\n")
    assert "ends as on Windows" in refusal(plan(tmp_path, windows))


def test_a_bad_interpreter_on_the_path_is_not_called_missing(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "train", "#!/opt/nope/sh\n")
    assert "/opt/nope/sh" in refusal(plan(tmp_path, "train"))


@pytest.mark.parametrize(("name", "why"), [("none", "it does not exist"), ("file", "it is not a directory")])
def test_a_working_directory_that_cannot_be_entered_is_named(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").touch()
    said = refusal(plan(tmp_path, "true", cwd=f"{tmp_path}/{name}"))
    assert said == f"the working directory {tmp_path}/{name} cannot be entered: {why}"


def test_a_boot_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refusal(plan(tmp_path, "true", must_exist=f"{tmp_path}/train.py")).startswith("no such file:")


def test_a_program_of_another_system_is_recognised(tmp_path: Path) -> None:
    elf = tmp_path / "elf"
    elf.write_bytes(b"\x7fELF" + bytes(60))
    assert "built for another system" in child.missing_interpreter(str(elf))
    assert not child.interpreter_is_missing(str(elf))
    assert child.interpreter_is_missing(script(tmp_path / "lost", "#! /opt/nope/sh\n"))
    assert not child.interpreter_is_missing(script(tmp_path / "found", "#! /bin/sh\n"))
