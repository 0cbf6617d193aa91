"""Values written as text in a path, a query, a header or a cookie, in the styles of OpenAPI.

In paths and queries, everything but the unreserved characters of RFC 3986 is percent-encoded.
Only a style's delimiters are literal, so a receiver can distinguish them from values.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from interlock.errors import InvalidArguments
from interlock.openapi.operations import Style
from interlock.text import quoting
from interlock.types import JsonObject

_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_RAW_DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}
_RESERVED = ":/?@!$'()*,;"
# Characters allowed in cookies besides letters and digits; "%" is not, as it starts an escape.
_COOKIE_OCTETS = "!#$&'()*+-./:<=>?@[]^_`{|}~"
_COOKIE_NAME = "!#$&'*+-.^_`|~"
_HEADER = re.compile(r"[\t\x20-\x7e]*")


def text(value: Any, schema: Any = None) -> str:
    """Return a string unchanged, and any other value as JSON.

    An integer is written without exponent and fraction, even if the call has 1.0.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and _is_integer(schema) and value.is_integer():
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArguments("a number is not finite, which JSON cannot write")
    return msgspec.json.encode(value).decode()


def texts(value: Any, schema: Any = None) -> list[str]:
    """Return the text of a scalar, of each item in a list, or of each key and value."""
    if isinstance(value, dict):
        return [each for pair in _pairs(value, schema) for each in pair]
    return _items(value, schema) if isinstance(value, list) else [text(value, schema)]


def path(name: str, value: Any, style: Style, schema: Any = None) -> str:
    """Return the text that replaces `{name}` in a path; `routes` has checked the value."""
    if style.media_type:
        return encode(_json(value))
    quoted = _encode_dots if style.name == "label" else encode
    is_matrix = style.name == "matrix"
    if isinstance(value, dict):
        pairs = _pairs(value, schema)
        if style.explode:
            joint = {"label": ".", "matrix": ";"}.get(style.name, ",")
            joined = joint.join(f"{quoted(key)}={quoted(each)}" for key, each in pairs)
            return joined if style.name == "simple" else joint + joined
        parts = [each for pair in pairs for each in pair]
    elif isinstance(value, list):
        parts = _items(value, schema)
        if style.explode and is_matrix:
            return "".join(f";{quoted(name)}={quoted(each)}" for each in parts)
        if style.explode and style.name == "label":
            return "".join(f".{quoted(each)}" for each in parts)
    else:
        parts = [text(value, schema)]
    if style.name in _DELIMITERS:
        _refuse_delimiter(name, parts, _RAW_DELIMITERS[style.name])
    prefix = f";{quoted(name)}=" if is_matrix else "." if style.name == "label" else ""
    return prefix + _DELIMITERS.get(style.name, ",").join(map(quoted, parts))


def query(name: str, value: Any, style: Style, schema: Any = None) -> list[str]:
    """Return the encoded `name=value` pairs for one query parameter."""
    encoded = encode(name)
    if style.media_type:
        return [f"{encoded}={encode(_json(value))}"]
    if style.name == "deepObject" and isinstance(value, dict):
        return [f"{encode(key)}={encode(each)}" for key, each in deep(name, value, schema)]
    if isinstance(value, dict):
        pairs = _pairs(value, schema)
        if style.explode and style.name == "form":
            return [f"{encode(key)}={_reserved(each, style)}" for key, each in pairs]
        flat = [each for pair in pairs for each in pair]
    elif isinstance(value, list):
        flat = _items(value, schema)
        if style.explode or style.name == "deepObject":
            return [f"{encoded}={_reserved(each, style)}" for each in flat]
    else:
        return [f"{encoded}={_reserved(text(value, schema), style)}"]
    if style.name in _DELIMITERS:
        _refuse_delimiter(name, flat, _RAW_DELIMITERS[style.name])
    delimiter = _DELIMITERS.get(style.name, ",")
    return [f"{encoded}={delimiter.join([encode(each) for each in flat])}"]


def check_names(name: str, sent: Iterable[str], taken: Collection[str]) -> None:
    """Raise an error if the keys of an object would be read as other values of the request.

    Receivers differ: many ignore case, decode twice, or cut a name at a NUL. Some read `a[]`,
    `a[0]`, `[a]`, `a]` and `a.b` as `a`, and some read `a.b` and `a[b` as `a_b`.

    Args:
        name: The name of the value.
        sent: The names under which its parts are sent.
        taken: The names of all values in this place of the request, constants and credentials
            included.

    Raises:
        InvalidArguments: A part has the name of another value.
    """
    others = {
        key: each
        for each in taken
        if each != name
        for key in (_as_read(each), _flat(_as_read(each)))
    }
    own = _as_read(name)
    for each in sent:
        whole = _as_read(each)
        roots = {_root(whole, "[]"), _root(whole, "[]."), _flat(whole)} - {own}
        found = next((others[key] for key in (whole, *sorted(roots)) if key in others), None)
        if found is not None:
            raise InvalidArguments(
                f"a key of {quoting.clip(name)} is read as the value {quoting.clip(found)}, which "
                "this call must not set this way; send other keys"
            )


def _as_read(name: str) -> str:
    return unquote(name).partition("\0")[0].strip().casefold()


def _root(name: str, delimiters: str) -> str:
    """Return the first part of a name, such as `a` of `a[0]` and `[a]`."""
    return re.split(f"[{re.escape(delimiters)}]", name.lstrip("[]"), maxsplit=1)[0]


def _flat(name: str) -> str:
    return re.sub(r"[.\s[]", "_", name)


def deep(
    name: str, value: Any, schema: Any = None, *, indexed: bool = False
) -> list[tuple[str, str]]:
    """Return the unencoded pairs for a nested value, with names such as `name[key][inner]`.

    Args:
        name: The name of the value, such as `name[key]`.
        value: Any JSON value; null is omitted.
        schema: The schema of the value.
        indexed: Whether list items are named `name[0]`; if not, scalar items repeat the name.
    """
    if isinstance(value, dict):
        return [
            pair
            for key, each in value.items()
            for pair in deep(f"{name}[{key}]", each, _property(schema, key), indexed=indexed)
        ]
    if isinstance(value, list):
        inner = schema.get("items") if isinstance(schema, dict) else None
        has_parts = any(isinstance(each, dict | list) for each in value)
        return [
            pair
            for index, each in enumerate(value)
            for pair in deep(
                f"{name}[{index}]" if indexed or has_parts else name, each, inner, indexed=indexed
            )
        ]
    return [] if value is None else [(name, text(value, schema))]


def header(name: str, value: Any, style: Style, schema: Any = None) -> str:
    """Return the value of a header.

    Raises:
        InvalidArguments: A header cannot contain the value. The text does not show the value.
    """
    if style.media_type:
        return _header_text(name, json.dumps(value, separators=(",", ":")))  # ASCII only
    delimiter = _RAW_DELIMITERS.get(style.name, ",")
    if isinstance(value, dict):
        pairs = _pairs(value, schema)
        _refuse_delimiter(name, [each for pair in pairs for each in pair], delimiter, "\t ")
        if style.explode:
            return _header_text(name, ",".join(f"{key}={each}" for key, each in pairs))
        return _header_text(name, delimiter.join(each for pair in pairs for each in pair))
    if isinstance(value, list):
        items = _items(value, schema)
        _refuse_delimiter(name, items, delimiter, "\t ")
        return _header_text(name, delimiter.join(items))
    return _header_text(name, text(value, schema))


def cookie(name: str, value: Any, style: Style, schema: Any = None) -> list[str]:
    """Return the `name=value` pairs for one cookie parameter."""
    encoded = quote(name, safe=_COOKIE_NAME)
    if style.media_type:
        return [f"{encoded}={_cookie(_json(value))}"]
    if isinstance(value, dict):
        pairs = _pairs(value, schema)
        if style.explode:
            return [f"{quote(key, safe=_COOKIE_NAME)}={_cookie(each)}" for key, each in pairs]
        return [f"{encoded}={','.join(_cookie(each) for pair in pairs for each in pair)}"]
    if isinstance(value, list):
        items = [_cookie(each) for each in _items(value, schema)]
        if style.explode:
            return [f"{encoded}={each}" for each in items]
        return [f"{encoded}={','.join(items)}"]
    return [f"{encoded}={_cookie(text(value, schema))}"]


def encode(value: str) -> str:
    """Percent-encode all but the unreserved characters."""
    return quote(value, safe="-._~")


def _encode_dots(value: str) -> str:
    return encode(value).replace(".", "%2E")


def _reserved(value: str, style: Style) -> str:
    return quote(value, safe=f"-._~{_RESERVED}" if style.allow_reserved else "-._~")


def _cookie(value: str) -> str:
    return quote(value, safe=_COOKIE_OCTETS)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pairs(value: JsonObject, schema: Any) -> list[tuple[str, str]]:
    return [
        (key, text(each, _property(schema, key))) for key, each in value.items() if each is not None
    ]


def _items(value: list[Any], schema: Any) -> list[str]:
    inner = schema.get("items") if isinstance(schema, dict) else None
    return [text(each, inner) for each in value]


def _property(schema: Any, key: str) -> Any:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(key) if isinstance(properties, dict) else None


def _is_integer(schema: Any) -> bool:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind == "integer" or (isinstance(kind, list) and "integer" in kind)


def _refuse_delimiter(name: str, parts: list[str], delimiter: str, outer: str = "") -> None:
    """Raise an error if a receiver would split an item, or strip `outer` characters from it."""
    if any(delimiter in each or each != each.strip(outer or "\0") for each in parts):
        spaces = " or with leading or trailing spaces" if outer else ""
        name = quoting.clip(name)
        raise InvalidArguments(
            f"{name} cannot carry an item with {delimiter!r}{spaces}; send other items"
        )


def _header_text(name: str, value: str) -> str:
    if not is_header_text(value):
        raise InvalidArguments(
            f"the value of header {quoting.clip(name)} must be printable ASCII, without leading "
            "or trailing spaces; change the value"
        )
    return value


def is_header_text(value: str) -> bool:
    """Return whether a header can contain a text."""
    return bool(_HEADER.fullmatch(value)) and value == value.strip(" \t")


def check_header(name: str, value: str) -> None:
    """Raise an error if a header cannot contain a value.

    Raises:
        InvalidArguments: The header cannot contain the value. The text does not show the value.
    """
    _header_text(name, value)


def form_fields(name: str, value: Any, style: Style, schema: Any) -> list[tuple[str, str]]:
    """Return the unencoded fields for one property of a multipart form."""
    if isinstance(value, dict):
        pairs = _pairs(value, schema)
        if style.explode and style.name == "form":
            return pairs
        flat = [each for pair in pairs for each in pair]
    elif isinstance(value, list):
        flat = _items(value, schema)
        if style.explode:
            return [(name, each) for each in flat]
    else:
        return [(name, text(value, schema))]
    delimiter = _RAW_DELIMITERS.get(style.name, ",")
    _refuse_delimiter(name, flat, delimiter)
    return [(name, delimiter.join(flat))]
