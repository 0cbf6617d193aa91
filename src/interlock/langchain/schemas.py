"""Tool schemas that LangChain's own resolver of references can read."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from interlock.schema.annotations import Hints
from interlock.types import JsonObject

# It neither unescapes a pointer nor finds an anchor.
_PLAIN = re.compile(r"#(/[A-Za-z0-9_.$-]+)*")


def readable(schema: bytes) -> JsonObject:
    """Return an input schema with a member `properties`, and with plain references only.

    What another reference leads to is copied to `$defs`, under a plain name.

    Raises:
        ValueError: A reference leads to nothing.
    """
    document: JsonObject = msgspec.json.decode(schema)
    if b'"$ref"' in schema:
        _Rewriting(document).run()
    document.setdefault("properties", {})
    return document


class _Rewriting:
    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._hints = Hints(document)
        self._names: dict[str, str] = {}
        self._copies: dict[str, Any] = {}

    def run(self) -> None:
        parts: list[Any] = [self._document]
        while parts:
            part = parts.pop()
            if isinstance(part, list):
                parts += part
            elif isinstance(part, dict):
                reference = part.get("$ref")
                if isinstance(reference, str):
                    part["$ref"] = self._plain(reference, parts)
                parts += part.values()
        if self._copies:
            self._document.setdefault("$defs", {}).update(self._copies)

    def _plain(self, reference: str, parts: list[Any]) -> str:
        if reference in self._names:
            return self._names[reference]
        target = self._hints.resolve(reference)
        if target is None:
            raise ValueError(f"the reference {reference[:100]!r} cannot be followed")
        if _PLAIN.fullmatch(reference):
            return reference
        name = f"interlock-{len(self._names)}"
        self._names[reference] = plain = f"#/$defs/{name}"
        # A copy, because the rewriting changes what it visits.
        self._copies[name] = copy = msgspec.json.decode(msgspec.json.encode(target))
        parts.append(copy)
        return plain
