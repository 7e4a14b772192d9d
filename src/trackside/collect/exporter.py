"""Knows how to be told of cards by an exporter on this machine, over HTTP; knows no metric names."""

import logging
from collections.abc import Callable, Iterable

from trackside.collect.cards import CardReading
from trackside.collect.exposition import Line, NotText, is_blank, lines, without_words
from trackside.collect.fetch import FetchFailed, fetch_url
from trackside.domain.resources import Accelerator

log = logging.getLogger(__name__)

FETCH_SECONDS_MAX = 4.0
TEXT_BYTES_MAX = 8 * 1024 * 1024

Rows = dict[int, dict[str, float]]  # by card: metric names and values, blanks left out


class Exporter:
    """Reads all cards of a family from an exporter's text."""

    def __init__(
        self,
        url: str,
        family: Accelerator,
        card_label: str,
        translate: Callable[[int, dict[str, float]], CardReading],
    ) -> None:
        self._url = url
        self._family = family
        self._card_label = card_label
        self._translate = translate
        self._away = False

    @property
    def family(self) -> Accelerator:
        """Return which cards it tells of."""
        return self._family

    def read(self, cards: frozenset[int]) -> dict[int, CardReading]:
        """Return what each of the cards says; nothing while the exporter is away."""
        try:
            text = fetch_url(self._url, seconds_max=FETCH_SECONDS_MAX, bytes_max=TEXT_BYTES_MAX)
            rows = by_card(lines(without_words(text)), self._card_label)
        except (FetchFailed, NotText) as error:
            if not self._away:  # once, not at every pass
                log.warning("no readings from %s: %s", self._url, error)
            self._away = True
            return {}
        self._away = False
        readings = {card: self._translate(card, rows[card]) for card in sorted(cards & rows.keys())}
        return {card: reading for card, reading in readings.items() if reading.values}

    def close(self) -> None:
        """Nothing is held between two readings."""


def by_card(found: Iterable[Line], card_label: str) -> Rows:
    """Sort samples by the card in a label; what says "no value" is left out."""
    rows: Rows = {}
    for line in found:
        card = line.labels.get(card_label, "")
        # A slice of a card (MIG) speaks for itself only.
        if card.isdecimal() and not line.labels.get("GPU_I_ID") and not is_blank(line.value):
            rows.setdefault(int(card), {})[line.name] = line.value
    return rows
