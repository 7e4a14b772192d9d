"""Counts requests and how long they took, at the cost of two additions each; knows not who reads it."""

from collections.abc import Iterator

CLASSES = 6  # statuses begin with 1 to 5

Tally = list[list[float]]  # by the first digit of the status: how many, and their seconds together


class Tallies:
    """One tally per operation."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def of(self, dialect: str, operation: str) -> Tally:
        """Return the tally of an operation: `tally[status // 100]` is counted up in place."""
        return self._tallies.setdefault((dialect, operation), [[0, 0.0] for _ in range(CLASSES)])

    def rows(self) -> Iterator[tuple[str, str, str, int, float]]:
        """Return what was counted: dialect, operation, class of status, requests, seconds."""
        for (dialect, operation), tally in self._tallies.items():
            for first_digit, (count, seconds) in enumerate(tally):
                if count:
                    yield dialect, operation, f"{first_digit}xx", int(count), seconds
