"""What the server remembers of errands: until they are answered, or cannot be any more."""

import asyncio

import pytest

from tests.unit.domain.builders import a_job, key, placed, running
from trackside.domain.errors import Exhausted, IllegalTransition, TaskNotFound
from trackside.domain.exchange import Answered, Errand, ErrandKind
from trackside.service import errands as module
from trackside.service.errands import Errands


class StillClock:
    def now_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 1_000


def table(woken: list[None] | None = None) -> Errands:
    heard = [] if woken is None else woken
    return Errands(clock=StillClock(), wake=lambda: heard.append(None))


def asked(errands: Errands) -> Errand:
    job = running()
    errand_id = errands.ask(job, "worker-0", ErrandKind.FREEZE, seconds=5, amount=None)
    return next(one for one in errands.of(key("worker-0")) if one.id == errand_id)


def answer(errand: Errand, *, done: bool = True, text: str = "frozen") -> Answered:
    return Answered(id=errand.id, key=errand.key, kind=errand.kind, at_ms=2_000, done=done, text=text)


def test_an_errand_is_out_until_it_is_answered() -> None:
    woken: list[None] = []
    errands = table(woken)
    errand = asked(errands)
    assert woken == [None]
    assert errand.seconds == 5
    assert errands.of(errand.key) == (errand,)
    errands.answered(answer(errand))
    assert errands.of(errand.key) == ()
    assert errands.poll(errand.id) == answer(errand)


def test_an_answer_can_be_waited_for() -> None:
    async def waits() -> Answered | None:
        errands = table()
        errand = asked(errands)
        waiting = asyncio.create_task(errands.answer(errand.id, wait_seconds=20))
        await asyncio.sleep(0)
        errands.answered(answer(errand))
        return await waiting

    answered = asyncio.run(waits())
    assert answered is not None
    assert answered.text == "frozen"


def test_no_answer_in_time_is_none_and_the_errand_is_still_out_until_it_is_withdrawn() -> None:
    async def waits() -> None:
        errands = table()
        errand = asked(errands)
        assert await errands.answer(errand.id, wait_seconds=0) is None
        assert errands.of(errand.key)
        errands.withdraw(errand.id)
        assert not errands.of(errand.key)

    asyncio.run(waits())


def test_the_end_of_a_task_answers_what_nobody_will_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_WORD_SECONDS", 0.0)

    async def ends() -> Answered | None:
        errands = table()
        errand = asked(errands)
        errands.task_ended(errand.key)
        assert not errands.of(errand.key)
        return await errands.answer(errand.id, wait_seconds=20)

    answered = asyncio.run(ends())
    assert answered is not None
    assert not answered.done
    assert "ended before" in answered.text


def test_the_errand_that_ended_a_task_still_has_the_last_word() -> None:
    async def ends() -> Answered | None:
        errands = table()
        errand = asked(errands)
        errands.task_ended(errand.key)
        errands.answered(answer(errand, text="killed"))
        return await errands.answer(errand.id, wait_seconds=20)

    answered = asyncio.run(ends())
    assert answered is not None
    assert answered.text == "killed"


def test_an_answer_that_comes_twice_is_known_to_have_come() -> None:
    errands = table()
    errand = asked(errands)
    assert not errands.told(errand.id)
    errands.answered(answer(errand))
    errands.answered(answer(errand, text="again"))
    assert errands.told(errand.id)
    assert errands.poll(errand.id) == answer(errand)


def test_only_a_task_that_runs_can_be_asked() -> None:
    errands = table()
    with pytest.raises(TaskNotFound, match="worker-0, worker-1"):
        errands.ask(running(), "worker-7", ErrandKind.KILL)
    with pytest.raises(IllegalTransition, match="the job is queued"):
        errands.ask(a_job(), "worker-0", ErrandKind.KILL)
    with pytest.raises(IllegalTransition, match="is placed"):
        errands.ask(placed(a_job()), "worker-0", ErrandKind.KILL)


def test_errands_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    monkeypatch.setattr(module, "ANSWERS_KEPT_MAX", 1)
    errands = table()
    first, second = asked(errands), asked(errands)
    with pytest.raises(Exhausted):
        asked(errands)
    errands.answered(answer(first))
    errands.answered(answer(second))
    assert errands.poll(first.id) is None
    assert errands.poll(second.id) is not None
