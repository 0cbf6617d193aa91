"""The arguments of a tool: the values a model may set, their names, and the fixed values."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from interlock import schema as json_schema
from interlock.errors import SchemaError
from interlock.openapi import bodies, texts
from interlock.openapi.document import Document
from interlock.openapi.operations import MediaType, Operation, Parameter, fixed_header
from interlock.openapi.references import DocumentError
from interlock.openapi.schemas import Schema, Translator
from interlock.openapi.selection import ArgumentSelection, ToolSelection
from interlock.schema.portable import MAX_NAME, clean_name, short_name, unique_name
from interlock.text import quoting
from interlock.types import JsonObject

WHOLE_BODY = "body"

_ORDER = ("path", "query", "body", "header", "cookie")
# The client, the connection or a proxy sets these headers; a model must not.
_RESERVED_HEADERS = frozenset(
    {
        *("accept", "authorization", "connection", "content-length", "content-type", "cookie"),
        *("content-encoding", "expect", "forwarded", "host", "keep-alive", "origin", "referer"),
        *("te", "trailer", "transfer-encoding", "upgrade", "via", "x-real-ip", "set-cookie"),
        *("x-http-method", "x-http-method-override", "x-method-override", "x-original-url"),
        *("x-rewrite-url", "accept-encoding", "date"),
    }
)
_RESERVED_PREFIXES = ("proxy-", "x-forwarded-", "sec-")


class RequestValue(Struct, frozen=True):
    """A value in a request that a call may set.

    Attributes:
        place: "path", "query", "header", "cookie" or "body".
        target: The name of the parameter or body property; None for the whole body.
        schema: The value's schema in the document, not translated.
        parameter: The parameter in the document; None for the body and its properties.
    """

    place: str
    target: str | None
    required: bool
    schema: Any
    description: str = ""
    is_deprecated: bool = False
    parameter: Parameter | None = None


class Argument(Struct, frozen=True):
    """A value in a request, with the operator's changes.

    Attributes:
        name: The argument's name in the tool; "" if the argument is not offered.
        schema: The value's JSON Schema 2020-12, not cut to the size budget.
        value: The constant that every request sends, or UNSET.
        default: The value sent if the call omits the argument, or UNSET.
        kinds: The types in the schema, which `serialisation` needs.
    """

    name: str
    place: str
    target: str | None
    required: bool
    schema: Schema
    parameter: Parameter | None = None
    value: Any = UNSET
    default: Any = UNSET
    slashes: bool = False
    kinds: Any = None


def is_reserved_header(name: str) -> bool:
    """Return whether a model must not set a header, because routing or identity depends on it."""
    name = name.lower()
    return name in _RESERVED_HEADERS or name.startswith(_RESERVED_PREFIXES)


def candidates(operation: Operation, filled: Collection[tuple[str, str]]) -> list[RequestValue]:
    """Return the parameters that calls may set.

    Args:
        filled: Place and name of each parameter that carries a configured credential.
    """
    return [
        RequestValue(
            each.place,
            each.name,
            each.required,
            each.schema,
            each.description,
            each.is_deprecated,
            each,
        )
        for each in operation.parameters
        if not (each.place == "header" and is_reserved_header(each.name))
        and (each.place, each.name.lower() if each.place == "header" else each.name) not in filled
    ]


def name_all(found: list[RequestValue]) -> list[str]:
    """Return a unique name for each candidate: its cleaned name, plus its place on a clash.

    On a clash, the candidate whose place comes first in this order keeps the name: path, query,
    body, header, cookie. Within a place, a name that needed no cleaning precedes a cleaned name.
    """
    plain = [clean_name(each.target or WHOLE_BODY) for each in found]
    order = sorted(
        range(len(found)),
        key=lambda index: (
            _ORDER.index(found[index].place),
            plain[index] != (found[index].target or WHOLE_BODY),
        ),
    )
    names = dict.fromkeys(plain, -1)  # name -> index of the candidate that has it
    clashes = []
    for index in order:
        if names[plain[index]] < 0:
            names[plain[index]] = index
        else:
            clashes.append(index)
    for index in clashes:
        name = short_name(f"{plain[index]}_{found[index].place}")
        names[unique_name(name, names)] = index
    return sorted(names, key=names.__getitem__)


class Selector:
    """Applies the operator's changes to the candidate arguments of one tool.

    Raises:
        DocumentError: `arguments` names an unknown argument, or hides a required one.
    """

    def __init__(
        self, document: Document, translator: Translator, selection: ToolSelection
    ) -> None:
        self._follow = document.references.follow
        self._translator = translator
        self._selection = selection
        self._kinds_of: dict[tuple[str, int], Any] = {}  # (reference, depth) -> types

    def select(self, found: list[RequestValue]) -> list[Argument]:
        """Return the selected arguments in the order of the candidates."""
        names = name_all(found)
        chosen = self._match(found, names)
        arguments = [
            self._argument(each, name, chosen.get(index))
            for index, (each, name) in enumerate(zip(found, names, strict=True))
        ]
        uses = Counter(each.name for each in arguments if each.name)
        for name, count in uses.items():
            if count > 1:
                raise DocumentError(f"two arguments have the name {name!r}; rename one")
        return arguments

    def _match(self, found: list[RequestValue], names: list[str]) -> dict[int, ArgumentSelection]:
        """Return the operator's changes, keyed by the index of the candidate to change."""
        chosen = {}
        for key, change in self._selection.arguments.items():
            matches = [
                index
                for index, each in enumerate(found)
                if (each.target or WHOLE_BODY) == key
                or (each.place == "header" and (each.target or "").lower() == key.lower())
            ]
            if len(matches) != 1:
                matches = [names.index(key)] if key in names else matches[:1]
            if not matches:
                raise DocumentError(_unknown(key, found, names))
            chosen[matches[0]] = change
        return chosen

    def _argument(
        self, candidate: RequestValue, name: str, change: ArgumentSelection | None
    ) -> Argument:
        is_named = change is not None
        change = change or ArgumentSelection()
        schema = self._schema(candidate, change)
        is_obsolete = candidate.is_deprecated and not candidate.required and not is_named
        has_value = change.value is not UNSET or change.default is not UNSET
        if change.hide and candidate.required and not has_value:
            raise DocumentError(f"argument {name!r} is required but hidden; set its value")
        if change.slashes and candidate.place != "path":
            raise DocumentError(f"argument {name!r} is not in the path; remove its slashes")
        for role, value in (("value", change.value), ("default", change.default)):
            if value is not UNSET:
                self._check_constant(f"the {role} of argument {name!r}", schema, value)
        is_offered = not change.hide and not is_obsolete and change.value is UNSET
        return Argument(
            name=(change.name or name) if is_offered else "",
            place=candidate.place,
            target=candidate.target,
            required=candidate.required and change.default is UNSET,
            schema=schema,
            parameter=candidate.parameter,
            value=change.value,
            default=change.default,
            slashes=change.slashes,
            kinds=self._kinds(candidate.schema, 0) if candidate.parameter else None,
        )

    def _check_constant(self, what: str, schema: Schema, value: Any) -> None:
        """Raise an error if the operator's constant is not valid for the document's schema."""
        definitions = self._translator.definitions([schema])
        whole = {"allOf": [schema], "$defs": definitions} if definitions else schema
        try:
            problems = json_schema.compile(msgspec.json.encode(whole)).errors(value, echo=False)
        except SchemaError:
            return  # the schema is too large to check here
        if problems:
            raise DocumentError(f"{what} is not valid for the document's schema: {problems[0]}")

    def _schema(self, candidate: RequestValue, change: ArgumentSelection) -> Schema:
        schema = self._translator.translate(candidate.schema)
        if isinstance(schema, bool):
            schema = {} if schema else {"not": {}}
        description = change.description or texts.visible(candidate.description)
        if description:
            schema["description"] = description
        if candidate.is_deprecated:
            text = schema.get("description", "")
            schema["description"] = f"Deprecated. {text}".strip()
        for keyword, value in (
            ("minimum", change.minimum),
            ("maximum", change.maximum),
            ("enum", change.enum),
        ):
            if value is not None:
                schema[keyword] = value
        if change.default is not UNSET:
            schema["default"] = change.default
        if candidate.parameter is not None:
            self._refuse_empty(candidate, schema)
        return schema

    def _refuse_empty(self, candidate: RequestValue, schema: JsonObject) -> None:
        """Require at least one character or item where an empty value would not be sent."""
        raw = self._follow(candidate.schema)
        kind = raw.get("type") if isinstance(raw, dict) else None
        if kind == "string" and candidate.place == "path":
            schema["minLength"] = max(1, schema.get("minLength", 0))
        elif kind == "array" and candidate.required:
            schema["minItems"] = max(1, schema.get("minItems", 0))
        elif kind == "object" and candidate.required:
            schema["minProperties"] = max(1, schema.get("minProperties", 0))

    def _kinds(self, node: Any, depth: int) -> Any:
        """Return the types in a schema, two levels deep."""
        reference = node.get("$ref") if isinstance(node, dict) and len(node) == 1 else None
        if not isinstance(reference, str):
            return self._read_kinds(node, depth)
        if (reference, depth) not in self._kinds_of:
            self._kinds_of[reference, depth] = self._read_kinds(node, depth)
        return self._kinds_of[reference, depth]

    def _read_kinds(self, node: Any, depth: int) -> Any:
        node = self._follow(node)
        if not isinstance(node, dict) or depth > 2:
            return None
        kinds: JsonObject = {}
        if "type" in node:
            kinds["type"] = node["type"]
        if isinstance(node.get("items"), dict):
            kinds["items"] = self._kinds(node["items"], depth + 1)
        if isinstance(node.get("properties"), dict):
            kinds["properties"] = {
                key: self._kinds(each, depth + 1) for key, each in node["properties"].items()
            }
        return kinds


def media_type(operation: Operation, selection: ToolSelection) -> MediaType | None:
    """Return the media type in which a tool sends the body; None if the operation has no body.

    Raises:
        DocumentError: The operator chose a media type that the document does not have.
    """
    if operation.body is not None:
        chosen = selection.content_type
        return bodies.choose(operation.body, chosen, fixed_header(operation, "Content-Type"))
    if selection.body or selection.content_type:
        raise DocumentError("the operation has no body; remove body and contentType")
    return None


def body_candidates(
    operation: Operation,
    media: MediaType | None,
    wanted: Literal["flat", "nested"] | None,
    translator: Translator,
    document: Document,
) -> tuple[list[RequestValue], bodies.Form | None]:
    """Return the candidate arguments for the body, and the body's encoding.

    The encoding is None if the operation has no body.

    Args:
        media: The media type of the body, from `media_type`.
        wanted: The operator's choice; None if the operator chose neither.
        translator: The translator of the tool's schemas.
        document: The document of the operation.

    Raises:
        DocumentError: The operator chose "flat", but the body is not a plain object.
    """
    body = operation.body
    if body is None or media is None:
        return [], None
    follow = document.references.follow
    kind = bodies.kind_of(media.name)
    flat = bodies.flat_properties(media.schema, follow) if kind not in ("text", "bytes") else None
    properties, required = flat or (bodies.properties_of(media.schema, follow), frozenset())
    form = bodies.form(body, media, properties, follow)
    may_be_flat = flat is not None and (body.is_required or not required)
    if wanted == "flat" and not may_be_flat:
        raise DocumentError('the body cannot be flat: it is not a plain object; use "nested"')
    if may_be_flat and wanted != "nested":
        return [
            RequestValue(
                "body", name, name in required, schema, is_deprecated=_is_deprecated(schema, follow)
            )
            for name, schema in properties.items()
            if not translator.is_hidden(schema)
        ], form
    schema = media.schema
    if kind == "bytes":
        schema = bodies.FILE
    elif kind == "text":
        target = follow(schema)
        if not isinstance(target, dict) or target.get("type") != "string":
            schema = {"type": "string"}
    return [RequestValue("body", None, body.is_required, schema, body.description)], form


def _is_deprecated(schema: Any, follow: Any) -> bool:
    target = follow(schema)
    return isinstance(target, dict) and target.get("deprecated") is True


def _unknown(key: str, found: Iterable[RequestValue], names: list[str]) -> str:
    known = dict.fromkeys([*(each.target or WHOLE_BODY for each in found), *names])
    close = difflib.get_close_matches(key[:MAX_NAME], list(known), n=1, cutoff=0.4)
    hint = f" (did you mean {quoting.echo(close[0])}?)" if close else ""
    return f"the operation has no argument {quoting.echo(key)}{hint}"
