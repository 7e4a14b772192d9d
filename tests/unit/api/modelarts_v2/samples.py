"""Bodies and jobs that several tests of the dialect start from."""

import json
from pathlib import Path
from typing import Any

import msgspec

from trackside.api.modelarts_v2.translate_spec import to_spec
from trackside.api.modelarts_v2.wire_create import CreateJobBody
from trackside.domain.job import Job, JobId, JobSpec, ProjectId, Record
from trackside.domain.phase import Phase
from trackside.domain.resources import GIB, Accelerator, Flavor, Resources
from trackside.service.catalog import Catalog, Runtime

HERE = Path(__file__).parent
DOCUMENTED_DETAILS: dict[str, Any] = json.loads((HERE / "documented_details.json").read_text())
DOCUMENTED_METRICS: dict[str, Any] = json.loads((HERE / "documented_metrics.json").read_text())

SMALL = Flavor(
    id="cpu.1c2g", name="cpu.1c2g", resources=Resources(cpu_cores=1, memory_bytes=2 * GIB), nodes_max=8
)
GPU = Flavor(
    id="modelarts.vm.pnt1.large.eco",
    name="one card",
    resources=Resources(
        cpu_cores=8, memory_bytes=64 * GIB, cards=1, accelerator=Accelerator.GPU, card_model="nvidia-v100"
    ),
)
FLAVORS = (SMALL, GPU)
RUNTIMES = (
    Runtime(
        id="pytorch-cp36-1.4.0-v2", name="PyTorch", version="PyTorch-1.4.0-python3.6-v2", images=("swr/*",)
    ),
)


def catalog(flavors: tuple[Flavor, ...] = FLAVORS) -> Catalog:
    return Catalog(lambda: flavors, RUNTIMES, strict_images=False)


def flavor_of(flavor_id: str) -> Flavor | None:
    return next((flavor for flavor in FLAVORS if flavor.id == flavor_id), None)


def spec_of(body: dict[str, Any]) -> JobSpec:
    """Translate a body as it comes over the wire."""
    return to_spec(msgspec.json.decode(json.dumps(body), type=CreateJobBody), catalog())


def body_with(**algorithm: Any) -> dict[str, Any]:
    """Return a small body whose algorithm is given."""
    return {"metadata": {"name": "a-job"}, "algorithm": algorithm}


def job_of(spec: JobSpec, phase: Phase = Phase.QUEUED, **fields: Any) -> Job:
    created = 1_700_000_000_000
    given: dict[str, Any] = {
        "id": JobId("3faf5c03-aaa1-4cbe-879d-24b05d997347"),
        "number": 1,
        "project_id": ProjectId("p1"),
        "owner": "ada",
        "created_at_ms": created,
        "records": (Record(number=1, queued_at_ms=created),),
    }
    return Job(spec=spec, phase=phase, **{**given, **fields})


def contains(whole: Any, part: Any) -> bool:
    """Say whether everything in `part` is in `whole`, at the same place."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list)
            and len(whole) == len(part)
            and all(contains(a, b) for a, b in zip(whole, part, strict=True))
        )
    return bool(whole == part)
