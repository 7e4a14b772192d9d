"""The embedded store: no symlink leads out of it, and nothing half-written shows."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from trackside.domain.errors import Invalid, ObjectNotFound, Unavailable
from trackside.objectstore import beneath
from trackside.objectstore.local import LocalObjects, open_objects


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "obs"


@pytest.fixture
def objects(root: Path) -> LocalObjects:
    return open_objects(root)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    directory = tmp_path / "secret"
    directory.mkdir()
    (directory / "key").write_text("secret")
    return directory


def _upload(objects: LocalObjects, tmp_path: Path, url: str) -> None:
    (tmp_path / "source").write_bytes(b"new")
    with (tmp_path / "source").open("rb") as file:
        objects.upload_file(file.fileno(), url)


@pytest.mark.parametrize(
    "url", ["obs://data/link", "obs://data/link/key", "obs://data/key", "obs://linked/key"]
)
def test_a_symlink_is_neither_read_nor_listed(
    root: Path, objects: LocalObjects, secret: Path, tmp_path: Path, url: str
) -> None:
    (root / "data").mkdir()
    (root / "data" / "link").symlink_to(secret)
    (root / "data" / "key").symlink_to(secret / "key")
    (root / "linked").symlink_to(secret)
    assert list(objects.list(url)) == []
    assert list(objects.list("obs://data")) == []
    assert not asyncio.run(objects.exists(url))
    with pytest.raises(ObjectNotFound):
        objects.download(url, tmp_path / "to")


def test_an_upload_does_not_go_through_a_symlink(
    root: Path, objects: LocalObjects, secret: Path, tmp_path: Path
) -> None:
    (root / "data").mkdir()
    (root / "data" / "link").symlink_to(secret)
    (root / "linked").symlink_to(secret)
    for url in ("obs://data/link/key", "obs://data/link/sub/key", "obs://linked/key"):
        with pytest.raises(Invalid, match="not a directory"):
            _upload(objects, tmp_path, url)
    (root / "data" / "key").symlink_to(secret / "key")
    _upload(objects, tmp_path, "obs://data/key")  # replaces the link itself
    assert (root / "data" / "key").read_bytes() == b"new"
    assert not (root / "data" / "key").is_symlink()
    assert {path.name: path.read_text() for path in secret.iterdir()} == {"key": "secret"}


def test_fifos_and_sockets_are_no_objects_and_do_not_block(root: Path, objects: LocalObjects) -> None:
    (root / "data").mkdir()
    os.mkfifo(root / "data" / "fifo")
    assert list(objects.list("obs://data/fifo")) == []
    assert list(objects.list("obs://data")) == []


def test_a_directory_without_files_is_nothing(root: Path, objects: LocalObjects) -> None:
    (root / "data" / "empty" / "deep").mkdir(parents=True)
    assert not asyncio.run(objects.exists("obs://data/empty"))


@pytest.mark.parametrize("url", ["obs://data/dir", "obs://data/file/below", "obs://data/" + "n" * 300])
def test_a_key_the_file_system_cannot_hold_is_refused(
    root: Path, objects: LocalObjects, tmp_path: Path, url: str
) -> None:
    (root / "data" / "dir" / "sub").mkdir(parents=True)
    (root / "data" / "file").touch()
    with pytest.raises(Invalid, match="cannot be an object"):
        _upload(objects, tmp_path, url)
    assert list((root / ".incoming").iterdir()) == []
    assert not asyncio.run(objects.exists("obs://data/" + "n" * 300))


def test_a_full_disk_is_told_and_leaves_the_old_object(
    root: Path, objects: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _upload(objects, tmp_path, "obs://data/x")

    def full(from_fd: int, to_fd: int) -> None:
        os.write(to_fd, b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(beneath, "copy", full)
    with pytest.raises(Unavailable, match="obs://data/x could not be stored: No space left on device"):
        _upload(objects, tmp_path, "obs://data/x")
    assert (root / "data" / "x").read_bytes() == b"new"
    assert list((root / ".incoming").iterdir()) == []


def test_a_reader_sees_the_old_or_the_new_object_never_half(
    root: Path, objects: LocalObjects, tmp_path: Path
) -> None:
    versions = [bytes([number]) * 300_000 for number in range(20)]
    done = threading.Event()

    def write() -> None:
        for version in versions:
            (tmp_path / "source").write_bytes(version)
            with (tmp_path / "source").open("rb") as file:
                objects.upload_file(file.fileno(), "obs://data/x")
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set() or not seen:
        try:
            seen.add((root / "data" / "x").read_bytes())
        except FileNotFoundError:
            continue
    writer.join()
    assert seen <= set(versions)


def test_names_that_are_no_text_are_listed_and_copied(
    root: Path, objects: LocalObjects, tmp_path: Path
) -> None:
    (root / "data").mkdir()
    name = os.fsdecode(b"caf\xe9")
    (root / "data" / name).write_bytes(b"x")
    (info,) = objects.list("obs://data")
    assert info.path == "caf\N{REPLACEMENT CHARACTER}"
    assert objects.download("obs://data", tmp_path / "to") == 1
    assert (tmp_path / "to" / name).read_bytes() == b"x"


def test_the_root_itself_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "disk" / "data").mkdir(parents=True)
    (tmp_path / "disk" / "data" / "x").touch()
    (tmp_path / "obs").symlink_to(tmp_path / "disk")
    assert [info.path for info in open_objects(tmp_path / "obs").list("obs://data")] == ["x"]


def test_the_embedded_store_makes_no_links(objects: LocalObjects) -> None:
    with pytest.raises(Invalid, match="no links"):
        objects.link("obs://data/x", seconds=60)


def test_a_copy_falls_back_where_the_kernel_cannot_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: int, **__: int) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", cannot)
    monkeypatch.setattr(beneath, "COPY_CHUNK_BYTES", 7)
    (tmp_path / "from").write_bytes(b"0123456789" * 3)
    with (tmp_path / "from").open("rb") as source, (tmp_path / "to").open("wb") as target:
        beneath.copy(source.fileno(), target.fileno())
    assert (tmp_path / "to").read_bytes() == b"0123456789" * 3
