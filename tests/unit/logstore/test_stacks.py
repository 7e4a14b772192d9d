"""Stacks lie beside the logs, are found again, and go with them."""

import asyncio
from pathlib import Path

import pytest

from trackside.domain.errors import Invalid
from trackside.domain.job import JobId
from trackside.logstore import stacks as stacks_module
from trackside.logstore.files import FileLogs
from trackside.logstore.stacks import FileStacks
from trackside.ports import Snapshot

JOB = JobId("0b6e1f1c-2b5e-4b93-9a57-6f6f4f0f0001")


def snapshot(task: str = "worker-0", attempt: int = 1, at_ms: int = 5_000) -> Snapshot:
    return Snapshot(task=task, attempt=attempt, at_ms=at_ms)


@pytest.fixture
def stacks(tmp_path: Path) -> FileStacks:
    return FileStacks(tmp_path / "logs")


def test_what_is_kept_is_found_again_the_oldest_first(stacks: FileStacks) -> None:
    async def scenario() -> None:
        assert await stacks.snapshots(JOB) == ()
        for one in (snapshot(at_ms=9_000, attempt=2), snapshot("worker-1"), snapshot()):
            await stacks.keep(JOB, one, f"{one.task} stands\n")
        found = await stacks.snapshots(JOB)
        assert found == (snapshot(), snapshot("worker-1"), snapshot(at_ms=9_000, attempt=2))
        assert await stacks.read(JOB, found[1]) == "worker-1 stands\n"
        await stacks.keep(JOB, snapshot(), "replaced")
        assert await stacks.read(JOB, snapshot()) == "replaced"

    asyncio.run(scenario())


def test_they_lie_beside_the_log_are_no_log_and_go_with_it(tmp_path: Path, stacks: FileStacks) -> None:
    async def scenario() -> None:
        logs = FileLogs(tmp_path / "logs")
        path = logs.path(JOB, 1, "worker-0")
        path.parent.mkdir(parents=True)
        path.write_text("hello\n")
        await stacks.keep(JOB, snapshot(), "in train()")
        (file,) = path.parent.glob("*.stacks")
        assert file.stat().st_mode & 0o777 == 0o600
        assert await logs.tail(JOB, "worker-0", bytes_max=100) == ("hello\n", 6)
        await logs.forget(JOB)
        assert await stacks.snapshots(JOB) == ()
        assert await stacks.read(JOB, snapshot()) == ""

    asyncio.run(scenario())


def test_too_much_is_cut_and_says_so(stacks: FileStacks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_module, "TEXT_BYTES_MAX", 10)
    asyncio.run(stacks.keep(JOB, snapshot(), "x" * 11))
    assert asyncio.run(stacks.read(JOB, snapshot())) == "x" * 10 + stacks_module.CUT


def test_other_files_are_not_taken_for_stacks(tmp_path: Path, stacks: FileStacks) -> None:
    place = tmp_path / "logs" / JOB / "1"
    place.mkdir(parents=True)
    for name in ("worker-0.log", "worker-0.stacks", ".worker-0.5.stacks.new", "worker-0.x.stacks"):
        (place / name).write_text("")
    (tmp_path / "logs" / JOB / "note").write_text("")
    (tmp_path / "logs" / JOB / "2").write_text("")
    assert asyncio.run(stacks.snapshots(JOB)) == ()


@pytest.mark.parametrize(("job", "task"), [("..", "worker-0"), (JOB, "../x"), (JOB, "")])
def test_names_cannot_climb_out_of_the_directory(stacks: FileStacks, job: str, task: str) -> None:
    with pytest.raises(Invalid):
        asyncio.run(stacks.keep(JobId(job), snapshot(task), "x"))
