"""Edits to the tools of a mounted server, with the keys of an `openapi` member's `tools`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypedDict

import msgspec
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import FieldInfo, asdict, fields

from interlock.config.section import nearest
from interlock.schema.dataclass_defaults import FilledArguments
from interlock.schema.signature import at_caller
from interlock.types import JsonObject

ARGUMENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Keywords besides `properties` that can name an argument, which an edit would miss.
_COMPLEX = frozenset(
    ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas")
)


class ArgumentEdit(TypedDict, total=False):
    """Changes to one argument of a tool."""

    name: str
    description: str
    default: Any  # the value if a call omits the argument
    value: Any  # the value in every call; the argument is then not offered
    hide: bool  # whether to leave the argument out; it keeps its default


class ToolEdit(TypedDict, total=False):
    """Changes to one tool. `arguments` is keyed by the arguments' own names."""

    name: str
    title: str
    description: str
    arguments: Mapping[str, ArgumentEdit]


ToolEdits: TypeAlias = Mapping[str, ToolEdit | Literal[False]]
"""Changes to tools, keyed by the tools' own names; False leaves a tool out."""


def check_edits(tools: ToolEdits, known: Collection[str]) -> None:
    """Check the keys of the edits, and that their tools exist.

    Raises:
        SignatureError: A tool or a key is unknown, or two keys contradict each other.
    """
    for tool, edit in tools.items():
        where = f"tools[{tool!r}]"
        if tool not in known:
            raise at_caller(f"{where}: the mounted server has no such tool{nearest(tool, known)}")
        if edit is False:
            continue
        _check_keys(edit, ToolEdit, where, "a dict of changes, or False to leave the tool out")
        for argument, change in edit.get("arguments", {}).items():
            _check_argument(change, f"{where}['arguments'][{argument!r}]")


def _check_keys(edit: object, shape: type, where: str, wanted: str) -> None:
    if not isinstance(edit, Mapping):
        raise at_caller(f"{where} must be {wanted}, not {edit!r}")
    known = shape.__annotations__
    for key in edit:
        if key not in known:
            raise at_caller(f"{where}: unknown key {key!r}{nearest(key, known)}")


def _check_argument(change: ArgumentEdit, where: str) -> None:
    _check_keys(change, ArgumentEdit, where, "a dict of changes")
    others = [key for key in ("name", "description", "default", "hide") if key in change]
    if "value" in change and others:
        raise at_caller(f"{where}: {others[0]!r} cannot be combined with 'value'")
    if "default" in change and change.get("hide"):
        raise at_caller(f"{where}: 'default' cannot be combined with 'hide'; write 'value' instead")
    name = change.get("name", "x")
    if not isinstance(name, str) or not ARGUMENT_NAME.fullmatch(name):
        raise at_caller(f"{where}: name {name!r} must be 1 to 64 letters, digits, _, . and -")


class ArgumentEdits:
    """The checked changes to the arguments of one tool.

    Args:
        tool: The tool's name, for errors.
        schema: The tool's own input schema.
        changes: The changes, keyed by the arguments' own names.

    Attributes:
        schema: The input schema that clients see.

    Raises:
        SignatureError: A change names no argument, or cannot be made.
    """

    def __init__(self, tool: str, schema: JsonObject, changes: Mapping[str, ArgumentEdit]) -> None:
        self._where = f"tools[{tool!r}]['arguments']"
        self._changes = changes
        properties = schema.get("properties", {})
        for name in changes:
            if name not in properties:
                raise at_caller(
                    f"{self._where}: the tool has no argument {name!r}{nearest(name, properties)}"
                )
        complex = sorted(_COMPLEX & schema.keys())
        if complex:
            raise at_caller(
                f"{self._where}: the tool's input schema uses {complex[0]}, so its arguments "
                "cannot be changed"
            )
        required = schema.get("required", [])
        self._names: dict[str, str] = {}  # the argument's own name, by the name that clients use
        edited, needed = {}, []
        for own, member in properties.items():
            change = changes.get(own, {})
            self._check_hidden(own, change, own in required)
            if change.get("hide") or "value" in change:
                continue
            name = change.get("name", own)
            if name in self._names:
                raise at_caller(f"{self._where}: two arguments have the name {name!r}; rename one")
            self._names[name] = own
            edited[name] = _edited_member(member, change)
            if own in required and "default" not in change:
                needed.append(name)
        self.schema = {**schema, "properties": edited}
        self.schema.pop("required", None)
        if needed:
            self.schema["required"] = needed

    def _check_hidden(self, own: str, change: ArgumentEdit, is_required: bool) -> None:
        if change.get("hide") and is_required:
            raise at_caller(
                f"{self._where}: argument {own!r} is required but hidden; set its value"
            )

    def restore(self, given: JsonObject) -> JsonObject:
        """Return a client's arguments under the tool's own names, with the constants."""
        own = {self._names.get(name, name): value for name, value in given.items()}
        for name, change in self._changes.items():
            if "value" in change:
                own[name] = copy.deepcopy(change["value"])
            elif "default" in change:
                own.setdefault(name, copy.deepcopy(change["default"]))
        return own

    def decode_by(self, decode: Callable[[Raw], Struct]) -> Callable[[Raw], Struct]:
        """Return a function that decodes a client's arguments to the struct of `decode`.

        Args:
            decode: The tool's own decoder, a method of a `msgspec.json.Decoder`.
        """
        decoder: msgspec.json.Decoder[Any] = decode.__self__  # type: ignore[attr-defined]
        whole: type[Struct] = decoder.type
        shown, constants = [], {}
        for field in fields(whole):
            change = self._changes.get(field.encode_name, {})
            if "value" in change:
                constants[field.name] = self._converted(field, change["value"], decoder)
            elif not change.get("hide"):
                shown.append((field.name, field.type, self._field(field, change, decoder)))
        visible = msgspec.defstruct(
            "Arguments",
            shown,
            bases=(FilledArguments,) if issubclass(whole, FilledArguments) else (),
            kw_only=True,
            forbid_unknown_fields=True,
            frozen=True,
        )
        read = msgspec.json.Decoder(visible, dec_hook=decoder.dec_hook, strict=decoder.strict)
        if len(shown) == len(fields(whole)):
            return read.decode

        def decode_shown(raw: Raw) -> Struct:
            return whole(**asdict(read.decode(raw)), **copy.deepcopy(constants))

        return decode_shown

    def _field(self, field: FieldInfo, change: ArgumentEdit, decoder: Any) -> Any:
        name = change.get("name", field.encode_name)
        if "default" in change:
            default = self._converted(field, change["default"], decoder)
            return msgspec.field(name=name, default_factory=lambda: copy.deepcopy(default))
        if field.default_factory is not NODEFAULT:
            return msgspec.field(name=name, default_factory=field.default_factory)
        return msgspec.field(name=name, default=field.default)

    def _converted(self, field: FieldInfo, value: Any, decoder: Any) -> Any:
        """Return a constant as a value of the parameter's type."""
        try:
            return msgspec.convert(
                value, field.type, dec_hook=decoder.dec_hook, strict=decoder.strict
            )
        except msgspec.ValidationError as error:
            is_plain = value is None or isinstance(value, str | int | float | list | dict)
            if not is_plain and isinstance(field.type, type) and isinstance(value, field.type):
                return value  # an object that JSON cannot express, such as a pydantic model
            raise at_caller(
                f"{self._where}: the constant for {field.encode_name!r} is not valid: {error}"
            ) from None


def _edited_member(member: Any, change: ArgumentEdit) -> Any:
    edited = dict(member) if isinstance(member, dict) else {}
    if "description" in change:
        edited["description"] = change["description"]
    if "default" in change:
        with suppress(TypeError, ValueError):  # an object that JSON cannot express
            edited["default"] = msgspec.to_builtins(change["default"])
    return edited or member
