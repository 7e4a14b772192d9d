"""The registry of errands on a real loop: each is done once, in time, undone and remembered."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trackside.agent import errands as module
from trackside.agent.cgroup import share
from trackside.agent.chaos import cpu_quota
from trackside.agent.errand_kinds import handlers
from trackside.agent.errands import INTERRUPTED, NOT_RUNNING, UNDER_WAY, Cannot, Errands, Handler, Target
from trackside.agent.loop import Loop
from trackside.agent.stacks import cut, from_proc, is_python, look
from trackside.agent.state import ErrandRecord, TaskFiles
from trackside.collect.probe import CgroupDirs
from trackside.domain.exchange import Answered, Errand, ErrandKind, Report, TaskKey
from trackside.domain.job import JobId, TaskName
from trackside.domain.resources import Resources

KEY = TaskKey(JobId("job"), 1, TaskName("worker-0"))


class Desk:
    """Errands with one handler, which the test decides about."""

    def __init__(self, directory: Path, **handler: object) -> None:
        self.files = TaskFiles(directory)
        self.loop = Loop()
        self.workers = ThreadPoolExecutor(2)
        self.reports: list[Report] = []
        self.said = threading.Condition()
        self.done: list[str] = []
        self.undone: list[str] = []
        self.refusal: Exception | None = None
        self.handler = Handler(do=self._do, undo=self._undo, **handler)  # type: ignore[arg-type]
        self.errands = self.anew()
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def anew(self) -> Errands:
        return Errands(
            loop=self.loop,
            workers=self.workers,
            menders=self.workers,
            report=self._report,
            handlers={ErrandKind.FREEZE: self.handler},
        )

    def close(self) -> None:
        self.loop.stop()
        self.thread.join()
        self.workers.shutdown()

    def _do(self, errand: Errand, target: Target) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(errand.id)
        return "stopped"

    def _undo(self, errand: Errand, target: Target) -> None:
        with self.said:
            self.undone.append(errand.id)
            self.said.notify_all()

    def _report(self, *reports: Report) -> None:
        with self.said:
            self.reports += reports
            self.said.notify_all()

    @property
    def target(self) -> Target:
        return Target(
            key=KEY,
            files=self.files,
            shim_pid=os.getpid(),
            main_pid=os.getpid(),
            main_ticks=None,
            dirs=None,
            resources=Resources(cpu_cores=1, memory_bytes=1 << 30),
        )

    def take(self, errand: Errand, target: Target | None) -> None:
        self.call(lambda: self.errands.take(errand, target))

    def call(self, what: Callable[[], object]) -> None:
        """Have something done in the loop's thread, and wait for it."""
        over = threading.Event()

        def run() -> None:
            what()
            over.set()

        self.loop.call(run)
        assert over.wait(10)

    def until(self, found: Callable[[], object]) -> None:
        with self.said:
            assert self.said.wait_for(found, 10)

    def answers(self, errand_id: str) -> list[Answered]:
        return [r.answered for r in self.reports if r.answered is not None and r.answered.id == errand_id]

    def answer(self, errand_id: str) -> Answered:
        self.until(lambda: self.answers(errand_id))
        return self.answers(errand_id)[0]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(**handler: object) -> Desk:
        made.append(Desk(tmp_path, **handler))
        return made[-1]

    yield make
    for one in made:
        one.close()


def freeze(errand_id: str = "a", seconds: float | None = None) -> Errand:
    return Errand(id=errand_id, key=KEY, kind=ErrandKind.FREEZE, seconds=seconds)


def test_every_kind_has_a_handler_and_what_lasts_can_be_undone() -> None:
    table = handlers()
    assert set(table) == set(ErrandKind)
    lasting = {kind for kind, handler in table.items() if handler.lasts}
    assert lasting == {ErrandKind.FREEZE, ErrandKind.FILL_SHM, ErrandKind.SLOW_DOWN, ErrandKind.CUT_OFF}
    assert all(table[kind].undo is not module._nothing for kind in lasting)


def test_a_kind_of_a_newer_server_is_answered_and_not_done(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = desk()
    newer = Errand(id="n", key=KEY, kind="profile", seconds=5)
    for target in (at.target, None, at.target):
        at.take(newer, target)
    answered = at.answer("n")
    assert (answered.kind, answered.done) == ("profile", False)
    assert "not known to this agent's version" in answered.text
    assert (len(at.answers("n")), at.done) == (1, [])
    monkeypatch.setattr(module, "ANSWER_AGAIN_SECONDS", -1.0)
    at.take(newer, at.target)
    assert len(at.answers("n")) == 2
    at.call(lambda: at.errands.refuse(newer, "why"))
    assert {one.text for one in at.answers("n")} == {answered.text}


def test_an_errand_is_done_once_however_often_it_is_asked_for(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    for _ in range(3):
        at.take(freeze(), at.target)
    assert at.answer("a").done
    at.take(freeze(), at.target)
    assert at.done == ["a"]
    assert len(at.answers("a")) == 1


def test_it_is_answered_again_when_it_is_asked_for_much_later(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = desk()
    at.take(freeze(), at.target)
    at.answer("a")
    monkeypatch.setattr(module, "ANSWER_AGAIN_SECONDS", -1.0)
    at.take(freeze(), at.target)
    assert len(at.answers("a")) == 2
    assert at.done == ["a"]


def test_what_lasts_is_undone_when_its_time_is_over(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.take(freeze(seconds=0.01), at.target)
    at.until(lambda: any(report.noted for report in at.reports))
    assert at.undone == ["a"]
    assert [(one.answered, one.over) for one in at.files.errands()] == [(True, True)]


def test_a_second_one_of_the_kind_is_refused_while_the_first_lasts(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.take(freeze("a"), at.target)
    at.answer("a")
    at.take(freeze("b"), at.target)
    assert at.answer("b").text == UNDER_WAY
    assert at.undone == []


def test_a_refusal_is_an_answer_and_nothing_is_undone(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.refusal = Cannot("not here")
    at.take(freeze(), at.target)
    answered = at.answer("a")
    assert (answered.done, answered.text) == (False, "not here")
    at.call(lambda: None)
    assert at.undone == []
    ended: list[object] = []
    at.call(lambda: ended.append(at.errands.task_ended(KEY)))
    assert ended == [()]


@pytest.mark.parametrize("trouble", [PermissionError(1, "no"), RuntimeError("a bug")])
def test_what_fails_half_way_is_undone(desk: Callable[..., Desk], trouble: Exception) -> None:
    at = desk(lasts=True)
    at.refusal = trouble
    at.take(freeze(), at.target)
    assert not at.answer("a").done
    at.until(lambda: at.undone == ["a"])


def test_a_handler_that_takes_too_long_is_answered_for_and_undone_when_it_is_back(
    desk: Callable[..., Desk],
) -> None:
    at = desk()
    go_on = threading.Event()
    slow = Handler(
        do=lambda errand, target: (go_on.wait(10), "late")[1], undo=at._undo, lasts=True, seconds_max=0.01
    )
    at.errands._handlers = {ErrandKind.FREEZE: slow}
    at.take(freeze(), at.target)
    assert "not done with it" in at.answer("a").text
    go_on.set()
    at.until(lambda: at.undone == ["a"])


def test_the_end_of_a_task_undoes_all_and_says_what_harmed_it(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.take(freeze(), at.target)
    at.answer("a")
    harm: list[tuple[str, ...]] = []
    at.call(lambda: harm.append(at.errands.task_ended(KEY)))
    at.until(lambda: at.undone == ["a"])
    assert harm == [("injected on purpose: freeze: stopped",)]


def test_what_was_over_long_ago_did_no_harm(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = desk(lasts=True)
    at.take(freeze(seconds=0.01), at.target)
    at.until(lambda: any(report.noted for report in at.reports))
    monkeypatch.setattr(module, "HARM_LINGERS_SECONDS", -1.0)
    harm: list[tuple[str, ...]] = []
    at.call(lambda: harm.append(at.errands.task_ended(KEY)))
    assert harm == [()]


def test_another_agent_undoes_what_was_left_and_does_nothing_again(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.take(freeze(), at.target)
    at.answer("a")
    at.errands = at.anew()
    at.call(lambda: at.errands.recall(KEY, at.files))
    at.call(lambda: at.errands.adopt(at.target))
    at.until(lambda: any(report.noted for report in at.reports))
    assert at.undone == ["a"]
    at.take(freeze(), at.target)
    assert at.done == ["a"]
    assert [one.over for one in at.files.errands()] == [True]


def test_another_agent_answers_what_was_begun_and_never_answered(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.files.save_errands([ErrandRecord(freeze(), False, False)])
    at.call(lambda: at.errands.recall(KEY, at.files))
    at.call(lambda: at.errands.adopt(at.target))
    assert at.answer("a").text == INTERRUPTED
    at.until(lambda: at.undone == ["a"])
    assert at.done == []


def test_what_cannot_be_written_down_is_not_begun(desk: Callable[..., Desk], tmp_path: Path) -> None:
    at = desk(lasts=True)
    at.files = TaskFiles(tmp_path / "gone")
    at.take(freeze(), at.target)
    assert "written down" in at.answer("a").text
    assert at.done == []


def test_a_task_that_is_not_here_is_answered_for(desk: Callable[..., Desk]) -> None:
    at = desk()
    at.take(freeze(), None)
    assert at.answer("a").text == NOT_RUNNING


def test_closing_undoes_what_lasts(desk: Callable[..., Desk]) -> None:
    at = desk(lasts=True)
    at.take(freeze(), at.target)
    at.answer("a")
    at.call(at.errands.close)
    assert at.undone == ["a"]


def test_what_is_remembered_is_bounded(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 3)
    at = desk()
    for number in range(9):
        at.take(freeze(str(number)), None)
    assert len(at.errands._known) == 3


def test_of_a_task_the_latest_and_what_lasts_are_remembered(
    desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_PER_TASK_MAX", 3)
    at = desk(lasts=True)
    at.take(freeze("lasts"), at.target)
    at.answer("lasts")
    once = Handler(do=at._do)
    at.errands._handlers = {ErrandKind.FREEZE: at.handler, ErrandKind.STACKS: once}
    for number in range(6):
        at.take(Errand(id=str(number), key=KEY, kind=ErrandKind.STACKS), at.target)
        at.answer(str(number))
    assert [one.errand.id for one in at.files.errands()] == ["lasts", "4", "5"]


def test_a_share_of_a_quota_is_written_as_the_quota_is() -> None:
    assert share("200000", 0.1) == "20000"
    assert share("200000 100000", 0.1) == "20000 100000"
    assert share("2000", 0.01) == "1000"  # the kernel takes no less


def test_the_quota_is_found_where_there_is_one(tmp_path: Path, desk: Callable[..., Desk]) -> None:
    at = desk()
    assert cpu_quota(at.target) is None
    (tmp_path / "cpu.max").touch()
    target = Target(
        key=KEY,
        files=at.files,
        shim_pid=1,
        main_pid=1,
        main_ticks=None,
        dirs=CgroupDirs(unified=tmp_path),
        resources=Resources(cpu_cores=2, memory_bytes=1),
    )
    assert cpu_quota(target) == (tmp_path / "cpu.max", "200000 100000")


def test_where_a_process_stands_is_told_without_py_spy_too() -> None:
    assert is_python(os.getpid())
    told = look(os.getpid(), None, 5.0)
    assert told.startswith(f"process {os.getpid()}: ")
    assert "state R" in told
    assert from_proc(2**22 + 1).endswith("it has ended")


def test_a_long_text_is_cut_between_characters() -> None:
    assert cut("short", 10) == "short"
    assert len(cut("ä" * 100, 51).encode()) <= 51
    assert cut("ä" * 100, 51).endswith("[cut]")


def test_what_cannot_be_undone_because_the_task_is_gone_is_undone(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    at = desk(lasts=True)

    def vanished(errand: Errand, target: Target) -> None:
        raise OSError(19, "No such device")

    at.errands._handlers = {ErrandKind.FREEZE: Handler(do=at._do, undo=vanished, lasts=True)}
    at.take(freeze(seconds=0.01), replace(at.target, main_pid=2**22 + 1, main_ticks=7))
    at.until(lambda: any(report.noted for report in at.reports))
    assert not caplog.records
