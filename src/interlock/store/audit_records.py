"""Audit records as JSON objects, the same in files, commands and the admin API."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from interlock.auth.stored_key import TENANT
from interlock.timestamps import rfc3339
from interlock.types import JsonObject

COLUMNS = (
    "writer",
    "seq",
    "at",
    "tenant",
    "kind",
    "call",
    "user",
    "key",
    "server",
    "tool",
    "status",
    "reason",
    "body",
    "hash",
)
# How a call ended, or what it waits for.
Status = Literal[
    "ok",
    "tool_error",
    "refused",
    "asked",
    "error",
    "timeout",
    "cancelled",
    "unfinished",
    "running",
]

SELECT = ", ".join(f'"{name}"' for name in COLUMNS)  # for SQL

_decode = msgspec.json.Decoder(JsonObject).decode


def as_object(row: tuple[Any, ...]) -> JsonObject:
    """Return the object of a row: its columns, and between them the members of its body.

    Empty members are left out.
    """
    *columns, body, hash = row
    found = dict(zip(COLUMNS, columns, strict=False))
    found["at"] = rfc3339(found["at"])
    found["tenant"] = found["tenant"] or TENANT
    return {
        **{name: value for name, value in found.items() if value != ""},
        **{name: value for name, value in _decode(body).items() if name not in found},
        "hash": hash.hex(),
    }


__all__ = ["COLUMNS", "SELECT", "Status", "as_object"]
