"""The body of a request: its media type, its arguments, and its bytes."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from interlock.errors import InvalidArguments
from interlock.openapi import serialisation
from interlock.openapi.operations import FORM, Body, MediaType, Style, is_json
from interlock.openapi.references import DocumentError
from interlock.text import quoting
from interlock.types import JsonObject

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_BRANCHES = 100  # the most `allOf` branches that are merged

FILE: JsonObject = {
    "type": "object",
    "description": "A file, as text, as base64, or as the URI of a resource.",
    "properties": {
        "text": {"type": "string"},
        "base64": {"type": "string"},
        "resource": {"type": "string", "description": "URI of a resource, or id of a kept result."},
        "name": {"type": "string", "description": "File name."},
        "type": {"type": "string", "description": "Media type."},
    },
    "additionalProperties": False,
}
_SOURCES = ("text", "base64", "resource")

Kind = Literal["json", "multipart", "form", "text", "bytes"]
_KINDS: tuple[Kind, ...] = ("json", "multipart", "form", "text", "bytes")
_TEXT = (
    *("xml", "yaml", "x-yaml", "javascript", "graphql", "sql", "x-ndjson", "toml", "csv"),
    *("x-sh", "json-seq", "jsonl"),
)
_FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_FLAT = (
    *("oneOf", "anyOf", "not", "if", "patternProperties", "propertyNames", "minProperties"),
    *("maxProperties", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
)


class FileContent(Struct, frozen=True):
    """The contents of a file that a call sends."""

    data: bytes
    name: str = ""
    type: str = ""


class Field(Struct, frozen=True):
    """The encoding of one property in a form.

    Attributes:
        style: The serialisation style; None if the document does not choose a style.
        content_type: The media type of the property's part; "" for the default media type of
            the property's value.
        headers: Further headers for the property's part.
    """

    is_file: bool = False
    style: Style | None = None
    content_type: str = ""
    headers: list[tuple[str, str]] = []
    schema: Any = None


class Form(Struct, frozen=True):
    """The media type and encoding in which a tool sends the body.

    Attributes:
        content_type: The media type in the Content-Type header; a multipart form adds its
            boundary.
        is_required: Whether a body is sent even if the call sets none of its arguments.
        fields: The encoding of a form's properties, keyed by name.
    """

    kind: Kind
    content_type: str
    is_required: bool
    fields: dict[str, Field] = {}


def kind_of(media_type: str) -> Kind:
    """Return the kind of encoding that a media type uses."""
    name = media_type.partition(";")[0].strip().lower()
    if is_json(name):
        return "json"
    if name.startswith("multipart/"):
        return "multipart"
    if name == FORM:
        return "form"
    subtype = name.partition("/")[2]
    if name.startswith("text/") or subtype in _TEXT or subtype.endswith(("+xml", "+yaml")):
        return "text"
    return "bytes"


def choose(body: Body, wanted: str, declared: str = "") -> MediaType:
    """Return the media type to use: the wanted one, the declared one, or else the simplest one.

    Raises:
        DocumentError: The document does not have the wanted media type.
    """
    for each in body.media_types:
        if each.name.lower() == (wanted or declared).lower():
            return each
    if wanted:
        names = ", ".join(each.name for each in body.media_types)
        raise DocumentError(
            f"the body has no media type {quoting.echo(wanted)}; choose one of {names}"
        )
    return min(body.media_types, key=lambda each: _KINDS.index(kind_of(each.name)))


def form(
    body: Body, media: MediaType, properties: JsonObject, follow: Callable[[Any], Any]
) -> Form:
    """Return the encoding of a body in the chosen media type.

    Args:
        body: The body of the operation.
        media: The chosen media type, from `choose`.
        properties: The properties of the body's schema, not translated.
        follow: A function that resolves references.
    """
    kind = kind_of(media.name)
    name = media.name
    if "*" in name:
        name = {"json": "application/json", "text": "text/plain"}.get(kind, "")
        name = name or "application/octet-stream"
    fields = {}
    if kind in ("multipart", "form"):
        for key, schema in properties.items():
            fields[key] = _field(schema, media.encoding.get(key, {}), kind, follow)
    return Form(kind, name, body.is_required, fields)


def _field(schema: Any, encoding: JsonObject, kind: Kind, follow: Callable[[Any], Any]) -> Field:
    schema = follow(schema)
    style = None
    if "style" in encoding or "explode" in encoding:
        name = str(encoding.get("style", "form"))
        style = Style(name, encoding.get("explode", name == "form") is True)
    content_type = encoding.get("contentType")
    content_type = content_type if isinstance(content_type, str) else ""
    content_type = content_type.partition(",")[0].strip()
    headers = encoding.get("headers")
    return Field(
        is_file=kind == "multipart" and is_file(schema, follow),
        style=style,
        content_type="" if "*" in content_type else content_type,
        headers=_fixed_headers(headers, follow) if isinstance(headers, dict) else [],
        schema=schema,
    )


def _fixed_headers(headers: JsonObject, follow: Callable[[Any], Any]) -> list[tuple[str, str]]:
    """Return those headers of a multipart part for which the document allows only one value."""
    found = []
    for name, header in headers.items():
        header = follow(header)
        schema = follow(header.get("schema")) if isinstance(header, dict) else None
        if not isinstance(schema, dict) or not _FIELD_NAME.fullmatch(name):
            continue
        if name.lower() in ("content-type", "content-disposition"):
            continue
        enum = schema.get("enum")
        only = enum[0] if isinstance(enum, list) and len(enum) == 1 else None
        value = schema.get("const", schema.get("default", only))
        if value is not None:
            try:
                text = serialisation.header(name, value, Style("simple"), schema)
            except InvalidArguments as error:
                raise DocumentError(f"a part of the form has a fixed value: {error}") from None
            found.append((name, text))
    return found


def is_file(schema: Any, follow: Callable[[Any], Any]) -> bool:
    """Return whether a property of a multipart form is a file, or a list of files."""
    schema = follow(schema)
    if isinstance(schema, dict) and schema.get("type") == "array":
        schema = follow(schema.get("items"))
    return isinstance(schema, dict) and is_binary(schema)


def is_binary(schema: JsonObject) -> bool:
    """Return whether a schema describes bytes rather than text."""
    kind = schema.get("type")
    if kind == "file":
        return True
    is_string = kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)
    if not is_string or "contentEncoding" in schema:
        return False
    return schema.get("format") == "binary" or (
        "contentMediaType" in schema and not str(schema["contentMediaType"]).startswith("text/")
    )


def flat_properties(
    schema: Any, follow: Callable[[Any], Any]
) -> tuple[JsonObject, frozenset[str]] | None:
    """Return an object's properties and required names; None if it is not a plain object.

    `allOf` is merged. The properties' schemas are not translated.
    """
    schema = follow(schema)
    if isinstance(schema, dict) and "discriminator" in schema:
        return None
    properties: JsonObject = {}
    required: list[str] = []
    merger = _Merger(follow, properties, required)
    if not merger.add(schema, 0) or not properties:
        return None
    return properties, frozenset(required).intersection(properties)


class _Merger:
    """Collects the properties of an object and its `allOf`."""

    def __init__(
        self, follow: Callable[[Any], Any], properties: JsonObject, required: list[str]
    ) -> None:
        self._follow = follow
        self._properties = properties
        self._required = required
        self._left = MAX_BRANCHES

    def add(self, schema: Any, depth: int) -> bool:
        """Add a schema; return False if it is not a plain object."""
        schema = self._follow(schema)
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0:
            return False
        if schema.get("type", "object") != "object" or any(each in schema for each in _NOT_FLAT):
            return False
        is_closed = schema.get("additionalProperties") is False and depth == 0
        if schema.get("nullable") is True or ("additionalProperties" in schema and not is_closed):
            return False
        for name, each in properties_of(schema, self._follow).items():
            known = self._properties.get(name)
            is_new = known is None or known == each
            self._properties[name] = each if is_new else {"allOf": [known, each]}
        names = schema.get("required")
        if isinstance(names, list):
            self._required += [name for name in names if isinstance(name, str)]
        branches = schema.get("allOf")
        return all(
            self.add(branch, depth + 1)
            for branch in (branches if isinstance(branches, list) else [])
        )


def properties_of(schema: Any, follow: Callable[[Any], Any]) -> JsonObject:
    """Return the properties that a schema declares directly, not in `allOf`."""
    schema = follow(schema)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


# Bytes


def encode(form: Form, value: Any) -> tuple[bytes, str]:
    """Return a body and its media type.

    Args:
        form: The form of the body.
        value: The whole body; an object if the body is a form.

    Raises:
        InvalidArguments: A file is malformed or too large.
    """
    content_type = form.content_type
    if form.kind == "json":
        data = msgspec.json.encode(value)
    elif form.kind == "text":
        data = serialisation.text(value).encode()
    elif form.kind == "bytes":
        content = file_content(value)
        data, content_type = content.data, _specific(content.type, content_type)
    elif not isinstance(value, dict):
        raise InvalidArguments(f"a form must be an object, not {quoting.kind(value)}")
    elif form.kind == "form":
        data = "&".join(_form_pairs(form, value)).encode()
    else:
        boundary = f"interlock-{secrets.token_hex(16)}"
        data = _multipart(form, value, boundary)
        content_type = f"{content_type}; boundary={boundary}"
    if len(data) > MAX_BODY_BYTES:
        raise InvalidArguments(
            f"the request body is too large ({len(data):,} bytes, limit {MAX_BODY_BYTES:,})"
        )
    return data, content_type


def _specific(given: str, declared: str) -> str:
    """Return the declared media type, or the file's media type if a wildcard is declared."""
    return given if given and declared == "application/octet-stream" else declared


def file_content(value: Any) -> FileContent:
    """Return the contents of a file argument.

    Raises:
        InvalidArguments: The file does not have exactly one source, or is too large.
    """
    sources = [key for key in _SOURCES if isinstance(value, dict) and key in value]
    if len(sources) != 1 or not isinstance(value[sources[0]], str):
        raise InvalidArguments("a file needs exactly one of text, base64 and resource")
    given = value[sources[0]]
    if sources[0] == "resource":  # a toolbox replaces resources by their contents beforehand
        raise InvalidArguments("there are no resources here; pass the file as text or base64")
    name, type = value.get("name", ""), value.get("type", "")
    if sources[0] == "text":
        content = FileContent(given.encode(), name, type)
    else:
        try:
            content = FileContent(base64.b64decode(given, validate=True), name, type)
        except (binascii.Error, ValueError):
            raise InvalidArguments(
                "the base64 text of a file is not valid; encode it again"
            ) from None
    if len(content.data) > MAX_FILE_BYTES:
        raise InvalidArguments(
            f"a file is too large ({len(content.data):,} bytes, limit {MAX_FILE_BYTES:,})"
        )
    return content


def replace_files(form: Form, value: Any, change: Callable[[JsonObject], JsonObject]) -> Any:
    """Return a copy of a body's value with `change` applied to each file in it."""
    if form.kind == "bytes":
        return change(value) if isinstance(value, dict) else value
    if form.kind != "multipart" or not isinstance(value, dict):
        return value

    def changed(field: Field | None, each: Any) -> Any:
        if isinstance(each, list):
            return [changed(field, item) for item in each]
        return change(each) if _is_sent_as_file(field, each) else each

    return {name: changed(form.fields.get(name), each) for name, each in value.items()}


def _is_sent_as_file(field: Field | None, value: Any) -> bool:
    if field is not None:
        return field.is_file and isinstance(value, dict)
    return (
        isinstance(value, dict)
        and value.keys() <= FILE["properties"].keys()
        and len([key for key in _SOURCES if key in value]) == 1
    )


def _form_pairs(form: Form, value: JsonObject) -> list[str]:
    pairs: list[str] = []
    for name, given in value.items():
        field = form.fields.get(name, Field())
        if given is not None and field.content_type and is_json(field.content_type):
            given = msgspec.json.encode(given).decode()
        if given is None or given in ([], {}):
            continue
        found = _pairs_of(name, given, field)
        if isinstance(given, dict):
            sent = [unquote(pair.partition("=")[0]) for pair in found]
            serialisation.check_names(name, sent, {*form.fields, *value})
        pairs += found
    return pairs


def _pairs_of(name: str, given: Any, field: Field) -> list[str]:
    if field.style is not None and field.style.name != "deepObject":
        return serialisation.query(name, given, field.style, field.schema)
    is_deep = field.style is not None or _has_parts(given)
    if is_deep and isinstance(given, dict | list):
        found = serialisation.deep(name, given, field.schema, indexed=True)
        return [f"{quote(key, safe='')}={quote(each, safe='')}" for key, each in found]
    return serialisation.query(name, given, Style("form", explode=True), field.schema)


def _has_parts(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    )


def _multipart(form: Form, value: JsonObject, boundary: str) -> bytes:
    lines: list[bytes] = []
    for name, given in value.items():
        field = form.fields.get(name)
        found = _parts(name, given, field)
        if isinstance(given, dict):
            taken = {*form.fields, *value}
            serialisation.check_names(name, [key for key, _ in found], taken)
        for key, each in found:
            headers, data = _part(key, each, field)
            lines += [f"--{boundary}".encode(), *headers, b"", data]
    lines += [f"--{boundary}--".encode(), b""]
    return b"\r\n".join(lines)


def _parts(name: str, value: Any, field: Field | None) -> list[tuple[str, Any]]:
    """Return the parts for a property: one part per item if the value is a list."""
    style = field.style if field else None
    if value is None:
        return []
    if style is None or (field and field.is_file):
        return [(name, each) for each in value] if isinstance(value, list) else [(name, value)]
    schema = field.schema if field else None
    if style.name == "deepObject":
        return serialisation.deep(name, value, schema)
    return serialisation.form_fields(name, value, style, schema)


def _part(name: str, value: Any, field: Field | None) -> tuple[list[bytes], bytes]:
    disposition = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    content_type = field.content_type if field else ""
    if _is_sent_as_file(field, value):
        content = file_content(value)
        disposition += f'; filename="{_quoted(content.name or "file")}"'
        data = content.data
        content_type = content.type or content_type or "application/octet-stream"
    elif isinstance(value, dict | list):
        data = msgspec.json.encode(value)
        content_type = content_type or "application/json"
    elif is_json(content_type) and content_type:
        data = msgspec.json.encode(value)
    else:
        schema = field.schema if field else None
        inner = schema.get("items", schema) if isinstance(schema, dict) else None
        data = serialisation.text(value, inner).encode()
    headers = [disposition]
    if content_type:
        serialisation.check_header("Content-Type", content_type)
        headers.append(f"Content-Type: {content_type}")
    headers += [f"{key}: {each}" for key, each in (field.headers if field else [])]
    return [header.encode() for header in headers], data


def _quoted(name: str) -> str:
    """Escape a field or file name for a header, as HTML forms do."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
