"""How notices wait until everybody heard of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trackside.domain.notice import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notice that a topic has not heard of yet."""

    notice_id: int
    notice: Notice
    topic: str
    tries: int = 0
    due_at_ms: int  # not before


class Outbox(Protocol):
    """Keeps notices from the change of a job until everybody heard; a notice is stored with that change."""

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` in this event loop whenever new notices are durable."""
        ...

    async def fresh(self, *, limit: int) -> list[tuple[int, Notice]]:
        """Return notices that were not addressed yet, oldest first."""
        ...

    async def address(self, topics_of: Mapping[int, Collection[str]], *, due_at_ms: int) -> None:
        """Say which topics hear of each notice; one that nobody hears of goes."""
        ...

    async def due(
        self, now_ms: int, *, wait_ms_max: int, without: Collection[str], limit: int
    ) -> list[Delivery]:
        """Return what can be sent now, but not to some topics, the oldest notices first.

        What waits longer than the longest wait is due too: the clock was set back.
        """
        ...

    async def next_due_ms(self, *, without: Collection[str]) -> int | None:
        """Return when the next delivery is due, but not to some topics; None: nothing waits."""
        ...

    async def failed(self, deliveries: Sequence[Delivery], *, due_at_ms: int) -> None:
        """Count one more try of each, and wait until then with the next."""
        ...

    async def done(self, deliveries: Sequence[Delivery]) -> None:
        """Strike deliveries off; a notice goes with its last."""
        ...
