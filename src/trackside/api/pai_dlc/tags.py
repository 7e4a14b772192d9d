"""Knows how tags are put on jobs and taken off again."""

import json

from trackside.api.operation import Call
from trackside.api.pai_dlc.checks import flag, one_of
from trackside.api.pai_dlc.ids import find_job
from trackside.api.pai_dlc.turns import alone
from trackside.api.pai_dlc.wire_reports import TAGGED_MAX, TAGS_MAX, Done, TagBody
from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.service.jobs import JobChange

RESOURCE_TYPES = ("Job", "job")
TAGS_OF_JOB_MAX = 100


async def tag_resources(call: Call) -> Done:
    """Put tags on jobs; none is tagged if one is not there."""
    assert isinstance(call.body, TagBody)
    body = call.body
    one_of("ResourceType", body.resource_type or "", RESOURCE_TYPES)
    new = {tag.key: tag.value for tag in body.tag or ()}
    if not new:
        raise Invalid("Tag is missing: give at least one key and its value")
    async with alone(call):
        wanted = [(job, {**job.spec.tags, **new}) for job in _jobs(call, body.resource_id or [])]
        if any(len(tags) > TAGS_OF_JOB_MAX for _, tags in wanted):
            raise Invalid(f"a job may have at most {TAGS_OF_JOB_MAX} tags")
        for job, tags in wanted:
            await call.services.jobs.change(call.caller, job.id, JobChange(tags=tags))
    return Done(request_id=call.request_id)


async def untag_resources(call: Call) -> Done:
    """Take tags off jobs: those named, or all."""
    one_of("ResourceType", call.query_one("ResourceType") or "", RESOURCE_TYPES)
    everything, keys = flag(call, "All"), _texts(call, "TagKey", TAGS_MAX)
    if not everything and not keys:
        raise Invalid("TagKey is missing: name the tags to take off, or say All=true")
    async with alone(call):
        for job in _jobs(call, _texts(call, "ResourceId", TAGGED_MAX)):
            left = {key: job.spec.tags[key] for key in job.spec.tags if not everything and key not in keys}
            await call.services.jobs.change(call.caller, job.id, JobChange(tags=left))
    return Done(request_id=call.request_id)


def _jobs(call: Call, job_ids: list[str]) -> list[Job]:
    if not job_ids:
        raise Invalid("ResourceId is missing: name at least one job")
    return [find_job(call, job_id) for job_id in dict.fromkeys(job_ids)]


def _texts(call: Call, name: str, most: int) -> list[str]:
    """Return a list of the query, which the SDK writes as JSON."""
    text = call.query_one(name)
    if text is None:
        return []
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given) or len(given) > most:
        raise Invalid(f'{name} must be a JSON list of at most {most} texts such as ["a"], not {text[:64]!r}')
    return given
