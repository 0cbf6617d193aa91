"""The JSON-RPC envelope: strict decoding from bytes, and encoding by splicing.

Rules:

1. `params` and `result` stay encoded; only the handler that knows the type decodes them.
2. Messages that are not strict JSON-RPC are refused: bad UTF-8, NaN, a byte order mark, lone
   surrogates, "Params" for "params", an envelope key given twice, a fractional id.
3. A message is at most 64 levels deep, has at most 1,048,576 values (more where messages of
   over 16 MiB are allowed), and no integer in it has more than 20 digits. The cost of these
   checks is linear in its size, whatever its content.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from interlock.errors import LocalProtocolError, ParseError
from interlock.revisions import INVALID_REQUEST
from interlock.text.quoting import clip, place, replace_surrogates
from interlock.types import RequestId

MAX_DEPTH = 64
# JSON of 1 to 10 bytes a value decodes to some 50 to 150 bytes of memory a value. This bounds the
# memory of a message to about ten times its largest size, 16 MiB unless configured otherwise:
# one value for each 16 bytes of the limit. Few real messages exceed it.
MAX_NODES = 2**20
_BYTES_PER_NODE = 16  # so a larger limit of bytes allows more values than MAX_NODES
_SLICE = 256 * 1024  # bytes to split at their quotes at once
MAX_DIGITS = 20
MAX_BATCH = 100
# Frames up to this size (bytes) are checked whole; they have no room for MAX_NODES values.
_LARGE = 2_048

# `encode` is for small values: when it runs out of memory, the process ends (msgspec 0.22).
# Values from users and peers go through `encode_into`, which raises MemoryError.
encode = msgspec.json.Encoder().encode
encode_into = msgspec.json.Encoder().encode_into


class Envelope(Struct, gc=False):
    """One JSON-RPC message with its contents still encoded."""

    jsonrpc: str = ""
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Cut(bytes):
    """The beginning of a frame that did not fit into memory."""


class RequestFrame(bytes):
    """An encoded request with the values that HTTP headers repeat.

    Attributes:
        id, method: As in the request.
        name: The member of `params` that Mcp-Name repeats; None when not stated.
        meta: Members of `_meta`, encoded without braces.
    """

    id: int
    method: str
    name: str | None
    meta: bytes


class _Method(Struct, gc=False):
    method: str = ""


_decode_method = msgspec.json.Decoder(_Method).decode
_KEYS = frozenset(Envelope.__struct_fields__)
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode

# Decoding


def decode(frame: bytes) -> Envelope:
    """Decode one message.

    Raises:
        ParseError: The message is not acceptable; `code` is the JSON-RPC error code.
    """
    # One long function, because it runs for every message: calls would cost more than the checks.
    if not frame.isascii():
        _check_utf8(frame)
    # The quick check also counts brackets and commas inside strings: a frame that passes is within
    # the bounds, and any other frame needs the exact check.
    if len(frame) > _LARGE:
        if not _is_within_bounds(frame):
            _check_closely(frame)
    else:
        opens = frame.count(b"{") + frame.count(b"[")
        if opens > MAX_DEPTH or _LONG_RUN in frame.translate(_DIGITS_TO_ZERO):
            _check_closely(frame)
    try:
        envelope = _decode_envelope(frame)
    except msgspec.ValidationError as error:
        raise ParseError(f"not a JSON-RPC message: {error}", INVALID_REQUEST) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ParseError(f"message is not JSON: {error}") from None
    if envelope.jsonrpc != "2.0":
        raise ParseError('"jsonrpc" is not "2.0"', INVALID_REQUEST)
    # The length of the frame if it has no blanks and no further members. A frame of exactly this
    # length has no room for a second `id` or `result`, so its keys need no slow check.
    size = 17  # {"jsonrpc":"2.0"}
    id = envelope.id
    if id is not UNSET:
        size += 6 + (len(str(id)) if type(id) is int else len(encode(id)))
    if envelope.method is not UNSET:
        size += 12 + len(envelope.method)
    if envelope.params is not UNSET:
        size += 10 + memoryview(envelope.params).nbytes
    if envelope.result is not UNSET:
        size += 10 + memoryview(envelope.result).nbytes
    if envelope.error is not UNSET:
        size += 9 + memoryview(envelope.error).nbytes
    if len(frame) != size:
        _refuse_ambiguous_keys(frame)
    return envelope


def notification_method(frame: bytes) -> str:
    """Return the method of a notification that we encoded; "" for responses and batches."""
    return "" if frame[:1] == b"[" else _decode_method(frame).method


def split_batch(frame: bytes) -> list[bytes]:
    """Split a batch into its 1 to 100 messages, still encoded.

    Raises:
        ParseError: The array is malformed, empty or too long.
    """
    if len(frame) > _LARGE and not _is_within_bounds(frame):
        _check_closely(frame)
    try:
        raws = _decode_batch(frame)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"message is not JSON: {error}") from None
    if not 1 <= len(raws) <= MAX_BATCH:
        raise ParseError(
            f"batch of {len(raws)} messages; 1 to {MAX_BATCH} allowed", INVALID_REQUEST
        )
    return [bytes(raw) for raw in raws]


def _refuse_ambiguous_keys(frame: bytes) -> None:
    keys: list[str] = []

    def keep_keys(pairs: list[tuple[str, object]]) -> None:
        nonlocal keys
        keys = [key for key, _ in pairs]

    # Objects are reported innermost first, so the envelope is the last one.
    json.loads(frame, object_pairs_hook=keep_keys, parse_int=len, parse_float=len)
    if len(set(keys)) != len(keys):
        twice = sorted(key for key, times in Counter(keys).items() if times > 1)
        raise ParseError(f"member given twice: {_first_of(twice)}", INVALID_REQUEST)
    # Some parsers accept "Method" for "method", so two programs would see different messages.
    other_case = sorted(key for key in keys if key not in _KEYS and key.casefold() in _KEYS)
    if other_case:
        raise ParseError(f"member in wrong case: {_first_of(other_case)}", INVALID_REQUEST)


def _first_of(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(clip(key[:40]) for key in keys[:3]) + more


def id_of(frame: bytes) -> RequestId | None:
    """Return the id of a response that cannot be decoded, if it is its first or last member."""
    match = _LEADING_ID.match(frame) or _TRAILING_ID.search(frame[-200:])
    if match is None or _REQUEST.match(frame):
        return None
    id: RequestId = json.loads(match[1])
    return id


def id_of_request(frame: bytes) -> RequestId | None:
    """Return the id of a request that cannot be decoded, as `id_of` does."""
    match = _REQUEST.match(frame)
    if match is not None and match[1] is None:
        match = _TRAILING_ID.search(frame[-200:])
    if match is None:
        return None
    id: RequestId = json.loads(match[1])
    return id


_ID = rb'"id"\s*:\s*(0|[1-9]\d{0,17}|"[\w.:-]{1,64}")\s*'
_LEADING_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_TRAILING_ID = re.compile(rb",\s*" + _ID + rb"\}\s*\Z")
# The ids of the peer's requests are unrelated to ours.
_REQUEST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:' + _ID + rb',\s*)?"(?:method|params)"'
)

# Bounds on content


def check_bounds(text: bytes) -> None:
    """Refuse text that is not UTF-8 or breaks rule 3. It may still be malformed JSON.

    Raises:
        ParseError: The text exceeds the bound that the error names.
    """
    _check_utf8(text)
    _check_closely(text)


_DIGITS_TO_ZERO = bytes(48 if 48 <= code <= 57 else code for code in range(256))
_LONG_RUN = b"0" * (MAX_DIGITS + 1)


def _check_utf8(frame: bytes) -> None:
    try:
        frame.decode()
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start}"
        raise ParseError(f"message is not UTF-8: {where}") from None


_LONG_INTEGER = re.compile(rb"(?<![\d.eE+])\d{%d,}(?![\d.eE])" % (MAX_DIGITS + 1))
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_CURLY_TO_SQUARE = bytes.maketrans(b"{}", b"[]")


def _is_within_bounds(frame: bytes) -> bool:
    """Return True if a large frame is certainly within the bounds."""
    opens = 0
    for bracket in (b"{", b"["):
        at = frame.find(bracket)  # much faster than counting, if there are few brackets
        while at >= 0:
            opens += 1
            if opens > MAX_DEPTH:
                return False
            at = frame.find(bracket, at + 1)
    if len(frame) > MAX_NODES and frame.count(b",") > MAX_NODES - MAX_DEPTH:
        return False
    # Of every tenth byte, a run of more than MAX_DIGITS digits covers two in a row.
    tenth = frame[:: MAX_DIGITS // 2].translate(_DIGITS_TO_ZERO)
    return b"00" not in tenth or _LONG_RUN not in frame.translate(_DIGITS_TO_ZERO)


def _check_closely(frame: bytes) -> None:
    most = max(MAX_NODES, len(frame) // _BYTES_PER_NODE)
    bare = _outside_strings(frame)
    if bare.count(b"{") + bare.count(b"[") + bare.count(b",") > most:
        raise ParseError(f"message has over {most:,} values", INVALID_REQUEST)
    if _LONG_RUN in bare.translate(_DIGITS_TO_ZERO) and _LONG_INTEGER.search(bare):
        raise ParseError(f"message has an integer of over {MAX_DIGITS} digits", INVALID_REQUEST)
    brackets = bare.translate(_CURLY_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise ParseError(f"message is over {MAX_DEPTH} levels deep, or broken", INVALID_REQUEST)


def _outside_strings(frame: bytes) -> bytes:
    """Return the bytes outside of strings."""
    plain = frame
    if b"\\" in frame and b'\\"' in frame:
        plain = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Without escaped quotes, every other piece between quotes is outside of strings.
    bare, in_string = bytearray(), 0
    for begin in range(0, len(plain), _SLICE):  # splitting the whole frame would take much memory
        pieces = plain[begin : begin + _SLICE].split(b'"')
        bare += b"".join(pieces[in_string::2])
        in_string ^= (len(pieces) - 1) & 1
    return bytes(bare)


# Encoding


def encode_large(value: object) -> bytes:
    """Encode a value of any size from users or peers.

    Raises:
        LocalProtocolError: A text is not valid Unicode, so no message can carry it.
        MemoryError: There is not enough memory.
    """
    encoded = bytearray()
    try:
        encode_into(value, encoded)
    except UnicodeEncodeError as error:
        where = place(_place_of_text(value, error.object)) or "the value"
        raise LocalProtocolError(
            f"{where} is not valid Unicode (half of a surrogate pair at character {error.start});"
            " remove or replace it"
        ) from None
    return bytes(encoded)


def _place_of_text(value: object, text: str) -> list[str | int]:
    levels: deque[tuple[object, list[str | int]]] = deque([(value, [])])
    while levels:
        value, path = levels.popleft()  # breadth first, because a value may contain itself
        members: Iterable[tuple[str | int, object]] = ()
        if isinstance(value, Struct):
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            members = [(name, getattr(value, field)) for name, field in names]
        elif isinstance(value, Mapping):
            members = value.items()
        elif isinstance(value, list | tuple):
            members = enumerate(value)
        for name, member in members:
            if text in (name, member):
                return [*path, name]
            levels.append((member, [*path, name]))
    return []


def encode_lossy(value: object) -> bytes:
    """Encode a value of any size; lone surrogates in its text become U+FFFD.

    Raises:
        MemoryError: There is not enough memory.
    """
    try:
        return encode_large(value)
    except LocalProtocolError:
        plain = msgspec.to_builtins(value, enc_hook=msgspec.json.decode)  # only Raw needs a hook
        return encode_large(replace_surrogates(plain))


RESULT = b'{"jsonrpc":"2.0","id":%b,"result":%b}'  # both encoded


@lru_cache(256)
def quoted(method: str) -> bytes:
    """Encode the name of a method; there are few, so results are cached."""
    return encode(method)


def with_meta(params: bytes, meta: bytes) -> bytes:
    """Add `_meta` to `params`. `meta` is its encoded members, without braces."""
    if not meta:
        return params
    if len(params) <= 2:
        return b'{"_meta":{%b}}' % meta
    return b'{"_meta":{%b},%b' % (meta, params[1:])


def request(id: RequestId, method: str, params: bytes) -> bytes:
    """Encode a request. `params` is an encoded object; an empty one is omitted."""
    if len(params) <= 2:
        return b'{"jsonrpc":"2.0","id":%b,"method":%b}' % (_id(id), quoted(method))
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (_id(id), quoted(method), params)


def notification(method: str, params: bytes) -> bytes:
    """Encode a notification. `params` is an encoded object; an empty one is omitted."""
    if len(params) <= 2:
        return b'{"jsonrpc":"2.0","method":%b}' % quoted(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (quoted(method), params)


def result(id: RequestId, result: bytes) -> bytes:
    """Encode a successful response; `result` is an encoded object."""
    return RESULT % (encode(id), result)


def error(id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """Encode an error response. Without an id it omits `id`, as the newest revisions demand."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    if id is None:
        return b'{"jsonrpc":"2.0","error":%b}' % encode(body)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_id(id), encode(body))


def _id(id: RequestId) -> bytes:
    return b"%d" % id if type(id) is int else encode(id)
