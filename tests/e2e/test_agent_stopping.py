"""A stop ends everything a task ever started, and is told only once nothing is left."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_harness import AgentProcess, FakeServer, alive, launch, node, until
from trackside.agent import record
from trackside.agent.control import agent_pid, ensure_agent, stop_agent
from trackside.domain.exchange import EndCause, Stop, TaskKey

pytestmark = pytest.mark.e2e
Node = tuple[FakeServer, AgentProcess]

# 30 processes: half ignore TERM, some are daemons in sessions of their own, some fork as they die.
TREE = r"""
import os, signal, sys, time

def fork_on_term(*_):
    for _ in range(3):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
    os._exit(0)

def be(number):
    if number % 2:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif number % 3 == 0:
        signal.signal(signal.SIGTERM, fork_on_term)
    if number % 5 == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.setsid()
    os.write(1, b"up\n")
    while True:
        time.sleep(1000)

for number in range(30):
    if os.fork() == 0:
        be(number)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    time.sleep(1000)
"""
BOMB = r"""
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 30
while time.monotonic() < end:
    if os.fork():
        time.sleep(0.002)
        os._exit(0)
    os.setsid()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("data")) as made:
        yield made


def _python(code: str) -> str:
    return f"exec {sys.executable} -I -S -c '{code}'"


def _shim(agent: AgentProcess, of: TaskKey) -> int:
    return until(lambda: record.lock_holder(str(agent.state_dir(of) / record.LOCK)))


def _task_at_rest(running: Node) -> TaskKey:
    server, agent = running
    of = server.order(launch(_python(TREE), grace_seconds=0.3))
    server.started(of)
    until(lambda: agent.log(of).count(b"up") == 30)
    return of


def test_a_stop_leaves_nothing_of_a_tree_of_thirty(running: Node) -> None:
    server, _ = running
    of = _task_at_rest(running)
    assert len(alive(of)) >= 31
    server.order(Stop(key=of, grace_seconds=0.3))
    ended = server.ended(of)
    assert alive(of) == set()
    assert (ended.cause, ended.stopped_by_us, ended.signal) == (EndCause.EXITED, True, signal.SIGKILL)


def test_a_stop_beats_a_process_that_forks_for_ever(running: Node) -> None:
    server, _ = running
    of = server.order(launch(_python(BOMB)))
    server.started(of)
    server.order(Stop(key=of, grace_seconds=0.2))
    server.ended(of)
    assert alive(of) == set()


def test_term_lets_a_task_end_by_itself_and_its_children_have_the_grace_too(running: Node) -> None:
    server, agent = running
    # The shell dies of TERM at once; its child needs a moment to save its work.
    child = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    of = server.order(launch(f'sh -c "{child}" & wait'))
    until(lambda: agent.state_dir(of).exists() and server.started(of) and b"up" in agent.log(of))
    server.order(Stop(key=of, grace_seconds=10))
    ended = server.ended(of)
    assert ended.stopped_by_us
    assert b"saved" in agent.log(of)


def test_a_second_stop_may_shorten_the_grace(running: Node) -> None:
    server, _ = running
    of = server.order(launch("trap '' TERM; while :; do sleep 0.05; done"))
    server.started(of)
    server.order(Stop(key=of, grace_seconds=1000))
    server.order(Stop(key=of, grace_seconds=0.1))
    assert server.ended(of).signal == signal.SIGKILL


def test_a_stopped_process_is_ended_too(running: Node) -> None:
    server, _ = running
    of = server.order(launch("kill -STOP $$; exit 3"))
    server.started(of)
    server.order(Stop(key=of, grace_seconds=5))
    assert server.ended(of).signal == signal.SIGTERM


def test_launch_and_stop_in_one_answer_start_nothing(running: Node) -> None:
    server, agent = running
    order = launch("echo ran")
    server.order(order, Stop(key=order.key, grace_seconds=1))
    assert server.ended(order.key).cause is EndCause.NOT_STARTED
    assert not agent.state_dir(order.key).joinpath(record.SHIM).exists()


def test_a_stop_right_after_the_launch_is_never_lost(running: Node) -> None:
    """Orders the stop at all moments around the start: before, during and after the fork."""
    server, _ = running
    for step in range(25):
        order = launch("sleep 1000")
        server.order(order)
        time.sleep(step / 1500)
        server.order(Stop(key=order.key, grace_seconds=2))
        ended = server.ended(order.key)
        assert ended.stopped_by_us
        assert ended.cause in (EndCause.NOT_STARTED, EndCause.EXITED)
        assert alive(order.key) == set()


def test_a_killed_shim_is_noticed_and_its_tree_cleaned_up(running: Node) -> None:
    server, agent = running
    of = _task_at_rest(running)
    os.kill(_shim(agent, of), signal.SIGKILL)
    ended = server.ended(of)
    assert alive(of) == set()
    assert (ended.cause, ended.exit_code, ended.signal) == (EndCause.SHIM_LOST, None, None)
    assert server.run("exit 2").exit_code == 2


def test_a_killed_forker_costs_no_task(running: Node) -> None:
    server, agent = running
    of = server.order(launch("sleep 0.5; exit 8"))
    server.started(of)
    os.kill(until(lambda: record.lock_holder(str(agent.data_dir / "agent/forker.lock"))), signal.SIGKILL)
    assert server.run("exit 4").exit_code == 4
    assert server.ended(of).exit_code == 8


def test_ensure_starts_one_agent_and_stop_leaves_nothing(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        agent.kill()
        assert ensure_agent(tmp_path, task_user="nobody", node_id="n1")
        assert not ensure_agent(tmp_path, task_user="nobody", node_id="n1")
        of = server.order(launch("trap '' TERM; sleep 1000 & wait; sleep 1000"))
        server.started(of)
        stop_agent(tmp_path, with_tasks=False)
        assert agent_pid(tmp_path) is None
        assert alive(of)
        assert ensure_agent(tmp_path, task_user="nobody", node_id="n1")
        stop_agent(tmp_path, with_tasks=True)
        assert alive(of) == set()
        assert _shims(tmp_path) == []
    assert server.hellos[-1]["node_id"] == "n1"


def _shims(data_dir: Path) -> list[int]:
    tasks = (data_dir / "agent" / "tasks").iterdir()
    return [pid for path in tasks if (pid := record.lock_holder(str(path / record.LOCK))) is not None]
