"""The versions of the database. This module needs no SQLAlchemy."""

from __future__ import annotations

# Oldest first; this program uses the last one. Listed here so that Alembic need not be imported.
REVISIONS = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
    "0012",
    "0013",
    "0014",
    "0015",
    "0016",
    "0017",
    "0018",
    "0019",
)
