"""Knows how a database is brought to this program's schema, and when that must be refused."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from trackside.domain.errors import Unavailable

MIGRATIONS = Path(__file__).with_name("migrations")
ADVISORY_LOCK = 0x7472_6163_6B73_6964  # "tracksid": one migration at a time on a PostgreSQL server


def migrate(engine: Engine) -> None:
    """Bring the schema up to date in one transaction; a second process waits, then finds it done."""
    with engine.begin() as connection:  # SQLite: BEGIN IMMEDIATE keeps others out
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = 0"))  # another's migration may take its time
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
        config = _config(connection)
        script = ScriptDirectory.from_config(config)
        current = MigrationContext.configure(connection).get_current_heads()
        if set(current) == set(script.get_heads()):
            return
        _refuse_newer(script, current)
        command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_newer(script: ScriptDirectory, current: tuple[str, ...]) -> None:
    for revision in current:
        try:
            script.get_revision(revision)
        except CommandError:
            known = ", ".join(script.get_heads())
            raise Unavailable(
                f"the database was written by a newer Trackside (schema {revision}); "
                f"this program knows schemas up to {known}: upgrade the program"
            ) from None
