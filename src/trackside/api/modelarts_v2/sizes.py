"""Knows how flavors and free sizes become resources, and how resources read in the vendor's words."""

import json
import platform
from collections.abc import Callable

from trackside.api.modelarts_v2.wire_create import CustomizedFlavor
from trackside.api.modelarts_v2.wire_response import (
    AllocatedResources,
    FlavorAnswer,
    FlavorCpu,
    FlavorDetail,
    FlavorGpu,
    FlavorInfo,
    FlavorMemory,
    FlavorNpu,
)
from trackside.domain.errors import FlavorNotFound, Invalid
from trackside.domain.resources import GIB, Accelerator, Flavor, Resources
from trackside.service.catalog import Catalog

FLAVOR_TYPE_OF = {Accelerator.NONE: "CPU", Accelerator.GPU: "GPU", Accelerator.NPU: "Ascend"}
CPU_ARCH = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}.get(
    platform.machine().lower(), platform.machine().lower()
)

FlavorLookup = Callable[[str], Flavor | None]


def resources_for(
    flavor_id: str | None, customized: CustomizedFlavor | None, catalog: Catalog
) -> tuple[Flavor, Resources]:
    """Return the flavor a job starts from (the smallest when none is named) and what a task of it gets."""
    flavor = catalog.flavor(flavor_id) if flavor_id else _smallest(catalog)
    if customized is None:
        return flavor, flavor.resources
    base = flavor.resources
    cards = _whole(customized.accelerator_num, base.cards)
    carded = base if base.cards or not cards else _carded(catalog)
    cores, memory_gb = customized.cpu_core_num, customized.mem_size
    resources = Resources(
        cpu_cores=base.cpu_cores if cores is None else cores,
        memory_bytes=base.memory_bytes if memory_gb is None else int(memory_gb * GIB),
        cards=cards,
        accelerator=carded.accelerator if cards else Accelerator.NONE,
        card_model=carded.card_model if cards else None,
    )
    return flavor, resources


def flavor_info(resources: Resources, nodes_max: int) -> FlavorInfo:
    """Describe a size of task."""
    cards, model = resources.cards, resources.card_model
    return FlavorInfo(
        max_num=nodes_max,
        cpu=FlavorCpu(arch=CPU_ARCH, core_num=int(resources.cpu_cores)),
        gpu=FlavorGpu(unit_num=cards, product_name=model)
        if resources.accelerator is Accelerator.GPU
        else None,
        npu=FlavorNpu(unit_num=str(cards), product_name=model)
        if resources.accelerator is Accelerator.NPU
        else None,
        memory=FlavorMemory(size=resources.memory_bytes // GIB, unit="GB"),
    )


def flavor_detail(flavor: Flavor) -> FlavorDetail:
    """Describe a flavor within a job's details."""
    return FlavorDetail(
        flavor_type=FLAVOR_TYPE_OF[flavor.resources.accelerator],
        flavor_info=flavor_info(flavor.resources, flavor.nodes_max),
    )


def flavor_answer(flavor: Flavor, engine_ids: list[str]) -> FlavorAnswer:
    """Describe a flavor in the list of flavors."""
    return FlavorAnswer(
        flavor_id=flavor.id,
        flavor_name=flavor.name,
        support_engines=json.dumps(engine_ids),
        support_groups="public",
        max_num=flavor.nodes_max,
        flavor_type=FLAVOR_TYPE_OF[flavor.resources.accelerator],
        flavor_info=flavor_info(flavor.resources, flavor.nodes_max),
        attributes={},
    )


def allocated(resources: Resources) -> AllocatedResources:
    """Say what one task is given."""
    return AllocatedResources(
        cpu_arch=CPU_ARCH,
        cpu_core_num=resources.cpu_cores,
        mem_size=round(resources.memory_bytes / GIB, 3),
        accelerator_num=float(resources.cards),
        accelerator_type=resources.card_model,
    )


def _smallest(catalog: Catalog) -> Flavor:
    flavors = catalog.flavors()
    if not flavors:
        raise FlavorNotFound("no flavor is on offer: no machine has reported yet")
    return flavors[0]


def _carded(catalog: Catalog) -> Resources:
    found = next((flavor for flavor in catalog.flavors() if flavor.resources.cards), None)
    if found is None:
        raise Invalid(
            "spec.resource.main_container_customized_flavor.accelerator_num: no machine here has accelerators"
        )
    return found.resources


def _whole(given: float | None, default: int) -> int:
    if given is None:
        return default
    if given != int(given):
        raise Invalid(
            "spec.resource.main_container_customized_flavor.accelerator_num must be a whole number of cards"
        )
    return int(given)
