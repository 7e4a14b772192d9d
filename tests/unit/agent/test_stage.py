"""A task finds its code, inputs and outputs where it was told, all below its own directory."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trackside.agent.stage import Staged, StagingError, stage
from trackside.domain.exchange import Launch, TaskKey
from trackside.domain.job import Access, Channel, JobId, TaskName
from trackside.domain.resources import Resources
from trackside.objectstore import open_objects
from trackside.ports import ObjectStore

JOB_DIR = "home/ma-user/modelarts/user-job-dir"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "obs"


@pytest.fixture
def objects(root: Path) -> ObjectStore:
    for key in ("bkt/code/train.py", "bkt/code/lib/net.py", "bkt/data/a.csv", "bkt/data/deep/b.csv"):
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_text(key)
    return open_objects(root)


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    return tmp_path / "work" / "worker-0"


@pytest.fixture
def run(objects: ObjectStore, task_dir: Path) -> Callable[..., Staged]:
    def run(owner: tuple[int, int] | None = None, **launch: Any) -> Staged:
        return stage(_launch(**launch), task_dir=task_dir, objects=objects, owner=owner)

    return run


def _launch(**fields: Any) -> Launch:
    given: dict[str, Any] = {
        "key": TaskKey(JobId("job"), 1, TaskName("worker-0")),
        "shell_command": None,
        "boot_file": None,
        "resources": Resources(cpu_cores=1, memory_bytes=1),
        "grace_seconds": 1.0,
    }
    return Launch(**{**given, **fields})


def _files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_a_plain_command_runs_in_the_tasks_own_directory(run: Callable[..., Staged], task_dir: Path) -> None:
    staged = run(shell_command="true", arguments=("--lr=1",), environment={"A": "b"})
    assert (staged.code_dir, staged.boot_file, staged.outputs) == (None, None, {})
    assert staged.working_dir == task_dir
    assert staged.arguments == ("--lr=1",)
    assert staged.environment == {"A": "b", "MA_JOB_DIR": str(task_dir / JOB_DIR)}
    assert (task_dir / "tmp").is_dir()
    assert (task_dir / JOB_DIR).is_dir()


@pytest.mark.parametrize("code_url", ["obs://bkt/code/", "obs://bkt/code", "/bkt/code/", "oss://bkt/code"])
@pytest.mark.parametrize(
    "boot_file", ["obs://bkt/code/train.py", "/bkt/code/train.py", "s3://bkt/code/train.py", "train.py"]
)
def test_code_lies_in_the_job_dir_under_its_last_name(
    run: Callable[..., Staged], task_dir: Path, code_url: str, boot_file: str
) -> None:
    staged = run(code_url=code_url, boot_file=boot_file)
    assert staged.code_dir == staged.working_dir == task_dir / JOB_DIR / "code"
    assert staged.boot_file == staged.code_dir / "train.py"
    assert staged.boot_file.read_text() == "bkt/code/train.py"
    assert _files(staged.code_dir) == {"train.py", "lib/net.py"}


def test_a_whole_bucket_can_be_the_code(run: Callable[..., Staged], task_dir: Path) -> None:
    staged = run(code_url="obs://bkt/", boot_file="obs://bkt/code/train.py")
    assert staged.boot_file == task_dir / JOB_DIR / "code" / "code" / "train.py"


def test_local_code_dir_is_where_the_code_goes(run: Callable[..., Staged], task_dir: Path) -> None:
    staged = run(code_url="obs://bkt/code/", boot_file="lib/net.py", local_code_dir="/home/me/src")
    assert staged.code_dir == task_dir / "home/me/src"
    assert staged.environment["MA_JOB_DIR"] == str(task_dir / "home/me")
    assert staged.boot_file == task_dir / "home/me/src/lib/net.py"


@pytest.mark.parametrize(
    "boot_file", ["none.py", "lib", "obs://bkt/other/train.py", "obs://bkt/codex/train.py", "/etc/passwd"]
)
def test_a_boot_file_that_is_not_in_the_code_is_told(run: Callable[..., Staged], boot_file: str) -> None:
    with pytest.raises(StagingError) as error:
        run(code_url="obs://bkt/code/", boot_file=boot_file)
    assert str(error.value) == f"boot file {boot_file} is not in code_dir obs://bkt/code/"


def test_a_boot_file_needs_code(run: Callable[..., Staged]) -> None:
    with pytest.raises(StagingError, match=r"boot file train.py is not in code_dir \(none given\)"):
        run(boot_file="train.py")


def test_channels_are_told_as_parameters_or_environment(run: Callable[..., Staged], task_dir: Path) -> None:
    staged = run(
        arguments=("--epochs=3",),
        inputs=(
            Channel(
                name="data_url", url="obs://bkt/data/", local_dir="/home/ma-user/modelarts/inputs/data_url_0"
            ),
            Channel(name="extra", url="obs://bkt/data/a.csv", access=Access.ENV),
        ),
        outputs=(
            Channel(name="train_url", url="obs://bkt/out/"),
            Channel(name="CKPT", url="obs://bkt/ckpt", local_dir="/cache/ckpt", access=Access.ENV),
        ),
    )
    data = task_dir / "home/ma-user/modelarts/inputs/data_url_0"
    train, ckpt = task_dir / "outputs/train_url", task_dir / "cache/ckpt"
    assert staged.arguments == ("--epochs=3", f"--data_url={data}", f"--train_url={train}")
    assert staged.environment["extra"] == str(task_dir / "inputs/extra")
    assert staged.environment["CKPT"] == str(ckpt)
    assert _files(data) == {"a.csv", "deep/b.csv"}
    assert _files(task_dir / "inputs/extra") == {"a.csv"}
    assert staged.outputs == {"obs://bkt/out/": train, "obs://bkt/ckpt": ckpt}
    assert train.is_dir()
    assert ckpt.is_dir()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"inputs": (Channel(name="data_url", url="obs://bkt/x"),)},
            "input data_url: nothing at obs://bkt/x",
        ),
        (
            {"code_url": "obs://bkt/.."},
            "code_dir: 'obs://bkt/..' is no object store URL: "
            "its path must not contain empty, '.' or '..' segments",
        ),
        ({"code_url": "obs://bkt/nocode/"}, "code_dir: nothing at obs://bkt/nocode/"),
        (
            {"inputs": (Channel(name="d", url="obs://bkt/../x"),)},
            "input d: 'obs://bkt/../x' is no object store URL: "
            "its path must not contain empty, '.' or '..' segments",
        ),
        (
            {"outputs": (Channel(name="o", url="nowhere"),)},
            "output o: 'nowhere' is no object store URL: it must begin with obs://bucket/ or /bucket/",
        ),
        (
            {"outputs": (Channel(name="a", url="obs://bkt/o"), Channel(name="b", url="/bkt/o/"))},
            "outputs a and b both go to /bkt/o/",
        ),
        (
            {"inputs": (Channel(name="../d", url="obs://bkt/data"),)},
            "inputs: '../d' cannot be used as a name",
        ),
        (
            {"inputs": (Channel(name="d", url="obs://bkt/data", local_dir="/home/../../etc"),)},
            "inputs d: local_dir: '/home/../../etc' is not a plain path",
        ),
        ({"working_dir": "/home/ma-user/../.."}, "working_dir: '/home/ma-user/../..' is not a plain path"),
        ({"local_code_dir": "../up"}, "local_code_dir: '../up' is not a plain path"),
        (
            {"code_url": "obs://bkt/code", "boot_file": "../../x.py"},
            "boot_file: '../../x.py' is not a plain path",
        ),
    ],
)
def test_what_cannot_be_staged_is_told_in_one_sentence(
    run: Callable[..., Staged], task_dir: Path, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(StagingError) as error:
        run(**fields)
    assert str(error.value) == text
    assert {path.name for path in task_dir.parent.parent.iterdir()} == {"obs", "work"}
    assert {path.name for path in task_dir.parent.iterdir()} <= {"worker-0"}


def test_a_working_dir_in_the_container_is_mapped(run: Callable[..., Staged], task_dir: Path) -> None:
    staged = run(code_url="obs://bkt/code/", working_dir="/home/ma-user/modelarts/user-job-dir/code/lib")
    assert staged.working_dir == task_dir / JOB_DIR / "code/lib"
    assert _files(staged.working_dir) == {"net.py"}


def test_a_working_dir_of_the_host_is_used_if_it_exists(
    run: Callable[..., Staged], task_dir: Path, tmp_path: Path
) -> None:
    assert run(working_dir=str(tmp_path)).working_dir == tmp_path
    missing = run(working_dir="/no/such/place").working_dir
    assert missing == task_dir / "no/such/place"
    assert missing.is_dir()


def test_a_mapped_working_dir_wins_over_the_hosts(run: Callable[..., Staged], task_dir: Path) -> None:
    output = Channel(name="o", url="obs://bkt/o", local_dir="/tmp")
    assert run(outputs=(output,), working_dir="/tmp").working_dir == task_dir / "tmp"


def test_a_relative_working_dir_is_below_the_code(run: Callable[..., Staged]) -> None:
    staged = run(code_url="obs://bkt/code/", working_dir="lib")
    assert staged.code_dir is not None
    assert staged.working_dir == staged.code_dir / "lib"


def test_everything_made_belongs_to_the_owner_and_nothing_else_does(
    run: Callable[..., Staged], task_dir: Path, tmp_path: Path
) -> None:
    root = os.geteuid() == 0
    owner = (12345, 12346) if root else (os.geteuid(), os.getegid())
    outside = tmp_path / "outside"
    outside.write_text("")
    (task_dir / "tmp").mkdir(parents=True)
    (task_dir / "tmp" / "link").symlink_to(outside)
    (task_dir / "agents-own").write_text("")
    run(owner=owner, code_url="obs://bkt/code/", outputs=(Channel(name="o", url="obs://bkt/o"),))
    made = [path for path in task_dir.rglob("*") if path.name != "agents-own"]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in [task_dir, *made]} == {owner}
    assert {path.name for path in made} >= {"tmp", "link", "outputs", "o", "home", "code", "train.py", "lib"}
    for path in (outside, task_dir / "agents-own", task_dir.parent):
        assert path.lstat().st_uid == os.geteuid()


def test_staging_can_be_repeated(run: Callable[..., Staged], root: Path) -> None:
    first = run(code_url="obs://bkt/code/", boot_file="train.py")
    (root / "bkt/code/train.py").write_text("v2")
    second = run(code_url="obs://bkt/code/", boot_file="train.py")
    assert first == second
    assert second.boot_file is not None
    assert second.boot_file.read_text() == "v2"


def test_a_disk_that_takes_nothing_more_is_told(objects: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file where a directory must be made")
    with pytest.raises(StagingError, match="the task's files could not be prepared: Not a directory"):
        stage(_launch(shell_command="true"), task_dir=tmp_path / "work" / "t", objects=objects)


def test_a_full_disk_while_fetching_names_the_channel(
    run: Callable[..., Staged], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "copy_file_range", full)
    with pytest.raises(StagingError) as error:
        run(inputs=(Channel(name="d", url="obs://bkt/data"),))
    assert str(error.value) == "input d: obs://bkt/data could not be copied: No space left on device"
