"""Knows the whole numbers by which ModelArts v1 names flavors and engines: their places in the catalog."""

from collections.abc import Sequence

from trackside.api.modelarts_v1.wire_request import Settings
from trackside.api.modelarts_v1.wire_response import Engine, ResourceSpec
from trackside.domain.errors import EngineNotFound, FlavorNotFound
from trackside.domain.job import RuntimeChoice
from trackside.domain.resources import GIB, Accelerator, Flavor, Resources
from trackside.domain.runtime import Runtime
from trackside.service.catalog import Catalog

SHOWN_MAX = 12
ENGINE_IMAGE = "engine_id:{}"  # what stands for an engine by number where no engine is mapped at all

ENGINE_TYPE_OF = {  # the vendor's; an engine of another name has no type
    "TensorFlow": 1,
    "MXNet": 2,
    "Ray": 3,
    "Caffe": 4,
    "Spark_MLlib": 5,
    "Scikit_Learn": 6,
    "XGBoost-Sklearn": 9,
    "PyTorch": 10,
    "Horovod": 12,
    "Ascend-Powered-Engine": 13,
    "MindSpore-GPU": 17,
}


def flavor_of(settings: Settings, catalog: Catalog) -> Flavor:
    """Return the flavor that is asked for, by place or by code; the smallest when none is named."""
    flavors = catalog.flavors()
    wanted = settings.spec_id or settings.spec_code or (settings.flavor and settings.flavor.code)
    if not wanted:
        if not flavors:
            raise FlavorNotFound("no flavor is on offer: no machine has reported yet")
        return flavors[0]
    if isinstance(wanted, str) and not wanted.isdecimal():
        return catalog.flavor(wanted)
    if not 1 <= int(wanted) <= len(flavors):
        known = ", ".join(f"{place} {flavor.id}" for place, flavor in enumerate(flavors[:SHOWN_MAX], 1))
        raise FlavorNotFound(f"spec_id {wanted} is not on offer; there are: {known or 'none'}")
    return flavors[int(wanted) - 1]


def spec_id_of(flavor_id: str | None, flavors: Sequence[Flavor]) -> int | None:
    """Return a flavor's place, counted from 1; None if it is not on offer any more."""
    return next((place for place, flavor in enumerate(flavors, 1) if flavor.id == flavor_id), None)


def runtime_of(settings: Settings, catalog: Catalog) -> RuntimeChoice:
    """Return the environment that is asked for: an image, an engine by place or by name, or none.

    The vendor requires an engine's number of every job. Where no engine is mapped at all the number is
    treated as an image without a mapping is: it is not used and an event says so, or it is refused where
    images are strict.
    """
    if settings.user_image_url:
        return RuntimeChoice(image=settings.user_image_url)
    wanted, runtimes = settings.engine_id, catalog.runtimes()
    if not wanted or wanted == "0":
        return RuntimeChoice()
    if isinstance(wanted, str) and not wanted.isdecimal():
        return RuntimeChoice(engine_id=wanted)
    if not runtimes:
        return RuntimeChoice(image=ENGINE_IMAGE.format(wanted))
    if not 1 <= int(wanted) <= len(runtimes):
        known = ", ".join(f"{place} {runtime.id}" for place, runtime in enumerate(runtimes[:SHOWN_MAX], 1))
        raise EngineNotFound(
            f"engine_id {wanted} is not on offer; there are: {known}. A job may also name no engine at all."
        )
    return RuntimeChoice(engine_id=runtimes[int(wanted) - 1].id)


def engine_of(choice: RuntimeChoice, runtimes: Sequence[Runtime]) -> Engine | None:
    """Return the engine a job asked for; None if it asked for none or it is not on offer any more."""
    for place, runtime in enumerate(runtimes, 1):
        by_name = choice.engine_id is None and choice.engine_name == runtime.name
        if choice.engine_id == runtime.id or (
            by_name and choice.engine_version in (None, "", runtime.version)
        ):
            return engine_answer(place, runtime)
    return None


def engine_answer(place: int, runtime: Runtime) -> Engine:
    """Describe an engine."""
    return Engine(
        engine_type=ENGINE_TYPE_OF.get(runtime.name),
        engine_id=place,
        engine_name=runtime.name,
        engine_version=runtime.version,
    )


def resource_spec(place: int, flavor: Flavor) -> ResourceSpec:
    """Describe a flavor."""
    return ResourceSpec(
        spec_id=place,
        spec_code=flavor.id,
        max_num=flavor.nodes_max,
        unit_num=1,  # nothing has a price here
        storage="",
        interface_type=1,
        no_resource=False,
        **given(flavor.resources),  # type: ignore[arg-type]
    )


def given(resources: Resources) -> dict[str, str | int]:
    """Say what a task is given: cores, memory in GB (of 1024³ bytes), cards."""
    cards, model = resources.cards, resources.card_model or ""
    gpu, npu = resources.accelerator is Accelerator.GPU, resources.accelerator is Accelerator.NPU
    return {
        "core": f"{resources.cpu_cores:g}",
        "cpu": f"{round(resources.memory_bytes / GIB, 3):g}",
        "gpu_num": cards if gpu else 0,
        "gpu_type": model if gpu else "",
        "npu_num": cards if npu else 0,
    }
