"""JSON-RPC messages: decoding from bytes, and encoding around already encoded contents.

Rules:

1. `params` and `result` stay encoded, until the handler that knows their type decodes them.
2. A message that is not strict JSON-RPC is decoded if its meaning is plain: it may have a byte
   order mark, an id such as 1.0, 2.0 as the number of the version, null for a member that could be
   left out, halves of characters, which are joined or become U+FFFD, and control sequences of a
   terminal, which are removed. Other messages are
   refused: invalid UTF-8, NaN, "Params" for "params", a repeated key of the message, an id such as
   1.5 or one with half of a character. Only a message that the strict decoder has refused is read
   a second time.
3. A message has at most 64 levels, at most 1,048,576 values (more if messages over 16 MiB are
   allowed), and at most 20 digits in each integer. The cost of these checks is linear in the
   message's size, whatever its contents.
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
from interlock.observing import TraceContext, trace_context, trace_members
from interlock.revisions import INVALID_REQUEST
from interlock.text.quoting import clip, place, replace_surrogates
from interlock.text.redaction import HiddenValues
from interlock.text.surrogates import repair_json
from interlock.types import RequestId

MAX_DEPTH = 64
# A value takes 1 to 10 bytes in JSON, but some 50 to 150 bytes of memory when decoded. So a message
# may have one value for each 16 bytes of the size limit, which is 16 MiB by default. This bounds a
# message's memory to about ten times the size limit. Few real messages have more values.
MAX_NODES = 2**20
_BYTES_PER_NODE = 16  # a larger size limit allows one more value for each 16 bytes
_SLICE = 256 * 1024  # bytes to split at quotation marks in one step
MAX_DIGITS = 20
MAX_BATCH = 100
# Frames up to this many bytes get a simpler check, as they have no room for MAX_NODES values.
_LARGE = 2_048

# Use `encode` for small values only: if it runs out of memory, the process aborts (msgspec 0.22).
# Values from users and peers go through `encode_into`, which raises MemoryError.
encode = msgspec.json.Encoder().encode
encode_into = msgspec.json.Encoder().encode_into


class Envelope(Struct, gc=False):
    """A JSON-RPC message whose contents are still encoded."""

    jsonrpc: str = ""
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Cut(bytes):
    """The beginning of a frame that was too large for the memory."""


class RequestFrame(bytes):
    """An encoded request, with the values that HTTP headers repeat.

    Attributes:
        id, method: The request's id and method.
        name: The value for the header Mcp-Name; None if the request has no such header.
        meta: The members of `_meta`, encoded without braces.
        headers: HTTP headers of this request only.
        trace: The trace context in `_meta`, which `meta` leaves out; None if there is none.
    """

    id: int
    method: str
    name: str | None
    meta: bytes
    headers: HiddenValues
    trace: TraceContext | None


class _Method(Struct, gc=False):
    method: str = ""


_decode_method = msgspec.json.Decoder(_Method).decode
_KEYS = frozenset(Envelope.__struct_fields__)
_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_batch = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode

_NULL = Raw(b"null")
BOM = b"\xef\xbb\xbf"
_TWO = re.compile(rb"2(?:\.0+)?")
_WHOLE = re.compile(rb"(-?(?:0|[1-9]\d{0,14}))\.0+")  # an integer that every number type can hold
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
# Colours, modes and titles, as shells and programs write them before or after a message:
# https://github.com/logancyang/obsidian-copilot/issues/2876
_TERMINAL = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|[ -/][0-~]|[0-Z=>])"
)
_NOT_A_NUMBER = re.compile(rb"[:\[,]\s*-?(NaN|Infinity)\b")

# Decoding


def decode(frame: bytes) -> Envelope:
    """Decode one message.

    Raises:
        ParseError: The message is not valid; `code` is the JSON-RPC error code.
    """
    # This is one long function because it runs for every message, and calls would cost more than
    # the checks themselves.
    if not frame.isascii() and (problem := _utf8_problem(frame)) is not None:
        return _decode_repaired(frame, problem)
    # The quick check also counts brackets and commas inside strings. So a frame that passes it is
    # within the bounds, and a frame that fails it needs the exact check.
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
        mended = _mended(repair_json(frame))
        if mended is None:
            raise ParseError(f"not a JSON-RPC message: {error}", INVALID_REQUEST) from None
        return decode(mended)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _decode_repaired(frame, ParseError(f"message is not JSON: {error}"))
    if envelope.jsonrpc != "2.0":
        raise ParseError('"jsonrpc" is not "2.0"', INVALID_REQUEST)
    # `size` becomes the length of the frame without blanks and further members. A frame of exactly
    # this length has no room for a second `id` or `result`, so the slow check of keys is skipped.
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


def _decode_repaired(frame: bytes, error: ParseError) -> Envelope:
    """Decode a message with a byte order mark, control sequences or halves of characters.

    Raises:
        ParseError: The message has none of them, so that `error` is raised, or is not valid.
    """
    if frame.startswith(BOM) and not frame.startswith(BOM, len(BOM)):
        return decode(frame[len(BOM) :])
    plain = frame.strip(b"\0")  # the end of a text in C
    plain = _TERMINAL.sub(b"", plain) if b"\x1b" in frame else plain
    if plain != frame and plain.startswith(b"{") and b"\x1b" not in plain:
        return decode(plain)
    repaired = repair_json(frame)
    if repaired == frame:
        if (found := _NOT_A_NUMBER.search(frame)) is not None:
            raise ParseError(f"message is not JSON: it contains {found[1].decode()}") from None
        raise error from None
    envelope = decode(repaired)
    if isinstance(envelope.id, str) and "\ufffd" in envelope.id:
        raise error from None
    return envelope


def _mended(frame: bytes) -> bytes | None:
    """Return a message in its strict form; None if its meaning is not plain."""
    try:
        members = _decode_members(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    _refuse_ambiguous_keys(frame)
    before = dict(members)
    is_response = "result" in members or "error" in members
    if is_response and members.get("method") == _NULL:
        del members["method"]
    if _TWO.fullmatch(members.get("jsonrpc", b"")):
        members["jsonrpc"] = Raw(b'"2.0"')
    _write_as_integer(members, "id")
    return None if members == before else encode(members)


def _write_as_integer(members: dict[str, Raw], key: str) -> None:
    """Write an id such as 1.0 as 1."""
    whole = _WHOLE.fullmatch(members.get(key, b""))
    if whole is not None:
        members[key] = Raw(whole[1])


def with_integer(params: Raw, key: str) -> Raw:
    """Return params whose member `key`, an id such as 1.0, is written as 1.

    Raises:
        msgspec.DecodeError, RecursionError: The params are not an object.
    """
    members = _decode_members(params)
    _write_as_integer(members, key)
    return Raw(encode(members))


def other_form(id: RequestId) -> RequestId | None:
    """Return the id as a peer may repeat it: "5" for 5, and 5 for "5"; None if there is none."""
    if isinstance(id, int):
        return str(id)
    return int(id) if _INTEGER.fullmatch(id) else None


def notification_method(frame: bytes) -> str:
    """Return the method of a frame that we encoded, if it is a notification; else ""."""
    return "" if frame[:1] == b"[" else _decode_method(frame).method


def split_batch(frame: bytes) -> list[bytes]:
    """Split a batch into its 1 to 100 messages, still encoded.

    Raises:
        ParseError: The array is malformed, empty or too long.
    """
    if len(frame) > _LARGE and not _is_within_bounds(frame):
        _check_closely(frame)
    try:
        raws = _decode_batch(repair_json(frame))
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"message is not JSON: {error}") from None
    if not 1 <= len(raws) <= MAX_BATCH:
        raise ParseError(
            f"batch of {len(raws)} messages; 1 to {MAX_BATCH} allowed", INVALID_REQUEST
        )
    return [bytes(raw) for raw in raws]


def is_notification(message: Envelope) -> bool:
    """Return whether a message with a method needs no answer; its id may be null instead."""
    method = message.method
    return message.id is UNSET or (
        message.id is None and isinstance(method, str) and method.startswith("notifications/")
    )


def messages_in(frame: bytes) -> list[bytes]:
    """Return the messages in a frame, which may be a list or begin with a byte order mark.

    Raises:
        ParseError: The frame is a list that is malformed, empty or too long.
    """
    frame = frame.removeprefix(BOM).lstrip()
    return split_batch(frame) if frame.startswith(b"[") else [frame]


def _refuse_ambiguous_keys(frame: bytes) -> None:
    keys: list[str] = []

    def keep_keys(pairs: list[tuple[str, object]]) -> None:
        nonlocal keys
        keys = [key for key, _ in pairs]

    # The hook is called for inner objects first, so the last call is for the message itself.
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
    """Find the id of a response that cannot be decoded.

    If the response is not even JSON, the id is found if it is the first or last member.
    """
    match = _LEADING_ID.match(frame) or _TRAILING_ID.search(frame[-200:])
    if match is None:
        try:
            members = _decode_members(frame)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        match = None if "method" in members else _ANY_ID.fullmatch(members.get("id", b""))
    if match is None or _REQUEST.match(frame):
        return None
    id: RequestId = json.loads(match[1])
    return id


def id_of_request(frame: bytes) -> RequestId | None:
    """Find the id of a request that cannot be decoded, if the id is its first or last member."""
    match = _REQUEST.match(frame)
    if match is not None and match[1] is None:
        match = _TRAILING_ID.search(frame[-200:])
    if match is None:
        return None
    id: RequestId = json.loads(match[1])
    return id


_ID_VALUE = rb'(0|[1-9]\d{0,17}|"[\w.:-]{1,64}")'
_ANY_ID = re.compile(_ID_VALUE)
_ID = rb'"id"\s*:\s*' + _ID_VALUE + rb"\s*"
_LEADING_ID = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",")
_TRAILING_ID = re.compile(rb",\s*" + _ID + rb"\}\s*\Z")
# This matches a peer's request, whose id is unrelated to the ids of our requests.
_REQUEST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:' + _ID + rb',\s*)?"(?:method|params)"'
)

# Bounds on content


def check_bounds(text: bytes) -> None:
    """Raise an error if text is not UTF-8, or exceeds a limit of rule 3.

    Text that passes may still be malformed JSON.

    Raises:
        ParseError: The text is not UTF-8, or exceeds the limit that the error names.
    """
    _check_utf8(text)
    _check_closely(text)


_DIGITS_TO_ZERO = bytes(48 if 48 <= code <= 57 else code for code in range(256))
_LONG_RUN = b"0" * (MAX_DIGITS + 1)


def _check_utf8(frame: bytes) -> None:
    if (problem := _utf8_problem(frame)) is not None:
        raise problem


def _utf8_problem(frame: bytes) -> ParseError | None:
    try:
        frame.decode()
    except UnicodeDecodeError as error:
        return ParseError(f"message is not UTF-8: {error.reason} at byte {error.start}")
    return None


_LONG_INTEGER = re.compile(rb"(?<![\d.eE+])\d{%d,}(?![\d.eE])" % (MAX_DIGITS + 1))
_NOT_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")
_CURLY_TO_SQUARE = bytes.maketrans(b"{}", b"[]")


def _is_within_bounds(frame: bytes) -> bool:
    """Return True if a large frame is certainly within the limits of rule 3."""
    opens = 0
    for bracket in (b"{", b"["):
        at = frame.find(bracket)  # much faster than counting if there are few brackets
        while at >= 0:
            opens += 1
            if opens > MAX_DEPTH:
                return False
            at = frame.find(bracket, at + 1)
    if len(frame) > MAX_NODES and frame.count(b",") > MAX_NODES - MAX_DEPTH:
        return False
    # Sample every tenth byte: a run of over MAX_DIGITS digits covers two samples in a row.
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
        inner = brackets.replace(b"[]", b"")
        if len(inner) == len(brackets):  # nothing is closed, so further rounds would change nothing
            break
        brackets = inner
    if brackets:
        raise ParseError(f"message is over {MAX_DEPTH} levels deep, or broken", INVALID_REQUEST)


def _outside_strings(frame: bytes) -> bytes:
    """Return the bytes of a frame that are outside of JSON strings."""
    plain = frame
    if b"\\" in frame and b'\\"' in frame:
        plain = frame.replace(b"\\\\", b"").replace(b'\\"', b"")
    # If no quotation mark is escaped, every other piece between the marks is outside of strings.
    bare, in_string = bytearray(), 0
    for begin in range(0, len(plain), _SLICE):  # in slices, because splitting all takes much memory
        pieces = plain[begin : begin + _SLICE].split(b'"')
        bare += b"".join(pieces[in_string::2])
        in_string ^= (len(pieces) - 1) & 1
    return bytes(bare)


# Encoding


def encode_large(value: object) -> bytes:
    """Encode a value of any size that comes from a user or a peer.

    Raises:
        LocalProtocolError: A text is not valid Unicode, so no message can contain it.
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
        value, path = levels.popleft()  # breadth first, so that a value in itself does no harm
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
    """Encode a value of any size; replace lone surrogates in its texts by U+FFFD.

    Raises:
        MemoryError: There is not enough memory.
    """
    try:
        return encode_large(value)
    except LocalProtocolError:
        plain = msgspec.to_builtins(value, enc_hook=msgspec.json.decode)  # only Raw needs a hook
        return encode_large(replace_surrogates(plain))


RESULT = b'{"jsonrpc":"2.0","id":%b,"result":%b}'  # the id and the result are encoded


@lru_cache(256)
def quoted(method: str) -> bytes:
    """Encode a method's name; results are cached, because there are few methods."""
    return encode(method)


def with_trace(meta: bytes, trace: TraceContext) -> bytes:
    """Add a trace context to the encoded members of `_meta`, which have no braces."""
    if trace.others:
        members = encode(dict(trace_members(trace)))[1:-1]
    else:
        parent = trace.parent
        # A value of version 00 has 55 characters, of which none is escaped.
        quoted = b'"%b"' % parent.encode() if len(parent) == 55 else encode(parent)
        members = b'"traceparent":%b' % quoted
        if trace.state:
            members = b'%b,"tracestate":%b' % (members, encode(trace.state))
    return b"%b,%b" % (meta, members) if meta else members


def split_trace(meta: Mapping[str, Any]) -> tuple[bytes, TraceContext | None]:
    """Return the encoded members of `_meta` without braces, and the trace context in `_meta`.

    The members lack the context if it is valid.
    """
    trace = trace_context(meta.get("traceparent"), meta.get("tracestate", ""))
    if trace is not None:
        meta = {key: each for key, each in meta.items() if key not in ("traceparent", "tracestate")}
    return encode(meta)[1:-1], trace


def with_meta(params: bytes, meta: bytes) -> bytes:
    """Add `_meta` to encoded `params`; `meta` has the encoded members, without braces."""
    if not meta:
        return params
    if len(params) <= 2:
        return b'{"_meta":{%b}}' % meta
    return b'{"_meta":{%b},%b' % (meta, params[1:])


def request(id: RequestId, method: str, params: bytes) -> bytes:
    """Encode a request; `params` is an encoded object, which is omitted if it is empty."""
    if len(params) <= 2:
        return b'{"jsonrpc":"2.0","id":%b,"method":%b}' % (_id(id), quoted(method))
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (_id(id), quoted(method), params)


def notification(method: str, params: bytes) -> bytes:
    """Encode a notification; `params` is an encoded object, which is omitted if it is empty."""
    if len(params) <= 2:
        return b'{"jsonrpc":"2.0","method":%b}' % quoted(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (quoted(method), params)


def result(id: RequestId, result: bytes) -> bytes:
    """Encode a successful response, whose `result` is an encoded object."""
    return RESULT % (encode(id), result)


def error(id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """Encode an error response; None as id omits the id, as the newest revisions demand."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    if id is None:
        return b'{"jsonrpc":"2.0","error":%b}' % encode(body)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_id(id), encode(body))


def _id(id: RequestId) -> bytes:
    return b"%d" % id if type(id) is int else encode(id)
