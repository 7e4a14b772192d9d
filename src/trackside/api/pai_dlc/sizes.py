"""Knows how sizes are written: quantities such as 4Gi and 500m, ResourceConfig, EcsSpec; and flavors."""

import math
import re

from trackside.api.pai_dlc.wire_create import JobSpecBody, ResourceConfig
from trackside.api.pai_dlc.wire_reports import EcsSpec
from trackside.domain.errors import FlavorNotFound, Invalid
from trackside.domain.resources import GIB, Accelerator, Flavor, Resources
from trackside.service.catalog import Catalog

MEMORY_BYTES_MIN = 1024 * 1024
CORES_MAX = 1_000_000.0
RESOURCE_TYPE = "ECS"
ACCELERATOR_TYPES = ("CPU", "GPU")
UNITS = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_NUMBER = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([A-Za-z]{0,2})")


def memory_bytes(field: str, text: str) -> int:
    """Return an amount of memory in bytes: 256Mi, 4Gi, 1G, or plain bytes."""
    match = _NUMBER.fullmatch(text.strip())
    unit = UNITS.get(match[2]) if match else None
    if match is None or unit is None:
        raise Invalid(f"{field} must be an amount such as 256Mi, 4Gi or 1G, not {text!r}")
    amount = int(float(match[1]) * unit)
    if amount < MEMORY_BYTES_MIN:
        raise Invalid(f"{field} is {text!r}, which is {amount} bytes: write the unit, such as {text}Gi")
    return amount


def cores(field: str, text: str) -> float:
    """Return a number of cores: 2, 0.5, or 500m."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match[2] not in ("", "m"):
        raise Invalid(f"{field} must be a number of cores such as 2, 0.5 or 500m, not {text!r}")
    value = float(match[1]) / (1000 if match[2] else 1)
    if not 0 < value <= CORES_MAX:
        raise Invalid(f"{field} must be more than 0 cores, not {text!r}")
    return value


def cards(field: str, text: str) -> int:
    """Return a whole number of cards."""
    if not re.fullmatch(r"[0-9]{1,6}", text.strip()):
        raise Invalid(f"{field} must be a whole number of cards, not {text!r}")
    return int(text)


def resources_for(spec: JobSpecBody, field: str, catalog: Catalog) -> tuple[str | None, Resources]:
    """Return the flavor a role names, if any, and what a pod of it gets: the smallest flavor by default."""
    flavor = catalog.flavor(spec.ecs_spec) if spec.ecs_spec else _smallest(catalog)
    config = spec.resource_config
    if config is None or config == ResourceConfig():
        return flavor.id, flavor.resources
    resources = _sized(config, f"{field}.ResourceConfig", flavor.resources, catalog)
    return spec.ecs_spec or None, resources


def ecs_spec(flavor: Flavor) -> EcsSpec:
    """Describe a flavor."""
    size = flavor.resources
    return EcsSpec(
        instance_type=flavor.id,
        cpu=math.ceil(size.cpu_cores),
        gpu=size.cards,
        gpu_type=size.card_model if size.cards else None,
        memory=size.memory_bytes // GIB,
        accelerator_type="GPU" if size.cards else "CPU",
        is_available=True,
        resource_type=RESOURCE_TYPE,
        payment_types=["PrePaid"],
    )


def config_of(resources: Resources) -> ResourceConfig:
    """Return what a pod gets in the words of a ResourceConfig."""
    mebibytes = resources.memory_bytes // 2**20
    return ResourceConfig(
        cpu=f"{resources.cpu_cores:g}",
        memory=f"{mebibytes // 1024}Gi" if mebibytes % 1024 == 0 else f"{mebibytes}Mi",
        gpu=str(resources.cards) if resources.cards else None,
        gpu_type=resources.card_model if resources.cards else None,
    )


def _sized(config: ResourceConfig, field: str, base: Resources, catalog: Catalog) -> Resources:
    count = cards(f"{field}.GPU", config.gpu) if config.gpu else base.cards
    carded = _carded(count, config.gpu_type or None, field, base, catalog)
    return Resources(
        cpu_cores=cores(f"{field}.CPU", config.cpu) if config.cpu else base.cpu_cores,
        memory_bytes=memory_bytes(f"{field}.Memory", config.memory) if config.memory else base.memory_bytes,
        cards=count,
        accelerator=carded.accelerator if count else Accelerator.NONE,
        card_model=carded.card_model if count else None,
    )


def _carded(count: int, model: str | None, field: str, base: Resources, catalog: Catalog) -> Resources:
    """Return resources that have the kind of card which is asked for."""
    if not count or (base.cards and model in (None, base.card_model)):
        return base
    on_offer = [flavor.resources for flavor in catalog.flavors() if flavor.resources.cards]
    found = next((one for one in on_offer if model in (None, one.card_model)), None)
    if found is not None:
        return found
    if not on_offer:
        raise Invalid(f"{field}.GPU asks for {count} cards; no machine here has any")
    models = ", ".join(sorted({one.card_model or "of no known type" for one in on_offer}))
    raise Invalid(f"{field}.GPUType {model!r} is not here; there are cards {models}")


def _smallest(catalog: Catalog) -> Flavor:
    flavors = catalog.flavors()
    if not flavors:
        raise FlavorNotFound("no size is on offer: no machine has reported yet")
    return flavors[0]
