"""Client ID Metadata Documents: clients whose `client_id` is the URL of a document.

draft-ietf-oauth-client-id-metadata-document.

1. Documents are fetched from public addresses only, without redirects, within a time and a size.
2. A document is cached, and so is a failure, so that nobody can use this server to flood another.
3. Where logins that exist already depend on it, a document that was once good is used for a day, so
   that an outage of the client's host ends no logins.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from interlock.errors import ConnectionClosed, InterlockError
from interlock.gateway.front_door.clients import FrontClient, Metadata, client_of_document
from interlock.gateway.front_door.request import OAuthError
from interlock.gateway.front_door.shared_limit import SharedLimit
from interlock.text.urls import is_loopback, split

if TYPE_CHECKING:
    from interlock.oauth.fetcher import FetchedResponse, Fetcher

MAX_URL = 512  # characters
MAX_DOCUMENT = 65_536  # bytes
PATIENCE = 5.0  # seconds for one document
FRESH, FRESHEST = 300.0, 86_400.0  # seconds that a document is cached, at least and at most
FAILED = 60.0  # seconds that a failure is cached
USABLE = 86_400.0  # seconds that the last good document may still be used
MAX_KEPT = 1_000  # documents in memory
NEW = 10  # fetches a second from hosts without a good document in memory
PER_HOST, AT_ONCE = 4, 32  # fetches at the same time
_DOTS = {".", ".."}
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")
_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+/[A-Za-z0-9\-._~/!$&'()*+,;=:@%?]+")


class _Busy(OAuthError):
    """No slot for a fetch was free in time."""


class _HostFails(OAuthError):
    """The host answers with an error of its own."""


class _Known(Struct):
    """A document in memory: its client or the error, until when, and since when it was good."""

    host: str
    client: FrontClient | None
    error: str
    is_outage: bool  # whether the error says nothing about the document
    until: float
    good_at: float


def is_document(id: str) -> bool:
    """Return whether a `client_id` is the URL of a document, well-formed or not."""
    return id.startswith(("https://", "http://"))


class Documents:
    """Fetches the documents of clients.

    Args:
        fetcher: Fetches documents; see `fetcher_for`.
        is_local: Returns whether this gateway is on loopback, so that documents may be, too.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        fetcher: Callable[[], Fetcher],
        *,
        is_local: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._is_local = is_local
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._running: dict[str, asyncio.Task[_Known]] = {}
        self._new = SharedLimit(NEW)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._of_hosts: defaultdict[str, int] = defaultdict(int)

    async def find(self, url: str, *, caller: str = "", is_known: bool = False) -> FrontClient:
        """Return the client of a document.

        Args:
            url: The `client_id`.
            caller: The IP address of the caller.
            is_known: Whether people have allowed this client before, so that an older document may
                be used if the host does not answer.

        Raises:
            OAuthError: The document cannot be fetched or used.
        """
        self._check(url)
        now, known = self._clock(), self._known.get(url)
        if known is None or known.until <= now:
            known = await self._fetched(url, caller)
        is_stale = known.error and (not is_known or now - known.good_at > USABLE)
        if known.client is None or is_stale:
            if is_known and known.is_outage:  # otherwise the client would forget its login
                raise OAuthError("temporarily_unavailable", known.error, 503)
            raise OAuthError("invalid_client", known.error)
        self._known.move_to_end(url)
        return known.client

    def _check(self, url: str) -> None:
        try:
            parts = split(url)
        except ValueError:
            parts = SplitResult("", "", "", "", "")
        host = parts.hostname or ""
        is_safe = parts.scheme == "https" or (self._is_local() and is_loopback(host))
        # With a final dot, a host would be another place than the one that an operator has blocked.
        is_plain = _PLAIN_URL.fullmatch(url) and not host.endswith(".")
        if not (is_safe and is_plain) or len(url) > MAX_URL or _DOTS & {*parts.path.split("/")}:
            raise OAuthError(
                "invalid_client",
                "this client_id is not the URL of a client's document: it must be https, with a"
                f" path and without a fragment, of at most {MAX_URL} characters",
            )

    async def _fetched(self, url: str, caller: str) -> _Known:
        task = self._running.get(url)
        if task is None:
            host = urlsplit(url).netloc.lower()
            if not self._has_host(host) and not self._new.spend(caller, self._clock()):
                text = "too many new clients at once; wait a second"
                raise OAuthError("temporarily_unavailable", text, 429)
            if self._of_hosts[host] >= PER_HOST:
                text = f"the host {host} does not answer; try again later"
                raise OAuthError("temporarily_unavailable", text, 503)
            task = self._running[url] = asyncio.create_task(self._fetch(url, host))
            task.add_done_callback(lambda _: self._running.pop(url, None))
        # A caller that leaves does not end the fetch that others wait for.
        return await asyncio.shield(task)

    def _has_host(self, host: str) -> bool:
        return any(each.host == host and each.client is not None for each in self._known.values())

    def _drop_one(self) -> None:
        """Forget the oldest document of the host that has the most, as one host may have many."""
        ((host, _),) = Counter(each.host for each in self._known.values()).most_common(1)
        del self._known[next(url for url, each in self._known.items() if each.host == host)]

    async def _fetch(self, url: str, host: str) -> _Known:
        before, client, error, fresh = self._known.get(url), None, "", FAILED
        is_outage = False
        is_good = before is not None and before.client is not None
        self._of_hosts[host] += 1
        try:
            # A document that was good needs no slot: hosts that hang cannot keep it out.
            async with nullcontext() if is_good else self._slot(), asyncio.timeout(PATIENCE):
                response = await self._fetcher().get(url)
                client = client_of_document(url, _read(response, host))
                fresh = _freshness(response)
        except _Busy:  # says nothing about the document
            raise
        except TimeoutError:
            error, is_outage = f"{host} has not sent its document within {PATIENCE:g} s", True
        except InterlockError as failure:
            is_outage = isinstance(failure, (_HostFails, ConnectionClosed))
            error = f"the document of this client cannot be used: {failure}"
        finally:
            self._of_hosts[host] -= 1
            if not self._of_hosts[host]:
                del self._of_hosts[host]
        now, good_at = self._clock(), self._clock()
        if client is None and before is not None:
            client, good_at = before.client, before.good_at
        known = self._known[url] = _Known(host, client, error, is_outage, now + fresh, good_at)
        if len(self._known) > MAX_KEPT:
            self._drop_one()
        return known

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._at_once.acquire()
        except TimeoutError:
            text = "too many new clients at once; try again later"
            raise _Busy("temporarily_unavailable", text, 503) from None
        try:
            yield
        finally:
            self._at_once.release()


def _read(response: FetchedResponse, host: str) -> Metadata:
    if response.status != 200:
        kind = _HostFails if response.status >= 500 or response.status == 429 else OAuthError
        raise kind("invalid_client", f"{host} answers {response.status}, not 200")
    return response.json(Metadata)


def _freshness(response: FetchedResponse) -> float:
    """Return for how many seconds a document may be cached, by its `Cache-Control`."""
    told = response.headers.get("Cache-Control", "")
    found = _MAX_AGE.search(told)
    if found is None or "no-store" in told or "no-cache" in told:
        return FRESH
    return min(max(float(found[1]), FRESH), FRESHEST)
