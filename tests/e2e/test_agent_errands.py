"""A real agent sent on errands: each is done once, answered, and undone by whoever comes after a crash."""

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.e2e.agent_harness import MIB, AgentProcess, FakeServer, alive, key, launch, node, until
from tests.e2e.programs import TALKS
from tests.e2e.test_agent_unprivileged import HumbleAgent
from trackside.agent import tree
from trackside.agent.cgroup import detect
from trackside.agent.errands import NOT_RUNNING
from trackside.agent.stacks import TEXT_BYTES_MAX
from trackside.agent.state import TaskFiles
from trackside.domain.exchange import EndCause, ErrandKind, Stop, TaskKey

pytestmark = pytest.mark.e2e
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give up its privileges for this test"
)
needs_groups = pytest.mark.skipif(
    not detect().limits_memory or detect().unified is None, reason="no control groups can be made here"
)
WAITS = """
import time
def waits_for_a_peer():
    print("up", flush=True)
    time.sleep(60)
waits_for_a_peer()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, AgentProcess]]:
    with node(tmp_path_factory.mktemp("node") / "data") as both:
        yield both


def test_stacks_say_where_a_python_process_stands(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    task = server.order(launch(f"{sys.executable} -c {shlex.quote(WAITS)} & wait"))
    server.started(task)
    until(lambda: agent.log(task).startswith(b"up"))
    answered = server.answer(server.ask(task, ErrandKind.STACKS))
    assert answered.done, answered.text
    assert "waits_for_a_peer" in answered.text
    assert "process " in answered.text  # the shell, from /proc
    assert len(answered.text.encode()) <= TEXT_BYTES_MAX


def test_what_a_newer_server_asks_for_is_answered_and_holds_up_nothing(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, agent = running
    task = server.order(launch("exec sleep 60"))
    server.started(task)
    strange: Any = {"amount": "all of it"}  # no number, as this version has it
    asked = [server.ask(task, cast(ErrandKind, "profile")), server.ask(task, ErrandKind.KILL, **strange)]
    newer: Any = {"grace_seconds": "as long as it takes"}
    refused = server.order(replace(launch("true"), **newer))
    for errand_id in asked:
        answered = server.answer(errand_id)
        assert not answered.done
        assert "not known to this agent's version" in answered.text
    ended = server.ended(refused)
    assert ended.cause is EndCause.CANNOT_START
    assert "not known to this agent's version" in ended.message
    assert server.run("exit 3").exit_code == 3  # while the errands are still asked for
    assert alive(task), "the kill that was not understood was done"
    assert server.answer(server.ask(task, ErrandKind.KILL)).done
    assert server.ended(task).signal == signal.SIGKILL
    assert "asking for orders" not in (agent.data_dir / "agent" / "agent.log").read_text()


def test_an_errand_for_a_task_that_is_not_here_is_answered(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, _ = running
    answered = server.answer(server.ask(key(), ErrandKind.STACKS))
    assert not answered.done
    assert answered.text == NOT_RUNNING


def test_an_agent_that_comes_back_does_no_errand_twice(tmp_path: Path) -> None:
    with node(tmp_path / uuid.uuid4().hex) as (server, agent):
        task = server.order(launch("trap 'echo hit' USR1; echo up; while true; do sleep 0.05; done"))
        until(lambda: agent.log(task) == b"up\n" if server.started(task) else None)
        assert server.answer(server.ask(task, ErrandKind.KILL, amount=signal.SIGUSR1)).done
        until(lambda: b"hit" in agent.log(task))
        agent.kill()
        agent.start()
        other = server.ask(task, ErrandKind.STACKS)  # the first is still asked for, and comes before it
        assert server.answer(other).done
        assert agent.log(task) == b"up\nhit\n"


COUNTS = "i=0; while true; do i=$((i+1)); echo $i; sleep 0.02; done"
BURNS = "import time\nwhile True:\n    for _ in range(100000): pass\n"


def states(pids: set[int]) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return found


def of_task(agent: AgentProcess, task: TaskKey) -> set[int]:
    return tree.descendants([TaskFiles(agent.state_dir(task)).shim_pid() or -1])


def goes_on(agent: AgentProcess, task: TaskKey) -> None:
    before = len(agent.log(task))
    until(lambda: len(agent.log(task)) > before)


def test_a_kill_ends_the_task_by_that_signal(running: tuple[FakeServer, AgentProcess]) -> None:
    server, _ = running
    for amount, number in ((None, 9), (15, 15)):
        task = server.order(launch("exec sleep 60"))
        server.started(task)
        answered = server.answer(server.ask(task, ErrandKind.KILL, amount=amount))
        assert answered.done, answered.text
        assert server.ended(task).signal == number


def test_a_signal_that_is_none_is_refused(running: tuple[FakeServer, AgentProcess]) -> None:
    server, _ = running
    task = server.order(launch("exec sleep 60"))
    server.started(task)
    answered = server.answer(server.ask(task, ErrandKind.KILL, amount=999))
    assert not answered.done
    assert "no signal 999" in answered.text


def test_a_frozen_task_stands_still_and_then_goes_on(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    task = server.order(launch(COUNTS))
    server.started(task)
    goes_on(agent, task)
    frozen = server.ask(task, ErrandKind.FREEZE, seconds=1.5)
    assert server.answer(frozen).done
    assert states(of_task(agent, task)) == {"T"}
    again = server.answer(server.ask(task, ErrandKind.FREEZE, seconds=60))
    assert not again.done
    assert "under way" in again.text
    until(lambda: any("freeze" in note and "undone" in note for note in server.notes(task)))
    goes_on(agent, task)


def test_a_frozen_task_can_be_stopped(running: tuple[FakeServer, AgentProcess]) -> None:
    server, _ = running
    task = server.order(launch("exec sleep 60"))
    server.started(task)
    assert server.answer(server.ask(task, ErrandKind.FREEZE)).done
    server.order(Stop(key=task, grace_seconds=10))
    assert server.ended(task).signal == 15


def test_an_agent_that_was_killed_thaws_what_it_froze(tmp_path: Path) -> None:
    with node(tmp_path / uuid.uuid4().hex) as (server, agent):
        task = server.order(launch(COUNTS))
        server.started(task)
        assert server.answer(server.ask(task, ErrandKind.FREEZE, seconds=600)).done
        agent.kill()
        assert states(of_task(agent, task)) == {"T"}
        agent.start()
        until(lambda: any("the agent was restarted" in note for note in server.notes(task)))
        goes_on(agent, task)
        assert "T" not in states(of_task(agent, task))


def test_an_agent_that_is_stopped_thaws_what_it_froze(tmp_path: Path) -> None:
    with node(tmp_path / uuid.uuid4().hex) as (server, agent):
        task = server.order(launch(COUNTS))
        server.started(task)
        assert server.answer(server.ask(task, ErrandKind.FREEZE)).done
        assert agent.process is not None
        agent.process.terminate()
        agent.process.wait()
        goes_on(agent, task)
        agent.start()


def cpu_seconds(pids: set[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def burnt(agent: AgentProcess, task: TaskKey, seconds: float) -> float:
    """Return how much of a core the task used for a while, by the kernel's count."""
    began, before = time.monotonic(), cpu_seconds(of_task(agent, task))
    time.sleep(seconds)
    return (cpu_seconds(of_task(agent, task)) - before) / (time.monotonic() - began)


def slows_down(server: FakeServer, agent: AgentProcess) -> None:
    task = server.order(launch(f"exec {sys.executable} -c {shlex.quote(BURNS)}"))
    server.started(task)
    until(lambda: cpu_seconds(of_task(agent, task)) > 0.2)
    slowed = server.answer(server.ask(task, ErrandKind.SLOW_DOWN, seconds=1.5, amount=5))
    assert slowed.done, slowed.text
    assert burnt(agent, task, 1.0) < 0.3
    until(lambda: any("slow down" in note and "undone" in note for note in server.notes(task)))
    before = cpu_seconds(of_task(agent, task))
    until(lambda: cpu_seconds(of_task(agent, task)) > before + 0.5)
    server.order(Stop(key=task, grace_seconds=0))


@needs_groups
def test_a_slowed_task_uses_less_cpu_and_then_as_much_as_before(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    slows_down(*running)


@needs_root
def test_a_task_without_groups_is_slowed_down_by_stopping_it(tmp_path: Path) -> None:
    with node(tmp_path / uuid.uuid4().hex, agent_class=HumbleAgent) as (server, agent):
        slows_down(server, agent)


@needs_root
def test_what_would_harm_others_is_refused_and_why_is_said(tmp_path: Path) -> None:
    words = {
        ErrandKind.EXHAUST_MEMORY: "does not enforce limits",
        ErrandKind.FILL_SHM: "the machine's own",
        ErrandKind.CUT_OFF: "control group",
    }
    with node(tmp_path / uuid.uuid4().hex, agent_class=HumbleAgent) as (server, _):
        task = server.order(launch("exec sleep 60"))
        server.started(task)
        for kind, said in words.items():
            answered = server.answer(server.ask(task, kind))
            assert not answered.done
            assert said in answered.text


@needs_groups
def test_exhausted_memory_ends_the_task_as_out_of_memory(running: tuple[FakeServer, AgentProcess]) -> None:
    server, _ = running
    task = server.order(launch("exec sleep 60", memory_bytes=128 * MIB))
    server.started(task)
    answered = server.answer(server.ask(task, ErrandKind.EXHAUST_MEMORY))
    assert answered.done, answered.text
    assert server.ended(task).oom_killed


WRITES = """
n=0; echo kept > /dev/shm/kept
while true; do
    if head -c 1000000 /dev/zero > /dev/shm/new; then echo room; else echo full; fi
    rm /dev/shm/new; cat /dev/shm/kept; sleep 0.05
done
"""


@needs_root
def test_a_full_shm_is_the_tasks_own_and_keeps_what_is_in_it(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, agent = running
    task = server.order(launch(WRITES))
    server.started(task)
    until(lambda: agent.log(task).count(b"room") > 1)
    answered = server.answer(server.ask(task, ErrandKind.FILL_SHM, seconds=1))
    assert answered.done, answered.text
    until(lambda: b"No space left on device\nfull\nkept\n" in agent.log(task))
    assert shutil.disk_usage("/dev/shm").free > MIB  # the machine's
    until(lambda: any("fill shm" in note and "undone" in note for note in server.notes(task)))
    before = agent.log(task).count(b"room")
    until(lambda: agent.log(task).count(b"room") > before)
    server.order(Stop(key=task, grace_seconds=5))


@needs_root
def test_a_shm_can_be_filled_in_part(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    task = server.order(launch("while true; do df --output=pcent /dev/shm | tail -1; sleep 0.05; done"))
    server.started(task)
    assert server.answer(server.ask(task, ErrandKind.FILL_SHM, amount=50)).done
    until(lambda: b" 50%\n" in agent.log(task))
    server.order(Stop(key=task, grace_seconds=0))


@needs_groups
def test_a_task_that_is_cut_off_hears_nothing_and_then_again(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, agent = running
    task = server.order(launch(f"exec {sys.executable} -c {shlex.quote(TALKS)}"))
    server.started(task)
    until(lambda: b"heard" in agent.log(task))
    answered = server.answer(server.ask(task, ErrandKind.CUT_OFF, seconds=0.5))
    assert answered.done, answered.text
    until(lambda: b"silence" in agent.log(task))
    until(lambda: any("cut off" in note and "undone" in note for note in server.notes(task)))
    until(lambda: agent.log(task).endswith(b"heard\n"))
    server.order(Stop(key=task, grace_seconds=0))
