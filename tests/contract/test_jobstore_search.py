"""What every JobStore finds: each filter, order and page, against the same question asked in Python."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.persistence.making import OTHER_PROJECT, PROJECT, make_spec, making

from trackside.domain.errors import Invalid
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.persistence import Stores, open_stores
from trackside.ports import JobQuery

pytestmark = pytest.mark.anyio

NAMES = [
    "bert",
    "BERT-large",
    "100%",
    "100x",
    "a_b",
    "aXb",
    "Größe",
    "模型",
    "back\\slash",
    "bert",
    "zeta",
    "Alpha",
]
SORT_KEYS: dict[str, Callable[[Job], Any]] = {
    "created_at": lambda job: job.created_at_ms,
    "name": lambda job: job.spec.name.encode(),
    "phase": lambda job: (job.phase.value, job.created_at_ms),
    "ended_at": lambda job: (job.ended_at_ms is not None, job.ended_at_ms),
    "started_at": lambda job: (job.started_at_ms is not None, job.started_at_ms),
    "owner": lambda job: (job.owner, job.created_at_ms),
    "number": lambda job: job.number,
}


async def fill(stores: Stores) -> list[Job]:
    """Store jobs that differ in everything a query can ask for, and one of another project."""
    phases = list(Phase)
    await stores.identities.put_project(OTHER_PROJECT, "second")
    await stores.jobs.insert(making(project_id=OTHER_PROJECT, spec=make_spec(name="bert")))
    jobs = []
    for i, name in enumerate(NAMES):
        spec = make_spec(
            name=name,
            kind=("job", "hetero_job")[i % 2],
            workspace_id=("0", "w1", "w2")[i % 3],
            description=("", "Nightly RUN", "50% done")[i % 3],
            pool_id=("default", "gpu")[i % 2],
        )
        made = making(
            spec=spec,
            owner=("ann", "bob", "cleo")[i % 3],
            phase=phases[i % len(phases)],
            created_at_ms=1_000 + 10 * (i // 2),
            started_at_ms=None if i % 3 == 0 else 2_000 - i,
            ended_at_ms=None if i % 2 else 3_000 + i,
        )
        jobs.append(await stores.jobs.insert(made))
    return jobs


@pytest.fixture
async def jobs(stores: Stores) -> list[Job]:
    """Give the stored jobs, in order of arrival."""
    return await fill(stores)


FILTERS: list[tuple[dict[str, Any], Callable[[Job], bool]]] = [
    ({}, lambda job: True),
    ({"workspace_id": "w1"}, lambda job: job.spec.workspace_id == "w1"),
    ({"names": ("bert", "zeta")}, lambda job: job.spec.name in ("bert", "zeta")),
    ({"names_like": ("BERT",)}, lambda job: "bert" in job.spec.name.lower()),
    ({"names_like": ("grösse",)}, lambda job: job.spec.name == "Größe"),
    ({"names_like": ("型",)}, lambda job: job.spec.name == "模型"),
    ({"names_like": ("%",)}, lambda job: "%" in job.spec.name),
    ({"names_like": ("_",)}, lambda job: "_" in job.spec.name),
    ({"names_like": ("\\",)}, lambda job: "\\" in job.spec.name),
    ({"names_like": ("/",)}, lambda job: False),
    ({"names_like": ("zet", "alp")}, lambda job: job.spec.name in ("zeta", "Alpha")),
    (
        {"phases": frozenset({Phase.RUNNING, Phase.FAILED})},
        lambda job: job.phase in (Phase.RUNNING, Phase.FAILED),
    ),
    ({"kinds": ("hetero_job",)}, lambda job: job.spec.kind == "hetero_job"),
    ({"owners": ("ann", "bob")}, lambda job: job.owner in ("ann", "bob")),
    ({"pool_ids": ("gpu",)}, lambda job: job.spec.pool_id == "gpu"),
    ({"descriptions_like": ("nightly run",)}, lambda job: job.spec.description == "Nightly RUN"),
    ({"descriptions_like": ("50%", "none")}, lambda job: job.spec.description == "50% done"),
    ({"not_names": ("bert", "zeta")}, lambda job: job.spec.name not in ("bert", "zeta")),
    ({"not_phases": frozenset({Phase.QUEUED})}, lambda job: job.phase is not Phase.QUEUED),
    ({"not_owners": ("ann",)}, lambda job: job.owner != "ann"),
    ({"created_from_ms": 1_010, "created_to_ms": 1_030}, lambda job: 1_010 <= job.created_at_ms <= 1_030),
    ({"ended_from_ms": 3_004}, lambda job: job.ended_at_ms is not None and job.ended_at_ms >= 3_004),
    ({"ended_to_ms": 3_004}, lambda job: job.ended_at_ms is not None and job.ended_at_ms <= 3_004),
    (
        {"owners": ("ann",), "kinds": ("job",), "names_like": ("b",), "workspace_id": "0"},
        lambda job: job.owner == "ann" and job.spec.kind == "job" and "b" in job.spec.name.lower(),
    ),
    ({"names": ("bert",), "not_names": ("bert",)}, lambda job: False),
]


async def test_every_filter_finds_what_it_says(stores: Stores, jobs: list[Job]) -> None:
    for filters, matches in FILTERS:
        page = await stores.jobs.search(
            JobQuery(project_id=PROJECT, sort_by="number", descending=False, **filters)
        )
        expected = tuple(job for job in jobs if matches(job))
        assert page.jobs == expected, filters
        assert (page.matching, page.total) == (len(expected), len(jobs)), filters


async def test_every_filter_of_the_query_was_tried() -> None:
    tried = {name for filters, _ in FILTERS for name in filters}
    paging = {"project_id", "sort_by", "descending", "offset", "limit"}
    assert tried | paging | {"ids"} == set(JobQuery.__dataclass_fields__)


async def test_ids_are_found_in_their_project_only(stores: Stores, jobs: list[Job]) -> None:
    ids = (jobs[3].id, jobs[1].id, "unknown")
    page = await stores.jobs.search(JobQuery(project_id=PROJECT, ids=ids, descending=False))
    assert page.jobs == (jobs[1], jobs[3])
    elsewhere = await stores.jobs.search(JobQuery(project_id=OTHER_PROJECT, ids=ids))
    assert (elsewhere.jobs, elsewhere.matching, elsewhere.total) == ((), 0, 1)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort_by", SORT_KEYS)
async def test_every_order_is_total_and_pages_fit_together(
    stores: Stores, jobs: list[Job], sort_by: str, descending: bool
) -> None:
    key = SORT_KEYS[sort_by]
    expected = sorted(jobs, key=lambda job: (key(job), job.number), reverse=descending)
    found: list[Job] = []
    for offset in range(0, len(jobs) + 5, 5):
        query = JobQuery(project_id=PROJECT, sort_by=sort_by, descending=descending, offset=offset, limit=5)
        page = await stores.jobs.search(query)
        assert page.matching == len(jobs)
        found += page.jobs
    assert [job.number for job in found] == [job.number for job in expected]
    assert found == expected


async def test_jobs_that_memory_does_not_hold_are_found_whole(
    stores: Stores, jobs: list[Job], database_url: str
) -> None:
    reopened = open_stores(database_url)
    page = await reopened.jobs.search(JobQuery(project_id=PROJECT, sort_by="number", descending=False))
    assert list(page.jobs) == jobs
    reopened.close()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sort_by": "colour"}, "created_at, name"),
        ({"offset": -1}, "offset"),
        ({"offset": 2**64}, "offset"),
        ({"limit": -1}, "limit"),
        ({"limit": 10_001}, "limit"),
        ({"created_from_ms": 2**64}, "too large"),
    ],
)
async def test_questions_that_make_no_sense_are_invalid(
    stores: Stores, wrong: dict[str, Any], says: str
) -> None:
    with pytest.raises(Invalid, match=says):
        await stores.jobs.search(JobQuery(project_id=PROJECT, **wrong))


async def test_an_unknown_project_is_empty(stores: Stores) -> None:
    page = await stores.jobs.search(JobQuery(project_id=OTHER_PROJECT))
    assert (page.jobs, page.matching, page.total) == ((), 0, 0)
    assert await stores.jobs.count(OTHER_PROJECT) == 0
