"""A ledger tells what a transaction wants, and takes back what failed."""

from trackside.persistence.ledger import Ledger

STORED = {"a": 1, "b": 2}


def test_values_are_read_once_and_changes_told() -> None:
    reads: list[str] = []

    def read(key: str) -> int | None:
        reads.append(key)
        return STORED.get(key)

    ledger: Ledger[str, int] = Ledger(read)
    assert (ledger.get("a"), ledger.get("a"), ledger.get("c")) == (1, 1, None)
    ledger.put("a", 5)
    ledger.put("b", None)
    ledger.put("c", 7)
    assert list(ledger.changes()) == [("a", 1, 5), ("c", None, 7), ("b", 2, None)]
    assert sorted(reads) == ["a", "b", "c"]


def test_what_ends_as_it_was_is_no_change() -> None:
    ledger: Ledger[str, int] = Ledger(STORED.get)
    ledger.put("a", 5)
    ledger.put("a", 1)
    ledger.put("c", 1)
    ledger.put("c", None)
    assert list(ledger.changes()) == []


def test_a_rollback_takes_back_to_the_mark_only() -> None:
    ledger: Ledger[str, int] = Ledger(STORED.get)
    ledger.put("a", 5)
    mark = ledger.mark()
    ledger.put("a", 6)
    ledger.put("b", None)
    assert ledger.add("new", 1)
    ledger.rollback(mark)
    assert list(ledger.changes()) == [("a", 1, 5)]
    assert ledger.get("new") is None


def test_a_new_key_is_added_without_looking_but_only_once() -> None:
    def read(key: str) -> int | None:
        raise AssertionError("must not look")

    ledger: Ledger[str, int] = Ledger(read)
    assert ledger.add("a", 1)
    assert not ledger.add("a", 2)
    assert list(ledger.changes()) == [("a", None, 1)]
