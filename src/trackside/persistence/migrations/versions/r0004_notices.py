"""Add the kind of an event, and what notifications need: topics, notices and their deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Events that are stored already have no kind: nobody is told of what is past."""
    op.add_column("events", sa.Column("kind", TEXT, nullable=True))
    op.create_table(
        "topics",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("doc", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_topics"),
    )
    op.create_table(
        "notices",
        sa.Column("id", SERIAL, autoincrement=True, nullable=False),
        sa.Column("doc", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
    )
    op.create_table(
        "deliveries",
        sa.Column("notice_id", sa.BigInteger(), nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("due_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("notice_id", "topic", name="pk_deliveries"),
        sa.ForeignKeyConstraint(
            ["notice_id"], ["notices.id"], name="fk_deliveries_notice_id", ondelete="CASCADE"
        ),
    )
