"""Create the first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

JOB_INDICES = {
    "created": ("created_at_ms", "number", "name_folded"),
    "workspace": ("workspace_id", "created_at_ms", "number", "name_folded"),
    "name": ("name", "number"),
    "phase": ("phase", "created_at_ms", "number"),
    "owner": ("owner", "created_at_ms", "number"),
    "pool": ("pool_id", "created_at_ms", "number"),
    "family": ("family", "version", "number"),
    "started": ("started_at_ms", "number"),
    "ended": ("ended_at_ms", "number"),
}


def upgrade() -> None:
    """Create every table."""
    _create_identities()
    _create_jobs()
    _create_parts()
    _create_events()


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def _of_project(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=f"fk_{table}_project_id")


def _of_job(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=f"fk_{table}_job_id", ondelete="CASCADE")


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _create_identities() -> None:
    op.create_table(
        "projects",
        _text("id"),
        _text("name"),
        _number("next_number"),
        _text("job_counts"),
        _key("projects", "id"),
    )
    op.create_table(
        "users",
        _text("name"),
        _text("project_id"),
        _text("role"),
        _text("access_key"),
        _text("secret_key"),
        _text("token_digest"),
        _key("users", "name"),
        _of_project("users"),
        sa.UniqueConstraint("access_key", name="uq_users_access_key"),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        _text("id"),
        _text("project_id"),
        _number("number"),
        _text("short_id", nullable=True),
        _number("family"),
        _number("version"),
        _text("workspace_id"),
        _text("name"),
        _text("name_folded"),
        _text("description_folded"),
        _text("kind"),
        _text("phase"),
        _text("owner"),
        _text("pool_id"),
        _number("priority"),
        _number("created_at_ms"),
        _number("started_at_ms", nullable=True),
        _number("ended_at_ms", nullable=True),
        sa.Column("deleting", sa.Boolean(create_constraint=False), nullable=False),
        _number("revision"),
        _text("state"),
        _key("jobs", "id"),
        sa.UniqueConstraint("short_id", name="uq_jobs_short_id"),
        _of_project("jobs"),
    )
    op.create_index("ix_jobs_number", "jobs", ["project_id", "number"], unique=True)
    for name, columns in JOB_INDICES.items():
        op.create_index(f"ix_jobs_{name}", "jobs", ["project_id", *columns])
    op.create_index("ix_jobs_open", "jobs", ["phase"])
    op.create_index(
        "ix_jobs_deleting",
        "jobs",
        ["project_id"],
        sqlite_where=sa.text("deleting = 1"),
        postgresql_where=sa.text("deleting"),
    )


def _create_parts() -> None:
    op.create_table("specs", _text("job_id"), _text("doc"), _key("specs", "job_id"), _of_job("specs"))
    op.create_table(
        "tags", _text("job_id"), _text("key"), _text("value"), _key("tags", "job_id", "key"), _of_job("tags")
    )
    op.create_index("ix_tags_value", "tags", ["key", "value", "job_id"])
    op.create_table(
        "records",
        _text("job_id"),
        _number("number"),
        _text("doc"),
        _key("records", "job_id", "number"),
        _of_job("records"),
    )
    op.create_table(
        "tasks",
        _text("job_id"),
        _number("attempt"),
        _text("name"),
        _number("position"),
        sa.Column("past", sa.Boolean(create_constraint=False), nullable=False),
        _text("doc"),
        _key("tasks", "job_id", "attempt", "name"),
        _of_job("tasks"),
    )


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        _text("job_id"),
        _number("at_ms"),
        _text("level"),
        _text("source"),
        _text("task", nullable=True),
        _number("attempt", nullable=True),
        _text("message"),
        _text("message_folded"),
        _key("events", "id"),
        _of_job("events"),
    )
    op.create_index("ix_events_job", "events", ["job_id", "at_ms", "id"])
    op.create_table(
        "report_streams",
        _text("node_id"),
        _text("stream"),
        _number("last_seq"),
        _key("report_streams", "node_id", "stream"),
    )
