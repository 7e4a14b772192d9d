"""A PostgreSQL that goes away is said to be unavailable, and is used again when it is back."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from tests.servers.postgres import PostgresServer
from tests.unit.persistence.making import PROJECT, changing, making
from trackside.domain.errors import Unavailable
from trackside.domain.job import JobId
from trackside.domain.phase import Phase
from trackside.persistence import Stores, open_stores
from trackside.ports import JobQuery, Update

pytestmark = pytest.mark.anyio
STRANGER = JobId("00000000-0000-0000-0000-000000000000")
RECOVERY_SECONDS_MAX = 30

# At the end of the transaction, when it is too late to do it over, the server drops the connection.
BREAK_THE_COMMIT = """
CREATE FUNCTION break_commit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER break_commit AFTER INSERT OR UPDATE ON jobs
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION break_commit();
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Start a server of our own: others would mind its restarts."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Give a fresh database."""
    return server.create_database()


async def opened(url: str) -> Stores:
    """Open the stores with one project."""
    stores = open_stores(url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    return stores


async def test_writes_are_refused_while_it_is_away_and_work_when_it_is_back(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stores = await opened(url)
    job = await stores.jobs.insert(PROJECT, making("submitted"))
    server.stop()
    try:
        for _ in range(3):
            with pytest.raises(Unavailable) as refused:
                await stores.jobs.insert(PROJECT, making())
            assert server.password not in str(refused.value)
        assert stores.jobs.get(job.id) == job
        assert await stores.jobs.active() == (job,)
        with pytest.raises(Unavailable):
            await stores.jobs.search(JobQuery(project_id=PROJECT))
        with pytest.raises(Unavailable):
            stores.jobs.get(STRANGER)
    finally:
        server.start()

    assert (await stores.jobs.insert(PROJECT, making())).number == 2
    changed = await stores.jobs.update(job.id, changing(phase=Phase.STARTING))
    assert stores.jobs.get(job.id) == changed
    assert stores.jobs.get(STRANGER) is None
    assert (await stores.jobs.search(JobQuery(project_id=PROJECT))).matching == 2
    stores.close()
    assert server.password not in caplog.text


async def test_a_restart_between_two_writes_goes_unnoticed(server: PostgresServer, url: str) -> None:
    stores = await opened(url)
    job = await stores.jobs.insert(PROJECT, making())
    server.stop("fast")
    server.start()
    assert (await stores.jobs.update(job.id, changing(phase=Phase.STARTING))).revision == 2
    assert (await stores.jobs.search(JobQuery(project_id=PROJECT))).matching == 1
    stores.close()


async def test_a_commit_that_breaks_changes_nothing_in_memory(url: str) -> None:
    stores = await opened(url)
    job = await stores.jobs.insert(PROJECT, making())
    libpq_url = url.replace("+psycopg", "")
    with psycopg.connect(libpq_url) as connection:
        connection.execute(BREAK_THE_COMMIT)

    outcomes = await asyncio.gather(
        stores.jobs.update(job.id, changing(phase=Phase.STARTING)),
        stores.jobs.insert(PROJECT, making()),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable]
    assert stores.jobs.get(job.id) == job
    assert await stores.jobs.active() == (job,)

    with psycopg.connect(libpq_url) as connection:
        connection.execute("DROP TRIGGER break_commit ON jobs")
    assert (await stores.jobs.update(job.id, changing(phase=Phase.STARTING))).revision == 2
    assert (await stores.jobs.insert(PROJECT, making())).number == 2
    stores.close()


class DeafProxy:
    """Stands between a client and the server; once told, it lets a COMMIT through and loses the answer."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._links: set[asyncio.Task[None]] = set()
        self.lose_commits = False

    async def __aenter__(self) -> int:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        await asyncio.gather(*self._links)  # they end with their clients

    async def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        answers = asyncio.create_task(self._copy(server, to_client))
        try:
            while data := await client.read(65536):
                if self.lose_commits and b"COMMIT" in data:
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    to_server.write(data)
                    await server.read(1)  # it is done now
                    return
                to_server.write(data)
        finally:
            answers.cancel()
            for writer in (to_server, to_client):
                writer.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()


async def test_a_commit_whose_answer_was_lost_is_found_out(server: PostgresServer, url: str) -> None:
    proxy = DeafProxy(server.port)
    async with proxy as port:
        address = url.replace(f":{server.port}/", f":{port}/")
        stores = await asyncio.to_thread(open_stores, address)
        await stores.start()
        await stores.identities.put_project(PROJECT, "first")
        job = await stores.jobs.insert(PROJECT, making())

        proxy.lose_commits = True
        with pytest.raises(Unavailable):
            await stores.jobs.update(job.id, changing(phase=Phase.STARTING))
        proxy.lose_commits = False

        # The next change works on what is really stored.
        changed = await stores.jobs.update(job.id, lambda job: Update(job=replace(job, owner=job.phase)))
        assert (changed.owner, changed.revision) == (Phase.STARTING, 3)
        assert stores.jobs.get(job.id) == changed
        await asyncio.to_thread(stores.close)


async def test_it_comes_back_without_being_asked(server: PostgresServer, url: str) -> None:
    stores = await opened(url)
    job = await stores.jobs.insert(PROJECT, making())
    server.stop()
    with pytest.raises(Unavailable):
        await stores.jobs.insert(PROJECT, making())
    assert not stores.writer.connected
    server.start()
    async with asyncio.timeout(RECOVERY_SECONDS_MAX):
        while not stores.writer.connected:
            await asyncio.sleep(0.02)
    assert await stores.jobs.active() == (job,)
    stores.close()


async def test_a_wrong_password_is_told_without_the_password(url: str, server: PostgresServer) -> None:
    with pytest.raises(Unavailable, match="password authentication failed") as caught:
        open_stores(url.replace(server.password, "wrong-hush"))
    assert "hush" not in str(caught.value)
