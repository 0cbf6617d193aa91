"""The schema of a tool about time, and what a compiled schema says about a value."""

from __future__ import annotations

import json
from typing import Any

from interlock import schema

TIME = {
    "type": "object",
    "properties": {
        "timezone": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "unit": {"enum": ["hour", "minute"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "filter": {
            "type": "object",
            "properties": {"items": {"type": "array", "items": {"type": "string"}}},
            "required": ["items"],
        },
    },
    "required": ["timezone"],
    "additionalProperties": False,
}


def encode(document: Any) -> bytes:
    return json.dumps(document).encode()


def errors(document: Any, value: Any) -> list[str]:
    return schema.compile(encode(document)).errors(value)
