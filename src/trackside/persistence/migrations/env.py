"""Runs migrations on the connection, and in the transaction, that `migrate` opened."""

from alembic import context

from trackside.persistence.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
with context.begin_transaction():
    context.run_migrations()
