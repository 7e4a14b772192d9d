"""Without privileges there are no groups, no other user, no hiding: tasks run and are ended all the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import trackside
from tests.e2e.agent_harness import AgentProcess, FakeServer, alive, launch, node, until
from trackside.agent import record
from trackside.domain.exchange import EndCause, Stop

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its privileges for this test"),
]
USER = 65534
# Becomes an ordinary user who can reach Python, the package and the data directory.
STEP_DOWN = """
import os, sys
from pathlib import Path
from trackside.agent import child, sandbox
who = sandbox.Identity("nobody", {user}, {user}, drop=True)
data = Path(sys.argv[1])
needed = [*sandbox.python_paths(), Path({package!r})]
child.cover(sandbox.covers(who, needed, own=data, own_root=data))
child.drop_privileges({user}, {user})
os.environ.update(HOME=str(data), TMPDIR="/tmp")
os.execv(sys.executable, [sys.executable, "-m", "trackside.agent", "--data-dir", str(data)])
"""


class HumbleAgent(AgentProcess):
    """An agent of an ordinary user."""

    def start(self, *extra: str) -> "HumbleAgent":
        code = STEP_DOWN.format(user=USER, package=str(Path(trackside.__file__).parent.parent))
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(self.data_dir)], check=True)
        with open(self.data_dir / "agent" / "agent.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, str(self.data_dir)], stdout=log, stderr=log
            )
        return self


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, AgentProcess]]:
    with node(tmp_path_factory.mktemp("data"), agent_class=HumbleAgent) as made:
        yield made


def test_a_task_runs_as_the_agents_own_user(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    ended = server.run("id -u; exit 4")
    assert ended.exit_code == 4
    assert agent.log(ended.key) == b"65534\n"
    assert "cannot be enforced" in (agent.data_dir / "agent" / "agent.log").read_text()


def test_a_stop_leaves_nothing_without_groups_too(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    command = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1001' &); echo up; sleep 1002"
    of = server.order(launch(command))
    server.started(of)
    until(lambda: agent.log(of) == b"up\n" and len(alive(of)) >= 3)
    server.order(Stop(key=of, grace_seconds=0.2))
    server.ended(of)
    assert alive(of) == set()


def test_a_killed_shims_tree_is_found_without_groups(running: tuple[FakeServer, AgentProcess]) -> None:
    server, agent = running
    # The second sleep has a clean environment: only its parents tell whose it is.
    of = server.order(launch("env -i setsid sleep 1003 & sleep 1004"))
    server.started(of)
    cleaned = until(lambda: _running("sleep 1003"))
    shim_pid = record.lock_holder(str(agent.state_dir(of) / record.LOCK))
    assert shim_pid is not None
    os.kill(shim_pid, signal.SIGKILL)
    assert server.ended(of).cause is EndCause.SHIM_LOST
    assert alive(of) == set()
    assert not _running("sleep 1003"), cleaned


def _running(command: str) -> list[int]:
    wanted = command.replace(" ", "\0").encode() + b"\0"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
