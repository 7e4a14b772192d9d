"""Add an index of the parts of names: what is anywhere in a name is found without looking at every job.

SQLite keeps it in a full-text table that triggers maintain in the transaction of the job; a later migration
that makes `jobs` anew must make the triggers anew. PostgreSQL keeps it in an index of the extension pg_trgm.
Where neither can be had, names are looked through as before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# A row's id is its project's number and its own: one project's names stand together.
_SPAN = 1 << 40
_ADD = "INSERT INTO name_parts (rowid, name) SELECT id * {span} + {row}.number, {row}.name_folded"
_REMOVE = (
    "INSERT INTO name_parts (name_parts, rowid, name)"
    " SELECT 'delete', id * {span} + {row}.number, {row}.name_folded"
)
_OF_PROJECT = " FROM name_parts_projects WHERE project_id = {row}.project_id;"
_SQLITE = (
    "CREATE TABLE name_parts_projects (id INTEGER PRIMARY KEY, project_id TEXT NOT NULL UNIQUE)",
    "INSERT INTO name_parts_projects (project_id) SELECT id FROM projects",
    "INSERT INTO name_parts (rowid, name) SELECT p.id * {span} + j.number, j.name_folded"
    " FROM jobs AS j JOIN name_parts_projects AS p ON p.project_id = j.project_id",
    # Merging a little with every write would now and then hold one up for long.
    "INSERT INTO name_parts (name_parts, rank) VALUES ('automerge', 16)",
    "INSERT INTO name_parts (name_parts, rank) VALUES ('crisismerge', 64)",
    "CREATE TRIGGER name_parts_project AFTER INSERT ON projects BEGIN"
    " INSERT INTO name_parts_projects (project_id) VALUES (new.id); END",
    f"CREATE TRIGGER name_parts_added AFTER INSERT ON jobs BEGIN {_ADD}{_OF_PROJECT} END",
    f"CREATE TRIGGER name_parts_removed AFTER DELETE ON jobs BEGIN {_REMOVE}{_OF_PROJECT} END",
    "CREATE TRIGGER name_parts_changed AFTER UPDATE OF name_folded ON jobs"
    f" WHEN old.name_folded <> new.name_folded BEGIN {_REMOVE}{_OF_PROJECT} {{add}}{{of_new}} END",
)
_TABLE = (
    "CREATE VIRTUAL TABLE name_parts USING fts5 (name, content = '', tokenize = 'trigram case_sensitive 1')"
)


def upgrade() -> None:
    """Make the index where the database can keep one."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        if _done(connection, _TABLE):
            for statement in _SQLITE:
                connection.exec_driver_sql(_filled(statement))
    elif _done(connection, "CREATE EXTENSION IF NOT EXISTS pg_trgm"):
        connection.exec_driver_sql("CREATE INDEX name_parts ON jobs USING gin (name_folded gin_trgm_ops)")


def _filled(statement: str) -> str:
    old = "new" if "name_parts_added" in statement else "old"
    new = {"add": _ADD.format(span=_SPAN, row="new"), "of_new": _OF_PROJECT.format(row="new")}
    return statement.format(span=_SPAN, row=old, **new)


def _done(connection: sa.Connection, statement: str) -> bool:
    """Try what a database may not be able, or its owner not be allowed, to do."""
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(statement)
    except sa.exc.DBAPIError:
        return False
    return True
