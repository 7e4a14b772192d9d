"""How a database comes to this program's schema, on SQLite and PostgreSQL."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine, text

from tests.unit.persistence.making import PROJECT
from trackside.domain.errors import Invalid, Unavailable
from trackside.persistence import open_stores
from trackside.persistence.schema import metadata
from trackside.persistence.search import SORTS

OPEN = "import sys; from trackside.persistence import open_stores; open_stores(sys.argv[1]).close()"
STARTERS = 4
START_SECONDS_MAX = 60


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """Look at a migrated database from outside."""
    open_stores(database_url).close()
    engine = create_engine(database_url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_the_migrated_schema_is_the_one_the_program_uses(connection: Connection) -> None:
    options = {"include_name": lambda name, *_: not (name or "").startswith("name_parts")}  # one per database
    context = MigrationContext.configure(connection, opts=options)
    assert compare_metadata(context, metadata) == []


def test_opening_again_changes_nothing(database_url: str, connection: Connection) -> None:
    version = text("SELECT version_num FROM alembic_version")
    before = connection.execute(version).scalars().all()
    connection.commit()
    open_stores(database_url).close()
    assert connection.execute(version).scalars().all() == before
    assert len(before) == 1


def test_processes_that_start_at_once_agree(database_url: str) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", OPEN, database_url], stderr=subprocess.PIPE)
        for _ in range(STARTERS)
    ]
    errors = [child.communicate(timeout=START_SECONDS_MAX)[1] for child in children]
    assert [child.returncode for child in children] == [0] * STARTERS, errors


def test_a_newer_database_is_refused(database_url: str, connection: Connection) -> None:
    connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    connection.commit()
    with pytest.raises(Unavailable, match=r"newer Trackside .schema 9999.*up to 0"):
        open_stores(database_url)


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    stores = open_stores(f"sqlite:///{tmp_path}/state.db")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    stores.close()
    assert modes["state.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_database_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be created: No such file"):
        open_stores(f"sqlite:///{tmp_path}/missing/state.db")
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"this is not a database " * 100)
    with pytest.raises(Unavailable, match="not a database"):
        open_stores(f"sqlite:///{junk}")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "state.db",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://u:hush@h/d",
        "postgresql://u:hush@h:port/d",
        "postgresql+psycopg2://u:hush@h/d",
    ],
)
def test_an_address_that_is_none_is_invalid_and_not_repeated(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        open_stores(url)
    assert "hush" not in str(caught.value)


def test_every_order_of_a_list_is_that_of_an_index(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    open_stores(url).close()
    engine = create_engine(url)
    with engine.begin() as connection:
        for name, columns in SORTS.items():
            order = ", ".join(f"{column.name} DESC" for column in columns)
            query = f"SELECT id FROM jobs WHERE project_id = :project ORDER BY {order} LIMIT 50"
            rows = connection.execute(text(f"EXPLAIN QUERY PLAN {query}"), {"project": PROJECT})
            plan = [row[-1] for row in rows]
            assert not any("TEMP B-TREE" in step for step in plan), (name, plan)
    engine.dispose()
