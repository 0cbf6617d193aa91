"""Parse YAML 1.2 (core schema) to JSON values, safely for untrusted documents.

libyaml splits the text into events, and this module builds the values without recursion. Dates,
`yes` and `on` stay text, keys become strings, and tags never create Python objects.
"""

from __future__ import annotations

import re
from typing import Any

from interlock.errors import MissingExtra
from interlock.openapi.references import DocumentError

MAX_DEPTH = 256
MAX_ALIASES = 1_000
MAX_ALIASED_NODES = 1_000_000
MAX_NODES = 600_000  # GitHub's document has 500,000
MIN_NODES = 100_000  # the limit for a short document
NODE_BYTES = 10  # bytes of text that raise the limit by 1; real documents have 14 bytes per node
MAX_WARNINGS = 100

_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_BASED = re.compile(r"0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,4000}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAYBE_NUMBER = frozenset("-+.0123456789")
_CORE = "tag:yaml.org,2002:"


def parse(data: bytes, warnings: list[str]) -> Any:
    """Parse the only document in `data`; add a line for each repeated key to `warnings`.

    Raises:
        DocumentError: The data is not valid YAML, has several documents, or is over a limit.
        MissingExtra: PyYAML is not installed.
    """
    try:
        import yaml  # type: ignore[import-untyped]  # it has no types
        from yaml.cyaml import CParser  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("a YAML document", "openapi") from None
    try:
        return _Builder(warnings, _max_nodes(data)).build(CParser(data), yaml)
    except (yaml.YAMLError, UnicodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "unreadable characters"
        raise DocumentError(f"the document is not valid YAML: {problem}{place}") from None


class _Open:
    """A list or mapping whose end has not been read yet."""

    __slots__ = ("anchor", "height", "key", "merged", "nodes", "value")

    def __init__(self, value: Any, anchor: str | None, nodes: int) -> None:
        self.value = value
        self.anchor = anchor
        self.nodes = nodes  # number of nodes before this list or mapping
        self.height = 1  # levels of nesting read so far
        self.key: str | None = None
        self.merged: list[Any] = []


class _Builder:
    def __init__(self, warnings: list[str], max_nodes: int) -> None:
        self._warnings = warnings
        self._max_nodes = max_nodes
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}  # value, number of nodes, height
        self._nodes = 0
        self._aliases = 0
        self._aliased_nodes = 0
        self._result: Any = None

    def build(self, parser: Any, yaml: Any) -> Any:
        get_event = parser.get_event
        scalar, mapping, sequence = (
            yaml.ScalarEvent,
            yaml.MappingStartEvent,
            yaml.SequenceStartEvent,
        )
        ends, alias, start = yaml.CollectionEndEvent, yaml.AliasEvent, yaml.DocumentStartEvent
        documents = 0
        while (event := get_event()) is not None:
            kind = type(event)
            if kind is scalar:
                self._add_scalar(event)
            elif kind is mapping or kind is sequence:
                self._open({} if kind is mapping else [], event)
            elif issubclass(kind, ends):
                self._close()
            elif kind is alias:
                self._add_alias(event.anchor)
            elif kind is start:
                documents += 1
                if documents > 1:
                    raise DocumentError("the file contains several YAML documents; keep one")
        if not documents:
            raise DocumentError("the document is empty")
        return self._result

    def _add_scalar(self, event: Any) -> None:
        text = event.value
        stack = self._stack
        if stack and stack[-1].key is None and type(stack[-1].value) is dict:
            self._count(text)
            top = stack[-1]
            is_new = text not in top.value or text == "<<"
            if not is_new and len(self._warnings) < MAX_WARNINGS:
                self._warnings.append(f"the key {text[:80]!r} is repeated in line {_line(event)}")
            top.key = text
            if event.anchor:
                self._anchors[event.anchor] = text, _weight(text), 0
            return
        value = text
        if event.tag is None:
            if event.implicit[0]:
                value = _resolve(text)
        elif event.tag.startswith(_CORE):
            value = _tagged(text, event.tag[len(_CORE) :])
        if event.anchor:
            self._anchors[event.anchor] = value, _weight(value), 0
        self._add(value)

    def _add(self, value: Any) -> None:
        self._count(value)
        if not self._stack:
            self._result = value
            return
        top = self._stack[-1]
        if type(top.value) is list:
            top.value.append(value)
        elif top.key is None:
            raise DocumentError("a key of a YAML mapping is not a scalar")
        elif top.key == "<<" and isinstance(value, dict | list):
            top.merged.append(value)
            top.key = None
        else:
            top.value[top.key] = value
            top.key = None

    def _count(self, value: Any) -> None:
        self._nodes += _weight(value)
        if self._nodes > self._max_nodes:
            raise DocumentError(
                f"the document has too many keys and values (limit {self._max_nodes:,} for its "
                "size); remove what no tool needs"
            )

    def _open(self, value: Any, event: Any) -> None:
        self._check_depth(1)
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        before = self._nodes + self._aliased_nodes
        self._add(value)
        self._stack.append(_Open(value, event.anchor, before))

    def _check_depth(self, height: int) -> None:
        if len(self._stack) + height > MAX_DEPTH:
            raise DocumentError(f"the document is nested too deep (limit {MAX_DEPTH} levels)")
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, height + 1)

    def _close(self) -> None:
        closed = self._stack.pop()
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, closed.height + 1)
        for merged in closed.merged:
            for other in merged if isinstance(merged, list) else [merged]:
                for key, value in other.items() if isinstance(other, dict) else ():
                    closed.value.setdefault(key, value)
        if closed.anchor:
            nodes = self._nodes + self._aliased_nodes - closed.nodes
            self._anchors[closed.anchor] = closed.value, nodes, closed.height

    def _add_alias(self, anchor: str) -> None:
        if anchor not in self._anchors:
            raise DocumentError(f"the YAML alias {anchor[:80]!r} is undefined, or contains itself")
        value, nodes, height = self._anchors[anchor]
        self._check_depth(height)
        self._aliases += 1
        self._aliased_nodes += nodes
        if self._aliases > MAX_ALIASES:
            raise DocumentError(f"the document has too many YAML aliases (limit {MAX_ALIASES:,})")
        if self._aliased_nodes > MAX_ALIASED_NODES:
            raise DocumentError(
                f"the YAML aliases expand to too many values (limit {MAX_ALIASED_NODES:,})"
            )
        top = self._stack[-1] if self._stack else None
        if top and type(top.value) is dict and top.key is None and isinstance(value, str):
            top.key = value
        else:
            self._add(value)


def _max_nodes(data: bytes) -> int:
    """Return the limit on a document's nodes: a short document must parse within a second."""
    return min(MAX_NODES, MIN_NODES + len(data) // NODE_BYTES)


def _weight(value: Any) -> int:
    """Return the number of nodes a value counts as; long texts count more, as aliases copy them."""
    return 1 + len(value) // 64 if isinstance(value, str) else 1


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _resolve(text: str) -> Any:
    """Return the value of an unquoted scalar: null, a boolean, a number or the text."""
    if text and text[0] not in _MAYBE_NUMBER:
        return _WORDS.get(text, text)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return text if number in (float("inf"), float("-inf")) else number
    if _BASED.fullmatch(text):
        return int(text, 0)
    return _WORDS.get(text, text)


def _tagged(text: str, tag: str) -> Any:
    if tag == "str":
        return text
    if tag in {"int", "float", "bool", "null"}:
        value = _resolve(text)
        return float(value) if tag == "float" and isinstance(value, int) else value
    return text  # for example a date, or a tag that makes a Python object
