"""Conversions that all vendors' models need: of names, ids, schemas, arguments and errors.

Rules that let a conversation continue with another provider's model:

1. The ids and names of tool calls are converted the same way for every provider.
2. The text of an error never contains the API key or a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import blake2s
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from interlock.errors import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
)
from interlock.messages import Attachment, Message, ToolCall, ToolMessage, UserMessage
from interlock.models.answer_size import AnswerSize
from interlock.text import urls

# Outgoing

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
# Errors about a conversation that is too long: from Anthropic, OpenAI and vLLM, and llama.cpp.
_TOO_LONG = (
    re.compile(r"prompt is too long(?:: (?P<used>\d+) tokens > (?P<limit>\d+))?"),
    re.compile(r"maximum context length is (?P<limit>\d+) tokens(?:\D+(?P<used>\d+) tokens)?"),
    re.compile(r"exceeds? (?:the )?(?:available |model's )?context (?:size|window|length|limit)"),
)


def call_id(id: str) -> str:
    """Return `id` if every provider accepts it, else a valid id that is derived from it.

    Anthropic accepts letters, digits, "_" and "-"; OpenAI accepts at most 40 characters.
    """
    if _ID.fullmatch(id):
        return id
    return f"call_{blake2s(id.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


def call_name(name: str) -> str:
    """Return the name of a past call in a form that every provider accepts."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"


IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
DOCUMENTS = frozenset(("application/pdf",))


def without_files(messages: Sequence[Message], keep: frozenset[str] = frozenset()) -> list[Message]:
    """Return the messages without the files that a model cannot read.

    A line replaces each such file of a user. In a result, the text already names the files.

    Args:
        messages: The conversation.
        keep: The media types that the model can read.
    """
    return [_without_files(message, keep) for message in messages]


def _without_files(message: Message, keep: frozenset[str]) -> Message:
    if not isinstance(message, UserMessage | ToolMessage) or not message.attachments:
        return message
    kept = tuple(each for each in message.attachments if each.media_type in keep)
    content = message.content
    if isinstance(message, UserMessage):
        notes = [file_note(each) for each in message.attachments if each not in kept]
        content = "\n".join(line for line in (content, *notes) if line)
    return msgspec.structs.replace(message, content=content, attachments=kept)


def file_note(file: Attachment) -> str:
    """Return the line that replaces a file."""
    name = f" {file.name}" if file.name else ""
    return f"[{file.media_type}{name}, {len(file.data):,} bytes: this model cannot read it]"


# Incoming


def event_fields(event: Any) -> Any:
    """Return the JSON of a vendor's event object, unknown fields included."""
    # The packages do not validate events, so an event may be any JSON value.
    return event.to_dict(warnings=False) if hasattr(event, "to_dict") else event


async def whole_answer(response: Any, endpoint: ModelEndpoint) -> Any:
    """Return the JSON body of a response that is not a stream; None if it is a stream.

    Args:
        response: The HTTP response of a vendor's stream.
        endpoint: The model, for errors.

    Raises:
        ModelUnavailable: The response is an error or a web page, perhaps of a proxy.
        ModelInterrupted: The response is too long, or not JSON.
    """
    kind = response.headers.get("content-type", "")
    if "html" in kind:
        raise ModelUnavailable(
            f"{endpoint.host} sent a web page instead of an answer of {endpoint.name}; "
            f"check the address {endpoint.host}"
        )
    if "json" not in kind or "stream" in kind:
        return None
    body, size = b"", AnswerSize(endpoint.name)
    async for piece in response.aiter_bytes():
        body += piece
        size.add_bytes(len(piece))
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelInterrupted(f"the response of {endpoint.name} is not JSON: {error}") from error
    if isinstance(answer, dict) and answer.get("error"):
        detail = answer["error"]
        reason = detail.get("message") if isinstance(detail, dict) else detail
        raise ModelUnavailable(
            f"{endpoint.host} failed to run {endpoint.name}: {endpoint.clean(str(reason))}"
        )
    return answer


def tool_call(id: str, name: str, arguments: str) -> ToolCall:
    """Build a call from the text of its arguments; blank text means no arguments."""
    if not arguments.strip():
        return ToolCall(id, name)
    try:
        input = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ToolCall(id, name, malformed=arguments)
    if input is None:
        return ToolCall(id, name)
    if not isinstance(input, dict):
        return ToolCall(id, name, malformed=arguments)
    return ToolCall(id, name, input)


def unique_ids(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids: some servers send none, or the same one for all."""
    seen: set[str] = set()
    result = []
    for call in calls:
        if not call.id or call.id in seen:
            call = msgspec.structs.replace(call, id=f"call_{uuid4().hex[:24]}")
        seen.add(call.id)
        result.append(call)
    return tuple(result)


# Errors


class ModelEndpoint(NamedTuple):
    """The names of a model and its host for errors, and the key that errors must not show."""

    name: str  # the name for --model
    model: str  # the provider's name for it
    host: str  # host, or host:port
    key: str  # the API key, never shown; "" for none
    variable: str  # the environment variable of the key

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.name!r}, {self.host!r})"

    def explain(self, error: Exception, *, started: bool) -> ModelError:
        """Return the error to raise: one line with the problem and what to do.

        Args:
            error: An error of the vendor's package, or of decoding its results.
            started: Whether a part of the answer had arrived.
        """
        self._redact_arguments(error)
        status = getattr(error, "status_code", None)
        detail = self._detail(error)
        if isinstance(status, int) and status >= 400:
            return self._refusal(status, detail, error)
        if started:
            if _error_type(error) == "overloaded_error":
                return ModelOverloaded(f"{self.name} is overloaded: {detail}; try again later")
            return ModelInterrupted(f"the answer of {self.name} was cut off: {detail}")
        if "Timeout" in type(error).__name__:
            return ModelUnavailable(f"{self.host} did not answer {self.name} in time")
        reason = self.clean(str(error.__cause__ or error))
        is_ours = urls.is_loopback(urlsplit(f"//{self.host}").hostname or "")
        hint = "start its server" if is_ours else "check your connection"
        return ModelUnavailable(
            f"cannot connect to {self.host} for {self.name}: {reason}; {hint}, or use another "
            "model: see `interlock models`"
        )

    def _refusal(self, status: int, detail: str, error: Exception) -> ModelError:
        if status == 401:
            return ModelRefused(
                f"{self.host} refused the key for {self.name} (401); check {self.variable}"
            )
        if status == 404:
            return ModelUnavailable(f"{self.host} has no model {self.model!r} (404): {detail}")
        if status == 429 and getattr(error, "code", None) != "insufficient_quota":
            return self._overloaded("limits the rate of", status, detail, error)
        if status in (503, 529):
            return self._overloaded("is overloaded and cannot run", status, detail, error)
        if status == 408 or status >= 500:
            return ModelUnavailable(f"{self.host} failed to run {self.name} ({status}): {detail}")
        text = f"{self.host} refused the request to {self.name} ({status}): {detail}"
        if status in (400, 413):
            for pattern in _TOO_LONG:
                if found := pattern.search(detail):
                    numbers = {name: int(each or 0) for name, each in found.groupdict().items()}
                    return ContextTooLong(text, numbers.get("limit", 0), numbers.get("used", 0))
        return ModelRefused(text)

    def _overloaded(self, what: str, status: int, detail: str, error: Exception) -> ModelError:
        headers = getattr(getattr(error, "response", None), "headers", {})
        after = re.fullmatch(r"\d{1,6}(\.\d+)?", str(headers.get("retry-after", "")).strip())
        when = f"in {after[0]} s" if after else "later"
        return ModelOverloaded(
            f"{self.host} {what} {self.name} ({status}): {detail}; try again {when}"
        )

    def _detail(self, error: Exception) -> str:
        body = getattr(error, "body", None)
        if isinstance(body, dict):
            inner = body.get("error", body)
            message = inner.get("message") if isinstance(inner, dict) else inner
            return self.clean(str(message or _error_type(error) or "no reason given"))
        if isinstance(body, str):  # an HTML page, perhaps of a proxy
            return f"the response is not from a model API; check the address {self.host}"
        return self.clean(str(error) or type(error).__name__)

    def clean(self, text: str) -> str:
        """Return a provider's text as one short line without the key."""
        text = " ".join(self.redact(text[:2000]).split())
        return text if len(text) <= 300 else f"{text[:299]}…"

    def redact(self, text: str) -> str:
        """Replace the key, and every part of it of 6 characters or more, by "[key]"."""
        text = re.sub(r"\S*\*{3,}\S*", "[key]", text)  # a key masked by the provider
        shortest = 6
        start = 0
        while self.key and start + shortest <= len(text):
            end = start + shortest
            if text[start:end] not in self.key:
                start += 1
                continue
            while end < len(text) and text[start : end + 1] in self.key:
                end += 1
            text = f"{text[:start]}[key]{text[end:]}"
            start += len("[key]")
        return text

    def _redact_arguments(self, error: Exception) -> None:
        # Redact the cause as well: tracebacks show it, and a provider's message may have the key.
        error.args = tuple(self.redact(a) if isinstance(a, str) else a for a in error.args)


def _error_type(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    return str(inner.get("type") or "") if isinstance(inner, dict) else ""
