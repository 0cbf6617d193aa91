"""Sends requests to a model's API, and reads the answers: streams of events, or one document.

Rules:

1. A request is sent again at most twice, and only if no part of its answer has arrived: after a
   failed connection, after 408, 409, 429 and 5xx, and after a wrong call of the model. A provider
   may state the pause (`Retry-After`); if it is over `LONGEST_PAUSE`, the request fails at once.
2. The first bytes decide what an answer is, because servers label streams as JSON and as text.
3. An error that a stream begins with is a refusal, as if the server had answered with its status.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from interlock.aio import Backoff
from interlock.errors import (
    InterlockError,
    ModelInterrupted,
    ModelUnavailable,
    OutOfMemory,
    RedirectRefused,
    Unreachable,
)
from interlock.models.answer_size import MAX_ANSWER_BYTES, AnswerSize
from interlock.models.http.api_refusal import (
    ApiRefusal,
    decoded,
    error_in,
    error_without_answer,
    is_page,
    reason_in,
    status_in,
)
from interlock.models.http.model_endpoint import ModelEndpoint, context_sizes
from interlock.protocol.content_encoding import Inflater
from interlock.protocol.event_stream import ServerSentEvent, SseParser
from interlock.text.quoting import echo, replace_surrogates

if TYPE_CHECKING:
    import aiohttp

    from interlock.transports.http_endpoint import HttpEndpoint
    from interlock.transports.http_pool import HttpPool

_FIELD = re.compile(rb"\s*(?:data|event|id|retry)?:")
_BETWEEN = re.compile(rb"\}\s*\{(?=\"(?:id|object|choices|type)\":)")
LONGEST_PAUSE = 60.0  # seconds before a request is sent again
SILENCE = 600.0  # seconds until the next bytes of an answer; models may think for minutes
_ATTEMPTS = 3
_FIRST_PAUSE = 0.5  # seconds; the next one is twice as long
_RETRIED = frozenset((408, 409, 429))
# Groq's code for a call that its model wrote wrongly: https://github.com/anomalyco/opencode/issues/1018
_BAD_CALL = "tool_use_failed"
_DRAIN = 0.25  # seconds for the end of a stream after its last event, to keep the connection
# The event that ends a response repeats the answer, the instructions and the tools.
_MAX_EVENT_BYTES = 8 * MAX_ANSWER_BYTES
_MAX_ERROR_BYTES = 64 * 1024
_ERROR_BODY_TIMEOUT = 2.0  # seconds; after that, an error is reported without its body


class ModelApi:
    """The API of one model. The first request imports the HTTP client and opens the connections.

    Args:
        endpoint: The names of the model and its host for errors, and its key.
        url: The URL before the paths of requests; a user and password in it are sent as Basic
            authentication.
        headers: Headers of each request, such as the key.
    """

    def __init__(self, endpoint: ModelEndpoint, url: str, headers: Mapping[str, str]) -> None:
        self.endpoint = endpoint
        self._url, user = _without_user(url)
        self._headers = {**headers, **user}
        self._pool: HttpPool | None = None
        self._paths: dict[str, HttpEndpoint] = {}
        self._opening = asyncio.Lock()

    async def open(self) -> HttpPool:
        """Import the HTTP client and create the pool of connections, if that is not yet done."""
        async with self._opening:
            if self._pool is None:
                # The import takes a sixth of a second, which would block the event loop.
                http = await asyncio.to_thread(_import)
                self._pool = http.HttpPool()
            return self._pool

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed, and the next request reopens them."""
        pool, self._pool = self._pool, None
        self._paths.clear()
        if pool is not None:
            await pool.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> AnswerStream:
        """Send a request; return its answer, of which the first event has arrived.

        Args:
            path: The path below the URL, such as "/chat/completions".
            body: The request, as JSON.

        Raises:
            ApiRefusal: The response is an error, or a stream that begins with one.
            ModelUnavailable: The host cannot be reached, or redirects.
            ModelInterrupted: The answer broke off before its first event.
        """
        target = await self._target(path)
        encoded = _encoded(body)
        pauses = Backoff(_FIRST_PAUSE, 8.0, jitter=0.25)
        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            try:
                return await self._send(target, encoded)
            except _Failed as failed:
                if is_last or not failed.is_retried:
                    raise failed.error from failed.__cause__
                pause = failed.pause
            await asyncio.sleep(pauses.next_pause(monotonic()) if pause is None else pause)
        raise AssertionError("the last attempt returns or raises")

    async def _target(self, path: str) -> HttpEndpoint:
        pool = await self.open()
        if path not in self._paths:
            from interlock.transports.http_endpoint import HttpEndpoint

            try:
                self._paths[path] = HttpEndpoint(
                    _joined(self._url, path),
                    pool,
                    self._headers,
                    None,
                    _MAX_EVENT_BYTES,
                    silence=SILENCE,
                )
            except InterlockError as error:
                raise ModelUnavailable(f"{self.endpoint.name}: {error}") from None
        return self._paths[path]

    async def _send(self, target: HttpEndpoint, body: bytes) -> AnswerStream:
        from interlock.transports.http_bodies import JSON
        from interlock.transports.http_endpoint import EVENTS, FAILURES

        headers = {"Content-Type": JSON, "Accept": f"{EVENTS}, {JSON}"}
        try:
            response = await target.send("POST", headers, body, at_once=True)
        except RedirectRefused as error:
            raise _Failed(ModelUnavailable(f"{error}; {self._redirect_hint()}")) from None
        except FAILURES as error:
            raise self._not_sent(target.failure(error), error) from None
        if response.status >= 400:
            raise await self._refused(target, response)
        answer = AnswerStream(self.endpoint, target, response)
        try:
            await answer.begin()
        except ApiRefusal as refusal:
            answer.close()
            raise _Failed(refusal, is_retried=_may_pass(refusal)) from None
        except BaseException:
            answer.close()
            raise
        return answer

    def _redirect_hint(self) -> str:
        return f"the key of {self.endpoint.name} is not sent there"

    def _not_sent(self, error: InterlockError, cause: BaseException) -> _Failed:
        why = str(error).partition(": ")[2] or str(error)
        if isinstance(cause, TimeoutError) and not isinstance(error, Unreachable):
            # The model may be working on the request, so sending it again would cost twice.
            late = f"{self.endpoint.host} did not answer {self.endpoint.name} in time"
            return _Failed(ModelUnavailable(late))
        return _Failed(self.endpoint.unreachable(why), is_retried=True)

    async def _refused(self, target: HttpEndpoint, response: aiohttp.ClientResponse) -> _Failed:
        from interlock.transports.http_endpoint import FAILURES
        from interlock.transports.http_errors import retry_after

        body = b""
        with suppress(InterlockError, *FAILURES):  # the status is enough if the body is missing
            async with asyncio.timeout(_ERROR_BODY_TIMEOUT):
                body = await target.body(response, _MAX_ERROR_BYTES)
        response.release()
        after = retry_after(response.headers.get("Retry-After", ""))
        refusal = _refusal(self.endpoint, response.status, decoded(body), after)
        exact = response.headers.get("Retry-After-Ms", "")  # OpenAI's more exact pause
        pause = int(exact[:9]) / 1000 if exact.isascii() and exact.isdigit() else after
        told = response.headers.get("X-Should-Retry", "")
        return _Failed(refusal, is_retried=_may_pass(refusal) and told != "false", pause=pause)


class AnswerStream:
    """An answer that has begun: one document, or a stream of events to iterate over.

    Iterating raises `ModelInterrupted` if the stream breaks off, has an error or is not JSON, and
    `ModelOverloaded` if it has an error that says so.

    Attributes:
        whole: The document, if the server did not stream its answer; else None.
        marked: Whether the stream ended with `[DONE]`.
    """

    def __init__(
        self, endpoint: ModelEndpoint, target: HttpEndpoint, response: aiohttp.ClientResponse
    ) -> None:
        self.whole: Any = None
        self.marked = False
        self._endpoint = endpoint
        self._target = target
        self._response = response
        self._parser = SseParser(_MAX_EVENT_BYTES)
        self._inflater = Inflater(response.headers.get("Content-Encoding", ""), None, endpoint.host)
        self._events: deque[ServerSentEvent] = deque()
        self._first: list[Any] = []
        self._has_ended = False  # whether the end of the body has been read
        self._ignored = ""  # the last text that was not an event, until the next event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the answer; its connection is kept if nothing of the answer is left."""
        self._response.release()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        event = self._first.pop() if self._first else await self._next()
        if error := error_in(event):
            raise self._endpoint.broken_off(_refusal(self._endpoint, status_in(error), error))
        return event

    async def begin(self) -> None:
        """Read the beginning: the document, or the first event.

        Raises:
            ApiRefusal: The document or the first event is an error.
            ModelUnavailable: The server sent a web page.
            ModelInterrupted: The answer broke off, or is not JSON.
        """
        kind = self._response.headers.get("Content-Type", "").lower()
        start = await self._read()
        if start.lstrip()[:1] in (b"{", b"["):
            self.whole = await self._document(start)
            if not self._events:
                return
            start = b""
        is_page = bool(start) and "html" in kind and not _FIELD.match(start)
        if "event-stream" not in kind and (is_page or start.lstrip()[:1] == b"<"):
            raise self._page(start)
        self._feed(start)
        with suppress(StopAsyncIteration):
            event = await self._next()
            self._first.append(event)
            if error := error_in(event):
                raise _refusal(self._endpoint, status_in(error) or 200, error)

    def _page(self, start: bytes) -> ModelUnavailable:
        refusal = _refusal(self._endpoint, 200, decoded(start))
        refusal.is_page = True
        return ModelUnavailable(
            f"{self._endpoint.host} did not answer {self._endpoint.name}: "
            f"{self._endpoint.detail(refusal)}"
        )

    async def _document(self, start: bytes) -> Any:
        size = AnswerSize(self._endpoint.name)
        pieces = [start]
        while pieces[-1]:
            size.add_bytes(len(pieces[-1]))
            pieces.append(await self._read())
        body = b"".join(pieces)
        try:
            document = _json(body)
        except ValueError as error:
            if b"\n" in body.strip():  # events as lines of JSON
                self._has_ended = True
                self._events += [ServerSentEvent("", each, "") for each in body.splitlines()]
                return None
            raise ModelInterrupted(
                f"the response of {self._endpoint.name} is not JSON: {error}"
            ) from error
        if failure := error_without_answer(document):
            raise _refusal(self._endpoint, status_in(failure) or 200, failure)
        return document

    async def _next(self) -> Any:
        """Return the next decoded event; raise StopAsyncIteration at the end."""
        while True:
            while self._events:
                event = self._events.popleft()
                data = _without_field(event.data)
                if data.strip(b'"') == b"[DONE]":
                    self.marked = True
                    await self._drain()
                    raise StopAsyncIteration
                if not data:
                    continue
                if event.name == "error":
                    return _as_error(self._decoded(data) if _is_json(data) else decoded(data))
                if not _is_json(data):  # a heartbeat such as "ping" or null
                    self._ignored = decoded(data[:1000])
                    continue
                self._ignored = ""
                return self._decoded(data)
            if self._has_ended:
                if self._ignored:
                    raise self._endpoint.cut_off(f"it ended with {echo(self._ignored)}")
                raise StopAsyncIteration
            piece = await self._read()
            self._has_ended = not piece
            self._feed(piece or b"\n\n")  # some servers omit the empty line after the last event

    def _feed(self, piece: bytes) -> None:
        try:
            self._events += self._parser.feed(piece)
        except InterlockError as error:
            raise self._endpoint.cut_off(str(error)) from None

    def _decoded(self, data: bytes) -> Any:
        try:
            return _json(data)
        except ValueError as error:
            lines = _BETWEEN.sub(b"}\n{", data).splitlines()
            if len(lines) < 2:
                raise self._endpoint.cut_off(f"it is not JSON: {error}") from None
        # Some servers omit the empty line between events, or all of what is between them.
        self._events.extendleft(ServerSentEvent("", each, "") for each in reversed(lines[1:]))
        return self._decoded(lines[0])

    async def _read(self) -> bytes:
        """Return the next bytes, decompressed; b"" at the end."""
        from interlock.transports.http_endpoint import FAILURES

        try:
            while chunk := await self._response.content.readany():
                if piece := b"".join(self._inflater.feed(chunk)):
                    return piece
            self._inflater.finish()
        except InterlockError as error:
            raise self._endpoint.cut_off(str(error)) from None
        except FAILURES as error:
            why = "the server closed the connection early"
            if isinstance(error, TimeoutError):
                why = f"no data for {SILENCE:g} s"
            elif isinstance(failure := self._target.failure(error), OutOfMemory):
                why = str(failure)
            raise self._endpoint.cut_off(why) from None
        return b""

    async def _drain(self) -> None:
        """Read the end of the response, so that its connection can be used again."""
        with suppress(InterlockError, TimeoutError):
            async with asyncio.timeout(_DRAIN):
                while await self._read():
                    pass


class _Failed(Exception):
    """A request that failed before its answer began.

    Attributes:
        error: The error to raise.
        is_retried: Whether to send the request again.
        pause: Seconds until then, as the server states; None if it does not.
    """

    def __init__(
        self, error: Exception, *, is_retried: bool = False, pause: float | None = None
    ) -> None:
        super().__init__()
        self.error = error
        self.is_retried = is_retried
        self.pause = pause


def _may_pass(refusal: ApiRefusal) -> bool:
    """Return whether the same request may be accepted after a pause."""
    is_final = refusal.is_unpaid or refusal.is_too_large
    is_final = is_final or context_sizes(refusal) is not None
    if is_final or (refusal.retry_after or 0) > LONGEST_PAUSE:
        return False
    if refusal.code == _BAD_CALL:
        return True
    return refusal.status in _RETRIED or refusal.status >= 500


def _import() -> Any:
    import_module("interlock.transports.http_endpoint")
    return import_module("interlock.transports.http_pool")


def _refusal(
    endpoint: ModelEndpoint, status: int, body: Any, retry_after: float | None = None
) -> ApiRefusal:
    page = isinstance(body, str) and is_page(body)
    reason = endpoint.redact(reason_in(body))
    return ApiRefusal(status, reason, body, retry_after=retry_after, is_page=page)


def _without_field(data: bytes) -> bytes:
    """Return the data of an event, to which some servers and proxies add its field twice.

    https://github.com/openclaw/openclaw/issues/96497
    """
    return data.strip().removeprefix(b"data:").lstrip()


def _is_json(data: bytes) -> bool:
    """Return whether data is an object or a list, although it may be malformed."""
    return data.startswith((b"{", b"["))


def _as_error(event: Any) -> Any:
    """Return the data of an event named "error" in a form that `error_in` recognizes."""
    return event if error_in(event) else {"error": event}


def _json(data: bytes) -> Any:
    """Decode JSON as leniently as Python does: with halves of characters, and with NaN.

    Texts may have control characters as they are. A byte that is not UTF-8 becomes U+FFFD.

    Raises:
        ValueError: The data is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:  # a text has half of a character
        return msgspec.json.encode(replace_surrogates(body))


def _without_user(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without its user, and the header that sends the user."""
    parts = urlsplit(url)
    user, found, address = parts.netloc.rpartition("@")
    if not found:
        return url, {}
    token = b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=address)), {"Authorization": f"Basic {token}"}


def _joined(url: str, path: str) -> str:
    """Return a URL with a path after its own path, and with its own query.

    A URL that is copied from an example may end with the path of an operation already.
    """
    parts = urlsplit(url)
    base = parts.path.rstrip("/")
    for operation in ("/chat/completions", "/responses", path):
        base = base.removesuffix(operation)
    return urlunsplit(parts._replace(path=base + path, fragment=""))
