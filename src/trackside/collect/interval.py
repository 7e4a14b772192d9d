"""Knows how readings become one number per interval; knows no devices and no clock."""


class Counter:
    """Turns readings of a number that only grows into the rate since the last one shipped."""

    __slots__ = ("_base", "_base_ms", "_last", "_last_ms")

    def __init__(self) -> None:
        self._base: float | None = None
        self._base_ms = 0
        self._last = 0.0
        self._last_ms = 0

    def start(self, value: float, at_ms: int) -> None:
        """Count from here."""
        self._base = self._last = value
        self._base_ms = self._last_ms = at_ms

    @property
    def last(self) -> float:
        """Return the highest value seen."""
        return self._last

    def see(self, value: float, at_ms: int) -> None:
        """Take a reading. One below an earlier one is old news, not a negative rate."""
        if self._base is None:
            self.start(value, at_ms)
            return
        self._last = max(self._last, value)
        self._last_ms = max(self._last_ms, at_ms)

    def ship(self) -> float | None:
        """Return the rate per second since the last shipment; None without a reading since then."""
        if self._base is None or self._last_ms <= self._base_ms:
            return None
        rate = (self._last - self._base) * 1000.0 / (self._last_ms - self._base_ms)
        self.start(self._last, self._last_ms)
        return rate


class Gauge:
    """Turns readings of a level into their mean since the last one shipped."""

    __slots__ = ("_count", "_last", "_sum")

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0
        self._last: float | None = None

    def see(self, value: float) -> None:
        """Take a reading."""
        self._sum += value
        self._count += 1
        self._last = value

    def ship(self) -> float | None:
        """Return the mean of the readings since the last shipment; None if there are none."""
        if self._count == 0:
            return None
        mean = self._sum / self._count
        self._sum, self._count = 0.0, 0
        return mean

    def ship_newest(self) -> float | None:
        """Return the newest reading since the last shipment: of codes and counts there is no mean."""
        newest = self._last if self._count else None
        self._sum, self._count = 0.0, 0
        return newest

    @property
    def last(self) -> float | None:
        """Return the newest reading ever."""
        return self._last
