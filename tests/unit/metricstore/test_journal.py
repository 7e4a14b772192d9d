"""Records that outlive their process."""

import os
from pathlib import Path

import pytest

from trackside.metricstore.damage import Damage
from trackside.metricstore.journal import GROW_BYTES, Journal


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "metrics.db"


def left_by_a_killed_process(database: Path, *records: bytes) -> Path:
    """Write records and go away without closing; return the file."""
    journal = Journal(database, Damage())
    if records:
        journal.append(records)
    path = journal._active.path
    for file in (*journal._old, journal._active):
        os.close(file.fd)  # lets go of the lock, as the end of a process does
    os.truncate(path, GROW_BYTES)
    return path


def test_what_was_appended_is_replayed_in_order(database: Path) -> None:
    left_by_a_killed_process(database, b"first", b"second")
    left_by_a_killed_process(database, b"third")
    journal = Journal(database, Damage())
    assert list(journal.replay()) == [b"first", b"second", b"third"]
    journal.close()


def test_room_that_a_killed_process_left_is_given_back(database: Path) -> None:
    empty = left_by_a_killed_process(database)
    full = left_by_a_killed_process(database, b"record")
    journal = Journal(database, Damage())
    assert list(journal.replay()) == [b"record"]
    assert not empty.exists()
    assert 0 < full.stat().st_size < 100
    journal.close()
    journal = Journal(database, Damage())
    assert list(journal.replay()) == [b"record"], "what is whole stays until it is in blocks"
    journal.drop(journal.rotate())
    journal.close()
    assert not list(database.parent.iterdir())
