"""A request's era, told from its own bytes, and the `Context` that follows from it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType, field

from interlock import revisions
from interlock.context import LEVELS, Context, Link, Principal, Session
from interlock.errors import InvalidArguments, ParseError, RemoteError, RemoteProtocolError
from interlock.protocol import Request
from interlock.types import (
    ClientCapabilities,
    Implementation,
    JsonObject,
    ProgressToken,
)


class _Probe(Struct):
    meta: Raw | UnsetType = field(name="_meta", default=msgspec.UNSET)


_probe = msgspec.json.Decoder(_Probe).decode
_decode_object = msgspec.json.Decoder(JsonObject).decode


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
    known = method in revisions.CLIENT_METHODS
    if known and not revisions.has_method(revisions.CLIENT_METHODS, method, revision):
        raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {method!r}")


def modern_context(
    request: Request, meta: JsonObject, link: Link, principal: Principal | None = None
) -> Context:
    """Make the context of a modern request from what it states. Nothing is remembered.

    Raises:
        InvalidArguments, RemoteError: See the checks above.
    """
    check_modern(meta)
    revision = check_revision(meta)
    check_method(request.method, revision)
    level = meta.get(revisions.LOG_LEVEL_KEY)
    if level is not None and level not in LEVELS:
        raise InvalidArguments(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    return Context(
        revision=revision,
        request_id=request.id,
        link=link,
        client_capabilities=_convert(
            meta[revisions.CLIENT_CAPABILITIES_KEY], ClientCapabilities, "clientCapabilities"
        ),
        client_info=_client_info(meta.get(revisions.CLIENT_INFO_KEY)),
        principal=principal,
        meta=meta,
        progress_token=_progress_token(meta),
        log_level=level,
    )


def legacy_context(
    request: Request,
    meta: JsonObject,
    link: Link,
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
    check_method(request.method, revision)
    return Context(
        revision=revision,
        request_id=request.id,
        link=link,
        client_capabilities=session.client_capabilities,
        client_info=session.client_info,
        principal=principal,
        meta=meta,
        progress_token=_progress_token(meta),
        log_level=session.log_level,
        session=session,
    )


def _progress_token(meta: JsonObject) -> ProgressToken | None:
    token = meta.get("progressToken")
    return token if isinstance(token, str) or type(token) is int else None


def _client_info(told: object) -> Implementation | None:
    try:
        return msgspec.convert(told, Implementation)
    except msgspec.ValidationError:  # for display only, so not worth a refusal
        return None


def _convert(value: Any, type: type[ClientCapabilities], what: str) -> ClientCapabilities:
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise InvalidArguments(f"{what}: {error}") from None
