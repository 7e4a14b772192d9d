"""What was decoded is remembered as long as its block stays as it is, and never longer."""

from trackside.metricstore.decoded import ENTRY_OVERHEAD_BYTES, NO_MARK, Decoded


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
