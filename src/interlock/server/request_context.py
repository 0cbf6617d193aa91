"""A request's era, told from its own bytes, and the `Context` that follows from it."""

from __future__ import annotations

import asyncio
from functools import lru_cache

import msgspec
from msgspec import Raw, Struct, UnsetType, field

from interlock import revisions
from interlock.auth.principal import Principal
from interlock.context import LEVELS, BackChannel, Context, Session
from interlock.errors import InvalidArguments, ParseError, RemoteError, RemoteProtocolError
from interlock.protocol import Request
from interlock.types import (
    ClientCapabilities,
    Implementation,
    JsonObject,
    LogLevel,
    ProgressToken,
)


class _Probe(Struct):
    meta: Raw | UnsetType = field(name="_meta", default=msgspec.UNSET)


_probe = msgspec.json.Decoder(_Probe).decode
_decode_object = msgspec.json.Decoder(JsonObject).decode

# Methods that are no longer there in the modern era.
_REMOVED = frozenset(
    name
    for name in revisions.CLIENT_METHODS
    if not revisions.has_method(revisions.CLIENT_METHODS, name, revisions.NEWEST)
)


class Stated(Struct, frozen=True):
    """What a request states in its `_meta`, checked. `revision` is "" for a legacy one."""

    revision: str
    meta: JsonObject
    client_capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None
    log_level: LogLevel | None = None
    progress_token: ProgressToken | None = None


_NOTHING = Stated("", {})
MAX_REMEMBERED = 4096  # bytes of one `_meta`


def context_of(
    request: Request, link: BackChannel, session: Session, principal: Principal | None = None
) -> Context:
    """Make the context of a request on a connection that speaks both eras.

    Raises:
        InterlockError: The request does not state what it must, or comes too early.
    """
    try:
        raw = _probe(request.params).meta
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"params of {request.method}: {error}", -32602) from None
    if raw is msgspec.UNSET:
        return legacy_context(request, {}, link, session, principal)
    encoded = bytes(raw)
    # A client states the same with every request, unless it asks for progress.
    if len(encoded) > MAX_REMEMBERED or b'"progressToken"' in encoded:
        stated = _read(encoded)
    else:
        stated = _read_again(encoded)
    if not stated.revision or request.method == "initialize":
        return legacy_context(request, stated.meta, link, session, principal)
    if request.method in _REMOVED:
        raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {request.method!r}")
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
    )


def stated_in(encoded: bytes) -> Stated:
    """Read an encoded `_meta`; what was read lately is remembered.

    Raises:
        InterlockError: A modern request that does not state what it must.
    """
    if len(encoded) > MAX_REMEMBERED or b'"progressToken"' in encoded:
        return _read(encoded)
    return _read_again(encoded)


def _read(encoded: bytes) -> Stated:
    try:
        meta = _decode_object(encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArguments(f"_meta: {error}") from None
    if not is_modern(meta):
        return Stated("", meta, progress_token=progress_token(meta)) if meta else _NOTHING
    return read_modern(meta)


_read_again = lru_cache(256)(_read)


def read_modern(meta: JsonObject) -> Stated:
    """Check what a modern request states.

    Raises:
        InvalidArguments: Something is missing or wrong.
        RemoteError: -32022; we do not speak its revision.
    """
    check_modern(meta)
    revision = check_revision(meta)
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
    )


def meta_of(request: Request) -> JsonObject:
    """Decode `_meta` of a request; {} when it has none.

    Raises:
        ParseError: `params` or `_meta` is not an object.
    """
    try:
        raw = _probe(request.params).meta
        return {} if raw is msgspec.UNSET else _decode_object(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"params of {request.method}: {error}", -32602) from None


def is_modern(meta: JsonObject) -> bool:
    """Whether a request with this `_meta` is of the modern era."""
    return revisions.VERSION_KEY in meta


def check_modern(meta: JsonObject) -> None:
    """Check what a modern request must state about itself.

    Raises:
        InvalidArguments: Something is missing or of a wrong type.
    """
    missing = [
        key
        for key, type in (
            (revisions.VERSION_KEY, str),
            (revisions.CLIENT_CAPABILITIES_KEY, dict),
        )
        if not isinstance(meta.get(key), type)
    ]
    if missing:
        raise InvalidArguments(f"_meta lacks {' and '.join(missing)}")


def check_revision(meta: JsonObject) -> str:
    """Give the request's revision.

    Raises:
        RemoteError: -32022; we do not speak it.
    """
    revision: str = meta[revisions.VERSION_KEY]
    if revision not in revisions.MODERN:
        raise RemoteError(
            revisions.UNSUPPORTED_VERSION,
            f"protocol revision {revision!r} is not supported",
            {"supported": list(revisions.MODERN), "requested": revision},
        )
    return revision


def check_method(method: str, revision: str) -> None:
    """Refuse what this revision has no name for, so that nothing else is looked at.

    Raises:
        RemoteError: -32601.
    """
    if method in revisions.CLIENT_METHODS and method not in revisions.FEATURES[revision].methods:
        raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {method!r}")


def modern_context(
    request: Request, meta: JsonObject, link: BackChannel, principal: Principal | None = None
) -> Context:
    """Make the context of a modern request from what it states. Nothing is remembered.

    Raises:
        InvalidArguments, RemoteError: See `read_modern` and `check_method`.
    """
    stated = read_modern(meta)
    check_method(request.method, stated.revision)
    return Context(
        revision=stated.revision,
        request_id=request.id,
        link=link,
        loop=asyncio.get_running_loop(),
        client_capabilities=stated.client_capabilities,
        client_info=stated.client_info,
        principal=principal,
        meta=meta,
        progress_token=stated.progress_token,
        log_level=stated.log_level,
    )


def legacy_context(
    request: Request,
    meta: JsonObject,
    link: BackChannel,
    session: Session,
    principal: Principal | None = None,
) -> Context:
    """Make the context of a legacy request from its session.

    Raises:
        RemoteProtocolError: The session has not begun with `initialize`.
        RemoteError: -32601; its revision has no such method.
    """
    if not session.revision and request.method not in ("initialize", "ping"):
        raise RemoteProtocolError(f"{request.method} before initialize")
    revision = session.revision or revisions.NEWEST_LEGACY
    method = request.method
    if method not in revisions.FEATURES[revision].methods and method in revisions.CLIENT_METHODS:
        raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {method!r}")
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
    )


def progress_token(meta: JsonObject) -> ProgressToken | None:
    """Give the token under which the client wants progress, if it is a possible one."""
    token = meta.get("progressToken")
    return token if isinstance(token, str) or type(token) is int else None


def _client_info(told: object) -> Implementation | None:
    try:
        return msgspec.convert(told, Implementation)
    except msgspec.ValidationError:  # for display only, so not worth a refusal
        return None
