"""One suite for every object store: the embedded directory, and a real S3-speaking server."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.requirements import missing
from trackside.domain.errors import Invalid, ObjectNotFound, TracksideError, Unavailable
from trackside.objectstore import open_objects, open_s3
from trackside.ports import ObjectStore

SECRET = "a-secret-that-never-shows"


@dataclass(frozen=True)
class Store:
    objects: ObjectStore
    put: Callable[[str, bytes], None]  # behind the store's back: key in bucket "data"


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    beside_python = str(Path(sys.executable).parent)
    program = shutil.which("moto_server", path=os.pathsep.join([beside_python, os.environ.get("PATH", "")]))
    if program is None:
        missing("moto_server (an S3 server: pip install 'moto[s3,server]')")
    command = [program, "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            started = (re.search(r"Running on (http://[0-9.:]+)", line) for line in server.stdout)
            yield next(found[1] for found in started if found)
        finally:
            server.kill()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "directory":
        return _directory(tmp_path / "obs")
    return _s3(request.getfixturevalue("s3_endpoint"))


def _directory(root: Path) -> Store:
    def put(key: str, content: bytes) -> None:
        path = root / "data" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return Store(open_objects(root), put)


def _s3(endpoint: str) -> Store:
    def put(path: str, content: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}  # not a form
        request = urllib.request.Request(f"{endpoint}/{path}", data=content, headers=headers, method="PUT")
        urllib.request.urlopen(request).close()

    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    put("data", b"")  # makes the bucket
    objects = open_s3(endpoint, "an-access-key", SECRET, "us-east-1", retries_max=0)
    return Store(objects, lambda key, content: put(f"data/{urllib.parse.quote(key)}", content))


def _upload(objects: ObjectStore, tmp_path: Path, url: str, content: bytes) -> None:
    source = tmp_path / "source"
    source.write_bytes(content)
    with source.open("rb") as file:
        objects.upload_file(file.fileno(), url)


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def _exists(objects: ObjectStore, url: str) -> bool:
    return asyncio.run(objects.exists(url))


def test_an_upload_is_listed_found_and_downloaded(store: Store, tmp_path: Path) -> None:
    _upload(store.objects, tmp_path, "obs://data/out/model.bin", b"weights")
    (info,) = store.objects.list("oss://data/out/")
    assert (info.path, info.size_bytes) == ("model.bin", 7)
    assert info.modified_ms > 1_600_000_000_000
    assert store.objects.download("/data/out", tmp_path / "to") == 1
    assert _files(tmp_path / "to") == {"model.bin": b"weights"}


def test_an_upload_replaces_the_object_whole(store: Store, tmp_path: Path) -> None:
    _upload(store.objects, tmp_path, "obs://data/x", b"a long first version")
    _upload(store.objects, tmp_path, "obs://data/x", b"short")
    store.objects.download("obs://data/x", tmp_path / "to")
    assert _files(tmp_path / "to") == {"x": b"short"}
    assert [info.path for info in store.objects.list("obs://data/")] == ["x"]


def test_a_prefix_keeps_relative_paths_and_leaves_out_neighbours(store: Store, tmp_path: Path) -> None:
    for key in ("in/a.txt", "in/deep/er/b.txt", "in/empty", "input/c.txt", "in.txt"):
        store.put(key, b"" if key.endswith("empty") else key.encode())
    for url in ("obs://data/in", "obs://data/in/"):
        to = tmp_path / url.replace("/", "_")
        assert store.objects.download(url, to) == 3
        assert _files(to) == {"a.txt": b"in/a.txt", "deep/er/b.txt": b"in/deep/er/b.txt", "empty": b""}
        assert [info.path for info in store.objects.list(url)] == ["a.txt", "deep/er/b.txt", "empty"]


def test_a_single_object_is_copied_under_its_base_name(store: Store, tmp_path: Path) -> None:
    store.put("code/train.py", b"print()")
    assert store.objects.download("obs://data/code/train.py", tmp_path / "to") == 1
    assert _files(tmp_path / "to") == {"train.py": b"print()"}
    assert [info.path for info in store.objects.list("obs://data/code/train.py")] == ["train.py"]


def test_names_are_taken_literally(store: Store, tmp_path: Path) -> None:
    for key in ("odd/a%20b", "odd/ä ö", "odd/[x]{y}?#~*&+"):
        _upload(store.objects, tmp_path, f"obs://data/{key}", key.encode())
        assert _exists(store.objects, f"obs://data/{key}")
    assert not _exists(store.objects, "obs://data/odd/a b")
    store.objects.download("obs://data/odd", tmp_path / "to")
    assert _files(tmp_path / "to") == {
        key.removeprefix("odd/"): key.encode() for key in ("odd/a%20b", "odd/ä ö", "odd/[x]{y}?#~*&+")
    }


@pytest.mark.parametrize(
    "url",
    ["obs://data/nothing", "obs://data/nothing/", "obs://data/file/", "obs://data/fil", "obs://nobucket/x"],
)
def test_nothing_there_is_told_with_the_url(store: Store, tmp_path: Path, url: str) -> None:
    store.put("file", b"x")
    assert not _exists(store.objects, url)
    assert list(store.objects.list(url)) == []
    with pytest.raises(ObjectNotFound) as error:
        store.objects.download(url, tmp_path / "to")
    assert url in error.value.detail


@pytest.mark.parametrize(
    "url", ["obs://data/dir", "obs://data/dir/", "obs://data/dir/x", "obs://data", "/data/"]
)
def test_what_is_there_exists(store: Store, url: str) -> None:
    store.put("dir/x", b"x")
    assert _exists(store.objects, url)


def test_a_download_replaces_files_and_leaves_the_rest(store: Store, tmp_path: Path) -> None:
    store.put("in/a", b"new")
    to = tmp_path / "to"
    to.mkdir()
    (to / "a").write_bytes(b"old and longer")
    (to / "other").write_bytes(b"kept")
    store.objects.download("obs://data/in", to)
    assert _files(to) == {"a": b"new", "other": b"kept"}


def test_a_download_does_not_write_through_a_symlink(store: Store, tmp_path: Path) -> None:
    store.put("in/link/stolen", b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    to = tmp_path / "to"
    to.mkdir()
    (to / "link").symlink_to(outside)
    with pytest.raises(Unavailable):
        store.objects.download("obs://data/in", to)
    assert _files(outside) == {}


def test_a_large_file_survives_the_round_trip(store: Store, tmp_path: Path) -> None:
    content = os.urandom(1024) * 1024 * 19  # several parts, the last one short
    _upload(store.objects, tmp_path, "obs://data/large", content)
    store.objects.download("obs://data/large", tmp_path / "to")
    assert (tmp_path / "to" / "large").read_bytes() == content


def test_an_upload_starts_at_the_beginning_of_the_file(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789")
    with source.open("rb", buffering=0) as file:
        file.seek(5)
        store.objects.upload_file(file.fileno(), "obs://data/x")
    store.objects.download("obs://data/x", tmp_path / "to")
    assert _files(tmp_path / "to") == {"x": b"0123456789"}


@pytest.mark.parametrize("url", ["obs://data/../x", "data/x", "obs://data/a//b"])
def test_every_call_refuses_a_bad_url(store: Store, tmp_path: Path, url: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.objects.check_url(url),
        lambda: _exists(store.objects, url),
        lambda: store.objects.list(url),
        lambda: store.objects.download(url, tmp_path / "to"),
        lambda: _upload(store.objects, tmp_path, url, b""),
        lambda: store.objects.link(url, seconds=60),
    ]
    for call in calls:
        with pytest.raises(Invalid):
            call()
    store.objects.check_url("obs://data/fine")


def test_an_object_cannot_be_stored_at_a_directory_url(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="directory"):
        _upload(store.objects, tmp_path, "obs://data/dir/", b"")


def test_an_s3_link_opens_without_credentials(s3_endpoint: str) -> None:
    store = _s3(s3_endpoint)
    store.put("logs/a b%.log", b"hello")
    link = store.objects.link("obs://data/logs/a b%.log", seconds=60)
    assert SECRET not in link
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"hello"
    with pytest.raises(Invalid, match="604800"):
        store.objects.link("obs://data/x", seconds=10**7)


def test_s3_directory_markers_are_no_objects(s3_endpoint: str, tmp_path: Path) -> None:
    store = _s3(s3_endpoint)
    for key in ("in/", "in/sub/", "in/sub/a", "in/void/", "in/empty"):
        store.put(key, b"")
    assert [info.path for info in store.objects.list("obs://data/in")] == ["empty", "sub/a"]
    assert store.objects.download("obs://data/in", tmp_path / "to") == 2
    assert not _exists(store.objects, "obs://data/in/void/")


def test_an_s3_bucket_must_exist(s3_endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFound, match="there is no bucket nobucket"):
        _upload(_s3(s3_endpoint).objects, tmp_path, "obs://nobucket/x", b"")


def test_a_dead_s3_server_is_told_plainly_and_without_secrets(tmp_path: Path) -> None:
    objects = open_s3("http://127.0.0.1:1", "an-access-key", SECRET, "us-east-1", retries_max=0)
    calls: list[Callable[[], object]] = [
        lambda: _exists(objects, "obs://data/x"),
        lambda: objects.list("obs://data/x"),
        lambda: objects.download("obs://data/x", tmp_path / "to"),
        lambda: _upload(objects, tmp_path, "obs://data/x", b""),
    ]
    for call in calls:
        with pytest.raises(TracksideError) as error:
            call()
        assert error.value.detail == (
            "obs://data/x: its server could not be reached or did not answer as expected"
        )
        assert SECRET not in repr(error.value.__cause__)


@pytest.mark.parametrize("endpoint", ["", "localhost:9000", "ftp://host", "https://"])
def test_an_endpoint_without_a_scheme_is_refused(endpoint: str) -> None:
    with pytest.raises(Invalid, match="http"):
        open_s3(endpoint, "a", "b", "c")
