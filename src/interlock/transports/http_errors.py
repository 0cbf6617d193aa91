"""Errors for unsuccessful HTTP responses, and functions that read response headers.

Servers give reasons in many formats: a JSON-RPC error, an object with the reason in one of a few
members, or plain text. Our errors show the reason in one short line, without the credentials that
some servers repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from interlock.errors import (
    AuthError,
    AuthRequired,
    HttpError,
    InsufficientScope,
    InterlockError,
    RemoteError,
)
from interlock.oauth.challenges import token_challenge
from interlock.revisions import METHOD_NOT_FOUND
from interlock.text.quoting import clip
from interlock.transports.http_bodies import media_type
from interlock.types import ErrorObject

MAX_RETRY_AFTER = 3600.0  # seconds; a longer wait is shortened to this
MIN_SECRET = 6  # characters; redacting shorter secrets would make texts unreadable

# Members of JSON errors that may contain the reason, the most detailed first.
_REASONS = ("error_description", "detail", "message", "error", "title")


class _ErrorBody(Struct):
    error: ErrorObject


def refusal(
    shown: str, response: aiohttp.ClientResponse, body: bytes, secrets: Iterable[str] = ()
) -> InterlockError:
    """Return the error for an unsuccessful response.

    Args:
        shown: The URL as shown in messages.
        body: The part of the body that arrived; b"" if nothing arrived.
        secrets: Texts to redact if the server repeats them.
    """
    status = response.status
    told = _error_in(body)
    is_outage = status >= 500 and (told is None or told.code != METHOD_NOT_FOUND)
    if told is not None and status not in (401, 403, 429) and not is_outage:
        return RemoteError(told.code, told.message, told.data, status)
    reason = told.message if told is not None else _reason_in(body, response)
    reason = clip(_redact(reason, secrets))
    phrase = phrase_of(status)
    because = f": {reason}" if reason and reason.lower() != phrase.lower() else ""
    if response.headers.get("cf-mitigated") == "challenge":  # a login would not help
        text = f"{shown} answered {status} with a check by Cloudflare that only browsers pass"
        return HttpError(f"{text}; the server's operator must exempt this URL from it", status)
    if status in (401, 403):
        return _auth_error(shown, response, because)
    words = f"{shown} answered {status} {phrase}".rstrip() + because
    after = retry_after(response.headers.get("Retry-After", ""))
    if after is not None:
        words += f"; retry after {after:g} s"
    return HttpError(words, status, after)


def sent_token(response: aiohttp.ClientResponse) -> str:
    """Return the token in the request that a response belongs to; "" if no token was sent."""
    sent = response.request_info.headers.get("Authorization", "")
    return sent.removeprefix("Bearer ").removeprefix("DPoP ")


def retry_after(value: str) -> float | None:
    """Return the seconds that a Retry-After header asks to wait; None if it is not valid."""
    value = value.strip()
    if value.isdecimal() and value.isascii():
        seconds = float(value)
    else:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        # TypeError: a date without time zone. OverflowError: an absurd time zone.
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _auth_error(shown: str, response: aiohttp.ClientResponse, because: str) -> AuthError:
    challenge = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    told = token_challenge(challenge)
    error: AuthError
    if response.status == 401:
        error = AuthRequired(f"{shown} requires authentication (401){because}", 401, challenge)
    elif told.error == "insufficient_scope":
        error = InsufficientScope(told.scopes, challenge)
    else:
        error = AuthError(f"{shown} denied access (403){because}", 403, challenge)
    error.token_used = sent_token(response)
    return error


def _error_in(body: bytes) -> ErrorObject | None:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _reason_in(body: bytes, response: aiohttp.ClientResponse) -> str:
    """Return the reason in a body as plain text; "" if none is found, as in an HTML page."""
    text = body.strip()
    if text.startswith(b"{"):
        try:
            told = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return ""
        inner = told.get("error")
        places = (told, inner) if isinstance(inner, dict) else (told,)
        found = (place.get(member) for place in places for member in _REASONS)
        return next((each for each in found if isinstance(each, str)), "")
    if media_type(response) != "text/plain" or text.startswith((b"<", b"[")):
        return ""
    return text.decode(errors="replace")


def _redact(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "***")
    return text


def phrase_of(status: int) -> str:
    """Return the usual phrase for a status, such as "Not Found"; "" if it is unknown."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
