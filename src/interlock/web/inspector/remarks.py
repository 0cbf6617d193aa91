"""Remarks on a server's items and messages: violations of the specification, and advice.

The level "error" means that a rule of the negotiated revision is violated. The level "advice" is
for the specification's recommendations, and for anything that makes a tool hard for models to use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock import revisions, schema
from interlock.errors import InterlockError, SchemaError
from interlock.protocol.envelope import encode
from interlock.text import quoting
from interlock.types import JsonObject
from interlock.web.inspector.wire import WireEntry

Level = Literal["error", "advice"]
LONG = 1_000  # characters; a longer description gets a remark
MAX_PARSED = 256 * 1024  # characters; a longer result is not checked

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_25_03, _25_06, _25_11 = "2025-03-26", "2025-06-18", "2025-11-25"
# The members of listed items, each with the first revision that has the member.
_COMMON = {"description": "", "title": _25_06, "icons": _25_11, "_meta": _25_06}
_MEMBERS: dict[str, dict[str, str]] = {
    "tool": _COMMON
    | {"name": "", "inputSchema": "", "outputSchema": _25_06, "annotations": _25_03}
    | {"execution": _25_11},
    "resource": _COMMON | dict.fromkeys(("uri", "name", "mimeType", "size", "annotations"), ""),
    "template": _COMMON | dict.fromkeys(("uriTemplate", "name", "mimeType", "annotations"), ""),
    "prompt": _COMMON | dict.fromkeys(("name", "arguments"), ""),
}
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_CACHED = frozenset(
    {
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "server/discover",
    }
)


class Remark(Struct, frozen=True):
    """A remark on a server, or on one of its items.

    Attributes:
        about: "server", or an item's kind and name, such as "tool:find".
        level: "error" or "advice".
        text: The remark, on one line.
    """

    about: str
    level: Level
    text: str


def of_items(kind: str, items: Iterable[JsonObject], revision: str) -> list[Remark]:
    """Return the remarks on the items of a list.

    Args:
        kind: "tool", "resource", "template" or "prompt".
        items: The items as the server sent them.
        revision: The negotiated revision.
    """
    key = {"resource": "uri", "template": "uriTemplate"}.get(kind, "name")
    found = []
    for item in items:
        about = f"{kind}:{item.get(key)}"
        remarks = [*_of_members(kind, item, revision), *_CHECKS[kind](item, revision)]
        found += [Remark(about, level, text) for level, text in remarks]
    return found


_Found = Iterator[tuple[Level, str]]


def _of_members(kind: str, item: JsonObject, revision: str) -> _Found:
    known = _MEMBERS[kind]
    for name in item:
        if name not in known:
            yield "advice", f"unknown member {quoting.echo(name)}; own data belongs into _meta"
        elif (first := known[name]) and not revisions.at_least(revision, first):
            yield "advice", f"{name} exists since {first} only"
    if kind == "tool" and "execution" in item and revision != _25_11:
        yield "advice", f"execution exists in {_25_11} only"
    about = item.get("description")
    if not isinstance(about, str) or not about.strip():
        yield "advice", "no description, so a model has to guess what it is for"
    elif len(about) > LONG:
        yield "advice", f"a description over {LONG:,} characters ({len(about):,}), in every request"


# Tools


def _of_tool(tool: JsonObject, revision: str) -> _Found:
    name = str(tool.get("name", ""))
    if not _NAME.fullmatch(name):
        yield "advice", "a name should have 1 to 128 of A-Z a-z 0-9 _ - ."
    yield from _of_input(tool.get("inputSchema"))
    if "outputSchema" in tool:
        yield from _of_output(tool["outputSchema"], revision)
    hints = tool.get("annotations")
    if not isinstance(hints, dict):
        return
    for each in _HINTS:
        if each in hints and not isinstance(hints[each], bool):
            yield "error", f"annotations.{each} is not a boolean"
    if hints.get("readOnlyHint") is True and hints.get("destructiveHint") is True:
        yield "advice", "readOnlyHint and destructiveHint contradict each other"


def _of_input(given: Any) -> _Found:
    try:
        schema.check_tool_input(encode(given))
        schema.compile(encode(given))
    except SchemaError as error:
        yield "error", f"inputSchema: {error}"
        return
    properties = given.get("properties")
    if not isinstance(properties, dict):
        return
    silent = [name for name, each in properties.items() if not _is_described(each)]
    if silent:
        names = ", ".join(silent[:3]) + (" …" if len(silent) > 3 else "")
        count = "a property" if len(silent) == 1 else f"{len(silent)} properties"
        yield "advice", f"{count} without a description: {names}"
    required = given.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in properties:
            yield "advice", f"required names {quoting.echo(name)}, which properties lacks"
    for name, each in properties.items():
        yield from _of_default(name, each, given)


def _is_described(given: Any) -> bool:
    return isinstance(given, dict) and any(
        each in given for each in ("description", "title", "const", "enum", "$ref")
    )


def _of_default(name: str, given: Any, document: JsonObject) -> _Found:
    if not isinstance(given, dict) or "default" not in given:
        return
    shared = {each: document[each] for each in ("$defs", "definitions") if each in document}
    try:
        errors = schema.compile(encode({**shared, **given})).errors(given["default"], 1)
    except SchemaError:
        return
    if errors:
        yield "advice", f"the default of {name} is not valid for its schema: {errors[0]}"


def _of_output(given: Any, revision: str) -> _Found:
    try:
        schema.compile(encode(given))
    except SchemaError as error:
        yield "error", f"outputSchema: {error}"
        return
    is_object = isinstance(given, dict) and given.get("type") == "object"
    if not is_object and not revisions.is_modern(revision):
        yield "error", f'outputSchema must say "type": "object" in {revision}'


# Resources and prompts


def _of_resource(resource: JsonObject, _revision: str) -> _Found:
    if not _URI.match(str(resource.get("uri", ""))):
        yield "error", "the uri has no scheme"
    if not resource.get("mimeType"):
        yield "advice", "no mimeType"


def _of_template(template: JsonObject, _revision: str) -> _Found:
    text = str(template.get("uriTemplate", ""))
    if re.sub(r"\{[^{}]+\}", "", text).count("{") or text.count("{") != text.count("}"):
        yield "error", "the uriTemplate is not valid"
    elif "{" not in text:
        yield "advice", "the uriTemplate has no variable, so it is a resource"


def _of_prompt(prompt: JsonObject, _revision: str) -> _Found:
    if not prompt.get("name"):
        yield "error", "no name"
    given = prompt.get("arguments")
    names = [each.get("name") for each in given or () if isinstance(each, dict)]
    if len(set(names)) != len(names):
        yield "error", "two arguments have the same name"
    silent = [each for each in given or () if not _is_described(each)]
    if silent:
        yield "advice", f"arguments without a description: {len(silent)}"


_CHECKS: dict[str, Callable[[JsonObject, str], _Found]] = {
    "tool": _of_tool,
    "resource": _of_resource,
    "template": _of_template,
    "prompt": _of_prompt,
}


# Messages


class WireRemarks:
    """Collects remarks on messages; each message is checked once."""

    def __init__(self) -> None:
        self._seen = 0
        self._found: dict[Remark, None] = {}

    def clear(self) -> None:
        """Remove the remarks on messages from an earlier connection."""
        self._found.clear()

    def update(self, entries: Sequence[WireEntry], revision: str) -> list[Remark]:
        """Check the entries that are new, and return all remarks.

        Args:
            entries: All kept entries of the wire.
            revision: The negotiated revision; "" before it is negotiated.
        """
        for entry in entries:
            if entry.n > self._seen and entry.kind in ("received", "lost"):
                for about, level, text in _of_entry(entry, revision):
                    self._found.setdefault(Remark(about, level, text))
        if entries:
            self._seen = max(self._seen, entries[-1].n)
        return list(self._found)


def _of_entry(entry: WireEntry, revision: str) -> Iterator[tuple[str, Level, str]]:
    if entry.form == "invalid":
        if entry.problem:
            yield "server", "error", f"a line is not a message: {entry.problem}"
        elif revision and revision not in revisions.BATCHES:
            yield "server", "error", f"a batch, which {revision} does not have"
    elif entry.form == "request" and revisions.is_modern(revision):
        yield "server", "error", f"a request, {entry.method}, which {revision} does not permit"
    elif entry.form in ("result", "error") and not entry.of:
        yield "server", "error", "an answer to no open request"
    elif entry.form == "result" and len(entry.text) <= MAX_PARSED:
        yield from _of_result(entry, revision)


def _of_result(entry: WireEntry, revision: str) -> Iterator[tuple[str, Level, str]]:
    try:
        result = msgspec.json.decode(entry.text)["result"]
    except (msgspec.DecodeError, KeyError, InterlockError):
        return
    if not isinstance(result, dict):
        yield "server", "error", f"the result of {entry.method} is not an object"
        return
    method = entry.method
    if revisions.is_modern(revision):
        if "resultType" not in result:
            yield "server", "error", f"the result of {method} has no resultType"
        for name in ("ttlMs", "cacheScope"):
            is_complete = result.get("resultType", "complete") == "complete"
            if method in _CACHED and is_complete and name not in result:
                yield "server", "error", f"the result of {method} has no {name}"
    if method == "tools/call" and result.get("resultType", "complete") == "complete":
        yield from _of_call(f"tool:{entry.name}", result, revision)


def _of_call(about: str, result: JsonObject, revision: str) -> Iterator[tuple[str, Level, str]]:
    content = result.get("content")
    if not isinstance(content, list):
        yield about, "error", "its result has no list of content"
        return
    structured = result.get("structuredContent")
    if structured is None:
        return
    if not isinstance(structured, dict) and not revisions.is_modern(revision):
        yield about, "error", f"structuredContent must be an object in {revision}"
    if not any(isinstance(each, dict) and each.get("type") == "text" for each in content):
        yield (
            about,
            "advice",
            "structuredContent without the same as text for older clients",
        )
