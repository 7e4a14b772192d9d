"""The contract of the pool store and of the counters of jobs, on every database."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from alembic import command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from tests.unit.persistence.making import OTHER_PROJECT, PROJECT, changing, make_spec, making
from trackside.domain.errors import Invalid, PoolInUse
from trackside.domain.job import JobId, ProjectId
from trackside.domain.phase import Phase
from trackside.persistence import Stores, migrate, open_stores
from trackside.ports import JobQuery

POOLS = ("default", "team-a", "team-b")
KINDS = ("job", "hetero_job")
STEPS_MAX = 30

Counted = Counter[tuple[str, str, str, str]]  # project, pool, kind, phase


async def recounted(stores: Stores) -> Counted:
    """Count every job one by one, as a list shows them."""
    found: Counted = Counter()
    for project in (PROJECT, OTHER_PROJECT):
        page = await stores.jobs.search(JobQuery(project_id=project, limit=1000))
        found.update((project, job.spec.pool_id, job.spec.kind, job.phase.value) for job in page.jobs)
    return found


async def counted(stores: Stores) -> Counted:
    """Return what the counters say."""
    return Counter(
        {
            (project, pool, kind, phase.value): count
            for project in (PROJECT, OTHER_PROJECT)
            for pool in POOLS
            for (kind, phase), count in (await stores.jobs.counts(project, pool_id=pool)).items()
        }
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("insert"),
            st.sampled_from((PROJECT, OTHER_PROJECT)),
            st.sampled_from(POOLS),
            st.sampled_from(KINDS),
        ),
        st.tuples(st.just("move"), st.integers(0, 9), st.sampled_from(list(Phase))),
        st.tuples(st.just("hide"), st.integers(0, 9)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("refused"), st.integers(0, 9)),
        st.tuples(st.just("many"), st.lists(st.integers(0, 9), max_size=4), st.sampled_from(list(Phase))),
    ),
    max_size=STEPS_MAX,
)


class Refusal(Exception):
    """A change says no."""


def _refuse(job: object) -> None:
    raise Refusal


async def take(stores: Stores, jobs: list[JobId], step: tuple) -> None:  # type: ignore[type-arg]
    """Take one step; jobs are named by their place in the list."""
    match step:
        case ("insert", project, pool, kind):
            spec = make_spec(pool_id=pool, kind=kind)
            jobs.append((await stores.jobs.insert(project, making(spec=spec, project_id=project))).id)
        case ("many", places, phase):
            changes = [(jobs[place % len(jobs)], changing(phase=phase)) for place in places if jobs]
            await stores.jobs.update_many(changes)
        case (_, _, *_) if not jobs:
            return
        case ("move", place, phase):
            await stores.jobs.update(jobs[place % len(jobs)], changing(phase=phase))
        case ("hide", place):
            await stores.jobs.update(jobs[place % len(jobs)], changing(deleting=True))
        case ("delete", place):
            await stores.jobs.delete(jobs.pop(place % len(jobs)))
        case ("refused", place):
            with pytest.raises(Refusal):
                await stores.jobs.update(jobs[place % len(jobs)], _refuse)


@pytest.mark.anyio
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, at_once=st.booleans())
async def test_the_counters_are_what_counting_would_say(stores: Stores, steps: list, at_once: bool) -> None:  # type: ignore[type-arg]
    await stores.identities.put_project(OTHER_PROJECT, "second")
    jobs: list[JobId] = []
    before = await counted(stores)
    if at_once:  # one transaction for many operations
        inserts = [step for step in steps if step[0] == "insert"]
        await asyncio.gather(*(take(stores, jobs, step) for step in inserts))
        steps = [step for step in steps if step[0] not in ("insert", "delete")]
        await asyncio.gather(*(take(stores, jobs, step) for step in steps))
    else:
        for step in steps:
            await take(stores, jobs, step)
    assert await counted(stores) == await recounted(stores)
    for job_id in jobs:
        await stores.jobs.delete(job_id)
    assert await counted(stores) == before == Counter()


@pytest.mark.anyio
async def test_a_list_matches_what_the_counters_say(stores: Stores) -> None:
    await stores.identities.put_project(OTHER_PROJECT, "second")
    for pool in POOLS:
        for phase in (Phase.QUEUED, Phase.RUNNING, Phase.RUNNING):
            await stores.jobs.insert(PROJECT, making(spec=make_spec(pool_id=pool), phase=phase))
    hidden = await stores.jobs.insert(PROJECT, making(phase=Phase.RUNNING))
    await stores.jobs.update(hidden.id, changing(deleting=True))
    await stores.jobs.insert(PROJECT, making(spec=make_spec(workspace_id="w"), phase=Phase.RUNNING))
    query = JobQuery(project_id=PROJECT, phases=frozenset({Phase.RUNNING}))
    assert [len((page := await stores.jobs.search(query)).jobs), page.matching] == [7, 7]
    for narrowed, matching in (
        (replace(query, workspace_id="0"), 6),
        (replace(query, workspace_id="w"), 1),
        (replace(query, pool_ids=("team-a", "team-b")), 4),
        (replace(query, kinds=("hetero_job",)), 0),
        (replace(query, phases=frozenset(), not_phases=frozenset({Phase.RUNNING})), 3),
        (replace(query, project_id=OTHER_PROJECT), 0),
    ):
        page = await stores.jobs.search(narrowed)
        assert (len(page.jobs), page.matching) == (matching, matching)


@pytest.mark.anyio
async def test_counts_over_all_projects(stores: Stores) -> None:
    await stores.identities.put_project(OTHER_PROJECT, "second")
    for project in (PROJECT, PROJECT, OTHER_PROJECT):
        await stores.jobs.insert(project, making(project_id=project))
    assert await stores.jobs.counts(None, pool_id="default") == {("job", Phase.QUEUED): 3}
    assert await stores.jobs.counts(PROJECT, pool_id="default") == {("job", Phase.QUEUED): 2}
    assert await stores.jobs.counts(PROJECT, pool_id="elsewhere") == {}
    assert await stores.jobs.counts(ProjectId("nobody"), pool_id="default") == {}


@pytest.mark.anyio
async def test_the_migration_counts_what_is_there(database_url: str) -> None:
    stores = open_stores(database_url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    await stores.identities.put_project(OTHER_PROJECT, "second")
    for number in range(5):
        spec = make_spec(pool_id=POOLS[number % 2])
        await stores.jobs.insert(PROJECT, making(spec=spec, phase=list(Phase)[number]))
    gone = await stores.jobs.insert(PROJECT, making())
    await stores.jobs.update(gone.id, changing(deleting=True))
    kept = await counted(stores)
    stores.close()
    engine = create_engine(database_url)
    with engine.begin() as connection:
        for table in ("pools", "nodes", "pool_counts"):
            connection.execute(text(f"DROP TABLE {table}"))
        version = text("UPDATE alembic_version SET version_num = :number")
        newest = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        connection.execute(version, {"number": "0002"})
        command.upgrade(migrate._config(connection), "0003")  # this one alone: later ones are done already
        connection.execute(version, {"number": newest})
    engine.dispose()
    again = open_stores(database_url)
    await again.start()
    try:
        assert sum(kept.values()) == 5
        assert await counted(again) == kept
    finally:
        again.close()


@pytest.mark.anyio
async def test_pools_and_nodes_come_back_and_stay(stores: Stores, database_url: str) -> None:
    await stores.pools.put("b", {"n": [1, None, "ü"]})
    await stores.pools.put("a", {"n": 1})
    await stores.pools.put("a", {"n": 2})
    await stores.pools.put_node("node-a", {"locked": True})
    assert await stores.pools.pools() == [("a", {"n": 2}), ("b", {"n": [1, None, "ü"]})]
    await stores.pools.delete("a")
    await stores.pools.delete("never there")
    with pytest.raises(Invalid):
        await stores.pools.put("a\0", {})
    again = open_stores(database_url)
    await again.start()
    try:
        assert await again.pools.pools() == [("b", {"n": [1, None, "ü"]})]
        assert await again.pools.nodes() == [("node-a", {"locked": True})]
    finally:
        again.close()


@pytest.mark.anyio
async def test_a_pool_with_open_jobs_stays_and_says_which(stores: Stores) -> None:
    await stores.pools.put("team-a", {})
    job = await stores.jobs.insert(PROJECT, making(spec=make_spec(pool_id="team-a", name="first")))
    with pytest.raises(PoolInUse, match=rf"team-a has jobs that are not over: first \({job.id}\)"):
        await stores.pools.delete("team-a")
    assert await stores.pools.pools() == [("team-a", {})]
    await stores.jobs.update(job.id, changing(phase=Phase.STOPPED))
    await stores.pools.delete("team-a")
    assert await stores.pools.pools() == []


@pytest.mark.anyio
async def test_a_job_that_is_being_stored_keeps_its_pool(stores: Stores) -> None:
    await stores.pools.put("team-a", {})
    made, deleted = await asyncio.gather(
        stores.jobs.insert(PROJECT, making(spec=make_spec(pool_id="team-a"))),
        stores.pools.delete("team-a"),
        return_exceptions=True,
    )
    assert not isinstance(made, BaseException)
    assert isinstance(deleted, PoolInUse)
