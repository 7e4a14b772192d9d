"""The command as a whole: refusals in two lines, quick help, and what people see on a terminal."""

import json
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_server import FakeServer, job
from tests.unit.cli.test_commands import FAILED, OTHER_ID
from trackside.cli.main import app, main

HEAVY = (
    "rich",
    "yaml",
    "msgspec",
    "http.client",
    "uvloop",
    "sqlalchemy",
    "starlette",
    "numpy",
    "hypothesis",
)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["lss"], "no such command 'lss'. Did you mean 'ls'?", "trackside --help"),
        (["ls", "--stat"], "no such option: --stat", "trackside ls --help"),
        (["show"], "missing argument 'JOB'", "trackside show --help"),
        (["ls", "-n", "x"], "invalid value for '--limit'", "trackside ls --help"),
        (["user", "add"], "missing argument 'NAME'", "trackside user add --help"),
    ],
)
def test_a_wrong_command_is_one_error_and_one_hint(
    run: Run, arguments: list[str], message: str, hint: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    error, told = ran.err.splitlines()
    assert error.startswith(f"error: {message}")
    assert told == f"hint: {hint}"


def test_no_command_is_answered_with_the_help(run: Run) -> None:
    ran = run()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == run("--help").out


def test_a_server_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "trackside",
            "serve",
            "--port",
            str(port),
            "--data-dir",
            str(tmp_path),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 6
    assert f"error: cannot listen on 127.0.0.1:{port}: " in ran.stderr.splitlines()[-2]
    assert ran.stderr.splitlines()[-1].startswith("hint: trackside serve --port 0")


def test_without_settings_it_says_how_to_get_some(run: Run) -> None:
    ran = run("ls")
    assert ran.code == 4
    assert ran.err.startswith("error: not signed in: no endpoint or project_id or access_key or secret_key")
    assert "hint: start a server on this machine with `trackside serve`" in ran.err


def test_settings_come_from_the_data_directory(
    fake: FakeServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {key.removeprefix("TRACKSIDE_").lower(): value for key, value in fake.environment().items()}
    for key in fake.environment():
        monkeypatch.delenv(key)
    monkeypatch.setenv("TRACKSIDE_DATA_DIR", str(tmp_path))
    (tmp_path / "credentials.json").write_text(json.dumps(kept))
    assert run("ls").code == 0
    (tmp_path / "credentials.json").write_text("{")
    assert "credentials.json is not JSON" in run("ls").err
    (tmp_path / "credentials.json").write_text(json.dumps({**kept, "secret_key": ""}))
    assert "no secret_key in the environment" in run("ls").err


def test_the_version(run: Run) -> None:
    assert run("--version").out.startswith("trackside ")


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom trackside.cli.main import main\nmain(['--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    assert done.stderr.strip() == "[]"


def test_an_unexpected_error_is_one_line_unless_asked(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom trackside.cli import main, settings\n"
        "settings.load = lambda server: 1 / 0\nmain.run(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "ls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: something unexpected happened (ZeroDivisionError: division by zero)",
        "hint: run it again with -v to see where",
    ]
    done = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False)
    assert "Traceback" in done.stderr


def test_a_reader_that_has_enough_ends_it_quietly(fake: FakeServer) -> None:
    fake.jobs = [job(f"job-{n}", id=f"{n:08d}-0000-4000-8000-000000000000") for n in range(3000)]
    command = subprocess.Popen(
        [sys.executable, "-m", "trackside", "ls", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout
    assert command.stderr
    with command.stdout, command.stderr:
        command.stdout.readline()
        command.stdout.close()
        told = command.stderr.read()
    assert command.wait() == 0
    assert told == ""


def on_terminal(*arguments: str, columns: int = 100, **environment: str) -> list[str]:
    """Run the command with a terminal for its output; return the lines a person sees."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trackside", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": str(columns), "TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed: Linux says EIO
            break
        if not part:
            break
        seen += part
    os.close(ours)
    process.wait()
    return seen.decode().replace("\r\n", "\n").splitlines()


def test_people_get_aligned_columns_and_colour_on_the_icon_alone(fake: FakeServer) -> None:
    fake.jobs = [job(), job("bert", "failed", id=OTHER_ID, **FAILED)]
    header, first, second = on_terminal("ls", columns=160)
    assert header.split() == ["NAME", "STATE", "WORKERS", "STARTED", "TOOK", "OWNER", "WHY"]
    assert first.startswith("\x1b[34m▶\x1b[0m  llama-sft  Running")
    assert second.startswith("\x1b[31m✕\x1b[0m  bert       Failed ")
    assert second.count("\x1b") == 2
    assert "worker-1 ran out of memory (16.0 GiB of 16.0 GiB)" in second


@pytest.mark.parametrize("columns", [40, 80])
def test_narrow_terminals_and_no_color(fake: FakeServer, columns: int) -> None:
    fake.jobs = [job("bert", "failed", **FAILED)]
    lines = on_terminal("ls", columns=columns, NO_COLOR="1")
    assert not any("\x1b" in line for line in lines)
    assert all(len(line.rstrip()) <= columns for line in lines)
    assert "✕" in lines[1]
    assert lines == on_terminal("ls", "--no-color", columns=columns)


def test_show_on_a_terminal(fake: FakeServer) -> None:
    fake.jobs = [job(phase="failed", **FAILED)]
    lines = on_terminal("show", "llama-sft", columns=140, NO_COLOR="1")
    assert lines[0] == "llama-sft  ✕ Failed after 7 s"
    assert "workers   2 failed" in lines
    assert "SIGKILL" in lines[-1]
    narrow = on_terminal("show", "llama-sft", columns=40, NO_COLOR="1")
    assert ["WORKER", "STATE", "EXIT", "WHY"] in [line.split() for line in narrow], "room is left for why"


def option_names() -> dict[str, set[str]]:
    """Return every command of the app, by its full name, with its options and arguments."""
    import typer.main

    found: dict[str, set[str]] = {}

    def walk(command: object, path: str) -> None:
        children = getattr(command, "commands", None)
        if children:
            for name, child in children.items():
                walk(child, f"{path} {name}")
            return
        names = {
            name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
        }  # type: ignore[attr-defined]
        found[path] = {name for name in names if name.startswith("-")}

    walk(typer.main.get_command(app), "trackside")
    return found


def test_every_command_and_option_is_in_the_docs_and_nothing_else() -> None:
    import re

    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    sections = {
        part.splitlines()[0].strip("` "): part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    }
    common = sections["Common flags"]
    for command, options in option_names().items():
        assert command in sections, f"docs/cli.md has no section {command}"
        told = set(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", sections[command] + common))
        assert options <= told, f"{command}: docs/cli.md does not tell {sorted(options - told)}"
        flags = set(re.findall(r"^\| `([^`]*)`", sections[command], flags=re.MULTILINE))
        listed = {name for flag in flags for name in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", flag)}
        assert listed <= options, (
            f"{command}: docs/cli.md tells {sorted(listed - options)}, which is not there"
        )


def test_every_exit_code_and_job_file_key_is_in_the_docs() -> None:
    import re

    from trackside.cli.errors import ExitCode
    from trackside.cli.jobfile import KEYS

    text = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)} == set(ExitCode)
    keys = text.partition("## The job file")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", keys, flags=re.MULTILINE)) == set(KEYS)


def test_main_returns_a_code() -> None:
    assert main(["--version"]) == 0
