"""The dialect over real services and real stores, called as a server calls it, without a socket."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.api.dialect_api import CALLER, DialectApi
from trackside.api.operation import Dialect
from trackside.api.pai_dlc import errors, routes
from trackside.config import EngineSetting, FlavorSetting
from trackside.domain import rules
from trackside.domain.exchange import EndCause, Ended, Report, Started, TaskKey
from trackside.domain.job import Job, NodeId, Slot
from trackside.domain.metric import Sample
from trackside.ports import Update
from trackside.service.pool_record import PoolChange

NODE = NodeId("n1")
FLAVORS = (
    FlavorSetting(id="cpu.1c2g", cpu_cores=1, memory_gib=2, nodes_max=8),
    FlavorSetting(id="gpu.2x", cpu_cores=4, memory_gib=16, gpus=2, card_model="V100"),
)
POOLS = ("mine", "pool1", "pool2", "quota")
WORKER = {"Type": "Worker", "PodCount": 1}


def body(**fields: Any) -> dict[str, Any]:
    """Return a CreateJob body."""
    return {
        "DisplayName": "job",
        "JobType": "PyTorchJob",
        "UserCommand": "true",
        "JobSpecs": [WORKER],
        **fields,
    }


class Api(DialectApi):
    """The dialect, ready to be called."""

    def __init__(
        self, data_dir: Path, *, engines: tuple[EngineSetting, ...] = (), images: str = "lenient"
    ) -> None:
        super().__init__(data_dir, below="/api/v1", flavors=FLAVORS, engines=engines, images=images)
        for pool in POOLS:
            share = PoolChange(shares=(("gpu.2x", 1000, None),))
            self.run(self.parts.services.pools.create(CALLER, share, pool_id=pool))
        dialect = Dialect(
            name="pai_dlc",
            title="PAI-DLC",
            operations=routes.OPERATIONS,
            authenticate=lambda signed: self.caller,
            error=errors.error,
            unexpected=errors.unexpected,
        )
        self.serve(dialect, lambda caller, operation: True)

    def refused(self, method: str, path: str, content: Any = None, **query: Any) -> tuple[int, str, str]:
        """Return status, code and message of a request that is refused; its shape is checked."""
        status, answer = self.call(method, path, content, **query)
        assert status >= 400, answer
        assert set(answer) == {"Code", "Message", "RequestId", "HostId"}
        assert answer["RequestId"]
        return status, answer["Code"], answer["Message"]

    def make(self, **fields: Any) -> str:
        """Create a job and return its id."""
        answer = self.ok("POST", "jobs", body(**fields))
        assert set(answer) == {"JobId", "RequestId"}
        return str(answer["JobId"])

    def job(self, job_id: str) -> Job:
        return self.parts.services.jobs.find(CALLER, short_id=job_id[3:])

    def put(self, url: str, content: bytes = b"x") -> None:
        self.run(self.parts.services.objects.put(CALLER, url, content))

    def change(self, job_id: str, change: Callable[[Job], rules.Change]) -> Job:
        """Take one step of a job's life by the domain's own rules."""

        def update(job: Job) -> Update:
            moved, events = change(job)
            return Update(job=moved, events=events)

        return self.run(self.parts.places.stores.jobs.update(self.job(job_id).id, update))

    def place(self, job_id: str, at_ms: int) -> Job:
        def change(job: Job) -> rules.Change:
            return rules.place(job, [Slot(NODE)] * job.spec.node_count, master_port=1, at_ms=at_ms)

        return self.change(job_id, change)

    def start(self, job_id: str, task: str, at_ms: int) -> Job:
        return self.report(job_id, task, lambda key: Started(key=key, at_ms=at_ms, pid=1, ip="10.0.0.1"))

    def end(self, job_id: str, task: str, at_ms: int, exit_code: int = 0, duration_ms: int = 1000) -> Job:
        return self.report(
            job_id,
            task,
            lambda key: Ended(
                key=key,
                at_ms=at_ms,
                cause=EndCause.EXITED,
                exit_code=exit_code,
                duration_ms=duration_ms,
            ),
        )

    def report(self, job_id: str, task: str, news: Callable[[TaskKey], Started | Ended]) -> Job:
        def change(job: Job) -> rules.Change:
            found = job.task(task)
            assert found is not None
            told = news(TaskKey(job.id, found.attempt, found.name))
            report = Report(seq=1, started=told) if isinstance(told, Started) else Report(seq=1, ended=told)
            changed = rules.apply_report(job, report)
            assert changed is not None
            return changed

        return self.change(job_id, change)

    def measure(
        self, job_id: str, task: str, metric: str, values: dict[int, float], card: int | None = None
    ) -> None:
        """Keep samples: value by time in ms."""
        job = self.job(job_id)
        self.parts.places.metrics.append(
            [Sample(job.id, task, metric, at_ms, value, card) for at_ms, value in values.items()]
        )
