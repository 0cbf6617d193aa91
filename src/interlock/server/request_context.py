"""The `Context` of a request: its era, its revision, and the client's metadata."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock import revisions
from interlock.auth.principal import Principal
from interlock.context import LEVELS, BackChannel, Context, Session
from interlock.errors import InvalidArguments, ParseError, RemoteError, RemoteProtocolError
from interlock.observing import TraceContext, trace_context
from interlock.protocol import Request
from interlock.protocol.leniency import decode_params
from interlock.types import (
    ClientCapabilities,
    Implementation,
    JsonObject,
    LogLevel,
    ProgressToken,
    Wire,
)

MAX_CACHED_META = 4_096  # bytes; longer encoded `_meta` is decoded each time


class AskingParams(Wire, frozen=True):
    """Params of a request that may be answered with questions; the next request has answers."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    input_responses: dict[str, dict[str, Any]] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class CallParams(AskingParams, frozen=True, kw_only=True):
    """Params of `tools/call`. The arguments stay encoded: only the tool knows their types."""

    name: str
    arguments: Raw | UnsetType = UNSET


class _Probe(Struct):
    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class _Changing(TypedDict, total=False):
    """The members of `_meta` that differ from request to request."""

    traceparent: str | int
    tracestate: str | int
    baggage: str | int
    progressToken: str | int


decode_call = msgspec.json.Decoder(CallParams).decode
_decode_changing = msgspec.json.Decoder(_Changing).decode
_CHANGING = re.compile(rb'"(?:trace(?:parent|state)|baggage|progressToken)"')
_MEMBERS = re.compile(  # these members at any depth, if a text or an integer, and the next comma
    rb'"(?:trace(?:parent|state)|baggage|progressToken)"\s*:\s*(?:"[^"\\]*"|-?\d+(?![\d.eE]))\s*,?'
)
# The trace where most tracing clients write it: first or last. There it cannot be nested.
_PARENT = rb'"traceparent":"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"'
_begins_with_trace = re.compile(rb"\{" + _PARENT + b"[,}]").match
_ends_with_trace = re.compile(b"," + _PARENT + rb"\}").match
_LENGTH = 73  # bytes of such a trace
_probe = msgspec.json.Decoder(_Probe).decode
_decode_object = msgspec.json.Decoder(JsonObject).decode


class Stated(Struct, frozen=True):
    """The content of a request's `_meta`, already checked; `revision` is "" in a legacy request."""

    revision: str
    meta: JsonObject
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None
    log_level: LogLevel | None = None
    progress_token: ProgressToken | None = None
    trace: TraceContext | None = None


NOTHING_STATED = Stated("", {})


def context_of(
    request: Request, link: BackChannel, session: Session, principal: Principal | None = None
) -> Context:
    """Return the context of a request on a connection that serves both eras.

    Raises:
        InterlockError: Metadata is missing, or the client has not sent `initialize`.
    """
    params = None
    try:
        if request.method == "tools/call":
            params = decode_call(request.params)
            raw = params.meta
        else:
            raw = _probe(request.params).meta
    except (msgspec.DecodeError, RecursionError):
        params, raw = _reread(request)
    if raw is UNSET:
        return legacy_context(request, {}, link, session, principal, params)
    encoded = bytes(raw)
    # The code of `stated_in`, inlined to save a call for each request.
    if b'"traceparent"' in encoded or b'"progressToken"' in encoded:
        stated = read_changing(encoded)
    elif len(encoded) > MAX_CACHED_META:
        stated = _read(encoded)
    else:
        stated = read_cached(encoded)
    if not stated.revision or request.method == "initialize":
        context = legacy_context(request, stated.meta, link, session, principal, params)
        context.trace = stated.trace
        return context
    if request.method not in revisions.FEATURES[stated.revision].methods:
        check_method(request.method, stated.revision)
    return Context(
        revision=stated.revision,
        request_id=request.id,
        link=link,
        loop=asyncio.get_running_loop(),
        client_capabilities=stated.client_capabilities,
        client_info=stated.client_info,
        principal=principal,
        meta=stated.meta,
        progress_token=stated.progress_token,
        log_level=stated.log_level,
        call_params=params,
        trace=stated.trace,
    )


def _reread(request: Request) -> tuple[CallParams | None, Raw | UnsetType]:
    try:
        if request.method == "tools/call":
            params = decode_params(CallParams, request.params)
            return params, params.meta
        return None, decode_params(_Probe, request.params).meta
    except (msgspec.DecodeError, RecursionError) as error:
        text = f"params of {request.method}: {error}"
        raise ParseError(text, revisions.INVALID_PARAMS) from None


def legacy_context(
    request: Request,
    meta: JsonObject,
    link: BackChannel,
    session: Session,
    principal: Principal | None = None,
    call_params: CallParams | None = None,
) -> Context:
    """Return the context of a request in a legacy session.

    Raises:
        RemoteProtocolError: The client has not sent `initialize`.
        RemoteError: -32601: the session's revision does not define the method.
    """
    method = request.method
    if not session.revision and method not in ("initialize", "ping"):
        raise RemoteProtocolError(f"{method} came before initialize")
    revision = session.revision or revisions.NEWEST_LEGACY
    if method not in revisions.FEATURES[revision].methods:
        check_method(method, revision)
    return Context(
        revision=revision,
        request_id=request.id,
        link=link,
        loop=asyncio.get_running_loop(),
        client_capabilities=session.client_capabilities,
        client_info=session.client_info,
        principal=principal,
        meta=meta,
        progress_token=progress_token(meta) if meta else None,
        log_level=session.log_level,
        session=session,
        call_params=call_params,
    )


def check_method(method: str, revision: str) -> None:
    """Refuse a method that the revision does not define; methods of extensions are allowed.

    Raises:
        RemoteError: -32601: the revision does not define the method.
    """
    if method in revisions.CLIENT_METHODS and method not in revisions.FEATURES[revision].methods:
        raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {method!r}")


# `_meta`


def stated_by(request: Request) -> Stated:
    """Return the content of a request's `_meta`.

    Raises:
        ParseError: `params` or `_meta` is not an object.
    """
    _, raw = _reread(request)
    return NOTHING_STATED if raw is UNSET else stated_in(bytes(raw))


def stated_in(encoded: bytes) -> Stated:
    """Decode and check `_meta`. Results are cached, because clients send the same each time.

    Raises:
        InterlockError: `_meta` of a modern request is incomplete.
    """
    if b'"traceparent"' in encoded or b'"progressToken"' in encoded:
        return read_changing(encoded)
    return _read(encoded) if len(encoded) > MAX_CACHED_META else read_cached(encoded)


def read_changing(encoded: bytes) -> Stated:
    """Decode `_meta` whose trace or progress token is new; look up the rest of it in the cache.

    Requests of one client then share the objects that later caches know by their identity.
    """
    if len(encoded) > MAX_CACHED_META + _LENGTH:
        return _read(encoded)
    if _begins_with_trace(encoded):
        parent, stated = encoded[16:71].decode(), _read_rest(b"{" + (encoded[_LENGTH:] or b"}"))
    elif _ends_with_trace(encoded, len(encoded) - _LENGTH):
        parent, stated = encoded[-57:-2].decode(), _read_rest(encoded[:-_LENGTH] + b"}")
    else:
        stated = None
    if stated is None:
        return _read_scattered(encoded)
    return Stated(
        stated.revision,
        {**stated.meta, "traceparent": parent},
        stated.client_capabilities,
        stated.client_info,
        stated.log_level,
        None,
        TraceContext(parent),
    )


@lru_cache(256)
def _read_rest(rest: bytes) -> Stated | None:
    """Decode `_meta` without its trace; None if it has other changing members, or escapes.

    With escapes, what looks like the trace may be a part of a text.
    """
    return None if b"\\" in rest or _CHANGING.search(rest) else read_cached(rest)


def _read_scattered(encoded: bytes) -> Stated:
    """Decode `_meta` whose changing members may be anywhere; see `read_changing`."""
    try:
        meta = _decode_changing(encoded)
    except (msgspec.DecodeError, RecursionError):  # also if a member has another kind of value
        return _read(encoded)
    rest, count = _MEMBERS.subn(b"", encoded)
    if count != len(meta) or b"\\" in encoded:  # one is nested or repeated
        return _read(encoded)
    rest = rest[:-1].rstrip(b", \t\r\n") + b"}"
    if len(rest) > MAX_CACHED_META:
        return _read(encoded)
    stated = read_cached(rest)
    return Stated(
        stated.revision,
        {**stated.meta, **meta},
        stated.client_capabilities,
        stated.client_info,
        stated.log_level,
        meta.get("progressToken"),
        trace_context(meta.get("traceparent"), meta.get("tracestate")),
    )


def _read(encoded: bytes) -> Stated:
    try:
        meta = _decode_object(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        if encoded in (b"null", b"[]"):  # some serializers write this for a missing `_meta`
            return NOTHING_STATED
        raise InvalidArguments(f"_meta: {error}") from None
    if revisions.VERSION_KEY in meta:
        return read_modern(meta)
    if not meta:
        return NOTHING_STATED
    return Stated("", meta, progress_token=progress_token(meta), trace=_trace_in(meta))


def _trace_in(meta: JsonObject) -> TraceContext | None:
    return trace_context(meta.get("traceparent"), meta.get("tracestate"))


read_cached = lru_cache(256)(_read)


def read_modern(meta: JsonObject) -> Stated:
    """Check and return the metadata of a modern request.

    Raises:
        InvalidArguments: A member is missing or not valid.
        RemoteError: -32022: the server does not support the revision.
    """
    check_modern(meta)
    revision: str = meta[revisions.VERSION_KEY]
    if revision not in revisions.MODERN:
        raise RemoteError(
            revisions.UNSUPPORTED_VERSION,
            f"protocol revision {revision!r} is not supported",
            {"supported": list(revisions.MODERN), "requested": revision},
        )
    level = meta.get(revisions.LOG_LEVEL_KEY)
    if level is not None and level not in LEVELS:
        raise InvalidArguments(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    capabilities = meta[revisions.CLIENT_CAPABILITIES_KEY]
    try:
        client_capabilities = msgspec.convert(capabilities, ClientCapabilities)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"clientCapabilities: {error}") from None
    return Stated(
        revision=revision,
        meta=meta,
        client_capabilities=client_capabilities,
        client_info=_client_info(meta.get(revisions.CLIENT_INFO_KEY)),
        log_level=level,
        progress_token=progress_token(meta),
        trace=_trace_in(meta),
    )


def check_modern(meta: JsonObject) -> None:
    """Check that `_meta` has the members that every modern request must have.

    Raises:
        InvalidArguments: A member is missing or has the wrong type.
    """
    required = ((revisions.VERSION_KEY, str), (revisions.CLIENT_CAPABILITIES_KEY, dict))
    missing = [key for key, type in required if not isinstance(meta.get(key), type)]
    if missing:
        raise InvalidArguments(f"_meta lacks {' and '.join(missing)}")


def progress_token(meta: JsonObject) -> ProgressToken | None:
    """Return the client's token for progress; None if it is missing or invalid."""
    token = meta.get("progressToken")
    return token if isinstance(token, str) or type(token) is int else None


def _client_info(stated: object) -> Implementation | None:
    try:
        return msgspec.convert(stated, Implementation)
    except msgspec.ValidationError:  # ignored, because the client's name is only for display
        return None
