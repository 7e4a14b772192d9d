"""Logs are read by line number and from the end, whatever their size, encoding and number of attempts."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.logstore import files as files_module
from trackside.logstore import lines as lines_module
from trackside.logstore.files import FileLogs, open_logs
from trackside.ports import LogSlice

JOB = JobId("0b6e1f1c-2b5e-4b93-9a57-6f6f4f0f0001")
TASK = "worker-0"


@pytest.fixture
def logs(tmp_path: Path) -> FileLogs:
    return open_logs(tmp_path / "logs")


def _write(logs: FileLogs, content: bytes, attempt: int = 1) -> Path:
    path = logs.path(JOB, attempt, TASK)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _lines(
    logs: FileLogs, base_line: int | None = None, count: int = 10, *, descending: bool = False
) -> LogSlice:
    return asyncio.run(logs.lines(JOB, TASK, base_line=base_line, count=count, descending=descending))


def _tail(logs: FileLogs, bytes_max: int) -> tuple[str, int]:
    return asyncio.run(logs.tail(JOB, TASK, bytes_max=bytes_max))


def _page_up(logs: FileLogs, count: int) -> tuple[list[str], list[int]]:
    """Read everything forwards; return the pages' texts and all line numbers."""
    texts, numbers, base = [], [], None
    while (page := _lines(logs, base, count)).lines:
        texts.append(page.text)
        numbers += range(page.first_line, page.last_line + 1)
        base = page.last_line
    return texts, numbers


def _page_down(logs: FileLogs, count: int) -> tuple[list[str], list[int]]:
    """Read everything backwards; return texts and numbers in reading order."""
    texts: list[str] = []
    numbers: list[int] = []
    base = None
    while (page := _lines(logs, base, count, descending=True)).lines:
        texts.insert(0, page.text)
        numbers[:0] = range(page.first_line, page.last_line + 1)
        base = page.first_line
    return texts, numbers


def test_a_missing_log_is_empty(logs: FileLogs) -> None:
    for descending in (False, True):
        assert _lines(logs, descending=descending).lines == 0
    assert _tail(logs, 100) == ("", 0)


def test_an_empty_file_has_no_lines(logs: FileLogs) -> None:
    _write(logs, b"")
    assert (_lines(logs).text, _lines(logs).lines) == ("", 0)
    assert _lines(logs, descending=True).lines == 0
    assert _tail(logs, 100) == ("", 0)


@pytest.mark.parametrize(
    ("content", "count"),
    [(b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\n\nb\n", 3), (b"10%\r20%\r30%\ndone", 2)],
)
def test_lines_are_counted_and_kept_as_they_are(logs: FileLogs, content: bytes, count: int) -> None:
    _write(logs, content)
    page = _lines(logs)
    assert (page.text, page.first_line, page.last_line) == (content.decode(), 1, count)


def test_base_line_is_left_out_in_both_directions(logs: FileLogs) -> None:
    _write(logs, b"".join(b"line %d\n" % number for number in range(1, 11)))
    after = _lines(logs, 4, 2)
    assert (after.text, after.first_line, after.last_line) == ("line 5\nline 6\n", 5, 6)
    before = _lines(logs, 4, 2, descending=True)
    assert (before.text, before.first_line, before.last_line) == ("line 2\nline 3\n", 2, 3)
    newest = _lines(logs, None, 2, descending=True)
    assert (newest.text, newest.first_line, newest.last_line) == ("line 9\nline 10\n", 9, 10)


@pytest.mark.parametrize("base", [-5, 0, 1, 10, 11, 99])
def test_base_lines_outside_the_log_are_taken(logs: FileLogs, base: int) -> None:
    _write(logs, b"x\n" * 10)
    assert _lines(logs, base, 3).lines == (3 if base <= 1 else 0)
    assert _lines(logs, base, 3, descending=True).lines == (0 if base <= 1 else 3)
    assert _lines(logs, base, 0).lines == 0


def test_a_growing_log_gains_lines(logs: FileLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 8)
    path = _write(logs, b"")
    written = b""
    for step in range(60):
        written += b"%d" % step + (b"\n" if step % 3 else b"")
        path.write_bytes(written)
        assert _lines(logs, count=1000).text == written.decode()
        assert _lines(logs, descending=True, count=1).last_line == len(written.splitlines())


def test_a_log_that_was_cut_shorter_is_counted_again(logs: FileLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "CHUNK_BYTES", 8)
    path = _write(logs, b"1\n" * 100)
    assert _lines(logs, descending=True).last_line == 100
    path.write_bytes(b"new\n" * 3)
    assert _lines(logs).text == "new\n" * 3


def test_attempts_follow_each_other_and_begin_a_new_line(logs: FileLogs) -> None:
    _write(logs, b"one\nkilled he", attempt=1)
    _write(logs, b"", attempt=2)
    _write(logs, b"three\n", attempt=10)
    _write(logs, b"two\n", attempt=9)
    assert _lines(logs).text == "one\nkilled he\ntwo\nthree\n"
    for count in (1, 2, 3):
        for texts, numbers in (_page_up(logs, count), _page_down(logs, count)):
            assert "".join(texts) == "one\nkilled he\ntwo\nthree\n"
            assert numbers == [1, 2, 3, 4]
    assert _tail(logs, 1000) == ("one\nkilled he\ntwo\nthree\n", 23)
    assert _tail(logs, 16) == ("two\nthree\n", 23)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.binary(max_size=60) | st.text("aä€😀\n\r", max_size=40).map(str.encode), max_size=4),
    st.integers(1, 7),
)
def test_paging_shows_everything_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], count: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "CHUNK_BYTES", 5)  # chunk borders fall inside characters
        logs = open_logs(tmp_path_factory.mktemp("logs"))
        for attempt, content in enumerate(contents, 1):
            _write(logs, content, attempt)
        wanted = [
            line
            for content in contents
            for line in content.split(b"\n")[: -1 if content[-1:] in b"\n" else None]
        ]
        for texts, numbers in (_page_up(logs, count), _page_down(logs, count)):
            assert numbers == list(range(1, len(wanted) + 1))
            shown = "".join(texts).removesuffix("\n").split("\n") if wanted else []
            assert shown == [line.decode(errors="replace") for line in wanted]


def test_a_long_line_is_cut_with_a_mark_and_costs_no_other_line(logs: FileLogs) -> None:
    limit = lines_module.LINE_BYTES_MAX
    _write(logs, b"a\n" + b"x" * limit + b"\n" + b"y" * (limit + 3) + b"\n" + b"z" * 3 * limit)
    first, exact, cut, last = _lines(logs).text.split("\n")
    assert (first, exact) == ("a", "x" * limit)
    assert cut == "y" * limit + " … [3 bytes cut]"
    assert last == "z" * limit + f" … [{2 * limit} bytes cut]"


def test_a_cut_does_not_leave_a_broken_character(logs: FileLogs) -> None:
    _write(logs, b"x" + "€".encode() * lines_module.LINE_BYTES_MAX)
    text = _lines(logs).text
    assert text.startswith("x€€")
    assert "€ … [" in text
    assert "\N{REPLACEMENT CHARACTER}" not in text


def test_bad_utf8_becomes_replacement_characters(logs: FileLogs) -> None:
    _write(logs, b"ok\n\xff\xfe caf\xe9\nok\n")
    assert _lines(logs).text == "ok\n\ufffd\ufffd caf\ufffd\nok\n"
    assert "\ufffd" in _tail(logs, 100)[0]


def test_an_answer_is_limited_and_paging_still_misses_nothing(logs: FileLogs) -> None:
    line = b"0123456789" * 5000
    _write(logs, b"".join(b"%04d " % number + line + b"\n" for number in range(250)))
    for texts, numbers in (_page_up(logs, 1000), _page_down(logs, 1000)):
        assert max(len(text) for text in texts) <= files_module.TEXT_BYTES_MAX
        assert numbers == list(range(1, 251))
        assert [shown[:4] for shown in "".join(texts).splitlines()] == [
            f"{number:04d}" for number in range(250)
        ]


@pytest.mark.parametrize(
    ("bytes_max", "text"),
    [
        (100, "one\ntwo\nthree\n"),
        (14, "one\ntwo\nthree\n"),
        (13, "two\nthree\n"),
        (10, "two\nthree\n"),
        (9, "three\n"),
    ],
)
def test_a_tail_begins_at_a_line_start(logs: FileLogs, bytes_max: int, text: str) -> None:
    _write(logs, b"one\ntwo\nthree\n")
    assert _tail(logs, bytes_max) == (text, 14)


def test_a_tail_within_one_long_line_shows_its_end(logs: FileLogs) -> None:
    _write(logs, "€".encode() * 1000 + b"\n")
    assert _tail(logs, 11) == ("€€€\n", 3001)
    assert _tail(logs, 0) == ("", 3001)


def test_fifty_megabytes_are_read_in_flat_memory(logs: FileLogs) -> None:
    path = _write(logs, b"")
    block = b"".join(b"%07d a line of a training log, loss 0.123\n" % number for number in range(10_000))
    with path.open("wb") as file:
        for _ in range(120):
            file.write(block)
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        newest = _lines(logs, None, 100, descending=True)
        middle = _lines(logs, 550_000, 100)
        tail, size = _tail(logs, 100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (newest.first_line, newest.last_line) == (1_199_901, 1_200_000)
    assert newest.text.startswith("0009900 ")
    assert (middle.first_line, middle.text[:7]) == (550_001, "0000000")
    assert size == path.stat().st_size
    assert tail.endswith(newest.text[-1000:])
    assert peak < 2_000_000


def test_only_so_many_indexes_are_kept(logs: FileLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "INDEXES_MAX", 3)
    for attempt in range(1, 8):
        _write(logs, b"%d\n" % attempt, attempt)
    assert _lines(logs).text == "1\n2\n3\n4\n5\n6\n7\n"
    assert len(logs._indexes._known) == 3


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0", "-x", "x" * 200, "a\n", ".hidden"])
def test_names_that_could_leave_the_directory_are_refused(logs: FileLogs, name: str) -> None:
    with pytest.raises(Invalid):
        logs.path(JOB, 1, name)
    with pytest.raises(Invalid):
        logs.path(JobId(name), 1, TASK)
    with pytest.raises(Invalid):
        asyncio.run(logs.lines(JobId(name), TASK, base_line=None, count=1, descending=False))
    with pytest.raises(Invalid):
        asyncio.run(logs.tail(JOB, name, bytes_max=1))
    with pytest.raises(Invalid):
        asyncio.run(logs.forget(JobId(name)))


def test_a_symlink_is_not_followed(logs: FileLogs, tmp_path: Path) -> None:
    path = _write(logs, b"mine\n")
    (tmp_path / "secret").write_text("secret\n")
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    assert _lines(logs).text == ""
    assert _tail(logs, 100) == ("", 0)


def test_forgetting_a_job_removes_its_logs_only(logs: FileLogs) -> None:
    _write(logs, b"x\n")
    other = logs.path(JobId("other"), 1, TASK)
    other.parent.mkdir(parents=True)
    other.write_text("kept\n")
    asyncio.run(logs.forget(JOB))
    asyncio.run(logs.forget(JOB))
    assert _lines(logs).lines == 0
    assert other.read_text() == "kept\n"


def test_lines_of_some_attempts_alone_are_counted_from_their_start(logs: FileLogs) -> None:
    for attempt in (1, 2, 3):
        _write(logs, b"".join(b"%d.%d\n" % (attempt, line) for line in range(1, 4)), attempt)
    found = asyncio.run(logs.lines(JOB, TASK, base_line=None, count=2, descending=True, attempts=[2]))
    assert (found.text, found.first_line, found.last_line) == ("2.2\n2.3\n", 2, 3)
    both = asyncio.run(logs.lines(JOB, TASK, base_line=2, count=3, descending=False, attempts=[3, 1]))
    assert both.text == "1.3\n3.1\n3.2\n"
    none = asyncio.run(logs.lines(JOB, TASK, base_line=None, count=2, descending=True, attempts=[]))
    assert none.text == ""


def test_chunks_are_the_files_as_they_were_and_each_begins_a_line(logs: FileLogs) -> None:
    first = _write(logs, b"a\xff" * files_module.COPY_BYTES + b"open", 1)
    _write(logs, b"second\n", 2)
    _write(logs, b"not wanted\n", 3)
    chunks = logs.chunks(JOB, TASK, [1, 2, 9])
    begun = next(chunks)
    with first.open("ab") as file:
        file.write(b"added meanwhile")
    assert begun + b"".join(chunks) == b"a\xff" * files_module.COPY_BYTES + b"open\nsecond\n"
    assert b"".join(logs.chunks(JOB, TASK, [])) == b""


def test_chunks_never_hold_a_whole_log(logs: FileLogs) -> None:
    _write(logs, b"x" * 99 + b"\n", 1)
    with logs.path(JOB, 1, TASK).open("r+b") as file:
        file.truncate(256 * 1024 * 1024)
    tracemalloc.start()
    try:
        assert sum(len(chunk) for chunk in logs.chunks(JOB, TASK, [1])) == 256 * 1024 * 1024
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_chunks_do_not_follow_links(logs: FileLogs, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = logs.path(JOB, 1, TASK)
    path.parent.mkdir(parents=True)
    path.symlink_to(secret)
    assert list(logs.chunks(JOB, TASK, [1])) == []
