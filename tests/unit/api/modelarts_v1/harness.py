"""The dialect over real services and real stores, called as a server calls it, without a socket."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.api.dialect_api import CALLER, PROJECT, DialectApi
from trackside.api.modelarts_v1 import errors, routes
from trackside.api.operation import Dialect
from trackside.config import EngineSetting, FlavorSetting
from trackside.domain.job import Job, JobId, NodeId, Record, Task, TaskState, task_name
from trackside.domain.metric import Sample
from trackside.domain.phase import FINAL, Phase
from trackside.domain.resources import GIB, Capacity
from trackside.domain.roles import permits
from trackside.ports import Node, Update

NODE = Node(
    id=NodeId("n1"),
    ip="192.168.1.1",
    capacity=Capacity(cpu_cores=8, memory_bytes=32 * GIB, gpus=2),
    last_seen_ms=0,
    seen_monotonic_ms=0,
)
FLAVORS = (
    FlavorSetting(id="cpu.1c2g", cpu_cores=1, memory_gib=2, nodes_max=8),
    FlavorSetting(id="gpu.2x", cpu_cores=4, memory_gib=16, gpus=2, card_model="V100"),
    FlavorSetting(id="npu.4x", cpu_cores=4, memory_gib=16, npus=4, card_model="Ascend910"),
)
ENGINES = (
    EngineSetting(id="tf-1.4", name="TensorFlow", version="TF-1.4.0-python2.7"),
    EngineSetting(id="mine", name="Mine", version="3"),
)
COMMAND = {"user_command": "true", "spec_id": 1}


class Api(DialectApi):
    """The dialect, ready to be called."""

    def __init__(
        self, data_dir: Path, *, engines: tuple[EngineSetting, ...] = ENGINES, images: str = "lenient"
    ) -> None:
        super().__init__(data_dir, below=f"/v1/{PROJECT}", flavors=FLAVORS, engines=engines, images=images)
        dialect = Dialect(
            name="modelarts_v1",
            title="ModelArts v1",
            operations=routes.operations(lambda: (NODE,)),
            authenticate=lambda signed: self.caller,
            error=errors.error,
            unexpected=errors.unexpected,
        )
        self.serve(dialect, lambda caller, operation: permits(caller.role, operation.action))

    def refused(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str, str]:
        """Return status, code and message of a request that is refused; its shape is checked."""
        status, answer = self.call(method, path, body, **query)
        assert status >= 400, answer
        assert set(answer) == {"is_success", "error_code", "error_msg", "error_message"}
        assert answer["is_success"] is False
        assert answer["error_msg"] == answer["error_message"]
        return status, answer["error_code"], answer["error_msg"]

    def make(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a job and return the answer."""
        body = {"job_name": name, "config": {**COMMAND, **config}}
        answer: dict[str, Any] = self.ok("POST", "training-jobs", body)
        return answer

    def job(self, number: int) -> Job:
        return self.parts.services.jobs.find(CALLER, number=number)

    def put(self, path: str, content: bytes = b"pass\n") -> None:
        bucket, _, key = path.strip("/").partition("/")
        self.run(self.parts.services.objects.put(CALLER, f"obs://{bucket}/{key}", content))

    def lived(
        self, number: int, phase: Phase, *spans: tuple[int, int | None], cards: tuple[int, ...] = ()
    ) -> Job:
        """Give a job a life: a phase, and when each task started and ended."""

        def change(job: Job) -> Update:
            return Update(job=with_life(job, phase, spans, cards))

        return self.run(self.parts.places.stores.jobs.update(JobId(self.job(number).id), change))

    def measure(
        self, job: Job, task: str, metric: str, values: dict[int, float], card: int | None = None
    ) -> None:
        """Keep samples: value by time in ms."""
        self.parts.places.metrics.append(
            [Sample(job.id, task, metric, at_ms, value, card) for at_ms, value in values.items()]
        )


def with_life(
    job: Job, phase: Phase, spans: tuple[tuple[int, int | None], ...], cards: tuple[int, ...] = ()
) -> Job:
    """Return the job as if its tasks had started and ended then."""
    role = job.spec.roles[0]
    tasks = tuple(
        Task(
            name=task_name(role.name, index),
            role=role.name,
            index=index,
            rank=index,
            attempt=1,
            node_id=NODE.id,
            resources=role.resources,
            cards=cards,
            state=TaskState.RUNNING if end is None else TaskState.ENDED,
            ip=NODE.ip,
            started_at_ms=start,
            ended_at_ms=end,
        )
        for index, (start, end) in enumerate(spans)
    )
    first = min((start for start, _ in spans), default=None)
    last = max((end for _, end in spans if end is not None), default=job.created_at_ms)
    over = last if phase in FINAL else None
    record = Record(number=1, queued_at_ms=first or job.created_at_ms, running_at_ms=first, ended_at_ms=over)
    return replace(job, phase=phase, tasks=tasks, started_at_ms=first, ended_at_ms=over, records=(record,))
