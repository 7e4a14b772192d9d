"""Knows how v1's lists of jobs and of versions are asked for, sorted, paged and counted."""

from collections import Counter
from collections.abc import Callable

from trackside.api.modelarts_v1.checks import one_of, query_int
from trackside.api.modelarts_v1.locate import CHUNK, everything, family_query
from trackside.api.modelarts_v1.phases import STATUS_OF, phases_of
from trackside.api.operation import Call, Param
from trackside.domain.job import Job
from trackside.ports import JobQuery

ORDERS = ("asc", "desc")
DEFAULT_WORKSPACE = "0"
PER_PAGE_DEFAULT, PER_PAGE_MAX, PAGE_MAX = 10, 1000, 65_535
LIMIT_DEFAULT, OFFSET_MAX = 20, 2**31 - 1
SEARCH_LENGTH_MAX = 64

# How the store calls what lists are sorted by; None: it cannot, so all that match are sorted here.
SORT_OF: dict[str, str | None] = {
    "job_name": "name",
    "job_desc": "description",
    "status": None,  # the store knows phases by name, the dialect by number
    "duration": "duration",
    "version_count": None,
    "create_time": "created_at",
}
OVERVIEW_SORTS = tuple(name for name in SORT_OF if name != "version_count")

STATUS = Param(name="status", max_length=128, description="Statuses, several joined by |.")
PER_PAGE = Param(name="per_page", type=int, minimum=1, maximum=PER_PAGE_MAX, description="10 when absent.")
PAGE = Param(name="page", type=int, minimum=1, maximum=PAGE_MAX, description="Counted from 1.")
WORKSPACE = Param(name="workspace_id", max_length=64, description="0 when absent.")
SEARCH = Param(name="search_content", max_length=SEARCH_LENGTH_MAX, description="Text the name must contain.")


async def newest_of_jobs(call: Call) -> tuple[list[Job], int, Counter[int]]:
    """Return a page of jobs by their newest versions, how many match, and how many versions each has."""
    sort_by = one_of("sortBy", call.query_one("sortBy") or "job_name", SORT_OF)
    descending = one_of("order", call.query_one("order") or "asc", ORDERS) == "desc"
    limit = query_int(call, "per_page", PER_PAGE_DEFAULT, least=1, most=PER_PAGE_MAX)
    offset = limit * (query_int(call, "page", 1, least=1, most=PAGE_MAX) - 1)
    content = call.query_one("search_content")
    query = JobQuery(
        project_id=call.caller.project_id,
        workspace_id=call.query_one("workspace_id") or DEFAULT_WORKSPACE,
        newest_versions=True,
        names_like=(content,) if content else (),
        phases=phases_of(call.query_one("status") or ""),
        sort_by=SORT_OF[sort_by] or "number",
        descending=descending,
        offset=offset,
        limit=limit,
    )
    if _matches_nothing(call, query):
        return [], 0, Counter()
    if SORT_OF[sort_by] is not None:
        page = await call.services.jobs.search(call.caller, query)
        return list(page.jobs), page.matching, await _version_counts(call, page.jobs)
    jobs = await everything(call, query)
    counts = await _version_counts(call, jobs)
    key: Callable[[Job], int] = (
        _status if sort_by == "status" else lambda job: counts[job.family]  # the store has numbered them
    )
    jobs.sort(key=key, reverse=descending)
    return jobs[offset : offset + limit], len(jobs), counts


async def all_versions(call: Call) -> tuple[list[Job], int, int, int]:
    """Return some of all versions of the project, how many match, and the page's offset and limit."""
    sort_by = one_of("sort_by", call.query_one("sort_by") or "create_time", OVERVIEW_SORTS)
    descending = one_of("order", call.query_one("order") or "desc", ORDERS) == "desc"
    offset = query_int(call, "offset", 0, least=0, most=OFFSET_MAX)
    limit = query_int(call, "limit", LIMIT_DEFAULT, least=0, most=PER_PAGE_MAX)  # 0: all
    pool = call.query_one("pool_id")
    query = JobQuery(
        project_id=call.caller.project_id,
        workspace_id=call.query_one("workspace_id") or DEFAULT_WORKSPACE,
        phases=phases_of(call.query_one("status") or ""),
        pool_ids=(pool,) if pool else (),
        sort_by=SORT_OF[sort_by] or "number",
        descending=descending,
        offset=offset,
        limit=limit,
    )
    if _matches_nothing(call, query):
        return [], 0, offset, limit
    if SORT_OF[sort_by] is not None and limit:
        page = await call.services.jobs.search(call.caller, query)
        return list(page.jobs), page.matching, offset, limit
    jobs = await everything(call, query)
    if SORT_OF[sort_by] is None:
        jobs.sort(key=_status, reverse=descending)
    return jobs[offset : offset + limit if limit else None], len(jobs), offset, limit


async def _version_counts(call: Call, jobs: tuple[Job, ...] | list[Job]) -> Counter[int]:
    counts: Counter[int] = Counter()
    families = [job.family for job in jobs]
    for start in range(0, len(families), CHUNK):
        some = families[start : start + CHUNK]
        counts.update(job.family for job in await everything(call, family_query(call, *some)))
    return counts


def _matches_nothing(call: Call, query: JobQuery) -> bool:
    """Say whether statuses are asked for that no job ever has; no phases at all would mean any."""
    return call.query_one("status") is not None and not query.phases


def _status(job: Job) -> int:
    return STATUS_OF[job.phase]
