"""Knows how many jobs a user, or a whole project, may have at once, those that are over among them."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from trackside.domain.errors import Exhausted, Invalid
from trackside.domain.identity import Caller
from trackside.domain.job import ProjectId
from trackside.ports import DocumentStore, JobQuery, JobStore

EVERYBODY = "*"  # stands for each user who has no quota of their own
QUOTA_MAX = 2**31 - 1
KIND = "job_quota"

Admit = Callable[[Caller], AbstractAsyncContextManager[None]]


class JobQuotas:
    """Keep the quotas of every project; they are read once and then answered from memory."""

    def __init__(self, store: DocumentStore, jobs: JobStore) -> None:
        self._store = store
        self._jobs = jobs
        self._limits: dict[ProjectId, dict[str, int]] = {}  # by project, then by user; "": all of it
        self._loading = asyncio.Lock()
        self._admitting: defaultdict[ProjectId, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def limit(self, project_id: ProjectId, user: str) -> int | None:
        """Return the most jobs a user may have ("": the whole project); None: as many as they like."""
        limits = await self._of(project_id)
        return limits.get(user, limits.get(EVERYBODY) if user else None)

    async def used(self, project_id: ProjectId, user: str) -> int:
        """Return how many jobs a user has ("": the whole project)."""
        if user in ("", EVERYBODY):
            return await self._jobs.count(project_id)
        page = await self._jobs.search(JobQuery(project_id=project_id, owners=(user,), limit=0))
        return page.matching

    async def set(self, project_id: ProjectId, user: str, limit: int | None) -> None:
        """Limit how many jobs a user may have ("": the whole project); None: no more."""
        if limit is not None and not 1 <= limit <= QUOTA_MAX:
            raise Invalid(f"a quota is from 1 to {QUOTA_MAX:,}, not {limit:,}")
        async with self._loading:
            limits = dict(await self._of(project_id, locked=True))
            if limit is None:
                limits.pop(user, None)
            else:
                limits[user] = limit
            await self._store.put(project_id, KIND, KIND, limits)
            self._limits[project_id] = limits

    @asynccontextmanager
    async def admit(self, caller: Caller) -> AsyncIterator[None]:
        """Hold the place of one more job while it is stored, or raise Exhausted."""
        if not await self._of(caller.project_id):
            yield
            return
        async with self._admitting[caller.project_id]:  # two at once must not both take the last place
            for user, whose in ((caller.user, f"the user {caller.user}"), ("", "the project")):
                limit = await self.limit(caller.project_id, user)
                used = 0 if limit is None else await self.used(caller.project_id, user)
                if limit is not None and used >= limit:
                    raise Exhausted(
                        f"{whose} may have {limit:,} jobs, those that are over among them, and has {used:,}: "
                        "delete some first"
                    )
            yield

    async def _of(self, project_id: ProjectId, *, locked: bool = False) -> dict[str, int]:
        if project_id not in self._limits and not locked:
            async with self._loading:
                return await self._of(project_id, locked=True)
        if project_id not in self._limits:
            self._limits[project_id] = await self._store.get(project_id, KIND, KIND) or {}
        return self._limits[project_id]
