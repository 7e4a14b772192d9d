"""Knows the real time."""

import time


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the boot clock: it never goes back and counts suspended time too."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
