"""The options of a tool that decide who may see and call it, and the hints for clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from interlock.auth.scopes import SCOPE
from interlock.context import Context
from interlock.errors import AuthError, InsufficientScope, SignatureError
from interlock.schema.signature import is_async
from interlock.server.wire_errors import log_bug
from interlock.types import ToolAnnotations

_NO_HINTS = ToolAnnotations()
Visible: TypeAlias = Callable[[Context], object]
"""Returns whether a request's caller may see and call a tool."""


def with_hints(annotations: ToolAnnotations | None, **hints: bool | None) -> ToolAnnotations | None:
    """Return a tool's annotations with further hints.

    Args:
        annotations: The annotations that the author gave as a whole.
        hints: Hints that the author gave as booleans, without their suffix; None if not given.

    Raises:
        SignatureError: A hint is not a boolean, or contradicts another one.
    """
    given = {name: value for name, value in hints.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, bool):
            raise SignatureError(f"{name}={value!r} must be True or False")
    if not given:
        return annotations
    whole = annotations or _NO_HINTS
    for name, value in given.items():
        if value != getattr(whole, f"{name}_hint") != getattr(_NO_HINTS, f"{name}_hint"):
            raise SignatureError(f"{name}={value} contradicts the annotations; remove one of them")
    if given.get("read_only") and given.get("destructive"):
        raise SignatureError("a tool cannot be read_only and destructive; remove one of them")
    return replace(whole, **{f"{name}_hint": value for name, value in given.items()})


def checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """Return the scopes that a tool needs.

    Raises:
        SignatureError: `scopes` is not a list of scopes.
    """
    if isinstance(scopes, str):
        raise SignatureError(f"scopes must be a list; write scopes=[{scopes!r}]")
    for scope in scopes:
        if not isinstance(scope, str) or not SCOPE.fullmatch(scope):
            raise SignatureError(
                f"{scope!r} is not a valid scope; use printable ASCII without spaces and quotes"
            )
    return tuple(scopes)


def checked_visible(visible: Visible | None) -> Visible | None:
    """Return the predicate of a tool.

    Raises:
        SignatureError: The predicate cannot be called with a context, or is async.
    """
    if visible is None:
        return None
    if not callable(visible):
        raise SignatureError(f"visible={visible!r} is not a function; write lambda context: ...")
    if is_async(visible):
        raise SignatureError("visible is async, but lists do not wait for it; use a plain function")
    try:
        inspect.signature(visible).bind(None)
    except TypeError:
        raise SignatureError("visible must take one argument, the context") from None
    except ValueError:  # a builtin without a signature
        return visible
    return visible


def is_visible(tool: str, visible: Visible, context: Context) -> bool:
    """Return whether a request's caller may see a tool; if the predicate fails, the tool is hidden.

    Args:
        tool: The tool's name, for the log.
        visible: The tool's predicate.
        context: The context of the request.
    """
    try:
        value: Any = visible(context)
        if hasattr(value, "__await__"):
            getattr(value, "close", lambda: None)()
            raise SignatureError("visible returned an awaitable; use a plain function")
        return bool(value)
    except Exception as error:
        log_bug(f"visible of tool {tool}", error)
        return False


def require_scopes(tool: str, scopes: tuple[str, ...], context: Context) -> None:
    """Check that a caller over HTTP has the scopes that a tool needs.

    A client on stdio or in this process acts for the user who started the server, and needs none.

    Raises:
        AuthError: The caller lacks a scope (403).
    """
    principal = context.principal
    if principal is None:
        if context.is_local:
            return
        raise AuthError(
            f"tool {tool!r} needs the scope {' '.join(scopes)}, but callers of this endpoint are "
            "not authenticated; serve it with auth=...",
            403,
            reason="insufficient_scope",
        )
    if not principal.scopes.issuperset(scopes):
        raise InsufficientScope(scopes)
