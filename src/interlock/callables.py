"""The tools of a toolbox as typed async Python functions.

The type hint of each parameter is derived from the tool's schema, so that a framework which reads
type hints and docstrings can offer the function to a model. The toolbox still validates each call
against the schema.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Awaitable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any, Literal, Protocol, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import aio
from interlock.agent import text_of
from interlock.calls import LOCAL, Caller, Entry
from interlock.errors import ToolFailed
from interlock.schema.annotations import Hints, identifier, is_literal, union
from interlock.text.surrogates import repair_value
from interlock.toolbox import Toolbox
from interlock.types import CallToolResult, JsonObject

__all__ = [
    "Callables",
    "ToolFunction",
    "callables",
]

MAX_PARAMETERS = 64  # the function of a tool with more parameters takes `**arguments`
MAX_DESCRIPTION = 1_024  # characters of a parameter's description
ARGUMENTS = "arguments"

# Frameworks treat parameters with these names specially.
_RESERVED = frozenset({"self", "cls", "run_manager", "callbacks", "config", "runtime"})
_EMPTY = Parameter.empty


class ToolFunction(Protocol):
    """An async function that calls a tool.

    Attributes:
        tool: The tool that the function calls.
    """

    __name__: str
    tool: Entry

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]: ...


class Callables:
    """A mapping from addresses and wire names to functions. Iterating yields the functions."""

    def __init__(self, functions: list[ToolFunction]) -> None:
        self._functions = functions
        self._by_name = {each.tool.wire_name: each for each in functions}
        self._by_name |= {each.tool.address: each for each in functions}

    def __iter__(self) -> Iterator[ToolFunction]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> ToolFunction:
        return self._by_name[name]


def callables(
    toolbox: Toolbox, *, returns: Literal["text", "result"] = "text", caller: Caller = LOCAL
) -> Callables:
    """Return a function for each tool that the toolbox has now.

    Args:
        toolbox: An open toolbox.
        returns: Whether the functions return the result's text or the `CallToolResult`. With
            "text", they raise `ToolFailed` if the tool reports an error, and return an excerpt of
            a large result; an additional function reads the rest.
        caller: The caller on whose behalf the functions call tools.
    """
    entries = toolbox.tools
    if returns == "text":
        entries += toolbox.own.entries_for(caller)
        if caller.surface == "library":  # results for the surface "library" are never cut
            caller = replace(caller, surface="agent")
    return Callables([_function(toolbox, each, returns, caller) for each in entries])


def _function(toolbox: Toolbox, entry: Entry, returns: str, caller: Caller) -> ToolFunction:
    parameters = Parameters(msgspec.json.decode(entry.input_schema))
    signature, arguments_of = parameters.signature, parameters.arguments_of

    async def call(*args: Any, **kwargs: Any) -> str | CallToolResult:
        arguments = repair_value(arguments_of(signature.bind(*args, **kwargs).arguments))
        result = await aio.run_in(
            toolbox.loop, lambda: toolbox.call(entry.address, arguments, caller=caller)
        )
        if returns == "result":
            return result
        if result.is_error:
            raise ToolFailed(entry.address, text_of(result), result)
        return text_of(result)

    function = cast("Any", call)
    result_type = str if returns == "text" else CallToolResult
    function.__signature__ = signature.replace(return_annotation=result_type)
    function.__annotations__ = parameters.annotations | {"return": result_type}
    function.__name__ = function.__qualname__ = entry.wire_name
    function.__doc__ = parameters.docstring(entry)
    function.tool = entry
    return cast("ToolFunction", function)


class _Named(Struct, frozen=True):
    key: str  # the argument's name in the tool's schema
    takes_null: bool


class Parameters:
    """The parameters of a tool's function.

    Attributes:
        signature: The function's signature, without a return type.
        annotations: The type hints, by parameter name.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._hints = Hints(schema)
        self._named: dict[str, _Named] = {}
        self._rest = ""  # name of the parameter for further arguments, if the function has one
        self._nests = False  # whether an argument with this name has all arguments
        self._texts: dict[str, str] = {}
        self._taken: set[str] = set()
        self.annotations: dict[str, Any] = {}
        whole = self._hints.merged(schema) or {}
        members = _members(whole, schema, self._hints)
        if len(members) > MAX_PARAMETERS:
            self.signature = Signature([self._all(members)])
            return
        required = whole.get("required", ())
        parameters = [
            self._parameter(key, members[key], key in required)
            for key in sorted(members, key=lambda key: key not in required)
        ]
        if (
            whole.get("additionalProperties")
            or whole.get("patternProperties")
            or not (members or "properties" in schema)
        ):
            parameters.append(self._further())
        self.signature = Signature(parameters)

    def _parameter(self, key: str, schema: Any, is_required: bool) -> Parameter:
        name = self._unused(key)
        hint = self._hints.of(schema, key)
        self._named[name] = _Named(key, hint is Any or type(None) in (hint, *get_args(hint)))
        default: Any = _EMPTY
        if not is_required:
            default = schema.get("default") if isinstance(schema, dict) else None
            hint = union((hint, None)) if default is None else hint
        if text := _description(schema):
            hint = Annotated[hint, text]
            self._texts[name] = text
        self.annotations[name] = hint
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=hint)

    def _further(self) -> Parameter:
        self._rest = name = self._unused(ARGUMENTS)
        self._texts[name] = text = "Further arguments by name."
        self.annotations[name] = hint = Annotated[dict[str, Any] | None, text]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)

    def _all(self, members: JsonObject) -> Parameter:
        self._rest = ARGUMENTS
        # LangChain passes them as one object named like the parameter, and requires that the
        # docstring names the parameter without "**".
        self._nests = ARGUMENTS not in members
        self.annotations[ARGUMENTS] = Any
        names = ", ".join(members)
        self._texts[ARGUMENTS] = _clean(
            f"{len(members)} arguments, too many for a parameter each (limit {MAX_PARAMETERS}): "
            + names
        )
        return Parameter(ARGUMENTS, Parameter.VAR_KEYWORD, annotation=Any)

    def _unused(self, key: str) -> str:
        """Return a valid parameter name for an argument that no other parameter has."""
        plain = identifier(unicodedata.normalize("NFKC", key))
        if plain.startswith("__"):
            plain = plain.lstrip("_") or "_"
        if keyword.iskeyword(plain) or plain in _RESERVED:
            plain += "_"
        name, number = plain, 1
        while name in self._taken:
            number += 1
            name = f"{plain.rstrip('_')}_{number}"
        self._taken.add(name)
        return name

    def arguments_of(self, bound: Mapping[str, Any]) -> JsonObject:
        """Convert values that were bound to the signature to the tool's arguments."""
        arguments: JsonObject = {}
        for name, value in bound.items():
            if name == self._rest:
                is_nested = self._nests and isinstance(value, dict) and value.keys() == {name}
                arguments.update((value[name] if is_nested else value) or {})
            elif value is not None or self._named[name].takes_null:
                arguments[self._named[name].key] = value
        return arguments

    def docstring(self, entry: Entry) -> str:
        """Return the tool's description followed by its arguments, in Google's format."""
        text = entry.tool.description or entry.tool.title or entry.tool.name
        if not self._texts:
            return text
        lines = "\n".join(f"    {name}: {each}" for name, each in self._texts.items())
        return f"{text}\n\nArgs:\n{lines}\n"


def _members(whole: JsonObject, schema: JsonObject, hints: Hints) -> JsonObject:
    """Return the properties of an object schema, and of its alternatives (`anyOf` and so on)."""
    members = dict(whole.get("properties", {}))
    alternatives = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    alternatives += [schema[key] for key in ("then", "else") if key in schema]
    alternatives += schema.get("dependentSchemas", {}).values()
    for alternative in alternatives:
        merged = hints.merged(alternative) if isinstance(alternative, dict) else None
        for key, member in (merged or {}).get("properties", {}).items():
            same = members.setdefault(key, member) == member
            members[key] = member if same else {"anyOf": [members[key], member]}
    return {key: each for key, each in members.items() if each is not False}


def _description(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    text = schema.get("description")
    text = text if isinstance(text, str) else ""
    values = (
        schema["enum"] if "enum" in schema else [schema[key] for key in ("const",) if key in schema]
    )
    if isinstance(values, list) and not all(is_literal(each) for each in values):
        text = f"{text} One of {msgspec.json.encode(values).decode()}."
    return _clean(text)


def _clean(text: str) -> str:
    """Return text in one line without control characters."""
    line = " ".join(text[: 2 * MAX_DESCRIPTION].split())
    return "".join(each for each in line if each.isprintable())[:MAX_DESCRIPTION]
