"""Where a document comes from: a file, a URL or this program; and whether it has changed.

Rules:

1. A document from a URL is fetched by the rules of `oauth.fetcher`. Nothing that it names is.
2. A document that cannot be read again leaves the last good one in place, also after a restart:
   documents from URLs are kept in the user's cache folder.
3. Parsing more than `MAX_INLINE_BYTES` happens in a thread, as it would stall other calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct
from platformdirs import user_cache_path

from interlock import durable
from interlock.aio import in_thread
from interlock.errors import HttpError, InterlockError
from interlock.oauth.fetcher import Fetcher
from interlock.openapi import document as documents
from interlock.openapi.document import Document
from interlock.openapi.references import DocumentError
from interlock.urls import display, origin

MAX_URL_BYTES = 16 * 1024 * 1024
MAX_INLINE_BYTES = 1024 * 1024
FILE_INTERVAL = 2.0  # seconds between two looks at a file
URL_INTERVAL = 300.0  # seconds, unless the answer says how long it is fresh
MIN_URL_INTERVAL, MAX_URL_INTERVAL = 60.0, 86_400.0
_HEADERS = {"Accept": "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.1"}
_MAX_AGE = re.compile(r"max-age\s*=\s*([0-9]{1,9})")


class _Cached(Struct, frozen=True):
    """A document in the cache folder: parsed, as JSON."""

    etag: str
    root: Raw


class Source:
    """One document.

    Args:
        place: A file, a URL, or the decoded document itself.
        headers: Sent to a URL on the same origin as `base_url`.
        base_url: Of the API.

    Attributes:
        stale: Why the document could not be read again; "" if it is current.
        interval: Seconds until `load_if_changed` should look again.
    """

    def __init__(
        self, place: str | Path | Mapping[str, Any], headers: Mapping[str, str], base_url: str
    ) -> None:
        self.stale = ""
        self.interval = FILE_INTERVAL
        self._place = place
        self._etag = ""
        self._seen: tuple[object, ...] = ()
        self._files: list[Path] = []
        self._headers: dict[str, str] = dict(_HEADERS)
        if self.is_url and origin(str(place)) == origin(base_url):
            self._headers |= headers

    @property
    def is_url(self) -> bool:
        """Whether the document comes from a URL."""
        return isinstance(self._place, str) and "://" in self._place

    @property
    def can_change(self) -> bool:
        """Whether the document can be read again."""
        return not isinstance(self._place, Mapping)

    async def load(self) -> Document:
        """Read the document. If its URL fails, return the last good one from the cache folder.

        Raises:
            DocumentError: It cannot be read, or is not an OpenAPI document.
            InterlockError: Its URL does not answer, and the cache folder has no copy.
        """
        if isinstance(self._place, Mapping):
            return await _parsed(msgspec.json.encode(self._place), None)
        if not self.is_url:
            return await self._read_file()
        try:
            found = await self._fetch()
        except InterlockError as error:
            cached = self._cached()
            if cached is None:
                raise
            self.stale = str(error)
            self.interval = MIN_URL_INTERVAL
            return await _parsed(bytes(cached.root), None)
        if found is None:  # not modified since the copy in the cache folder
            cached = self._cached()
            if cached is not None:
                return await _parsed(bytes(cached.root), None)
            self._etag = ""
            found = await self._fetch()
        if found is None:
            raise DocumentError(f"{self._shown} sends no document")
        return found

    async def load_if_changed(self) -> Document | None:
        """Read the document again; None if it has not changed, or cannot be read (see `stale`)."""
        try:
            if self.is_url:
                return await self._fetch()
            if self._stamp() == self._seen:
                return None
            return await self._read_file()
        except (InterlockError, OSError) as error:
            self.stale = str(error)
            return None

    @property
    def _shown(self) -> str:
        return display(str(self._place)) if self.is_url else str(self._place)

    # Files

    async def _read_file(self) -> Document:
        path = Path(str(self._place))
        self._files = [path]
        self._seen = self._stamp()  # before reading, so that no change is missed
        found = await _run(partial(documents.load, path), is_large=_is_large(path))
        self._files = [path, *found.files]
        self._seen = self._stamp()
        self.stale = ""
        return found

    def note_files(self, found: Document) -> None:
        """Watch the other files too that a document's tools have turned out to need."""
        if isinstance(self._place, str | Path) and not self.is_url:
            self._files = [Path(str(self._place)), *found.files]
            self._seen = self._stamp()

    def _stamp(self) -> tuple[object, ...]:
        """Return what changes when one of the files does."""
        stamps: list[object] = []
        for path in self._files or [Path(str(self._place))]:
            try:
                status = path.stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append(None)
        return tuple(stamps)

    # URLs

    async def _fetch(self) -> Document | None:
        """Fetch the document; None if it has not changed."""
        url = str(self._place)
        if not self._etag and (cached := self._cached()) is not None:
            self._etag = cached.etag
        condition = {"If-None-Match": self._etag} if self._etag else {}
        fetcher = Fetcher(url, max_bytes=MAX_URL_BYTES)
        reply = await fetcher.get(url, {**self._headers, **condition})
        self.interval = _interval(reply.headers.get("Cache-Control", ""))
        if reply.status == 304:
            self.stale = ""
            return None
        if reply.status != 200:
            raise HttpError(f"{self._shown} answers {reply.status}", reply.status)
        found = await _parsed(reply.body, None)
        self.stale = ""
        self._etag = reply.headers.get("ETag", "")
        self._store(found)
        return found

    @property
    def drift_file(self) -> Path | None:
        """Where to keep how answers differ from this document; None if it has no place."""
        return self._cache_file().with_suffix(".drift.json") if self.can_change else None

    def _cache_file(self) -> Path:
        key = sha256(repr((str(self._place), sorted(self._headers.items()))).encode()).hexdigest()
        return user_cache_path("interlock") / "openapi" / f"{key[:32]}.json"

    def _cached(self) -> _Cached | None:
        try:
            return msgspec.json.decode(self._cache_file().read_bytes(), type=_Cached)
        except (OSError, msgspec.DecodeError):
            return None

    def _store(self, found: Document) -> None:
        path = self._cache_file()
        root = Raw(msgspec.json.encode(found.root))
        with suppress(OSError, durable.NotSynced):  # the next start then fetches it again
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            durable.replace(path, msgspec.json.encode(_Cached(self._etag, root)))


def _interval(cache_control: str) -> float:
    match = _MAX_AGE.search(cache_control.lower())
    wanted = float(match[1]) if match else URL_INTERVAL
    return min(max(wanted, MIN_URL_INTERVAL), MAX_URL_INTERVAL)


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > MAX_INLINE_BYTES
    except OSError:
        return False


async def _parsed(data: bytes, file: Path | None) -> Document:
    is_large = len(data) > MAX_INLINE_BYTES
    return await _run(partial(documents.read, data, file=file), is_large=is_large)


async def _run(work: Callable[[], Document], *, is_large: bool) -> Document:
    return await in_thread(work) if is_large else work()
