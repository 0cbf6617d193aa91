"""What an HTTP answer says of itself, and why it is none, if it is none.

Servers explain themselves in many forms: an error of JSON-RPC, an object with a text in one of a
few members, or plain text. Their words are told in one short line, without the credentials that
some repeat.
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
from interlock.quoting import clip
from interlock.revisions import METHOD_NOT_FOUND
from interlock.types import ErrorObject

MAX_RETRY_AFTER = 3600.0  # seconds; more is not waited for anyway
MIN_SECRET = 6  # characters; a shorter header would make any text unreadable

# Members in which APIs give a reason, the one that says most first.
_REASONS = ("error_description", "detail", "message", "error", "title")


class _ErrorBody(Struct):
    error: ErrorObject


def refusal(
    shown: str, response: aiohttp.ClientResponse, body: bytes, secrets: Iterable[str] = ()
) -> InterlockError:
    """Make an error of an answer whose status is none of success.

    Args:
        shown: The URL, as it may be told.
        response: The answer.
        body: What has come of its body; b"" for nothing.
        secrets: What must not be told, should the server repeat it.
    """
    status = response.status
    told = _error_in(body)
    is_outage = status >= 500 and (told is None or told.code != METHOD_NOT_FOUND)
    if told is not None and status not in (401, 403, 429) and not is_outage:
        return RemoteError(told.code, told.message, told.data, status)
    reason = told.message if told is not None else _reason_in(body, response)
    reason = clip(_hidden(reason, secrets))
    phrase = _phrase(status)
    because = f": {reason}" if reason and reason.lower() != phrase.lower() else ""
    if status in (401, 403):
        return _not_let_in(shown, response, because)
    words = f"{shown} answered {status} {phrase}".rstrip() + because
    after = retry_after(response)
    if after is not None:
        words += f"; it may be asked again in {after:g} s"
    return HttpError(words, status, after)


def token_of(response: aiohttp.ClientResponse) -> str:
    """Return the token that was sent with a request; "" for none."""
    sent = response.request_info.headers.get("Authorization", "")
    return sent.removeprefix("Bearer ").removeprefix("DPoP ")


def media_type(response: aiohttp.ClientResponse) -> str:
    """Give the type of a body, without its parameters, in lower case."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Read after how many seconds the server wants to be asked again; None if it does not say."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdecimal() and value.isascii():
        seconds = float(value)
    else:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        # TypeError: a date without its zone. OverflowError: a zone far out in space.
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _not_let_in(shown: str, response: aiohttp.ClientResponse, because: str) -> AuthError:
    challenge = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    told = token_challenge(challenge)
    error: AuthError
    if response.status == 401:
        error = AuthRequired(f"{shown} wants to know who asks (401){because}", 401, challenge)
    elif told.error == "insufficient_scope":
        error = InsufficientScope(told.scopes, challenge)
    else:
        error = AuthError(f"{shown} refuses this (403){because}", 403, challenge)
    error.token_used = token_of(response)
    return error


def _error_in(body: bytes) -> ErrorObject | None:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _reason_in(body: bytes, response: aiohttp.ClientResponse) -> str:
    """Find a text for people; "" if there is none, as in a page for browsers."""
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


def _hidden(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "***")
    return text


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
