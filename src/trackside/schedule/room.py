"""Knows what is free on one machine: cores, memory, and cards by index. All amounts are whole numbers.

A claim is room promised to a job while those it replaces still drain: it counts as taken for everybody else,
so `cpu`, `memory` and `cards` (what can be promised) may be less than zero for a while; the `real_` amounts
say what nobody holds now.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trackside.domain.job import JobId, NodeId
from trackside.domain.resources import Accelerator, Capacity, Resources

MICRO = 1_000_000  # cores are counted in millionths, so that sums are exact
LOG_MAX = 1024
MANY = 2**30
GPU, NPU = 0, 1
_KIND = {Accelerator.NONE: GPU, Accelerator.GPU: GPU, Accelerator.NPU: NPU}


class Need(NamedTuple):
    """What one task takes."""

    cpu: int
    memory: int
    cards: int
    kind: int  # GPU or NPU
    model: str | None


def need_of(resources: Resources) -> Need:
    """Return resources in whole numbers."""
    cards = resources.cards if resources.accelerator is not Accelerator.NONE else 0
    return Need(
        round(resources.cpu_cores * MICRO),
        resources.memory_bytes,
        cards,
        _KIND[resources.accelerator],
        resources.card_model.lower() if cards and resources.card_model else None,
    )


class NodeRoom:
    """One machine's room."""

    __slots__ = (
        "cards",
        "claimed",
        "cpu",
        "full_masks",
        "holders",
        "id",
        "known",
        "labels",
        "memory",
        "models",
        "open",
        "real_cpu",
        "real_memory",
        "size",
        "used_masks",
    )

    def __init__(self, node_id: NodeId) -> None:
        self.id = node_id
        self.known = False  # somebody said what it has
        self.open = False
        self.labels: Mapping[str, str] = {}
        self.size = Need(0, 0, 0, 0, None)  # cards: of both kinds
        self.models: tuple[str | None, str | None] = (None, None)
        self.cpu = self.memory = self.real_cpu = self.real_memory = 0
        self.cards = [0, 0]
        self.claimed = [0, 0]
        self.full_masks = [0, 0]
        self.used_masks = [0, 0]
        self.holders: dict[JobId, int] = {}  # how many tasks of each job are here

    def resize(
        self, capacity: Capacity | None, *, is_open: bool, isolated: frozenset[int] = frozenset()
    ) -> None:
        """Take over what the machine has; None: it is gone, but what was held stays held."""
        mask = ~sum(1 << card for card in isolated)
        size = capacity or Capacity(cpu_cores=0, memory_bytes=0)
        new = Need(round(size.cpu_cores * MICRO), size.memory_bytes, size.gpus + size.npus, 0, None)
        cpu, memory = new.cpu - self.size.cpu, new.memory - self.size.memory
        self.cpu, self.real_cpu = self.cpu + cpu, self.real_cpu + cpu
        self.memory, self.real_memory = self.memory + memory, self.real_memory + memory
        self.size, self.known = new, capacity is not None
        self.open = is_open and self.known
        self.models = (_lower(size.gpu_model), _lower(size.npu_model))
        for kind, count in ((GPU, size.gpus), (NPU, size.npus)):
            self.full_masks[kind] = ((1 << count) - 1) & mask
            self._count_cards(kind)

    def fits(self, need: Need) -> bool:
        """Say whether one such task can be promised room here."""
        return (
            need.cpu <= self.cpu
            and need.memory <= self.memory
            and need.cards <= self.cards[need.kind]
            and self.open
            and (need.model is None or self.models[need.kind] in (None, need.model))
        )

    def could_hold(self, need: Need) -> bool:
        """Say whether one such task would fit if nobody held anything."""
        return (
            self.open
            and need.cpu <= self.size.cpu
            and need.memory <= self.size.memory
            and need.cards <= self.full_masks[need.kind].bit_count()
            and (need.model is None or self.models[need.kind] in (None, need.model))
        )

    def count(self, need: Need) -> int:
        """Return how many such tasks can be promised room here at once."""
        cpu, memory, cards, kind, _ = need
        if cards > self.cards[kind] or cpu > self.cpu or memory > self.memory or not self.fits(need):
            return 0
        places = self.cards[kind] // cards if cards else MANY
        if cpu:
            places = min(places, self.cpu // cpu)
        return min(places, self.memory // memory) if memory else places

    def claim(self, need: Need, times: int = 1) -> None:
        """Promise room; a negative number of times takes the promise back."""
        self.cpu -= need.cpu * times
        self.memory -= need.memory * times
        if need.cards:
            self.claimed[need.kind] += need.cards * times
            self.cards[need.kind] -= need.cards * times

    def hold(self, need: Need, job_id: JobId, cards: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Give a task its room: the lowest free cards, or those it is known to have; return which."""
        self.cpu, self.real_cpu = self.cpu - need.cpu, self.real_cpu - need.cpu
        self.memory, self.real_memory = self.memory - need.memory, self.real_memory - need.memory
        self.holders[job_id] = self.holders.get(job_id, 0) + 1
        if need.cards == 0:
            return ()
        chosen = lowest_bits(self._free_mask(need.kind), need.cards) if cards is None else cards
        for card in chosen:
            self.used_masks[need.kind] |= 1 << card
        self._count_cards(need.kind)
        return chosen

    def release(self, need: Need, job_id: JobId, cards: tuple[int, ...]) -> None:
        """Take a task's room back."""
        self.cpu, self.real_cpu = self.cpu + need.cpu, self.real_cpu + need.cpu
        self.memory, self.real_memory = self.memory + need.memory, self.real_memory + need.memory
        left = self.holders.pop(job_id) - 1
        if left:
            self.holders[job_id] = left
        if cards:
            for card in cards:
                self.used_masks[need.kind] &= ~(1 << card)
            self._count_cards(need.kind)

    def has_free(self, needs: Iterable[Need]) -> bool:
        """Say whether nobody holds the room that these tasks need together."""
        cpu, memory, cards = 0, 0, [0, 0]
        for need in needs:
            cpu, memory = cpu + need.cpu, memory + need.memory
            cards[need.kind] += need.cards
        return (
            self.open
            and cpu <= self.real_cpu
            and memory <= self.real_memory
            and all(wanted <= self._free_mask(kind).bit_count() for kind, wanted in enumerate(cards))
        )

    def scratch(self, *, empty: bool = False) -> "NodeRoom":
        """Return a copy to try things on; empty: as if nobody held anything."""
        copy = NodeRoom.__new__(NodeRoom)
        copy.id, copy.open, copy.labels = self.id, self.open, self.labels
        copy.models, copy.size = self.models, self.size
        copy.cpu, copy.memory, copy.claimed = self.cpu, self.memory, [0, 0]
        copy.cards = list(self.cards)
        if empty:
            copy.cpu, copy.memory = self.size.cpu, self.size.memory
            copy.cards = [mask.bit_count() for mask in self.full_masks]
        return copy

    def _free_mask(self, kind: int) -> int:
        return self.full_masks[kind] & ~self.used_masks[kind]

    def _count_cards(self, kind: int) -> None:
        self.cards[kind] = self._free_mask(kind).bit_count() - self.claimed[kind]


class NodeLog:
    """Which machines changed, in order, so that each reader sees what is new to it."""

    def __init__(self) -> None:
        self._nodes: list[NodeRoom] = []
        self._base = 0

    @property
    def mark(self) -> int:
        """Return where the log ends."""
        return self._base + len(self._nodes)

    def add(self, node: NodeRoom) -> None:
        """Take note of a machine."""
        if len(self._nodes) >= LOG_MAX:
            self._base += len(self._nodes)
            self._nodes.clear()
        self._nodes.append(node)

    def since(self, mark: int | None) -> Iterable[NodeRoom] | None:
        """Return the machines since a mark, each once; None: that is too long ago to know."""
        if mark is None or mark < self._base:
            return None
        return dict.fromkeys(self._nodes[mark - self._base :])


def lowest_bits(mask: int, count: int) -> tuple[int, ...]:
    """Return the places of the lowest `count` bits that are set."""
    places = []
    for _ in range(count):
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return tuple(places)


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None
