"""The example job trains for real: its ranks agree to the bit, survive a stop, and notice a dead peer."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "ddp_numpy" / "train.py"
PATIENCE_SECONDS = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def start(rank: int, size: int, port: int, *options: str) -> subprocess.Popen[str]:
    place = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *options],
        env=os.environ | place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(ranks: list[subprocess.Popen[str]]) -> list[str]:
    return [rank.communicate(timeout=PATIENCE_SECONDS)[0] for rank in ranks]


def losses(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"^step \d+ loss ([\d.]+)", output, re.MULTILINE)]


def checksum(output: str) -> str:
    found = re.search(r"^done step \d+ loss \S+ checksum (\w+)$", output, re.MULTILINE)
    assert found, output
    return found[1]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_loss_falls_and_all_ranks_end_with_the_same_weights(size: int, tmp_path: Path) -> None:
    port = free_port()
    ranks = [
        start(rank, size, port, "--steps=500", "--lr=0.003", f"--train_url={tmp_path}")
        for rank in range(size)
    ]
    outputs = finish(ranks)
    assert [rank.returncode for rank in ranks] == [0] * size, outputs
    assert losses(outputs[0])[-1] < 0.9 * losses(outputs[0])[0]
    assert len({checksum(output) for output in outputs}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.npz"]


def test_an_interrupted_run_resumed_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = finish([start(0, 1, 0, "--steps=60")])[0]
    finish([start(0, 1, 0, "--steps=25", f"--train_url={tmp_path}")])
    resumed = finish([start(0, 1, 0, "--steps=60", f"--train_url={tmp_path}")])[0]
    assert "begins after step 25" in resumed
    assert checksum(resumed) == checksum(whole)


def test_sigterm_to_one_rank_saves_and_ends_both(tmp_path: Path) -> None:
    port = free_port()
    ranks = [start(rank, 2, port, "--seconds=300", f"--train_url={tmp_path}") for rank in range(2)]
    assert ranks[1].stdout
    while not ranks[1].stdout.readline().startswith("step "):
        assert ranks[1].poll() is None
    ranks[1].send_signal(signal.SIGTERM)
    outputs = finish(ranks)
    assert [rank.returncode for rank in ranks] == [143, 143], outputs
    assert checksum(outputs[0]) == checksum(outputs[1])
    assert (tmp_path / "checkpoint.npz").exists()


@pytest.mark.parametrize("victim", [0, 2])
def test_a_dead_peer_ends_the_others_with_its_name(victim: int) -> None:
    port = free_port()
    ranks = [start(rank, 3, port, "--seconds=300") for rank in range(3)]
    output = ranks[victim].stdout
    assert output
    while not output.readline().startswith("step "):
        assert ranks[victim].poll() is None
    ranks[victim].kill()
    outputs = finish(ranks)
    for rank in {0, 1, 2} - {victim}:
        assert ranks[rank].returncode == 3, outputs
        assert f"error: rank {rank} cannot go on: rank {victim} is gone" in outputs[rank]


def test_absurd_parameters_are_refused() -> None:
    rank = start(0, 1, 0, "--steps=0")
    assert "--steps and --epochs must be at least 1" in finish([rank])[0]
    assert rank.returncode == 2
