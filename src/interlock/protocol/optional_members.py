"""Null as the value of a member that could be left out, as some serializers write it.

The specification's optional members have a type of their own, so null is not a value of most of
them. The strict decoders refuse it; what they refuse is decoded once more without these nulls.
Members with any JSON value, such as arguments, keep their nulls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from interlock.protocol.envelope import encode

if TYPE_CHECKING:
    from msgspec.inspect import StructType, Type

_T = TypeVar("_T")
_NULL = Raw(b"null")
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
# The specification demands an error for null here: a client must repeat what it was asked.
_NEVER_NULL = frozenset(("inputResponses",))
_decode_items = msgspec.json.Decoder(list[Raw]).decode


def decode_leniently(type: type[_T], raw: bytes | Raw) -> _T:
    """Decode an object of MCP; null counts as a missing member where a member is optional.

    Raises:
        msgspec.DecodeError, RecursionError: `raw` is not a valid `type` in any case.
    """
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError as error:
        try:
            described = _description(type)  # type: ignore[arg-type]  # classes are hashable
            stripped = _without_nulls(bytes(raw).lstrip(), described)
            return msgspec.json.decode(stripped, type=type)
        except (msgspec.DecodeError, RecursionError):
            raise error from None


def decode_params(type: type[_T], params: Raw) -> _T:
    """Decode the params of a message as `decode_leniently` does; null counts as no params."""
    return decode_leniently(type, b"{}" if params == _NULL else params)


@lru_cache
def _description(type: Any) -> Type:
    from msgspec import inspect  # imported late, because few programs need it

    return inspect.type_info(type)


def _without_nulls(encoded: bytes, described: Type) -> bytes:
    """Return an encoded value without the nulls that stand for missing members of structs."""
    from msgspec import inspect

    if isinstance(described, inspect.UnionType):
        for each in described.types:
            encoded = _without_nulls(encoded, each)
    elif isinstance(described, inspect.StructType) and encoded[:1] == b"{":
        return _struct_without_nulls(encoded, described)
    elif isinstance(described, inspect.DictType) and encoded[:1] == b"{":
        values = described.value_type
        members = {key: bytes(each) for key, each in _decode_members(encoded).items()}
        if not _takes_null(values):
            members = {key: each for key, each in members.items() if each != b"null"}
        return _encode({key: _without_nulls(each, values) for key, each in members.items()})
    elif isinstance(described, inspect.ListType) and encoded[:1] == b"[":
        items = [_without_nulls(bytes(e), described.item_type) for e in _decode_items(encoded)]
        return b"[%b]" % b",".join(items)
    return encoded


def _struct_without_nulls(encoded: bytes, described: StructType) -> bytes:
    members = {key: bytes(each) for key, each in _decode_members(encoded).items()}
    tag = described.tag_field
    if tag is not None and members.get(tag) != encode(described.tag):
        return encoded  # another member of a union
    for field in described.fields:
        key = field.encode_name
        if key not in members:
            continue
        if members[key] != b"null":
            members[key] = _without_nulls(members[key], field.type)
        elif not field.required and not _takes_null(field.type) and key not in _NEVER_NULL:
            del members[key]
    return _encode(members)


def _takes_null(described: Type) -> bool:
    from msgspec import inspect

    if isinstance(described, inspect.UnionType):
        return any(isinstance(each, inspect.NoneType) for each in described.types)
    return isinstance(described, inspect.AnyType | inspect.RawType)


def _encode(members: dict[str, bytes]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % (encode(key), each) for key, each in members.items())
