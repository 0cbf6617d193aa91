"""The script that Alembic runs, over the connection that `upgrade` passes in."""

from __future__ import annotations

from alembic import context

from interlock.store.database.tables import metadata

# The caller's transaction spans the whole upgrade, so nothing is committed here.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
