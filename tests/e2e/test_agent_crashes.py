"""The agent is killed and the server goes away: every task still runs once, and its end is told truly."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.agent_harness import AgentProcess, alive, launch, node, until
from trackside.agent import record
from trackside.agent.control import agent_pid
from trackside.domain.exchange import EndCause, Stop
from trackside.domain.job import Access, Channel

pytestmark = pytest.mark.e2e
KILLS = 20


def test_an_agent_killed_at_random_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    moments = random.Random(7)
    with node(tmp_path) as (server, agent):
        orders = []
        for number in range(KILLS):
            batch = [
                launch(f"echo ran; sleep {moments.uniform(0, 0.3):.3f}; exit {number + 1}") for _ in range(2)
            ]
            orders += [(order.key, number + 1) for order in batch]
            server.order(*batch)
            # Half of the kills hit the start itself, half the life or the end of the tasks.
            time.sleep(moments.uniform(0, 0.03 if number % 2 else 0.4))
            agent.kill()
            agent.start()
        for key, code in orders:
            ended = server.ended(key)
            assert (ended.cause, ended.exit_code) == (EndCause.EXITED, code)
            assert agent.log(key) == b"ran\n"
            assert alive(key) == set()
        ends = [report.ended for report in server.reports if report.ended is not None]
        assert {end.key for end in ends} == {key for key, _ in orders}
        for end in ends:  # what is told twice is told alike
            assert end == server.ended(end.key)
        until(lambda: not any((tmp_path / "agent" / "tasks").iterdir()))


def test_a_restarted_agent_adopts_running_tasks_and_can_stop_them(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        of = server.order(launch("sleep 1000"))
        pid = server.started(of).pid
        agent.kill()
        agent.start()
        assert pid in alive(of)
        server.order(Stop(key=of, grace_seconds=2))
        ended = server.ended(of)
        assert (ended.signal, ended.stopped_by_us) == (signal.SIGTERM, True)


def test_an_exit_while_no_agent_lives_is_told_by_the_next(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        of = server.order(launch("sleep 0.3; exit 11"))
        server.started(of)
        agent.kill()
        until(lambda: _shim_pid(agent, of) is None)
        agent.start()
        assert server.ended(of).exit_code == 11


def test_outputs_survive_an_agent_killed_before_they_were_stored(tmp_path: Path) -> None:
    outputs = (Channel(name="out", url="obs://bucket/kept/", access=Access.ENV),)
    with node(tmp_path) as (server, agent):
        of = server.order(launch("sleep 0.3; echo result > $out/model", outputs=outputs))
        server.started(of)
        agent.kill()
        until(lambda: _shim_pid(agent, of) is None)
        agent.start()
        assert server.ended(of).exit_code == 0
        assert (tmp_path / "obs/bucket/kept/model").read_text() == "result\n"


def test_a_shim_killed_while_no_agent_lives_is_lost_and_cleaned_up(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        of = server.order(launch("(setsid sleep 1000 &); sleep 1001"))
        server.started(of)
        agent.kill()
        for pid in (_shim_pid(agent, of), record.lock_holder(str(tmp_path / "agent/forker.lock"))):
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        assert alive(of)
        agent.start()
        assert server.ended(of).cause is EndCause.SHIM_LOST
        assert alive(of) == set()


def test_sigterm_ends_the_agent_and_leaves_its_tasks(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        of = server.order(launch("sleep 0.5; exit 12"))
        server.started(of)
        assert agent.process is not None
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(10) == 0
        assert alive(of)
        agent.start()
        assert server.ended(of).exit_code == 12


def test_reports_wait_for_a_server_that_is_away_and_comes_back_elsewhere(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        orders = [launch(f"sleep 0.4; exit {code}") for code in range(1, 6)]
        server.order(*orders)
        for order in orders:
            server.started(order.key)
        server.close()
        until(lambda: all(_shim_pid(agent, order.key) is None for order in orders))
        agent.kill()  # what was spooled survives this too
        agent.start()
        server.open()  # on another port
        assert [server.ended(order.key).exit_code for order in orders] == [1, 2, 3, 4, 5]
        until(lambda: server.run("true").exit_code == 0)
        assert agent_pid(tmp_path) is not None


def test_a_new_token_is_taken_up(tmp_path: Path) -> None:
    with node(tmp_path) as (server, _):
        assert server.run("true").exit_code == 0
        server.token = "another"
        (tmp_path / "agent" / "token").write_text("another")
        assert server.run("exit 3").exit_code == 3


def _shim_pid(agent: AgentProcess, of: object) -> int | None:
    return record.lock_holder(str(agent.data_dir / "agent" / "tasks" / str(of) / record.LOCK))
