"""Outputs leave the node: what changed, at the end at the latest, and nothing that is not the task's."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.requirements import missing

from trackside.agent import upload as upload_module
from trackside.agent.upload import Uploader, UploadError
from trackside.domain.errors import Unavailable
from trackside.domain.event import Level
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.objectstore.local import LocalObjects, open_objects

URL = "obs://bkt/out"
OFTEN_SECONDS = 0.01
NEVER_SECONDS = 3600.0
WAIT_SECONDS = 30.0
OLD_NS = 1_700_000_000_000_000_000


def _key(index: int = 0) -> TaskKey:
    return TaskKey(JobId("job"), 1, TaskName(f"worker-{index}"))


class Objects(LocalObjects):
    """The embedded store, telling what is sent and failing or pausing on demand."""

    def __init__(self, root: Path) -> None:
        open_objects(root)
        super().__init__(root)
        self.sent: list[str] = []
        self.arrived = threading.Condition()
        self.failing = False
        self.failed = 0
        self.gate: threading.Event | None = None
        self.before_first: Callable[[str], None] | None = None

    def upload_file(self, from_fd: int, url: str) -> None:
        if self.before_first is not None:
            self.before_first(url)
            self.before_first = None
        if self.gate is not None:
            with self.arrived:
                self.arrived.notify_all()
            assert self.gate.wait(WAIT_SECONDS)
        if self.failing:
            with self.arrived:
                self.failed += 1
                self.arrived.notify_all()
            raise Unavailable(f"{url}: the store is away")
        super().upload_file(from_fd, url)
        with self.arrived:
            self.sent.append(url)
            self.arrived.notify_all()

    def wait_for(self, url: str, times: int = 1) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.sent.count(url) >= times, WAIT_SECONDS), self.sent

    def wait_for_failures(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.failed >= count, WAIT_SECONDS), self.failed


@dataclass
class Notes:
    told: list[tuple[TaskKey, str, Level]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, key: TaskKey, text: str, level: Level) -> None:
        with self.changed:
            self.told.append((key, text, level))
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.told) >= count, WAIT_SECONDS), self.told


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return Objects(tmp_path / "obs")


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    directory = tmp_path / "task" / "out"
    directory.mkdir(parents=True)
    return directory


@contextlib.contextmanager
def _uploader(objects: Objects, notes: Notes, period_seconds: float = NEVER_SECONDS) -> Iterator[Uploader]:
    uploader = Uploader(objects, note=notes, period_seconds=period_seconds)
    try:
        yield uploader
    finally:
        uploader.close()


def _write(path: Path, text: str, *, in_place: bool = False) -> None:
    """Write a file that is at rest: there whole at once, and last changed long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path if in_place else path.parent.parent / f"{path.name}.draft"
    draft.write_text(text)
    os.utime(draft, ns=(OLD_NS, OLD_NS + len(text)))
    draft.replace(path)


def _stored(tmp_path: Path) -> dict[str, str]:
    root = tmp_path / "obs" / "bkt"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_finish_sends_everything_below_the_directories(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    _write(out / "model.bin", "weights")
    _write(out / "deep" / "er" / "log.txt", "log")
    _write(tmp_path / "other" / "x", "x")
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL + "/": out, "obs://bkt/two": tmp_path / "other"})
        uploader.finish(_key())
        uploader.finish(_key())  # not watched any more: nothing to do
    assert _stored(tmp_path) == {"out/model.bin": "weights", "out/deep/er/log.txt": "log", "two/x": "x"}
    assert notes.told == []


def test_files_are_sent_while_the_task_runs_and_only_when_they_changed(
    objects: Objects, notes: Notes, out: Path
) -> None:
    _write(out / "a", "1")
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        uploader.watch(_key(), {URL: out})
        objects.wait_for(f"{URL}/a")
        _write(out / "b", "1")
        objects.wait_for(f"{URL}/b")
        _write(out / "a", "22")
        objects.wait_for(f"{URL}/a", times=2)
        uploader.finish(_key())
    assert sorted(objects.sent) == [f"{URL}/a", f"{URL}/a", f"{URL}/b"]


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_sent_again(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    _write(out / "a", "old")
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        uploader.watch(_key(), {URL: out})
        objects.wait_for(f"{URL}/a")
        times = (out / "a").stat()
        (out / "a.new").write_text("new")
        os.utime(out / "a.new", ns=(times.st_atime_ns, times.st_mtime_ns))
        os.rename(out / "a.new", out / "a")
        uploader.finish(_key())
    assert _stored(tmp_path)["out/a"] == "new"


def test_a_file_written_a_moment_ago_is_sent_once_more(objects: Objects, notes: Notes, out: Path) -> None:
    (out / "a").write_text("may change within the same tick of the clock")
    os.utime(out / "a", ns=(2**62, 2**62))  # newer than any clock: never at rest
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        uploader.watch(_key(), {URL: out})
        objects.wait_for(f"{URL}/a", times=2)
    assert set(objects.sent) == {f"{URL}/a"}
    assert notes.told == []


def test_a_file_that_changes_while_it_is_read_is_sent_again(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    _write(out / "a", "before")
    objects.gate = threading.Event()
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        with objects.arrived:
            uploader.watch(_key(), {URL: out})
            assert objects.arrived.wait(WAIT_SECONDS)
        _write(out / "a", "after that", in_place=True)  # the file is open and not yet read
        objects.gate.set()
        objects.wait_for(f"{URL}/a", times=2)
        uploader.finish(_key())
    assert _stored(tmp_path) == {"out/a": "after that"}
    assert len(objects.sent) == 2


def test_finish_waits_for_the_periodic_upload_and_sends_nothing_twice(
    objects: Objects, notes: Notes, out: Path
) -> None:
    for name in "abc":
        _write(out / name, name)
    objects.gate = threading.Event()
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        with objects.arrived:
            uploader.watch(_key(), {URL: out})
            assert objects.arrived.wait(WAIT_SECONDS)
        finishing = threading.Thread(target=uploader.finish, args=(_key(),))
        finishing.start()
        objects.gate.set()
        finishing.join(WAIT_SECONDS)
        assert not finishing.is_alive()
    assert sorted(objects.sent) == [f"{URL}/{name}" for name in "abc"]


def test_a_pass_that_finish_cuts_short_forgets_nothing(objects: Objects, notes: Notes, out: Path) -> None:
    for number in range(10):
        _write(out / f"{number}", "1")
    with os.scandir(out) as entries:
        first = next(entries).name
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        uploader.watch(_key(), {URL: out})
        for number in range(10):
            objects.wait_for(f"{URL}/{number}")
        objects.gate = threading.Event()
        with objects.arrived:
            _write(out / first, "22", in_place=True)
            assert objects.arrived.wait(WAIT_SECONDS)
        finishing = threading.Thread(target=uploader.finish, args=(_key(),))
        finishing.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while _key() in uploader._watches and time.monotonic() < deadline:
            time.sleep(0.001)
        objects.gate.set()
        finishing.join(WAIT_SECONDS)
    assert {url for url in objects.sent if objects.sent.count(url) > 1} == {f"{URL}/{first}"}


@pytest.mark.parametrize("swap", ["symlink", "fifo"])
def test_a_file_swapped_after_it_was_seen_is_not_followed(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path, swap: str
) -> None:
    _write(tmp_path / "secret" / "shadow", "root:x")
    for name in "ab":
        _write(out / name, "mine")

    def swap_the_other(url: str) -> None:
        other = out / ("b" if url.endswith("a") else "a")
        other.unlink()
        if swap == "symlink":
            other.symlink_to(tmp_path / "secret" / "shadow")
        else:
            os.mkfifo(other)

    objects.before_first = swap_the_other
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        with contextlib.suppress(UploadError):
            uploader.finish(_key())
    assert list(_stored(tmp_path).values()) == ["mine"]


def test_only_the_tasks_own_regular_files_are_sent(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    _write(secret / "shadow", "root:x")
    (out / "file-link").symlink_to(secret / "shadow")
    (out / "directory-link").symlink_to(secret)
    (out / "loop").symlink_to(out)
    os.mkfifo(out / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(out / "socket"))
        _write(out / "mine", "mine")
        with _uploader(objects, notes) as uploader:
            uploader.watch(_key(), {URL: out})
            uploader.finish(_key())
    assert _stored(tmp_path) == {"out/mine": "mine"}


def test_what_another_user_could_have_bent_is_not_followed(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        missing("root, who alone can make files of two users")
    secret = tmp_path / "secret"
    _write(secret / "out" / "shadow", "root:x")
    os.link(secret / "out" / "shadow", out / "hard-link")
    _write(out / "mine", "mine")
    for path in (out.parent, out, out / "mine"):
        os.chown(path, 12345, 12345)
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        uploader.finish(_key())
        assert _stored(tmp_path) == {"out/mine": "mine"}
        out.rename(tmp_path / "moved")
        out.symlink_to(secret / "out")
        os.chown(out, 12345, 12345, follow_symlinks=False)
        uploader.watch(_key(), {URL: out})
        with pytest.raises(UploadError, match="could not be read"):
            uploader.finish(_key())
    assert _stored(tmp_path) == {"out/mine": "mine"}


def test_a_failing_upload_is_noted_once_and_again_after_it_had_recovered(
    objects: Objects, notes: Notes, out: Path
) -> None:
    objects.failing = True
    _write(out / "a", "1")
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        uploader.watch(_key(), {URL: out})
        notes.wait_for(1)
        objects.wait_for_failures(4)
        objects.failing = False
        objects.wait_for(f"{URL}/a")
        assert len(notes.told) == 1
        objects.failing = True
        _write(out / "a", "22")
        notes.wait_for(2)
        with pytest.raises(UploadError) as error:
            uploader.finish(_key())
    text = f"outputs are not all uploaded: '{URL}/a': {URL}/a: the store is away"
    assert str(error.value) == text
    assert notes.told[0] == (_key(), f"{text}; this is tried again", Level.WARNING)


def test_one_bad_file_does_not_keep_the_others_back(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path
) -> None:
    for name in ("a", "bad\nname", "back\\slash", "z"):
        _write(out / name, name)
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        with pytest.raises(UploadError, match=r"is no object store URL.* \(and 1 more\)") as error:
            uploader.finish(_key())
    assert str(error.value).isprintable()
    assert _stored(tmp_path) == {"out/a": "a", "out/z": "z"}


def test_the_number_of_files_is_limited(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_module, "FILES_MAX", 5)
    for number in range(6):
        _write(out / f"{number}", "x")
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        with pytest.raises(UploadError, match="limited to 5 files"):
            uploader.finish(_key())
    assert len(_stored(tmp_path)) == 5


def test_the_depth_of_directories_is_limited(
    objects: Objects, notes: Notes, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_module, "DEPTH_MAX", 3)
    _write(out / "1" / "2" / "fits", "x")
    _write(out / "1" / "2" / "3" / "deep", "x")
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        with pytest.raises(UploadError, match="limited to 3 levels"):
            uploader.finish(_key())
    assert _stored(tmp_path) == {"out/1/2/fits": "x"}


def test_a_removed_directory_has_nothing_to_send(objects: Objects, notes: Notes, out: Path) -> None:
    out.rmdir()
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {URL: out})
        uploader.finish(_key())
    assert objects.sent == []


def test_one_thread_serves_all_tasks(objects: Objects, notes: Notes, tmp_path: Path) -> None:
    before = threading.active_count()
    with _uploader(objects, notes, OFTEN_SECONDS) as uploader:
        for index in range(20):
            _write(tmp_path / f"out-{index}" / "x", "x")
            uploader.watch(_key(index), {f"obs://bkt/{index}": tmp_path / f"out-{index}"})
        for index in range(20):
            objects.wait_for(f"obs://bkt/{index}/x")
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert len(objects.sent) == 20


def test_a_task_without_outputs_needs_no_thread(objects: Objects, notes: Notes) -> None:
    before = threading.active_count()
    with _uploader(objects, notes) as uploader:
        uploader.watch(_key(), {})
        uploader.finish(_key())
        assert threading.active_count() == before


def test_a_log_is_stored_under_the_tasks_name(objects: Objects, notes: Notes, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("line\n")
    with _uploader(objects, notes) as uploader:
        uploader.upload_log(_key(), tmp_path / "log", "obs://bkt/logs/")
        uploader.upload_log(_key(1), tmp_path / "none", "obs://bkt/logs/")
        assert _stored(tmp_path) == {"logs/worker-0.log": "line\n"}
        objects.failing = True
        with pytest.raises(
            UploadError, match=r"the log of worker-0 was not stored at obs://bkt/logs/worker-0\.log"
        ):
            uploader.upload_log(_key(), tmp_path / "log", "obs://bkt/logs/")
