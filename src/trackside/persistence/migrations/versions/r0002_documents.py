"""Add the documents that dialects keep for their callers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "documents",
        *(sa.Column(name, TEXT, nullable=False) for name in ("project_id", "kind", "id", "doc")),
        sa.PrimaryKeyConstraint("project_id", "kind", "id", name="pk_documents"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_documents_project_id"),
    )
