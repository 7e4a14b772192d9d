"""Knows which thing a call is about, from its path, and what policies may ask of it."""

import re
from collections.abc import Mapping

from trackside.domain.job import DEFAULT_POOL, Job, JobId, ProjectId
from trackside.domain.policy import OWN_KEY, POOL_ID_KEY, POOL_TYPE_KEY, TAG_KEY, Thing
from trackside.ports import JobStore

JOB_PARAMETERS = ("training_job_id", "job_id", "JobId")  # in the paths of all dialects
VERSION_PARAMETER = "version_id"
POOL_PARAMETERS = ("pool_name", "pool_id")
SHORT_ID_PREFIX = "dlc"

_SHORT_ID = re.compile(SHORT_ID_PREFIX + r"([a-z0-9]{1,64})")
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


def job_in_path(store: JobStore, project_id: ProjectId, path: Mapping[str, str]) -> Job | None:
    """Return the one job that a path names, in whichever dialect; None if it names none that exists.

    A ModelArts v1 path without a version names all versions of a job, which may differ: none of them.
    """
    given = next((path[name] for name in JOB_PARAMETERS if name in path), None)
    if given is None:
        return None
    if VERSION_PARAMETER in path:
        return _version(store, project_id, given, path[VERSION_PARAMETER])
    return job_named(store, project_id, given)


def job_named(store: JobStore, project_id: ProjectId, given: str) -> Job | None:
    """Return the job of that id, long or short, if the project has it."""
    short = _SHORT_ID.fullmatch(given.lower())
    job = store.find(project_id, short_id=short[1]) if short else None
    if job is None and not _NUMBER.fullmatch(given):
        job = store.get(JobId(given))
    return None if job is None or job.project_id != project_id or job.deleting else job


def thing_in_path(store: JobStore, user: str, project_id: ProjectId, path: Mapping[str, str]) -> Thing | None:
    """Return the job or pool that a path names, as policies see it; None if that is not a single one."""
    if any(name in path for name in JOB_PARAMETERS):
        job = job_in_path(store, project_id, path)
        return None if job is None else job_thing(job, user)
    pool_id = next((path[name] for name in POOL_PARAMETERS if name in path), None)
    return None if pool_id is None else Thing(names=(f"pool:{pool_id}",), attributes=_pool(pool_id))


def job_thing(job: Job, user: str) -> Thing:
    """Return a job as policies see it when this user asks."""
    tags = {f"{TAG_KEY}{key}": value for key, value in job.spec.tags.items()}
    return Thing(
        names=(
            f"trainJob:{job.id}",
            f"trainJob:{job.spec.name}",
            f"trainJob:{SHORT_ID_PREFIX}{job.short_id}",
            f"pool:{job.spec.pool_id}",
        ),
        attributes={**tags, **_pool(job.spec.pool_id), OWN_KEY: str(job.owner == user).lower()},
    )


def _version(store: JobStore, project_id: ProjectId, family: str, number: str) -> Job | None:
    if not _NUMBER.fullmatch(family) or not _NUMBER.fullmatch(number) or not int(number):
        return None
    job = store.find(project_id, number=int(number))
    return None if job is None or job.family != int(family) or job.deleting else job


def _pool(pool_id: str) -> dict[str, str]:
    return {POOL_ID_KEY: pool_id, POOL_TYPE_KEY: "public" if pool_id == DEFAULT_POOL else "dedicated"}
