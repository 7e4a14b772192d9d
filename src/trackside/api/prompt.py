"""Knows how a coroutine is begun without a task, and carried on in one if it has to wait after all.

Most answers to questions need no waiting at all: making a task for each would cost more than many of them.
What is begun here must not ask for its task before it first waits (as asyncio.timeout does).
"""

from collections.abc import Awaitable, Coroutine, Generator
from typing import Any


class Rest:
    """What is left of a coroutine that waits for something; to be awaited once."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        """Wait for what it waits for, and carry on."""
        waits_for = self._waits_for
        try:
            while True:
                try:
                    told = yield waits_for
                except BaseException as error:
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(told)
        except StopIteration as end:
            return end.value


def begun(coroutine: Awaitable[Any]) -> Any:
    """Return what the coroutine returns if it need not wait, else its rest."""
    assert isinstance(coroutine, Coroutine), "nothing else can be begun"
    try:
        return Rest(coroutine, coroutine.send(None))
    except StopIteration as end:
        return end.value
