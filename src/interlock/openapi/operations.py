"""One operation of a document, with the differences between OpenAPI versions removed.

Schemas are left as they are in the document; the module `schemas` translates them.
"""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from interlock.openapi.document import Document
from interlock.openapi.references import DocumentError
from interlock.text import quoting
from interlock.types import JsonObject

Place = Literal["path", "query", "header", "cookie"]
PLACES: tuple[Place, ...] = ("path", "query", "header", "cookie")
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
MAX_PARAMETERS = 1_000  # parameters of one operation; the most in a known document is 54

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&*+.^_-]+/[A-Za-z0-9!#$&*+.^_-]+ *(;[\x20-\x7e]*)?")
_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}
_NOT_A_SCHEMA = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue"}
)


class Style(Struct, frozen=True):
    """The way a value is written in a path, query, header or cookie.

    Attributes:
        name: The style's name in OpenAPI 3; "tabDelimited" is the `tsv` of OpenAPI 2.0.
        media_type: The media type of a value that is sent as JSON, without regard to `name`;
            "" for other values.
    """

    name: str = "form"
    explode: bool = False
    allow_reserved: bool = False
    media_type: str = ""


class Parameter(Struct, frozen=True):
    """A parameter in the path, the query, a header or a cookie."""

    name: str
    place: Place
    required: bool
    style: Style
    schema: Any
    description: str = ""
    is_deprecated: bool = False


class MediaType(Struct, frozen=True):
    """One media type of a body; `encoding` describes how properties are encoded, by name."""

    name: str
    schema: Any
    encoding: dict[str, JsonObject] = {}


class Body(Struct, frozen=True):
    """The body of a request: its media types, in the order of the document."""

    is_required: bool
    media_types: list[MediaType]
    description: str = ""
    name: str = ""  # only in OpenAPI 2.0, where the body is a parameter


class Response(Struct, frozen=True):
    """The declared answer for one status, such as "200", "4XX" or "default"."""

    status: str
    description: str = ""
    media_types: dict[str, Any] = {}  # media type -> schema


class Operation(Struct, frozen=True):
    """One operation of an API.

    Attributes:
        key: "METHOD /path" as written in the document.
        path: The template for the path of requests: the key's path without `?query` and
            `#fragment`.
        fixed_query: The pairs from the key's `?query` that no parameter sets.
        security: Alternative sets of security schemes, each with its scopes keyed by scheme; []
            if the operation needs no credentials.
    """

    key: str
    method: str
    path: str
    fixed_query: list[str]
    operation_id: str
    summary: str
    description: str
    is_deprecated: bool
    tags: list[str]
    parameters: list[Parameter]
    body: Body | None
    responses: list[Response]
    security: list[dict[str, list[str]]]


def read(document: Document, key: str) -> Operation:
    """Return an operation of the document.

    Raises:
        DocumentError: A part of the operation that requests need is invalid.
    """
    item, raw = document.keys[key]
    reader = _Reader(document)
    path = template_of(key.partition(" ")[2])
    given = reader.parameters(item, raw)
    parameters = [reader.parameter(each) for each in given if each["in"] in PLACES]
    parameters = _match_path(path, parameters)
    return Operation(
        key=key,
        method=key.partition(" ")[0],
        path=path,
        fixed_query=_fixed_query(key, parameters),
        operation_id=_text(raw.get("operationId")),
        summary=_text(raw.get("summary")) or _text(item.get("summary")),
        description=_text(raw.get("description")) or _text(item.get("description")),
        is_deprecated=raw.get("deprecated") is True,
        tags=[tag for tag in _list(raw.get("tags")) if isinstance(tag, str)],
        parameters=parameters,
        body=reader.body(raw, given),
        responses=reader.responses(raw),
        security=_security(raw.get("security", document.root.get("security"))),
    )


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._follow = document.references.follow
        self._is_old = document.version == "2.0"

    # Parameters

    def parameters(self, item: JsonObject, raw: JsonObject) -> list[JsonObject]:
        """Merge the path's parameters with the operation's parameters, which override them."""
        merged: dict[tuple[str, str], JsonObject] = {}
        listed = [*_list(item.get("parameters")), *_list(raw.get("parameters"))]
        if len(listed) > MAX_PARAMETERS:
            raise DocumentError(
                f"the operation has too many parameters ({len(listed):,}, limit {MAX_PARAMETERS:,})"
            )
        for each in listed:
            parameter = self._follow(each)
            if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
                raise DocumentError("a parameter has no name")
            if parameter.get("in") == "header" and not _TOKEN.fullmatch(parameter["name"]):
                raise DocumentError(
                    f"{quoting.echo(parameter['name'])} is not a valid name of a header"
                )
            place = parameter.get("in")
            known = (*PLACES, "body", "formData") if self._is_old else PLACES
            if place not in known:
                raise DocumentError(
                    f"the parameter {quoting.echo(parameter['name'])} is in "
                    f"{quoting.echo(place)}, which is not supported"
                )
            merged[place, parameter["name"]] = parameter
        return list(merged.values())

    def parameter(self, raw: JsonObject) -> Parameter:
        place: Place = raw["in"]
        style, schema = self._old_style(raw) if self._is_old else self._style(raw)
        return Parameter(
            name=raw["name"],
            place=place,
            required=place == "path" or raw.get("required") is True,
            style=style,
            schema=schema,
            description=_text(raw.get("description")),
            is_deprecated=raw.get("deprecated") is True,
        )

    def _style(self, raw: JsonObject) -> tuple[Style, Any]:
        place = raw["in"]
        content = raw.get("content")
        if isinstance(content, dict) and content:
            name, media = next(iter(content.items()))
            media = self._follow(media)
            if not is_json(name):
                return Style(_STYLES[place][0]), {"type": "string"}
            schema = media.get("schema", {}) if isinstance(media, dict) else {}
            return Style(media_type=name), schema
        name = raw.get("style")
        if name not in _STYLES[place]:
            name = _STYLES[place][0]
        explode = raw.get("explode")
        if not isinstance(explode, bool):
            explode = name in {"form", "cookie"}
        reserved = place == "query" and raw.get("allowReserved") is True
        return Style(name, explode, reserved), raw.get("schema", {})

    def _old_style(self, raw: JsonObject) -> tuple[Style, JsonObject]:
        schema = {key: value for key, value in raw.items() if key not in _NOT_A_SCHEMA}
        return _collection_style(raw.get("collectionFormat"), raw["in"]), schema

    # Body

    def body(self, raw: JsonObject, given: list[JsonObject]) -> Body | None:
        """Return the body that an operation accepts; None if it has no body."""
        if self._is_old:
            return self._old_body(raw, given)
        body = self._follow(raw.get("requestBody"))
        if not isinstance(body, dict):
            return None
        media_types = []
        for name, media in _dict(body.get("content")).items():
            media = self._follow(media)
            if isinstance(media, dict) and _MEDIA_TYPE.fullmatch(name):
                encoding = {
                    key: value
                    for key, value in _dict(media.get("encoding")).items()
                    if isinstance(value, dict)
                }
                media_types.append(MediaType(name, media.get("schema", {}), encoding))
        if not media_types:
            return None
        return Body(body.get("required") is True, media_types, _text(body.get("description")))

    def _old_body(self, raw: JsonObject, given: list[JsonObject]) -> Body | None:
        consumes = [
            each
            for each in _list(raw.get("consumes", self._document.root.get("consumes")))
            if isinstance(each, str) and _MEDIA_TYPE.fullmatch(each)
        ]
        fields = [each for each in given if each["in"] == "formData"]
        if fields:
            return _form(fields, consumes)
        for each in given:
            if each["in"] == "body":
                schema = each.get("schema", {})
                return Body(
                    each.get("required") is True,
                    [MediaType(name, schema) for name in consumes or ["application/json"]],
                    _text(each.get("description")),
                    each["name"],
                )
        return None

    # Responses

    def responses(self, raw: JsonObject) -> list[Response]:
        """Return the declared responses, except for invalid declarations."""
        found = []
        for status, response in _dict(raw.get("responses")).items():
            try:
                response = self._follow(response)
                if isinstance(response, dict):
                    found.append(self._response(str(status).upper(), response, raw))
            except DocumentError as error:
                self._document.warnings.append(f"response {status}: {error}")
        return found

    def _response(self, status: str, response: JsonObject, raw: JsonObject) -> Response:
        description = _text(response.get("description"))
        if self._is_old:
            produces = _list(raw.get("produces", self._document.root.get("produces")))
            names = [each for each in produces if isinstance(each, str)] or ["application/json"]
            schema = response.get("schema")
            media = {} if schema is None else dict.fromkeys(names, schema)
            return Response(status, description, media)
        content = {
            name: self._follow(media) for name, media in _dict(response.get("content")).items()
        }
        return Response(
            status,
            description,
            {name: _dict(media).get("schema", {}) for name, media in content.items()},
        )


def fixed_header(operation: Operation, name: str) -> str:
    """Return a header's value if the document allows exactly one value, else ""."""
    values = header_values(operation, name)
    return values[0] if len(values) == 1 else ""


def header_values(operation: Operation, name: str) -> list[str]:
    """Return the values that the document allows for a header; [] if every value is allowed."""
    for each in operation.parameters:
        if each.place == "header" and each.name.lower() == name.lower():
            schema = _dict(each.schema)
            values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
            return [value for value in values if isinstance(value, str)]
    return []


def _fixed_query(key: str, parameters: list[Parameter]) -> list[str]:
    query = key.partition("#")[0].partition("?")[2]
    names = {each.name for each in parameters}
    return [
        quote(pair, safe="=%-._~")
        for pair in query.split("&")
        if pair and "{" not in pair and pair.partition("=")[0] not in names
    ]


def template_of(path: str) -> str:
    """Return a path from the document without `?query` and `#fragment`."""
    return path.partition("#")[0].partition("?")[0]


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON, or a wildcard that includes JSON."""
    name = media_type.partition(";")[0].strip().lower()
    return name.endswith(("/json", "+json")) or name in {"*/*", "application/*"}


def _collection_style(format: Any, place: str) -> Style:
    names = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
    if format == "multi":
        return Style("form", explode=True)
    named = names.get(format) if isinstance(format, str) else None
    return Style(named or ("form" if place in {"query", "formData"} else "simple"))


def _form(fields: list[JsonObject], consumes: list[str]) -> Body:
    """Return the body that the `formData` parameters of OpenAPI 2.0 describe."""
    properties, encoding, required = {}, {}, []
    for each in fields:
        schema = {key: value for key, value in each.items() if key not in _NOT_A_SCHEMA}
        if _text(each.get("description")):
            schema["description"] = each["description"]
        properties[each["name"]] = schema
        style = _collection_style(each.get("collectionFormat"), "formData")
        encoding[each["name"]] = {"style": style.name, "explode": style.explode}
        if each.get("required") is True:
            required.append(each["name"])
    has_file = any(each.get("type") == "file" for each in fields)
    name = MULTIPART if has_file or (MULTIPART in consumes and FORM not in consumes) else FORM
    schema = {"type": "object", "properties": properties, "required": required}
    return Body(bool(required), [MediaType(name, schema, encoding)])


def _match_path(path: str, parameters: list[Parameter]) -> list[Parameter]:
    """Add parameters for undeclared path variables; omit parameters that the path lacks."""
    variables = dict.fromkeys(_VARIABLE.findall(path))
    matched = [each for each in parameters if each.place != "path" or each.name in variables]
    declared = {each.name for each in matched if each.place == "path"}
    return matched + [
        Parameter(name, "path", True, Style("simple"), {"type": "string"})
        for name in variables
        if name not in declared
    ]


def _security(value: Any) -> list[dict[str, list[str]]]:
    return [
        {
            name: [scope for scope in _list(scopes) if isinstance(scope, str)]
            for name, scopes in each.items()
        }
        for each in _list(value)
        if isinstance(each, dict)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
