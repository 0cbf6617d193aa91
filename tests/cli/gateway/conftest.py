"""A database of PostgreSQL for commands that need one."""

from __future__ import annotations

from tests.store.conftest import postgres

__all__ = ["postgres"]
