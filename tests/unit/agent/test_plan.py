"""An order becomes a command; names cannot climb."""

from pathlib import Path

import pytest

from trackside.agent.layout import Layout, is_plain
from trackside.agent.plan import command, direct
from trackside.domain.exchange import Launch, TaskKey
from trackside.domain.job import Channel, JobId, TaskName
from trackside.domain.resources import Resources


def _launch(**fields: object) -> Launch:
    base: dict[str, object] = {
        "key": TaskKey(JobId("j"), 1, TaskName("worker-0")),
        "shell_command": "train",
        "boot_file": None,
        "resources": Resources(cpu_cores=1, memory_bytes=1),
        "grace_seconds": 1.0,
    }
    return Launch(**{**base, **fields})  # type: ignore[arg-type]


def test_a_plain_command_needs_no_staging() -> None:
    staged = direct(_launch(environment={"A": "b"}), Path("/task"))
    assert staged is not None
    assert staged.environment == {"A": "b", "MA_JOB_DIR": "/task"}
    assert command(_launch(), staged) == ["/bin/sh", "-c", "train"]


def test_arguments_are_handed_on_unread() -> None:
    launch = _launch(arguments=("--a=$(rm)",))
    staged = direct(launch, Path("/task"))
    assert staged is not None
    assert command(launch, staged) == ["/bin/sh", "-c", 'train "$@"', "/bin/sh", "--a=$(rm)"]


@pytest.mark.parametrize(
    "needs",
    [
        {"code_url": "obs://b/c/"},
        {"working_dir": "sub"},
        {"local_code_dir": "/home/ma-user/code"},
        {"inputs": (Channel(name="data", url="obs://b/d/"),)},
        {"outputs": (Channel(name="out", url="obs://b/o/"),)},
    ],
)
def test_whatever_touches_files_is_staged(needs: dict[str, object]) -> None:
    assert direct(_launch(**needs), Path("/task")) is None


@pytest.mark.parametrize(
    ("job_id", "task"), [("..", "w"), ("a/b", "w"), ("a", "../w"), ("", "w"), ("a", "w\0"), (".a", "w")]
)
def test_names_that_climb_are_refused(job_id: str, task: str) -> None:
    assert not is_plain(TaskKey(JobId(job_id), 1, TaskName(task)))


def test_every_task_has_places_of_its_own() -> None:
    layout = Layout(Path("/d"))
    key = TaskKey(JobId("0123-4"), 2, TaskName("worker-1"))
    assert is_plain(key)
    assert layout.work_dir(key) == Path("/d/work/0123-4/2/worker-1")
    assert layout.log_file(key) == Path("/d/logs/0123-4/2/worker-1.log")
    assert layout.state_dir(key) == Path("/d/agent/tasks/0123-4.2.worker-1")
