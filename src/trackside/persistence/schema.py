"""Knows the tables and their indices, the same on SQLite and PostgreSQL; knows no domain object.

What lists are filtered and sorted by stands in narrow columns of `jobs`; everything else of an aggregate is
a JSON document beside it, so that a scan over a million jobs never reads a specification.
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, Table, Text, text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

# Byte order on both databases, so that a sorted list is the same list everywhere.
TEXT = Text().with_variant(Text(collation="C"), "postgresql")
# SQLite numbers rows by itself only in a column of this very type.
SERIAL = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, *, nullable: bool = False, unique: bool = False) -> Column[str]:
    return Column(name, TEXT, nullable=nullable, unique=unique)


def _number(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _job_id() -> Column[str]:
    return Column("job_id", TEXT, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


projects = Table(
    "projects",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("name"),
    _number("next_number"),  # only ever grows: a number is never issued twice
    _text("job_counts"),  # JSON: jobs per workspace, without those that are being deleted
)

users = Table(
    "users",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("project_id", TEXT, ForeignKey("projects.id"), nullable=False),
    _text("role"),
    _text("access_key", unique=True),
    _text("secret_key"),
    _text("token_digest"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("project_id", TEXT, ForeignKey("projects.id"), nullable=False),
    _number("number"),
    _text("short_id", nullable=True, unique=True),
    _number("family"),
    _number("version"),
    _text("workspace_id"),
    _text("name"),
    _text("name_folded"),  # case-folded here: databases disagree on what lower() means
    _text("description_folded"),
    _text("kind"),
    _text("phase"),
    _text("owner"),
    _text("pool_id"),
    _number("priority"),
    _number("created_at_ms"),
    _number("started_at_ms", nullable=True),
    _number("ended_at_ms", nullable=True),
    Column("deleting", Boolean(create_constraint=False), nullable=False),
    _number("revision"),
    _text("state"),  # JSON: ending, reason, node counts
    Index("ix_jobs_number", "project_id", "number", unique=True),
    # The folded name is in both, so that looking for a part of a name reads nothing but the index.
    Index("ix_jobs_created", "project_id", "created_at_ms", "number", "name_folded"),
    Index("ix_jobs_workspace", "project_id", "workspace_id", "created_at_ms", "number", "name_folded"),
    Index("ix_jobs_name", "project_id", "name", "number"),
    Index("ix_jobs_phase", "project_id", "phase", "created_at_ms", "number"),
    Index("ix_jobs_owner", "project_id", "owner", "created_at_ms", "number"),
    Index("ix_jobs_pool", "project_id", "pool_id", "created_at_ms", "number"),
    Index("ix_jobs_family", "project_id", "family", "version", "number"),
    Index("ix_jobs_started", "project_id", "started_at_ms", "number"),
    Index("ix_jobs_ended", "project_id", "ended_at_ms", "number"),
    Index("ix_jobs_open", "phase"),  # finds the unfinished jobs of all projects at the start
    Index(  # the few that no list may show
        "ix_jobs_deleting", "project_id", sqlite_where=text("deleting = 1"), postgresql_where=text("deleting")
    ),
)

specs = Table("specs", metadata, _job_id(), _text("doc"))

tags = Table(
    "tags",
    metadata,
    _job_id(),
    Column("key", TEXT, primary_key=True),
    _text("value"),
    Index("ix_tags_value", "key", "value", "job_id"),
)

records = Table(
    "records",
    metadata,
    _job_id(),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _text("doc"),
)

tasks = Table(
    "tasks",
    metadata,
    _job_id(),
    Column("attempt", BigInteger, primary_key=True, autoincrement=False),
    Column("name", TEXT, primary_key=True),
    _number("position"),  # among all tasks of the job, past ones first
    Column("past", Boolean(create_constraint=False), nullable=False),
    _text("doc"),
)

events = Table(
    "events",
    metadata,
    Column("id", SERIAL, primary_key=True),
    Column("job_id", TEXT, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    _number("at_ms"),
    _text("level"),
    _text("source"),
    _text("task", nullable=True),
    _number("attempt", nullable=True),
    _text("message"),
    _text("message_folded"),
    _text("kind", nullable=True),
    Index("ix_events_job", "job_id", "at_ms", "id"),
)

report_streams = Table(
    "report_streams",
    metadata,
    Column("node_id", TEXT, primary_key=True),
    Column("stream", TEXT, primary_key=True),
    _number("last_seq"),
)

documents = Table(
    "documents",
    metadata,
    Column("project_id", TEXT, ForeignKey("projects.id"), primary_key=True),
    Column("kind", TEXT, primary_key=True),
    Column("id", TEXT, primary_key=True),
    _text("doc"),
)

# Documents of the installation, not of a project: its pools, and what was decided about its nodes.
pools = Table("pools", metadata, Column("name", TEXT, primary_key=True), _text("doc"))
nodes = Table("nodes", metadata, Column("id", TEXT, primary_key=True), _text("doc"))

# Who can be told of jobs.
topics = Table("topics", metadata, Column("name", TEXT, primary_key=True), _text("doc"))

# What somebody may have to be told: written with the change of the job, outlives the job, and goes when the
# last delivery has gone. One without deliveries was not addressed yet.
notices = Table("notices", metadata, Column("id", SERIAL, primary_key=True), _text("doc"))
deliveries = Table(
    "deliveries",
    metadata,
    Column("notice_id", BigInteger, ForeignKey("notices.id", ondelete="CASCADE"), primary_key=True),
    Column("topic", TEXT, primary_key=True),
    _number("tries"),
    _number("due_at_ms"),
)

# How many jobs are in which phase, without those that are being deleted. Kept with every change of a job.
# A row stays when its count is 0: there are few.
pool_counts = Table(
    "pool_counts",
    metadata,
    Column("project_id", TEXT, ForeignKey("projects.id"), primary_key=True),
    Column("pool_id", TEXT, primary_key=True),
    Column("kind", TEXT, primary_key=True),
    Column("phase", TEXT, primary_key=True),
    Column("workspace_id", TEXT, primary_key=True),
    _number("jobs"),
)
