"""Parts of names: what the index finds is what looking at every name finds, after every kind of change."""

import asyncio
import random
from dataclasses import replace

import pytest
from alembic import command
from sqlalchemy import create_engine, text

from tests.unit.persistence.making import OTHER_PROJECT, PROJECT, changing, make_spec, making
from trackside.domain.job import Job, JobId
from trackside.domain.phase import Phase
from trackside.persistence import Stores, migrate, open_stores, search
from trackside.ports import JobQuery

pytestmark = pytest.mark.anyio

SYLLABLES = ["ber", "t-", "Lar", "ge", '"', "%", "_", "模型", "ß", "'", "OR", " ", "\\", "/", "x", "*"]
PARTS = [
    "ber",
    "bert-",
    "ERT",
    '"',
    'r"',
    '"be',
    "模型",
    "模型模",
    "ss",
    "ssb",
    "%",
    "a%b",
    "_x_",
    " OR ",
    "***",
    "zzz",
]


def a_name(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.randrange(1, 8)))


async def found(stores: Stores, *parts: str, **more: object) -> tuple[set[int], int]:
    query = JobQuery(project_id=PROJECT, names_like=parts, limit=10_000, **more)  # type: ignore[arg-type]
    page = await stores.jobs.search(query)
    return {job.number for job in page.jobs}, page.matching


async def check(stores: Stores, jobs: dict[JobId, Job]) -> None:
    shown = [job for job in jobs.values() if not job.deleting]
    for part in PARTS:
        expected = {job.number for job in shown if part.casefold() in job.spec.name.casefold()}
        assert await found(stores, part) == (expected, len(expected)), part
        assert await found(stores, part, workspace_id="0") == (expected, len(expected)), part
        queued = {job.number for job in shown if job.number in expected and job.phase is Phase.QUEUED}
        assert await found(stores, part, phases=frozenset({Phase.QUEUED})) == (queued, len(queued)), part
    either = {
        job.number for job in shown if "ber" in job.spec.name.casefold() or "lar" in job.spec.name.casefold()
    }
    assert await found(stores, "ber", "lar") == (either, len(either))


async def change_at_random(stores: Stores, jobs: dict[JobId, Job], rng: random.Random) -> None:
    job_id = rng.choice(list(jobs))
    kind = rng.randrange(4)
    if kind == 0:
        await stores.jobs.delete(job_id)
        del jobs[job_id]
    elif kind == 1:
        spec = replace(jobs[job_id].spec, name=a_name(rng))
        jobs[job_id] = await stores.jobs.update(job_id, changing(spec=spec))
    elif kind == 2:
        jobs[job_id] = await stores.jobs.update(job_id, changing(deleting=True))
    else:
        jobs[job_id] = await stores.jobs.update(job_id, changing(phase=Phase.RUNNING))


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("few", [2_000, 3])  # more matches than that are counted and met in order
async def test_they_are_found_after_every_change(
    stores: Stores, few: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SORTED_MAX", few)
    rng = random.Random(few)
    if not alone:
        await stores.identities.put_project(OTHER_PROJECT, "second")
        other = making(project_id=OTHER_PROJECT, spec=make_spec(name="bert-large"))
        await stores.jobs.insert(OTHER_PROJECT, other)
    made = [stores.jobs.insert(PROJECT, making(spec=make_spec(name=a_name(rng)))) for _ in range(80)]
    jobs = {job.id: job for job in await asyncio.gather(*made)}
    await check(stores, jobs)
    for _ in range(40):
        await change_at_random(stores, jobs, rng)
    await check(stores, jobs)


async def test_a_workspace_is_told_from_another(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SORTED_MAX", 1)
    made = [
        await stores.jobs.insert(PROJECT, making(spec=make_spec(name=f"bert-{i}", workspace_id=workspace)))
        for i, workspace in enumerate(("0", "0", "0", "w", "w", "w"))
    ]
    numbers = [job.number for job in made]
    assert await found(stores, "bert", workspace_id="0") == (set(numbers[:3]), 3)
    for job in made[3:]:  # they are in no list any more, though they still drain
        await stores.jobs.update(job.id, changing(deleting=True))
    assert await found(stores, "bert", workspace_id="0") == (set(numbers[:3]), 3)
    assert await found(stores, "bert", workspace_id="w") == (set(), 0)
    assert await found(stores, "bert") == (set(numbers[:3]), 3)


async def test_both_databases_keep_an_index(stores: Stores, database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        catalog = "sqlite_master" if database_url.startswith("sqlite") else "pg_class"
        column = "name" if catalog == "sqlite_master" else "relname"
        query = text(f"SELECT count(*) FROM {catalog} WHERE {column} = 'name_parts'")
        assert connection.execute(query).scalar() == 1
    engine.dispose()


async def test_jobs_that_were_there_before_are_found(
    database_url: str, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    with monkeypatch.context() as patch:
        upgrade = command.upgrade
        patch.setattr(migrate.command, "upgrade", lambda config, _: upgrade(config, "0004"))
        stores = open_stores(database_url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    job = await stores.jobs.insert(PROJECT, making(spec=make_spec(name="Before-all")))
    assert await found(stores, "fore-") == ({job.number}, 1), "without an index every name is looked at"
    stores.close()
    stores = open_stores(database_url)
    await stores.start()
    assert await found(stores, "fore-") == ({job.number}, 1)
    later = await stores.jobs.insert(PROJECT, making(spec=make_spec(name="before-long")))
    assert await found(stores, "fore-") == ({job.number, later.number}, 2)
    stores.close()
