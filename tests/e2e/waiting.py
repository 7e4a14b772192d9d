"""Knows how to wait for what only time brings about."""

import time
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.02


def eventually(look: Callable[[], Any], complaint: str, *, seconds: float = WAIT_SECONDS) -> Any:
    """Return what `look` finds as soon as it finds something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(POLL_SECONDS)
    raise AssertionError(complaint)
