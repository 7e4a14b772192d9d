"""What every JobStore finds: each filter, order and page, against the same question asked in Python."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.persistence.making import OTHER_PROJECT, PROJECT, changing, make_spec, making
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
FAR_FUTURE_MS = 10**15
SORT_KEYS: dict[str, Callable[[Job], Any]] = {
    "created_at": lambda job: job.created_at_ms,
    "name": lambda job: job.spec.name.encode(),
    "phase": lambda job: (job.phase.value, job.created_at_ms),
    "ended_at": lambda job: (job.ended_at_ms is not None, job.ended_at_ms),
    "started_at": lambda job: (job.started_at_ms is not None, job.started_at_ms),
    "owner": lambda job: (job.owner, job.created_at_ms),
    "number": lambda job: job.number,
    "description": lambda job: job.spec.description.casefold(),
    "kind": lambda job: job.spec.kind,
    "duration": lambda job: (job.started_at_ms is not None, duration(job)),
}


def duration(job: Job) -> int:
    """Return how long it ran; one that still runs (since 1970) has run longer than any that ended."""
    return 0 if job.started_at_ms is None else (job.ended_at_ms or FAR_FUTURE_MS) - job.started_at_ms


async def fill(stores: Stores) -> list[Job]:
    """Store jobs that differ in everything a query can ask for, and one of another project."""
    phases = list(Phase)
    await stores.identities.put_project(OTHER_PROJECT, "second")
    await stores.jobs.insert(OTHER_PROJECT, making(project_id=OTHER_PROJECT, spec=make_spec(name="bert")))
    jobs = []
    for i, name in enumerate(NAMES):
        spec = make_spec(
            name=name,
            kind=("job", "hetero_job")[i % 2],
            workspace_id=("0", "w1", "w2")[i % 3],
            description=("", "Nightly RUN", "50% done")[i % 3],
            pool_id=("default", "gpu")[i % 2],
            tags={"team": ("nlp", "vision")[i % 2]} | ({"cost%": "x"} if i % 5 == 0 else {}),
        )
        made = making(
            spec=spec,
            owner=("ann", "bob", "cleo")[i % 3],
            phase=phases[i % len(phases)],
            created_at_ms=1_000 + 10 * (i // 2),
            started_at_ms=None if i % 3 == 0 else 2_000 - i,
            ended_at_ms=None if i % 2 else 3_000 + i,
            short_id=f"short{i}",
            family=(i // 3) * 3 + 1,
            version=i % 3 + 1,
        )
        jobs.append(await stores.jobs.insert(PROJECT, made))
    return jobs


@pytest.fixture
async def jobs(stores: Stores) -> list[Job]:
    """Give the stored jobs, in order of arrival."""
    return await fill(stores)


FILTERS: list[tuple[dict[str, Any], Callable[[Job], bool]]] = [
    ({}, lambda job: True),
    ({"workspace_id": "w1"}, lambda job: job.spec.workspace_id == "w1"),
    ({"short_ids": ("short3", "short5", "none")}, lambda job: job.number in (4, 6)),
    ({"families": (4, 7)}, lambda job: 4 <= job.number <= 9),
    ({"newest_versions": True}, lambda job: job.number % 3 == 0),
    ({"newest_versions": True, "kinds": ("job",)}, lambda job: job.number in (3, 9)),
    ({"tags": (("team", ("nlp",)),)}, lambda job: job.spec.tags["team"] == "nlp"),
    ({"tags": (("team", ("nlp", "vision")), ("cost%", ()))}, lambda job: "cost%" in job.spec.tags),
    ({"tags": (("team", ("nlp",)), ("cost%", ("y",)))}, lambda job: False),
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


async def test_the_newest_version_is_the_newest_that_exists(stores: Stores, jobs: list[Job]) -> None:
    query = JobQuery(project_id=PROJECT, newest_versions=True, families=(1,))
    assert (await stores.jobs.search(query)).jobs == (jobs[2],)
    await stores.jobs.update(jobs[2].id, changing(deleting=True))
    assert (await stores.jobs.search(query)).jobs == (jobs[1],)
    await stores.jobs.delete(jobs[1].id)
    assert (await stores.jobs.search(query)).jobs == (jobs[0],)


async def test_jobs_without_a_family_are_each_their_newest(stores: Stores) -> None:
    made = [await stores.jobs.insert(PROJECT, making()) for _ in range(3)]
    page = await stores.jobs.search(JobQuery(project_id=PROJECT, newest_versions=True, descending=False))
    assert list(page.jobs) == made


async def test_changed_tags_are_found_and_the_old_ones_are_not(stores: Stores, jobs: list[Job]) -> None:
    spec = replace(jobs[0].spec, tags={"team": "audio", "new": ""})
    changed = await stores.jobs.update(jobs[0].id, changing(spec=spec))

    async def tagged(key: str, *values: str) -> tuple[Job, ...]:
        query = JobQuery(project_id=PROJECT, ids=(jobs[0].id,), tags=((key, values),))
        return (await stores.jobs.search(query)).jobs

    assert await tagged("team", "audio") == (changed,)
    assert await tagged("new") == (changed,)
    assert await tagged("cost%") == ()
    assert await tagged("team", "nlp") == ()


async def test_a_job_is_found_by_number_and_short_id_in_its_project_only(
    stores: Stores, jobs: list[Job], database_url: str
) -> None:
    reopened = open_stores(database_url)  # there the finished ones are not in memory
    for found_in in (stores, reopened):
        for job in jobs:
            assert found_in.jobs.find(PROJECT, number=job.number) == job
            assert found_in.jobs.find(PROJECT, short_id=job.short_id) == job
            assert found_in.jobs.find(OTHER_PROJECT, short_id=job.short_id) is None
        assert found_in.jobs.find(OTHER_PROJECT, number=2) is None
        assert found_in.jobs.find(PROJECT, number=2**70) is None
        assert found_in.jobs.find(PROJECT, short_id="a\x00") is None
        assert found_in.jobs.find(PROJECT) is None
    reopened.close()
    await stores.jobs.delete(jobs[0].id)
    assert stores.jobs.find(PROJECT, number=1) is None
    assert stores.jobs.find(PROJECT, short_id="short0") is None
