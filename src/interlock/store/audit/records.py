"""Conversion of audit records to JSON objects, as files, commands and the admin API show them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from interlock.auth.stored_key import TENANT
from interlock.text.timestamps import rfc3339
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
# How a call ended, or why it is waiting.
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

SELECTED = tuple(f'"{name}"' for name in COLUMNS)  # quoted for SQL

_TYPES = dict.fromkeys(COLUMNS, str) | {"seq": int, "at": int, "hash": bytes}
_ALL_TYPES = [*_TYPES.values()]

_decode = msgspec.json.Decoder(JsonObject).decode


def as_object(row: tuple[Any, ...]) -> JsonObject:
    """Return a row as an object, which has its columns and the members of its body.

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


def stored_object(row: tuple[Any, ...]) -> JsonObject:
    """Return a row as an object, even if its columns have invalid values.

    A damaged row's object has the member `damaged`, which lists the invalid columns, and the row's
    body as text.
    """
    invalid = invalid_columns(row)
    if not invalid:
        try:
            return as_object(row)
        except (ValueError, RecursionError):
            invalid = ["body"]
    found = dict(zip(COLUMNS, row, strict=True))
    found |= {name: as_text(found[name]) for name in invalid}
    if "at" not in invalid:
        found["at"] = rfc3339(found["at"])
    if "hash" not in invalid:
        found["hash"] = found["hash"].hex()
    found["tenant"] = found["tenant"] or TENANT
    kept = {name: value for name, value in found.items() if value != "" or name in invalid}
    return {"damaged": invalid, **kept}


def invalid_columns(row: tuple[Any, ...]) -> list[str]:
    """Return the names of the columns with values that no writer can have written."""
    # Most rows are valid, and one check of the whole row is faster than one check per column.
    if [*map(type, row)] == _ALL_TYPES and row[1] > 0 and is_unicode(row[0] + "".join(row[3:-1])):
        return []
    columns = zip(_TYPES.items(), row, strict=True)
    invalid = [name for (name, kind), value in columns if not is_valid(value, kind)]
    if "seq" not in invalid and row[1] < 1:
        invalid.append("seq")
    return invalid


def is_valid(value: object, kind: Any) -> bool:
    """Return whether a value has a type and, if it is text, can be written as UTF-8.

    SQLite stores values of any type in any column, and text that is not UTF-8, which is read with
    surrogates.
    """
    return isinstance(value, kind) and (not isinstance(value, str) or is_unicode(value))


def is_unicode(text: str) -> bool:
    """Return whether text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(value: object) -> str:
    """Return a column's value as text for display; a blob is written as in SQL: "x'ff'"."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return str(value).encode(errors="surrogateescape").decode(errors="backslashreplace")
