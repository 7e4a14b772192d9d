"""What an agent finds out about ends that no job can bring about by itself."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_harness import MIB, AgentProcess, FakeServer, launch, node, until
from tests.e2e.test_cards import card_samples, with_cards
from trackside.agent import cgroup
from trackside.agent.control import agent_pid
from trackside.domain.evidence import Evidence
from trackside.domain.exchange import EndCause, TaskKey
from trackside.domain.resources import Accelerator

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
BASES = cgroup.detect()
EATS = "exec python -S -c 'x = bytearray(600 << 20); print(len(x))'"
LIMIT_BYTES = 300 * MIB


class ConfinedAgent(AgentProcess):
    """An agent in a group of its own that is smaller than what it promises its tasks: a machine too small."""

    group: Path

    def start(self, *extra: str) -> "ConfinedAgent":
        command = [sys.executable, "-m", "trackside.agent", "--data-dir", str(self.data_dir), *extra]
        join = f'echo $$ > {self.group}/cgroup.procs; exec "$@"'
        with open(self.data_dir / "agent" / "agent.log", "ab") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", join, "sh", *command],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        until(lambda: agent_pid(self.data_dir) == self.process.pid or self.process.poll() is not None)
        return self


@pytest.fixture
def small_machine() -> Iterator[Path]:
    """A memory group with a limit, which stands for a machine without memory."""
    base = BASES.v1.get("memory")
    if base is None or os.geteuid() != 0 or not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("needs a memory cgroup (v1) and the kernel's log")
    group = base / f"trackside-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        yield group
    finally:
        until(lambda: _removed(group))


def _removed(group: Path) -> bool:
    """Remove a group with those below it, once nobody is in them."""
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return not group.exists()


def test_a_machine_without_memory_is_told_from_a_task_over_its_limit(
    tmp_path: Path, small_machine: Path
) -> None:
    """The kernel really kills, and its log is really read."""
    ConfinedAgent.group = small_machine
    with node(tmp_path, agent_class=ConfinedAgent) as (server, _):
        ended = server.run(EATS, memory_bytes=1024 * MIB)
        assert ended.evidence is not None
        assert (ended.signal, ended.oom_killed) == (9, True)
        assert (ended.evidence.oom_kills_before, ended.evidence.oom_kills_after) == (0, 1)
        assert ended.evidence.host_oom is not None
        assert f"/{small_machine.name}," in ended.evidence.host_oom
        assert str(ended.key) in ended.evidence.host_oom
        own = server.run(EATS, memory_bytes=100 * MIB)
        assert own.oom_killed
        assert own.evidence is not None
        assert own.evidence.host_oom is None


class Cards:
    """A node with two cards whose errors the test makes."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        self.server = server
        self.script, self.events, self.gate = folder / "cards", folder / "events", folder / "gate"

    def begin(self, *cards: int) -> TaskKey:
        """Start a task on these cards and wait until they were read."""
        command = f"while [ ! -e {self.gate} ]; do sleep 0.02; done; exit 1"
        of = self.server.order(launch(command, **with_cards(Accelerator.GPU, *cards)))
        read = [("gpu_ecc_errors", card) for card in cards]
        until(lambda: all(one in card_samples(self.server, of, "gpu_") for one in read))
        return of

    def end(self, of: TaskKey) -> Evidence:
        """Let the task fail and return what was found."""
        self.gate.touch()
        ended = self.server.ended(of)
        assert ended.evidence is not None
        return ended.evidence


@pytest.fixture
def cards(tmp_path: Path, library: Path) -> Iterator[Cards]:
    folder = tmp_path / "node"
    folder.mkdir()
    tmp_path.chmod(0o755)
    folder.chmod(0o755)
    (folder / "cards").write_text("5 1 0 100 ecc=4\n5 1 0 100 ecc=0\n")
    (folder / "events").touch()
    given = {"NVML_STUB_SCRIPT": str(folder / "cards"), "NVML_STUB_EVENTS": str(folder / "events")}
    data = tmp_path / "data"
    with node(data, "--show", str(folder), LD_LIBRARY_PATH=str(library), **given) as (server, _):
        yield Cards(server, folder)


def test_memory_errors_of_a_card_since_the_task_began_are_found(cards: Cards) -> None:
    of = cards.begin(0, 1)
    cards.script.write_text("5 1 0 100 ecc=4\n5 1 0 100 ecc=2\n")
    (fault,) = cards.end(of).device_faults
    assert (fault.card, fault.code, fault.heals) == (1, "ECC", False)
    assert fault.text.endswith("2 since the task began")


def test_an_error_that_the_driver_tells_at_the_last_moment_is_found(cards: Cards) -> None:
    of = cards.begin(0)
    cards.events.write_text("0 31\n")
    (fault,) = cards.end(of).device_faults
    assert (fault.card, fault.code, fault.heals) == (0, "XID 31", True)


def test_a_task_whose_cards_are_well_has_no_faults(cards: Cards) -> None:
    assert cards.end(cards.begin(0)).device_faults == ()


def test_the_words_of_a_task_whose_shim_was_killed_are_kept(tmp_path: Path) -> None:
    with node(tmp_path) as (server, agent):
        of = server.order(launch("python -c 'raise ValueError(\"boom\")'; sleep 600"))
        until(lambda: b"ValueError" in (agent.log(of) if server.started(of) else b""))
        shim = (agent.state_dir(of) / "shim.json").read_text()
        os.kill(int(shim.split(":")[1].rstrip("}\n ")), 9)
        ended = server.ended(of)
        assert ended.cause is EndCause.SHIM_LOST
        assert ended.evidence is not None
        assert ended.evidence.traceback is not None
        assert ended.evidence.traceback.endswith("ValueError: boom")
