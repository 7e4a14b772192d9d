"""A real agent sent on errands: each is done once, answered, and undone by whoever comes after a crash."""

import shlex
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_harness import AgentProcess, FakeServer, key, launch, node, until
from trackside.agent.errands import NOT_RUNNING
from trackside.agent.stacks import TEXT_BYTES_MAX
from trackside.domain.exchange import ErrandKind

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


def test_an_errand_for_a_task_that_is_not_here_is_answered(
    running: tuple[FakeServer, AgentProcess],
) -> None:
    server, _ = running
    answered = server.answer(server.ask(key(), ErrandKind.STACKS))
    assert not answered.done
    assert answered.text == NOT_RUNNING


def test_an_agent_that_comes_back_does_no_errand_twice(tmp_path: Path) -> None:
    with node(tmp_path / uuid.uuid4().hex) as (server, agent):
        task = server.order(launch("sleep 60"))
        server.started(task)
        errand = server.ask(task, ErrandKind.STACKS)
        server.answer(errand)
        agent.kill()
        agent.start()
        other = server.ask(task, ErrandKind.STACKS)  # the first is still asked for, and comes before it
        assert server.answer(other).done
        assert sum(r.answered is not None and r.answered.id == errand for r in server.reports) == 1
