"""Objects of MCP in which some serializers write a member in another form.

The strict decoders refuse such an object. It is rewritten in its strict form and decoded again:

| the type says | and the value is | it becomes |
|---|---|---|
| an optional member | null, or false if it is not a boolean | no member |
| an unknown member | null | no member |
| an object | `[]`, as PHP writes an empty one | `{}` |
| a list of objects | one object | a list of it |
| a list of objects | `{}`, as Lua writes an empty one | `[]` |
| an optional object | true | `{}` |
| a capability of a server | a list | `{}` |
| a boolean | "true", "false", 1 or 0 | a boolean |
| a number | a number as text, or an integer such as 12.0 | a number |
| an optional text | a number | a text |
| a member that a server's users can do without | anything else that does not fit | no member |

Members with any JSON value, such as arguments, stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from interlock.protocol.envelope import encode, with_integer
from interlock.revisions import INTERNAL_ERROR
from interlock.types import ErrorObject, ServerCapabilities

if TYPE_CHECKING:
    from msgspec.inspect import Field, StructType, Type

_T = TypeVar("_T")
_NULL = Raw(b"null")
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
# The specification demands an error for null here: a client must repeat what it was asked.
_NEVER_NULL = frozenset(("inputResponses",))
_DISPENSABLE = frozenset(
    (
        *("annotations", "clientInfo", "icons", "instructions", "outputSchema", "serverInfo"),
        *("title", "websiteUrl"),
    )
)
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_NUMBER = re.compile(rb"-?\d{1,20}(?:\.\d{1,20})?")
_QUOTED = re.compile(rb'"(%b)"' % _NUMBER.pattern)
_WHOLE = re.compile(rb"(-?\d{1,15})\.0{1,20}")  # an integer that every number type can hold
_BOOLEANS = {b'"true"': b"true", b'"false"': b"false", b"1": b"true", b"0": b"false"}


def decode_leniently(type: type[_T], raw: bytes | Raw) -> _T:
    """Decode an object of MCP, in its strict form if it has another one.

    Raises:
        msgspec.DecodeError, RecursionError: `raw` is not a valid `type` in any case.
    """
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError as error:
        try:
            return msgspec.json.decode(strict_form(type, raw), type=type)
        except (msgspec.DecodeError, RecursionError):
            raise error from None


def decode_params(type: type[_T], params: Raw) -> _T:
    """Decode the params of a message as `decode_leniently` does; null counts as no params."""
    return decode_leniently(type, b"{}" if params == _NULL else params)


def decode_with_id(type: type[_T], params: Raw, key: str) -> _T:
    """Decode params as `decode_leniently` does; the id in the member `key` may be 1.0 for 1."""
    try:
        return msgspec.json.decode(params, type=type)
    except msgspec.ValidationError:
        return decode_leniently(type, with_integer(params, key))


def decode_error(raw: bytes | Raw) -> ErrorObject:
    """Decode the error of a response; a text, or one without a valid code, is an internal error.

    Raises:
        msgspec.DecodeError, RecursionError: `raw` has neither a valid code nor a message.
    """
    try:
        return decode_leniently(ErrorObject, raw)
    except msgspec.ValidationError as error:
        told = msgspec.json.decode(raw)
        code, message = (
            (told.get("code"), told.get("message")) if isinstance(told, dict) else ("", told)
        )
        if not isinstance(message, str):
            raise error from None
        said = f"{code}: {message}" if isinstance(code, str) and code else message
        return ErrorObject(code=INTERNAL_ERROR, message=said)


def strict_form(type: type[Any], raw: bytes | Raw) -> bytes:
    """Return an encoded object in its strict form; what cannot be rewritten stays as it is.

    Raises:
        msgspec.DecodeError, RecursionError: `raw` is not JSON.
    """
    return _strict(bytes(raw).strip(), _description(type))  # type: ignore[arg-type]  # hashable


@lru_cache
def _description(type: Any) -> Type:
    from msgspec import inspect  # imported late, because few programs need it

    return inspect.type_info(type)


def _strict(encoded: bytes, described: Type) -> bytes:
    from msgspec import inspect

    if isinstance(described, inspect.UnionType):
        types = [each for each in described.types if not isinstance(each, inspect.NoneType)]
        if len(types) == 1:
            return _strict(encoded, types[0])
        for each in types:
            if isinstance(each, inspect.StructType | inspect.DictType | inspect.ListType):
                encoded = _strict(encoded, each)
    elif isinstance(described, inspect.StructType) and encoded[:1] == b"{":
        return _strict_struct(encoded, described)
    elif isinstance(described, inspect.DictType) and encoded[:1] == b"{":
        values = described.value_type
        members = {key: bytes(each) for key, each in _decode_members(encoded).items()}
        if not _takes_null(values):
            members = {key: each for key, each in members.items() if each != b"null"}
        return _encode({key: _strict(each, values) for key, each in members.items()})
    elif isinstance(described, inspect.ListType) and encoded[:1] == b"[":
        items = [_strict(bytes(each), described.item_type) for each in _decode_items(encoded)]
        return b"[%b]" % b",".join(items)
    elif isinstance(described, inspect.ListType) and encoded[:1] == b"{":
        if not isinstance(described.item_type, inspect.StructType | inspect.RawType):
            return encoded
        # https://github.com/mpx/lua-cjson/issues/11
        return b"[]" if encoded == b"{}" else b"[%b]" % _strict(encoded, described.item_type)
    elif isinstance(described, inspect.BoolType):
        return _BOOLEANS.get(encoded, encoded)
    elif isinstance(described, inspect.IntType | inspect.FloatType):
        quoted = _QUOTED.fullmatch(encoded)
        number = encoded if quoted is None else quoted[1]
        whole = _WHOLE.fullmatch(number) if isinstance(described, inspect.IntType) else None
        return number if whole is None else whole[1]
    return encoded


def _strict_struct(encoded: bytes, described: StructType) -> bytes:
    known = {each.encode_name for each in described.fields}
    members = {
        key: bytes(each)
        for key, each in _decode_members(encoded).items()
        if key in known or each != _NULL
    }
    tag = described.tag_field
    if tag is not None and members.get(tag) != encode(described.tag):
        return encoded  # another member of a union
    types = {each.encode_name: each.type for each in msgspec.structs.fields(described.cls)}
    for field in described.fields:
        key = field.encode_name
        if key not in members:
            continue
        value = _strict_member(members[key], field)
        # Some servers list their tools here: https://github.com/springfall2008/batpred/issues/3496
        if value is not None and described.cls is ServerCapabilities and value[:1] == b"[":
            value = b"{}"
        if value is None or not (
            field.required or key not in _DISPENSABLE or _fits(value, types[key])
        ):
            del members[key]
        else:
            members[key] = value
    return _encode(members)


def _strict_member(encoded: bytes, field: Field) -> bytes | None:
    """Return a member of a struct in its strict form; None to leave it out."""
    from msgspec import inspect

    types = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    kinds = {type(each) for each in types} - {inspect.NoneType}
    if encoded == b"[]" and kinds <= {inspect.StructType, inspect.DictType}:
        return b"{}"
    if not field.required:
        is_null = encoded == b"null" and field.encode_name not in _NEVER_NULL
        if is_null and (field.default is None or not _takes_null(field.type)):
            return None
        if encoded == b"false" and not kinds & {inspect.BoolType, inspect.AnyType, inspect.RawType}:
            return None
        if encoded == b"true" and kinds <= {inspect.StructType, inspect.DictType}:
            return b"{}"
        if kinds == {inspect.StrType} and _NUMBER.fullmatch(encoded):
            return b'"%b"' % encoded
    return encoded if encoded == b"null" else _strict(encoded, field.type)


def _fits(encoded: bytes, type: Any) -> bool:
    try:
        msgspec.json.decode(encoded, type=type)
    except msgspec.DecodeError:
        return False
    return True


def _takes_null(described: Type) -> bool:
    from msgspec import inspect

    if isinstance(described, inspect.UnionType):
        return any(isinstance(each, inspect.NoneType) for each in described.types)
    return isinstance(described, inspect.AnyType | inspect.RawType)


def _encode(members: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (encode(key), each) for key, each in members.items())
