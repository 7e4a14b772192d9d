"""Knows what a task is given: cores, memory, cards; and the named sizes (flavors) they come in."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

GIB = 1024**3


class Accelerator(StrEnum):
    """The families of cards a task can hold."""

    NONE = "none"
    GPU = "gpu"
    NPU = "npu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Say how much of a machine one task gets."""

    cpu_cores: float
    memory_bytes: int
    cards: int = 0
    accelerator: Accelerator = Accelerator.NONE
    card_model: str | None = None

    def times(self, count: int) -> "Resources":
        """Return what `count` such tasks need together."""
        return Resources(
            cpu_cores=self.cpu_cores * count,
            memory_bytes=self.memory_bytes * count,
            cards=self.cards * count,
            accelerator=self.accelerator,
            card_model=self.card_model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Say what one node has: an amount, total or free."""

    cpu_cores: float
    memory_bytes: int
    gpus: int = 0
    npus: int = 0
    gpu_model: str | None = None
    npu_model: str | None = None

    def cards(self, accelerator: Accelerator) -> int:
        """Return how many cards of a family there are."""
        return {Accelerator.GPU: self.gpus, Accelerator.NPU: self.npus}.get(accelerator, 0)

    def fits(self, need: Resources) -> bool:
        """Say whether `need` is at most this. A hair of slack absorbs the noise of adding floats."""
        return (
            need.cpu_cores <= self.cpu_cores + 1e-9
            and need.memory_bytes <= self.memory_bytes
            and need.cards <= self.cards(need.accelerator)
        )

    def less(self, used: Resources) -> "Capacity":
        """Return what is left when `used` is taken."""
        return Capacity(
            cpu_cores=self.cpu_cores - used.cpu_cores,
            memory_bytes=self.memory_bytes - used.memory_bytes,
            gpus=self.gpus - (used.cards if used.accelerator is Accelerator.GPU else 0),
            npus=self.npus - (used.cards if used.accelerator is Accelerator.NPU else 0),
            gpu_model=self.gpu_model,
            npu_model=self.npu_model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """Name a size of task."""

    id: str
    name: str
    resources: Resources
    nodes_max: int = 64


def derive_flavors(capacity: Capacity) -> tuple[Flavor, ...]:
    """Return the flavors a machine offers by itself: doubling CPU sizes, the whole machine, 1/2/4/8 cards."""
    sizes = _cpu_sizes(capacity)
    flavors = [_cpu_flavor(cores, memory_gib) for cores, memory_gib in sizes]
    whole_gib = capacity.memory_bytes // GIB
    if (int(capacity.cpu_cores), whole_gib) not in sizes:
        flavors.append(_cpu_flavor(int(capacity.cpu_cores), whole_gib))
    for family, model in ((Accelerator.GPU, capacity.gpu_model), (Accelerator.NPU, capacity.npu_model)):
        flavors += _card_flavors(capacity, family, model)
    return tuple(flavors)


def find_flavor(flavors: Sequence[Flavor], flavor_id: str) -> Flavor | None:
    """Return the flavor of that id."""
    return next((flavor for flavor in flavors if flavor.id == flavor_id), None)


def _cpu_sizes(capacity: Capacity) -> list[tuple[int, int]]:
    sizes = []
    cores = 1
    while cores <= capacity.cpu_cores and 2 * cores * GIB <= capacity.memory_bytes:
        sizes.append((cores, 2 * cores))
        cores *= 2
    return sizes


def _cpu_flavor(cores: int, memory_gib: int) -> Flavor:
    name = f"cpu.{cores}c{memory_gib}g"
    return Flavor(id=name, name=name, resources=Resources(cpu_cores=cores, memory_bytes=memory_gib * GIB))


def _card_flavors(capacity: Capacity, family: Accelerator, model: str | None) -> list[Flavor]:
    total = capacity.cards(family)
    flavors = []
    for cards in (1, 2, 4, 8):
        if cards > total:
            break
        share = cards / total
        name = f"{family}.{cards}x"
        resources = Resources(
            cpu_cores=max(1.0, float(int(capacity.cpu_cores * share))),
            memory_bytes=int(capacity.memory_bytes * share) // GIB * GIB or capacity.memory_bytes,
            cards=cards,
            accelerator=family,
            card_model=model,
        )
        flavors.append(Flavor(id=name, name=name, resources=resources))
    return flavors
