"""The order in which real processes end, however late it is looked at."""

import itertools
import subprocess
from collections.abc import Iterator

import pytest

from trackside.agent import tree
from trackside.agent.exit_order import ExitOrder
from trackside.agent.loop import Loop
from trackside.agent.task import boot_ms
from trackside.domain.exchange import TaskKey
from trackside.domain.job import JobId, TaskName

TASKS = 4


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def key(index: int, job: str = "job") -> TaskKey:
    return TaskKey(JobId(job), 1, TaskName(f"worker-{index}"))


@pytest.mark.parametrize("asked", list(itertools.permutations(range(TASKS)))[::5])
def test_ends_are_told_in_the_order_in_which_they_came(loop: Loop, asked: tuple[int, ...]) -> None:
    order = ExitOrder(loop)
    children = [subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(TASKS)]
    for index, child in enumerate(children):
        order.find(key(index), child.pid, tree.start_ticks(child.pid))
    ended = [2, 0, 3, 1]
    for index in ended:  # before the loop looks even once
        child = children[index]
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    loop.call_later(0, loop.stop)
    loop.run()
    late_ms = boot_ms() + 500
    # Every shim was late, the first one's most of all, and their records are found in any order.
    told = {index: order.moment(key(index), late_ms - index) for index in asked}
    assert sorted(told, key=lambda index: told[index]) == ended
    assert len(set(told.values())) == TASKS


def test_a_task_that_nobody_saw_end_keeps_its_shim_s_word(loop: Loop) -> None:
    order = ExitOrder(loop)
    with subprocess.Popen(["true"]) as child:
        ticks = tree.start_ticks(child.pid)
        child.wait()
        order.find(key(0), child.pid, ticks)
    order.find(key(1), 1, -1)
    assert order.moment(key(0), 77) == 77
    assert order.moment(key(1), 78) == 78


def test_jobs_do_not_push_each_other(loop: Loop) -> None:
    order = ExitOrder(loop)
    keys = (key(0, "a"), key(0, "b"))
    for one in keys:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        order.find(one, child.pid, tree.start_ticks(child.pid))
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    loop.call_later(0, loop.stop)
    loop.run()
    assert order.moment(keys[1], 900) == 900
    assert order.moment(keys[0], 1000) == 1000
