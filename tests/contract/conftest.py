"""Gives the contract tests their databases: a file, or a fresh database on a real PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import PostgresServer
from tests.unit.persistence.making import PROJECT
from trackside.persistence import Stores, open_stores


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start one server for all tests."""
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """Give a fresh database."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """Give a file that does not exist yet."""
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Give an empty database of each kind."""
    name = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    return str(request.getfixturevalue(name))


@pytest.fixture
async def stores(database_url: str, anyio_backend: str) -> AsyncIterator[Stores]:
    """Open the stores on an empty database with one project."""
    opened = open_stores(database_url)
    await opened.start()
    await opened.identities.put_project(PROJECT, "first")
    yield opened
    opened.close()
