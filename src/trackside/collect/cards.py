"""Knows how readings of cards are asked for without waiting for them; knows no device.

Drivers and exporters hang when a card is sick. Every source therefore reads in a thread of its own: a pass
waits a moment for all of them together, and not at all for one that has not come back from its last
reading. What a source said last stands in for it until it is too old; then there is nothing, never zero.
"""

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from trackside.domain.metric import Metric
from trackside.domain.resources import Accelerator

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 0.2  # of one pass, for all sources together
CLOSE_SECONDS_MAX = 1.0  # for a source that may be hanging
STALE_INTERVALS = 3  # how long a source's last word counts
# What happened, not what is: a reading that stands in for the next one must not tell it again.
TOLD_ONCE = frozenset({Metric.GPU_XID})

Card = tuple[Accelerator, int]


class CardReading(NamedTuple):
    """What one card says; what it does not say is left out. Holders: the processes that hold its memory."""

    values: Mapping[Metric, float]
    holders: frozenset[int] | None = None


class CardSource(Protocol):
    """Something that tells of cards of one family."""

    @property
    def family(self) -> Accelerator:
        """Return which cards it tells of."""
        ...

    def read(self, cards: frozenset[int]) -> dict[int, CardReading]:
        """Return what each of the cards says; may take its time."""
        ...

    def close(self) -> None:
        """Let go of libraries and files."""
        ...


class CardWatch:
    """Reads the cards of a node through all sources; an earlier source's word goes before a later one's."""

    def __init__(self, sources: Sequence[CardSource], *, stale_ms: int) -> None:
        self._readers = [_Reader(source, stale_ms) for source in sources]

    def ask(self, cards: frozenset[Card], now_ms: int) -> None:
        """Have these cards read; return at once."""
        for reader in self._readers:
            wanted = frozenset(card for family, card in cards if family is reader.family)
            if wanted:
                reader.ask(wanted, now_ms)

    def collect(
        self, cards: frozenset[Card], now_ms: int, patience_seconds: float = PATIENCE_SECONDS
    ) -> dict[Card, CardReading]:
        """Return what is known of these cards by now."""
        until = time.monotonic() + patience_seconds
        found: dict[Card, CardReading] = {}
        for reader in self._readers:
            wanted = frozenset(card for family, card in cards if family is reader.family)
            for card, reading in (reader.answer(wanted, now_ms, until) if wanted else {}).items():
                known = found.get((reader.family, card))
                found[reader.family, card] = reading if known is None else _joined(known, reading)
        return found

    def close(self) -> None:
        """End the threads of all sources; one that hangs is left behind."""
        for reader in self._readers:
            reader.close()


class _Reader:
    """One source and its thread, which begins with the first question."""

    def __init__(self, source: CardSource, stale_ms: int) -> None:
        self.family = source.family
        self._source = source
        self._stale_ms = stale_ms
        self._questions: queue.SimpleQueue[tuple[frozenset[int], int] | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._waited_for = True  # whether the question that is being answered is worth waiting for
        self._lock = threading.Lock()
        self._latest: dict[int, tuple[int, CardReading]] = {}
        self._thread: threading.Thread | None = None

    def ask(self, cards: frozenset[int], now_ms: int) -> None:
        self._waited_for = self._idle.is_set()
        if not self._waited_for:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"cards-{self.family}", daemon=True)
            self._thread.start()
        self._idle.clear()
        self._questions.put((cards, now_ms))

    def answer(self, cards: frozenset[int], now_ms: int, until: float) -> dict[int, CardReading]:
        if self._waited_for:
            self._idle.wait(max(0.0, until - time.monotonic()))
        found = {}
        with self._lock:
            for card in cards & self._latest.keys():
                read_ms, reading = self._latest[card]
                if now_ms - read_ms <= self._stale_ms:
                    found[card] = reading
                    self._latest[card] = (read_ms, _told(reading))
        return found

    def close(self) -> None:
        self._questions.put(None)
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            cards, asked_ms = question
            try:
                said = self._source.read(cards)
            except Exception:
                log.exception("a source of %s readings failed; the others go on", self.family)
                said = {}
            with self._lock:
                for card in cards:
                    self._latest.pop(card, None)
                self._latest.update({card: (asked_ms, reading) for card, reading in said.items()})
            self._idle.set()
        self._source.close()


def _joined(first: CardReading, second: CardReading) -> CardReading:
    holders = second.holders if first.holders is None else first.holders
    return CardReading({**second.values, **first.values}, holders)


def _told(reading: CardReading) -> CardReading:
    if not TOLD_ONCE & reading.values.keys():
        return reading
    return reading._replace(values={m: v for m, v in reading.values.items() if m not in TOLD_ONCE})
