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


def doubling(keyword: str, steps: int) -> dict[str, Any]:
    """Return a small schema that applies 2**steps rules to one value."""
    places = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(steps)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**places, f"d{steps}": {"type": "integer"}}}
