"""What was decoded is remembered as long as its block stays as it is, and never longer."""

from pathlib import Path

from trackside.domain.job import JobId
from trackside.domain.metric import Sample
from trackside.metricstore.decoded import ENTRY_OVERHEAD_BYTES, NO_MARK, Decoded
from trackside.metricstore.embedded import EmbeddedMetricStore
from trackside.metricstore.layout import SPAN_MS
from trackside.metricstore.readahead import ROWS_AT_ONCE, read_ahead
from trackside.metricstore.remembered import ROLLUP
from trackside.metricstore.somerollup import SomeRollup


def put(decoded: Decoded, row: int, value: object, *, size_bytes: int = 0, mark: int | None = None) -> None:
    decoded.put("k", row, value, size_bytes=size_bytes, mark=decoded.mark() if mark is None else mark)


def test_what_was_put_is_found_until_its_block_changes() -> None:
    decoded = Decoded()
    put(decoded, 1, "one")
    put(decoded, 2, None)
    assert decoded.get("k", 1, decoded.mark()) == ("one",)
    assert decoded.get("k", 2, decoded.mark()) == (None,), "that there is no block is worth remembering"
    with decoded.changing([1], "k"):
        pass
    assert decoded.get("k", 1, decoded.mark()) is None
    assert decoded.get("k", 2, decoded.mark()) == (None,)


def test_who_looked_before_a_change_neither_leaves_nor_finds_what_came_after() -> None:
    decoded = Decoded()
    before = decoded.mark()
    with decoded.changing([1], "k"):
        pass
    put(decoded, 1, "old", mark=before)
    assert decoded.get("k", 1, decoded.mark()) is None
    put(decoded, 1, "new")
    assert decoded.get("k", 1, before) is None
    assert decoded.get("k", 1, decoded.mark()) == ("new",)


def test_while_blocks_change_nothing_is_remembered_or_told() -> None:
    decoded = Decoded()
    put(decoded, 1, "one")
    with decoded.changing([2], "k"):
        assert decoded.mark() == NO_MARK
        put(decoded, 2, "half")
        assert decoded.get("k", 1, decoded.mark()) is None
    assert decoded.get("k", 2, decoded.mark()) is None
    assert decoded.get("k", 1, decoded.mark()) == ("one",)


def test_a_change_that_fails_forgets_too() -> None:
    decoded = Decoded()
    put(decoded, 1, "one")
    try:
        with decoded.changing(None):
            raise ValueError
    except ValueError:
        pass
    assert len(decoded) == 0
    assert decoded.size_bytes == 0
    assert decoded.mark() != NO_MARK


def test_there_is_a_bound_and_the_least_recently_used_goes_first() -> None:
    decoded = Decoded(3 * (100 + ENTRY_OVERHEAD_BYTES))
    for row in range(3):
        put(decoded, row, row, size_bytes=100)
    assert decoded.get("k", 0, decoded.mark()) == (0,)
    put(decoded, 3, 3, size_bytes=100)
    assert decoded.get("k", 1, decoded.mark()) is None
    assert decoded.get("k", 0, decoded.mark()) == (0,)
    put(decoded, 0, "again", size_bytes=100)
    assert len(decoded) == 3
    assert decoded.size_bytes == 3 * (100 + ENTRY_OVERHEAD_BYTES)


def test_rollups_are_read_ahead_the_newest_first_as_far_as_there_is_room(tmp_path: Path) -> None:
    spans = 6
    store = EmbeddedMetricStore(tmp_path / "metrics.db", background=False)
    store.append([Sample(JobId("job"), "worker-0", "loss", span * SPAN_MS, 1.0) for span in range(spans)])
    store.compact(everything=True)
    database, decoded = store._database, Decoded()
    one = SomeRollup(*database.writer.execute("SELECT id, data FROM rollup").fetchone()).size_bytes
    assert read_ahead(database, decoded, lambda: True) == 0
    assert read_ahead(database, decoded, lambda: False, bytes_max=one) == ROWS_AT_ONCE
    rows = [row for (row,) in database.writer.execute("SELECT id FROM rollup ORDER BY id")]
    known = [row for row in rows if decoded.get(ROLLUP, row, decoded.mark())]
    assert known == rows[-ROWS_AT_ONCE:]
    assert read_ahead(database, decoded, lambda: False) == spans
    assert all(decoded.get(ROLLUP, row, decoded.mark()) for row in rows)
    store.close()


def test_a_damaged_rollup_is_passed_over(tmp_path: Path) -> None:
    store = EmbeddedMetricStore(tmp_path / "metrics.db", background=False)
    store.append([Sample(JobId("job"), "worker-0", "loss", span * SPAN_MS, 1.0) for span in range(2)])
    store.compact(everything=True)
    with store._database.transaction() as writer:
        writer.execute("UPDATE rollup SET data = x'00' WHERE id = (SELECT min(id) FROM rollup)")
    decoded = Decoded()
    assert read_ahead(store._database, decoded, lambda: False) == 1
    assert store.damaged == 0, "who asks for it reports it"
    store.close()
