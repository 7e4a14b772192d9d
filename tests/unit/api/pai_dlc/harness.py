"""The dialect over real services and real stores, called as a server calls it, without a socket."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.unit.api.asking import ask
from trackside.api.dispatch import Dispatcher
from trackside.api.operation import Dialect
from trackside.api.pai_dlc import errors, routes
from trackside.config import EngineSetting, FlavorSetting, Settings
from trackside.domain import rules
from trackside.domain.exchange import EndCause, Ended, Report, Started, TaskKey
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job, JobSpec, NodeId, ProjectId, Slot
from trackside.domain.metric import Sample
from trackside.ports import Update
from trackside.service.pool_record import PoolChange
from trackside.wiring import Parts, build

T = TypeVar("T")

PROJECT = ProjectId("p1")
ELSEWHERE = ProjectId("p2")
CALLER = Caller(user="ada", project_id=PROJECT, role=UserRole.USER)
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


class Api:
    """The dialect, ready to be called."""

    def __init__(
        self, data_dir: Path, *, engines: tuple[EngineSetting, ...] = (), images: str = "lenient"
    ) -> None:
        settings = Settings(
            data_dir=str(data_dir),
            run_agent=False,
            flavors=FLAVORS,
            engines=engines,
            images=images,
            metrics_raw_days=36_500,  # the documented examples are years old
            metrics_rollup_days=36_500,
        )
        self._runner = asyncio.Runner()
        self.parts: Parts = build(settings)
        self.run(self.parts.places.stores.start())
        for project in (PROJECT, ELSEWHERE):
            self.run(self.parts.places.stores.identities.put_project(project, project))
        for pool in POOLS:
            share = PoolChange(shares=(("gpu.2x", 1000, None),))
            self.run(self.parts.services.pools.create(CALLER, share, pool_id=pool))
        self.caller = CALLER
        dialect = Dialect(
            name="pai_dlc",
            title="PAI-DLC",
            operations=routes.OPERATIONS,
            authenticate=lambda signed: self.caller,
            error=errors.error,
            unexpected=errors.unexpected,
        )
        self._app = Dispatcher(
            [dialect], services=self.parts.services, allowed=lambda caller, operation, path: True
        )

    def close(self) -> None:
        self.parts.places.stores.close()
        self.parts.places.metrics.close()
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def call(self, method: str, path: str, content: Any = None, **query: Any) -> tuple[int, Any]:
        """Send a request below /api/v1 and return status and decoded body."""
        return self.run(self.acall(method, path, content, **query))

    async def acall(self, method: str, path: str, content: Any = None, **query: Any) -> tuple[int, Any]:
        return await ask(self._app, method, f"/api/v1/{path}", content, **query)

    def ok(self, method: str, path: str, content: Any = None, **query: Any) -> Any:
        status, answer = self.call(method, path, content, **query)
        assert status == 200, answer
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.ok("GET", path, **query)

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

    def submit(self, spec: JobSpec) -> Job:
        """Submit a job as another dialect would."""
        return self.run(self.parts.services.jobs.submit(CALLER, spec))

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
