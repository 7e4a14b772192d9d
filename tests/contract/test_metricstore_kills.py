"""The embedded store's writer is killed a hundred times: what it acknowledged is there, whole."""

import multiprocessing
import os
import random
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.contract.test_metricstore import STORES, T0, all_means, sample
from trackside.metricstore.embedded import EmbeddedMetricStore

KILLS = 100
BATCH = 5
ACKNOWLEDGED_MAX = 12  # batches before a kill; none: it dies while it opens the store and reads its journal
COMPACTED_EVERY = 10  # kills; what survived moves into blocks, or every start would read all journals again
BEGUN = -1


def write(kind: str, folder: Path, first: int, told: Connection) -> None:
    """Append batches for ever; say the number of each once it is acknowledged."""
    told.send(BEGUN)
    with STORES[kind](folder) as store:
        for batch in range(first, first + 1_000_000):
            store.append([sample(T0 + batch * 1000 + n, batch + n) for n in range(BATCH)])
            told.send(batch)


@pytest.fixture(scope="module")
def nursery() -> ForkServerContext:
    """A process that has imported all a writer needs and has opened nothing: its forks start at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def killed(nursery: ForkServerContext, kind: str, folder: Path, first: int, after: int) -> Iterator[int]:
    """Kill a writer once it has acknowledged so many batches; list all that it acknowledged."""
    heard, told = nursery.Pipe(duplex=False)
    with heard:
        writer = nursery.Process(target=write, args=(kind, folder, first, told))
        writer.start()
        told.close()
        assert heard.recv() == BEGUN
        for _ in range(after):
            yield heard.recv()
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        try:
            while True:
                yield heard.recv()
        except (EOFError, ConnectionResetError):
            writer.close()


@pytest.mark.parametrize("kind", ["embedded", "in_rows"])  # the latter compacts, too
def test_what_was_acknowledged_survives_a_kill(nursery: ForkServerContext, kind: str, tmp_path: Path) -> None:
    acknowledged: set[int] = set()
    first, chance = 0, random.Random(7)
    for number in range(KILLS):
        after = chance.randint(0, ACKNOWLEDGED_MAX)
        acknowledged |= set(killed(nursery, kind, tmp_path, first, after))
        with STORES[kind](tmp_path) as store:
            assert isinstance(store, EmbeddedMetricStore)
            found = next(iter(all_means(store, step_ms=1_000).values()), {})
            if number % COMPACTED_EVERY == 0:
                store.compact(everything=True)
        stored = {(at_ms - T0) // 1000 for at_ms in found}
        assert acknowledged <= stored
        # A batch is whole or not there.
        assert all(mean == (at_ms - T0) // 1000 + (BATCH - 1) / 2 for at_ms, mean in found.items())
        first = max(stored, default=-1) + 1
    assert len(acknowledged) >= KILLS
