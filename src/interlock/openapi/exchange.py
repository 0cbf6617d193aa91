"""Requests to an API over the network, through pooled HTTP connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from interlock.errors import InterlockError
from interlock.openapi.answers import EVENTS, ApiAnswer, OperationRequest
from interlock.protocol.content_encoding import Inflater
from interlock.text.urls import display
from interlock.transports.http_endpoint import FAILURES, failure
from interlock.transports.http_pool import HttpPool

_FIXED = [("User-Agent", "interlock"), ("Accept-Encoding", "gzip, deflate")]


class HttpExchange:
    """Sends requests over the network.

    Args:
        pool: Returns a pool of connections that its owner closes; None to open an own pool.
    """

    def __init__(self, pool: Callable[[], HttpPool] | None = None) -> None:
        self._pool = pool
        self._own: HttpPool | None = None

    async def open(self) -> None:
        """Do nothing, because requests open the connections."""

    async def close(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            await own.close()

    def _connections(self) -> HttpPool:
        if self._pool is not None:
            return self._pool()
        if self._own is None:
            self._own = HttpPool()
        return self._own

    async def fetch(self, request: OperationRequest) -> ApiAnswer:
        pool = self._connections()
        proxy = pool.proxy(request.url)
        try:
            async with asyncio.timeout_at(request.deadline):
                response = await pool.session.request(
                    request.method,
                    # The URL is encoded as the document says; quoting it again would change it.
                    URL(request.url, encoded=True),
                    headers=CIMultiDict([*_FIXED, *request.headers]),
                    data=request.body,
                    proxy=proxy,
                    allow_redirects=False,
                    skip_auto_headers=("Content-Type", "Accept"),
                    middlewares=(_once,),
                )
            try:
                return await _read(response, request)
            finally:
                response.release()
        except (InterlockError, TimeoutError):
            raise
        except _Lost as lost:
            raise failure(display(request.url), lost.reason) from None
        except FAILURES as error:
            raise failure(display(request.url), error) from None


class _Lost(Exception):
    """The error for a connection that failed during a request."""

    def __init__(self, reason: aiohttp.ClientError) -> None:
        self.reason = reason


async def _once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request once, although aiohttp would retry some methods on a lost connection."""
    try:
        return await send(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Lost(error) from None


async def _read(response: aiohttp.ClientResponse, request: OperationRequest) -> ApiAnswer:
    answer = ApiAnswer(response.status, joined(response.headers.items()), b"", request.url)
    encoding = answer.headers.get("content-encoding", "")
    inflater = Inflater(encoding, None, display(request.url) if encoding else "the API")
    body = bytearray()
    is_cut = is_unfinished = False
    try:
        async with asyncio.timeout_at(request.deadline):
            while chunk := await response.content.readany():
                for piece in inflater.feed(chunk):
                    body += piece
                    if len(body) > request.limit:
                        is_cut = True
                        break
                if is_cut:
                    break
            else:
                inflater.finish()
    except TimeoutError:
        if answer.media_type != EVENTS:
            raise
        is_unfinished = True
    if is_cut or is_unfinished:
        response.close()  # the rest of the body is not needed
        del body[request.limit :]
    return ApiAnswer(answer.status, answer.headers, bytes(body), request.url, is_cut, is_unfinished)


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return header values by lower-case name; values of a repeated header joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found
