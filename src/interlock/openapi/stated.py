"""Hashes of a document's statements about an operation, equal in all versions of interlock.

Pins use it to tell a changed API from a changed way of making tools of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from interlock.openapi.document import Document
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import ToolSelection
from interlock.types import JsonObject

MAX_VALUES = 4_000_000  # values of all hashed parts together; a part may contain other parts
# The members of the root that apply to every operation.
_COMMON = ("openapi", "swagger", "security", "consumes", "produces")

_encode = msgspec.json.Encoder(order="deterministic").encode


class Statements:
    """Hashes of the parts of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._parts: dict[str, tuple[str, list[str]]] = {}  # hash and references, by reference
        self._left = MAX_VALUES

    def of(self, key: str, selection: ToolSelection) -> JsonObject | None:
        """Return what the document and the operator state about an operation.

        Args:
            key: "METHOD /path" as written in the document.
            selection: The operator's configuration of the tool.

        Returns:
            A hash of the operation, of each part that it refers to, and of the configuration; None
            if the document is too large.
        """
        item, operation = self._document.keys[key]
        shared = {name: each for name, each in item.items() if not isinstance(each, dict)}
        root = {name: self._document.root.get(name) for name in _COMMON}
        own = {"key": key, "item": shared, "operation": operation, "root": root}
        hash, waiting = self._read(own)
        found: dict[str, str] = {}
        while waiting and self._left > 0:
            reference = waiting.pop()
            if reference not in found:
                found[reference], further = self._part(reference)
                waiting += further
        if self._left <= 0:
            return None
        parts = [hash, found, _changed(selection)]
        return {"operation": sha256(_encode(parts)).hexdigest()}

    def _part(self, reference: str) -> tuple[str, list[str]]:
        if reference not in self._parts:
            try:
                self._parts[reference] = self._read(self._document.references.find(reference))
            except DocumentError:
                self._parts[reference] = "", []
        return self._parts[reference]

    def _read(self, value: Any) -> tuple[str, list[str]]:
        """Return the hash of a value, and the references in it."""
        references: list[str] = []
        for each in _nested(value):
            self._left -= 1
            if self._left <= 0:
                return "", []
            if isinstance(each, dict) and isinstance(each.get("$ref"), str):
                references.append(each["$ref"])
        return sha256(_encode(value)).hexdigest(), references


def _nested(value: Any) -> Iterator[Any]:
    values = [value]
    while values:
        each = values.pop()
        yield each
        if isinstance(each, dict):
            values += each.values()
        elif isinstance(each, list):
            values += each


def _changed(value: Any) -> Any:
    """Return the members of a configuration that differ from their defaults."""
    if isinstance(value, Mapping):
        return {key: _changed(each) for key, each in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    fields = msgspec.structs.fields(value)
    members = {each.encode_name: (getattr(value, each.name), _default(each)) for each in fields}
    return {name: _changed(given) for name, (given, default) in members.items() if given != default}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
