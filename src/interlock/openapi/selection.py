"""The operator's list of tools: the operation of each tool, and the changes to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from interlock.errors import ConfigError
from interlock.text import quoting

MAX_TOOLS = 1_000
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ARGUMENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Entry(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object in the configuration; unknown members are refused."""


class ArgumentSelection(_Entry, frozen=True):
    """The operator's changes to one argument.

    Attributes:
        name: The argument's name in the tool; "" keeps the name made from the document.
        default: The value sent if a call omits the argument.
        value: A constant that every request sends; the argument is then not offered.
        hide: Whether to leave the argument out of the tool.
        slashes: Whether a value in the path may contain several segments.
    """

    name: str = ""
    description: str = ""
    default: Any = UNSET
    minimum: int | float | None = None
    maximum: int | float | None = None
    enum: list[Any] | None = None
    value: Any = UNSET
    hide: bool = False
    slashes: bool = False


class AnnotationSelection(_Entry, frozen=True):
    """Tool annotations that replace the defaults for the HTTP method; None keeps the default."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


class ToolSelection(_Entry, frozen=True):
    """One tool: an operation, and the operator's changes to it.

    Attributes:
        operation: An operationId, or "METHOD /path" as written in the document.
        arguments: The operator's changes, keyed by the parameter's or property's name in the
            document.
        body: Whether the body's properties are arguments ("flat") or one argument is the body
            ("nested"); None chooses by the body's schema.
        content_type: The media type of the body, if the document has several; "" for the default.
        accept: The `Accept` header; "" to accept the media types in the document.
    """

    operation: str
    title: str = ""
    description: str = ""
    arguments: dict[str, ArgumentSelection] = {}
    annotations: AnnotationSelection = AnnotationSelection()
    risk: str = ""
    body: Literal["flat", "nested"] | None = None
    content_type: str = ""
    output: Literal["declared", "none"] = "declared"
    accept: str = ""
    max_answer_bytes: int = 8 * 1024 * 1024


def read_tools(value: Any) -> dict[str, ToolSelection]:
    """Read `tools` from a configuration: an object keyed by the tool's name, or a list of objects.

    Raises:
        ConfigError: An entry is not valid. The text names its place in `tools`.
    """
    if isinstance(value, list):
        entries = _named(value)
    elif isinstance(value, Mapping):
        entries = [(name, entry) for name, entry in value.items()]
    else:
        raise ConfigError(f"tools must be an object or a list, not {quoting.kind(value)}")
    if len(entries) > MAX_TOOLS:
        raise ConfigError(f"tools has too many entries ({len(entries):,}, limit {MAX_TOOLS:,})")
    return {name: _read(name, entry) for name, entry in entries}


def _named(items: list[Any]) -> list[tuple[str, Any]]:
    entries: dict[str, Any] = {}
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise ConfigError(f'tools[{index}] needs "name"; set the name of the tool')
        members = {key: member for key, member in item.items() if key != "name"}
        if "operation_id" in members:
            members.setdefault("operation", members.pop("operation_id"))
        if item["name"] in entries:
            raise ConfigError(f"tools[{index}] repeats the name {quoting.echo(item['name'])}")
        entries[item["name"]] = members
    return list(entries.items())


def _read(name: str, entry: Any) -> ToolSelection:
    if not TOOL_NAME.fullmatch(name):
        raise ConfigError(
            f"invalid tool name {quoting.echo(name)}; use 1 to 64 letters, digits, '_' and '-'"
        )
    if isinstance(entry, ToolSelection):
        return entry
    if isinstance(entry, str):
        entry = {"operation": entry}
    try:
        tool = msgspec.convert(entry, ToolSelection)
    except msgspec.ValidationError as error:
        raise ConfigError(f"tools.{name} is not valid: {error}") from None
    for key, argument in tool.arguments.items():
        if argument.name and not ARGUMENT_NAME.fullmatch(argument.name):
            raise ConfigError(
                f"invalid name {quoting.echo(argument.name)} of argument {quoting.echo(key)} in "
                f"tools.{name}; use 1 to 64 letters, digits, '_', '.' and '-'"
            )
    return tool
