"""Reads why a provider refused a request, from every form of its response.

Providers, and the proxies in front of them, write the reason as an object, as text, in a list, in
the format of a web framework, in a web page, or as JSON within a text of another JSON.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import msgspec

# Members that may have the reason, the most telling first. OpenRouter puts the reason of the
# provider behind it into "raw", and only a general sentence into "message".
_REASONS = (
    *("error", "message", "msg", "detail", "details", "errors", "error_message"),
    *("error_description", "description", "reason", "title", "raw", "metadata"),
    *("base_resp", "status_msg"),  # MiniMax
)
_NOT_A_REASON = frozenset(("error", "errors", "none", "null", "true", "false"))
_KINDS = re.compile(r"[a-z]+(_[a-z]+)+")  # such as "invalid_request_error", beside a message
_DEEPEST = 8  # levels of a body that are read
_MOST = 3  # reasons that are joined
# Anthropic's words for statuses in streams: https://docs.anthropic.com/en/api/errors
_STATUSES = {"overloaded_error": 529, "rate_limit_error": 429}
_TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_LONGEST = 2_000  # characters of a reason
# Anthropic with 400: https://github.com/anthropics/claude-code/issues/4163
# xAI with 403: https://github.com/sst/opencode/issues/5028
_UNPAID = re.compile(
    r"credit balance is too low|insufficient (?:balance|credits)|(?:run|ran) out of credits"
    r"|used all available credits",
    re.IGNORECASE,
)


class ApiRefusal(Exception):
    """A response that is an error. The text is the reason on one line, without the key.

    Attributes:
        status: The HTTP status, or the status that an error in a stream states.
        reason: The reason; "" if the response has none.
        code: The provider's word for the kind of error, such as "insufficient_quota"; "" if none.
        param: The member of the request that the provider names; "" if none.
        retry_after: Seconds after which the provider allows a retry; None if it does not say.
        is_page: Whether the response is a web page, perhaps of a proxy.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        body: Any = None,
        *,
        retry_after: float | None = None,
        is_page: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after
        self.is_page = is_page
        self.code = _word(body, "code") or _word(body, "type")
        self.param = _word(body, "param")

    @property
    def is_unpaid(self) -> bool:
        """Whether the account at the provider has no credit left, so a retry will not help."""
        is_stated = self.status == 402 or self.code == "insufficient_quota"
        return is_stated or (self.status in (400, 403) and bool(_UNPAID.search(self.reason)))

    @property
    def is_too_large(self) -> bool:
        """Whether this one request is over a limit of tokens per minute, so it will never pass."""
        return self.status == 429 and "request too large" in self.reason.lower()


def decoded(body: bytes) -> Any:
    """Return a body as JSON, or as text if it is not JSON."""
    text = body.decode(errors="replace").strip()
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def reason_in(body: Any) -> str:
    """Return the reason in a decoded body, on one line; "" if it has none."""
    if isinstance(body, str) and is_page(body):
        found = _TITLE.search(body[:65_536])
        text = found[2] if found else body[:65_536]
        return _line(html.unescape(_TAG.sub(" ", text)))
    reasons: list[str] = []
    for reason in _reasons(body, _DEEPEST):
        if not any(reason in other for other in reasons):
            reasons.append(reason)
        if len(reasons) == _MOST:
            break
    return _line("; ".join(reasons))


def is_page(text: str) -> bool:
    """Return whether a response is HTML or XML."""
    return text.startswith("<")


def error_in(event: Any) -> Any:
    """Return the error in a decoded event of a stream, or in a whole answer; None without one."""
    if not isinstance(event, dict):
        return None
    error = event.get("error")
    if any(error.values()) if isinstance(error, dict) else error:
        return event
    if not event.keys() & {"choices", "type"} and (event.get("detail") or status_in(event)):
        return event  # of a web framework or a proxy, without OpenAI's form
    response = event.get("response")  # of a failed answer of the Responses API
    if isinstance(response, dict) and response.get("error"):
        return response
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("error"):
            return choice
    return event if "error" in (event.get("type"), event.get("object")) else None


def error_without_answer(document: Any) -> Any:
    """Return the error in a whole answer, which may be a reason where the answer would be.

    Some proxies send the refusal of the provider behind them with the status 200:
    https://github.com/XpressAI/xaibo/pull/36
    """
    if (error := error_in(document)) is not None or not isinstance(document, dict):
        return error
    has_answer = any(document.get(name) for name in ("choices", "content", "output"))
    return document if not has_answer and reason_in(document) else None


def status_in(error: Any) -> int:
    """Return the HTTP status that an error in a stream states; 0 if it states none."""
    for place in _places(error):
        if status := _STATUSES.get(str(place.get("type"))):
            return status
        for name in ("code", "status", "status_code"):
            status = place.get(name)
            if isinstance(status, str) and status.isascii() and status.isdigit():
                status = int(status[:4])
            if isinstance(status, int) and 400 <= status < 600:
                return status
    return 0


def _reasons(value: Any, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in ("{", "[") and isinstance(inner := decoded(text.encode()), dict | list):
            yield from _reasons(inner, depth - 1)
        elif text and text.lower() not in _NOT_A_REASON:
            yield text
    elif isinstance(value, list):
        for each in value[: 2 * _MOST]:
            yield from _reasons(each, depth - 1)
    elif isinstance(value, dict):
        yield from _reasons_of_members(value, depth)


def _reasons_of_members(value: dict[str, Any], depth: int) -> Iterator[str]:
    members = {str(name).lower(): each for name, each in value.items()}
    place = members.get("loc")
    found: list[str] = []
    for name in _REASONS:
        found += _reasons(members.get(name), depth - 1)
    # A kind such as "invalid_request_error" says nothing that the sentence beside it does not.
    sentences = [each for each in found if not _KINDS.fullmatch(each)]
    for reason in sentences or found:
        if isinstance(place, list) and place:
            yield f"{'.'.join(map(str, place))}: {reason}"
        else:
            yield reason


def _places(body: Any) -> Iterator[dict[str, Any]]:
    """Yield the object with the details of an error, then the objects around it."""
    if isinstance(body, list):
        body = body[0] if body else None
    if isinstance(body, dict):
        inner = body.get("error")
        if isinstance(inner, dict):
            yield inner
        yield body


def _word(body: Any, name: str) -> str:
    for place in _places(body):
        if isinstance(word := place.get(name), str) and word != "error":
            return word[:200]
    return ""


def _line(text: str) -> str:
    """Return text as one line without control characters, at most `_LONGEST` characters long."""
    text = "".join(each if each.isprintable() else " " for each in text[: 2 * _LONGEST])
    return " ".join(text.split())[:_LONGEST]
