"""A dialect over real services and real stores, called as a server calls it, without a socket."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.unit.api.asking import ask
from trackside.api.dispatch import Dispatcher
from trackside.api.operation import Dialect, Operation
from trackside.config import EngineSetting, FlavorSetting, Settings
from trackside.domain.identity import Caller, UserRole
from trackside.domain.job import Job, JobSpec, ProjectId
from trackside.wiring import Parts, build

T = TypeVar("T")

PROJECT = ProjectId("p1")
ELSEWHERE = ProjectId("p2")
CALLER = Caller(user="ada", project_id=PROJECT, role=UserRole.USER)


class DialectApi:
    """The services, and the way of a request to the operations of one dialect."""

    def __init__(
        self,
        data_dir: Path,
        *,
        below: str,
        flavors: tuple[FlavorSetting, ...],
        engines: tuple[EngineSetting, ...],
        images: str,
    ) -> None:
        settings = Settings(
            data_dir=str(data_dir),
            run_agent=False,
            flavors=flavors,
            engines=engines,
            images=images,
            metrics_raw_days=36_500,  # the documented examples are years old
            metrics_rollup_days=36_500,
        )
        self._below = below
        self._runner = asyncio.Runner()
        self.parts: Parts = build(settings)
        self.run(self.parts.places.stores.start())
        for project in (PROJECT, ELSEWHERE):
            self.run(self.parts.places.stores.identities.put_project(project, project))
        self.caller = CALLER

    def serve(self, dialect: Dialect, allowed: Callable[[Caller, Operation], bool]) -> None:
        """Let requests reach the operations of the dialect."""
        self._app = Dispatcher(
            [dialect],
            services=self.parts.services,
            allowed=lambda caller, operation, path: allowed(caller, operation),
        )

    def close(self) -> None:
        self.parts.places.stores.close()
        self.parts.places.metrics.close()
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def call(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        """Send a request below the dialect's path and return status and decoded body."""
        return self.run(self.acall(method, path, body, **query))

    async def acall(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        return await ask(self._app, method, f"{self._below}/{path}", body, **query)

    def ok(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        status, answer = self.call(method, path, body, **query)
        assert status == 200, answer
        return answer

    def get(self, path: str, **query: Any) -> Any:
        """Return what a successful GET answers."""
        return self.ok("GET", path, **query)

    def submit(self, spec: JobSpec) -> Job:
        """Submit a job as another dialect would."""
        return self.run(self.parts.services.jobs.submit(CALLER, spec))
