"""Add pools, decisions about nodes, and the counters of jobs; the counters begin with what is stored."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTED_BY = ("project_id", "pool_id", "kind", "phase", "workspace_id")


def upgrade() -> None:
    """Create the tables and count once."""
    for table, key in (("pools", "name"), ("nodes", "id")):
        op.create_table(
            table,
            sa.Column(key, TEXT, nullable=False),
            sa.Column("doc", TEXT, nullable=False),
            sa.PrimaryKeyConstraint(key, name=f"pk_{table}"),
        )
    op.create_table(
        "pool_counts",
        *(sa.Column(name, TEXT, nullable=False) for name in COUNTED_BY),
        sa.Column("jobs", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(*COUNTED_BY, name="pk_pool_counts"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_pool_counts_project_id"),
    )
    columns = ", ".join(COUNTED_BY)
    op.execute(
        f"INSERT INTO pool_counts ({columns}, jobs)"  # noqa: S608 - the names above
        f" SELECT {columns}, count(*) FROM jobs WHERE NOT deleting GROUP BY {columns}"
    )
