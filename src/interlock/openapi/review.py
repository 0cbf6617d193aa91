"""Reviews of a document for its operator: problems, changes, and a first list of tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from interlock.openapi import operations
from interlock.openapi.document import Document
from interlock.openapi.identity import Identity, describe
from interlock.openapi.operations import Operation
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import ToolSelection
from interlock.types import JsonObject

Level = Literal["error", "warning", "note"]
READS = ("GET", "QUERY")

# Words that mark an operation which a model should seldom use, in its path, tags or scopes.
_DELICATE = re.compile(
    r"(?:^|[/_.:{}\s-])(admin|internal|tokens?|api-?keys?|keys?|secrets?|credentials?|passwords?|"
    r"billing|payments?|invoices?|permissions?|roles?|impersonate|sudo)(?:$|[/_.:{}\s-])",
    re.IGNORECASE,
)
# Words in document titles that do not distinguish one API from another.
_GENERIC = {
    *("", "a", "an", "and", "api", "apis", "doc", "docs", "documentation", "for", "http", "of"),
    *("open", "public", "reference", "rest", "server", "service", "spec", "specification"),
    *("swagger", "the", "v", "version", "with"),
}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_MAX_NAME = 48
_NO_URL = "https://CHANGE-ME.example"


class Finding(Struct, frozen=True):
    """A problem in a document or its tools, or a remark about them.

    Attributes:
        level: "error" for a missing tool, "warning" for a risk, else "note".
        tool: The name of the tool; "" if the finding is about the whole document.
        text: The finding in one line.
    """

    level: Level
    tool: str
    text: str

    def __str__(self) -> str:
        return f"tool {self.tool!r}: {self.text}" if self.tool else self.text


def summary(document: Document, key: str) -> JsonObject:
    """Return an operation's entry for `interlock openapi list`, even if it is invalid."""
    method, _, path = key.partition(" ")
    shown: JsonObject = {"operation": key, "method": method, "path": path}
    try:
        operation = operations.read(document, key)
    except DocumentError as error:
        return {**shown, "problem": str(error)}
    schemes = dict.fromkeys(name for each in operation.security for name in each)
    return {
        **shown,
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "tags": operation.tags,
        "security": list(schemes),
        "deprecated": operation.is_deprecated,
    }


# Checking


def check(
    document: Document, plans: Mapping[str, Plan], missing: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the problems of a document and its tools."""
    for name, why in missing.items():
        yield Finding("error", name, why)
    for warning in document.warnings:
        yield Finding("warning", "", warning)
    for name, plan in plans.items():
        yield from _check_tool(name, plan)


def check_credentials(plans: Mapping[str, Plan], identity: Identity) -> Iterator[Finding]:
    """Yield a finding for each tool that lacks a credential."""
    for name, plan in plans.items():
        lacking = identity.missing(plan.operation.security)
        if lacking:
            yield Finding("warning", name, f"no credential for {lacking}: add it to openapi.auth")


def _check_tool(name: str, plan: Plan) -> Iterator[Finding]:
    operation = plan.operation
    reads = bool(plan.definition["annotations"]["readOnlyHint"])
    if reads and operation.method not in (*READS, "HEAD", "OPTIONS"):
        yield Finding("warning", name, f"{operation.method} is marked readOnly")
    if word := delicate(operation):
        yield Finding(
            "warning", name, f"{operation.key} is about {word!r}: should a model have it?"
        )
    if operation.is_deprecated:
        yield Finding("note", name, f"{operation.key} is deprecated")
    full, shown = _size(plan.input_schema), _size(plan.definition["inputSchema"])
    widened = ", widened for models" if shown < full else ""
    yield Finding("note", name, f"arguments {full:,} bytes, shown {shown:,}{widened}")


def delicate(operation: Operation) -> str:
    """Return a word that marks an operation which should seldom be a tool, or ""."""
    scopes = [scope for each in operation.security for scopes in each.values() for scope in scopes]
    if operation.method == "DELETE" and re.search(r"/(users?|accounts?)/\{", operation.path):
        return "the deletion of users"
    path = re.sub(r"\{[^{}]*\}", "{}", operation.path)  # the "key" in {file_key} is not a secret
    for text in (path, *operation.tags, *scopes):
        if match := _DELICATE.search(text):
            return match[1]
    return ""


def _size(schema: Any) -> int:
    return len(msgspec.json.encode(schema))


# Changes


class Change(Struct, frozen=True):
    """A difference between two states of a document.

    Attributes:
        is_breaking: Whether valid calls may now be refused, or mean something else.
        subject: The key of the operation, or the name of the tool, that changed.
        text: The change in words.
    """

    is_breaking: bool
    subject: str
    text: str


class State(Struct, frozen=True):
    """The parts of a tool that are compared to find changes.

    Attributes:
        operation: "METHOD /path".
        security: The operation's alternative sets of security schemes.
        arguments: The place of each argument: see `Plan.arguments`.
        input_schema: The whole schema of the arguments.
        output_schema: The schema of the results; None if the tool has no output schema.
        description: The description of the tool.
    """

    operation: str
    security: Any
    arguments: JsonObject
    input_schema: JsonObject
    output_schema: JsonObject | None
    description: str | None


def state_of(plan: Plan) -> State:
    """Return a plan's tool in the form in which tools are compared."""
    return State(
        plan.operation.key,
        plan.operation.security,
        plan.arguments,
        plan.input_schema,
        plan.definition.get("outputSchema"),
        plan.definition.get("description"),
    )


def pinned_state(definition: JsonObject) -> State | None:
    """Return the state of a pinned tool; None if the tool was not made from an operation."""
    behind = definition.get("operation")
    members = {"operation", "security", "arguments", "inputSchema"}
    if not isinstance(behind, dict) or not members <= behind.keys():
        return None  # an earlier server with this name was not an API
    return State(
        behind["operation"],
        behind["security"],
        behind["arguments"],
        behind["inputSchema"],
        definition.get("outputSchema"),
        definition.get("description"),
    )


def changes(old: Document, new: Document) -> list[Change]:
    """Return the differences between two documents' operations, breaking changes first."""
    tools = {key: ToolSelection(operation=key) for key in {**old.keys, **new.keys}}
    before, _ = compile_tools(old, tools)
    after, missing = compile_tools(new, tools)
    return changes_of_tools(states(before), states(after), missing)


def states(plans: Mapping[str, Plan]) -> dict[str, State]:
    """Return the state of each plan's tool, keyed by the tool's name."""
    return {name: state_of(plan) for name, plan in plans.items()}


def changes_of_tools(
    before: Mapping[str, State], after: Mapping[str, State], missing: Mapping[str, str]
) -> list[Change]:
    """Return the differences between two lists of tools, breaking changes first.

    Args:
        before: The earlier states, keyed by the tool's name.
        after: The later states, keyed by the tool's name.
        missing: Why listed tools are missing now. A tool that is in neither `missing` nor
            `after` is no longer listed.
    """
    found: list[Change] = []
    for name in {**before, **after}:
        if name in before and name in after:
            found += _changes_of(name, before[name], after[name])
        elif name in missing:
            found.append(Change(True, name, f"removed: {missing[name]}"))
        elif name in after:
            found.append(Change(False, name, "added"))
    return sorted(found, key=lambda each: not each.is_breaking)


def _changes_of(subject: str, old: State, new: State) -> Iterator[Change]:
    if old.operation != new.operation:
        yield Change(True, subject, f"was {old.operation}, is {new.operation}")
    was, now = old.input_schema, new.input_schema
    required, was_required = set(now.get("required", ())), set(was.get("required", ()))
    for name in was["properties"]:
        if name not in now["properties"]:
            yield Change(True, subject, f"argument {name} is gone")
        elif name in required - was_required:
            yield Change(True, subject, f"argument {name} is now required")
        elif name in was_required - required:
            yield Change(False, subject, f"argument {name} is now optional")
    for name in now["properties"]:
        if name not in was["properties"]:
            must = name in required
            yield Change(must, subject, f"argument {name} is new{' and required' if must else ''}")
    yield from _changed_arguments(subject, old, new)
    if old.security != new.security:
        yield Change(True, subject, "the credentials that it needs have changed")
    if old.output_schema != new.output_schema:
        yield Change(False, subject, "its answer has changed")
    if old.description != new.description:
        yield Change(False, subject, "its description has changed")


def _changed_arguments(subject: str, old: State, new: State) -> Iterator[Change]:
    was, now = old.input_schema, new.input_schema
    has_moved = was.get("$defs") != now.get("$defs")
    for name, schema in was["properties"].items():
        other = now["properties"].get(name)
        if other is None:
            continue
        if old.arguments.get(name) != new.arguments.get(name):
            yield Change(True, subject, f"argument {name} is sent in another place")
        elif _rules(schema) != _rules(other) or (has_moved and "$ref" in str(schema)):
            yield Change(True, subject, f"argument {name} has other rules")


def _rules(schema: Any) -> Any:
    """Return a schema without keywords that only describe, such as `title`."""
    if isinstance(schema, dict):
        kept = schema.items()
        return {
            key: _rules(each)
            for key, each in kept
            if key not in ("description", "title", "default")
        }
    return [_rules(each) for each in schema] if isinstance(schema, list) else schema


# A first list


class Proposal(Struct, frozen=True):
    """A proposed configuration for a document.

    Attributes:
        server: A name for the server.
        entry: The entry for `mcpServers`.
        left_out: Why other operations are not proposed, keyed by "METHOD /path".
    """

    server: str
    entry: JsonObject
    left_out: dict[str, str]


def entry(document: Document, place: str, *, writes: bool = False, tag: str = "") -> Proposal:
    """Propose an entry of `mcpServers`, for an operator to edit.

    Args:
        place: The path or URL of the document, as written into the entry.
        writes: Whether to include operations that change data.
        tag: The tag that operations must have; "" to include all operations.
    """
    tools: dict[str, str] = {}
    schemes: dict[str, None] = {}
    left_out: dict[str, str] = {}
    for key in document.keys:
        try:
            operation = operations.read(document, key)
        except DocumentError:
            continue
        if (tag and tag not in operation.tags) or not (writes or operation.method in READS):
            continue
        if delicate(operation) or operation.is_deprecated:
            left_out[key] = (
                "a model should seldom have it" if delicate(operation) else "it is deprecated"
            )
            continue
        name = tool_name(operation, tools)
        is_unique = document.by_id.get(operation.operation_id) == [key]
        tools[name] = operation.operation_id if is_unique else key
        schemes |= dict.fromkeys(scheme for each in operation.security for scheme in each)
    server = _server_name(document, place)
    openapi: JsonObject = {"document": place, "baseUrl": base_url(document, place)}
    if schemes:
        openapi["auth"] = {name: f"${{{_variable(server, name)}}}" for name in schemes}
    openapi["tools"] = tools
    return Proposal(server, {"openapi": openapi}, left_out)


def _server_name(document: Document, place: str) -> str:
    """Return a server name from the document's title without generic words, or from its host."""
    words = [each for each in _words(document.title).split("_") if not _is_generic(each)]
    url = base_url(document, place)
    if not words and url != _NO_URL:
        *_, domain, _top = ["", "", *(urlsplit(url).hostname or "").split(".")]
        words = [each for each in [_words(domain)] if not _is_generic(each)]
    return "_".join(words)[:_MAX_NAME].strip("_") or "api"


def _is_generic(word: str) -> bool:
    return word in _GENERIC or word.isdigit()


def tags(document: Document) -> list[str]:
    """Return the tags of all operations."""
    found = (summary(document, key).get("tags", ()) for key in document.keys)
    return sorted({tag for tags in found for tag in tags})


def schemes_in_words(document: Document, names: Iterable[str]) -> list[str]:
    """Return a line for each security scheme that describes its credential."""
    known = document.security_schemes
    return [f"{name}: {describe(known[name])}" for name in names if name in known]


def base_url(document: Document, place: str) -> str:
    """Propose a base URL: the first absolute URL among the document's servers."""
    for server in document.servers:
        if server.startswith(("https://", "http://")):
            return server.rstrip("/")
    if place.startswith(("https://", "http://")):
        parts = urlsplit(place)
        path = next((each for each in document.servers if each.startswith("/")), "")
        return f"{parts.scheme}://{parts.netloc}{path}".rstrip("/")
    return _NO_URL


def tool_name(operation: Operation, taken: Iterable[str]) -> str:
    """Make an unused tool name from an operation's id, or from its method and path."""
    named = operation.operation_id or f"{operation.method.lower()} {operation.path}"
    name = base = _words(named)[:_MAX_NAME].strip("_") or "operation"
    number = 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def _variable(server: str, scheme: str) -> str:
    """Return the name of an environment variable for a credential."""
    return _words(f"{server}_{scheme.replace('OAuth', 'Oauth')}").upper()


def _words(text: str) -> str:
    return "_".join(_WORD.findall(text)).lower()
