"""What the inside needs of time."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time; tests bring their own."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back and counts suspended time too."""
        ...
