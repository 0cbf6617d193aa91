"""The source of an OpenAPI document: a file, a URL or this program; and the check for changes.

Rules:

1. A document at a URL is fetched by the rules of `oauth.fetcher`. URLs inside it are never fetched.
2. If a document cannot be read, the last good document stays in use, also after a restart: a copy
   is stored in the user's cache folder, with the other files that the document's tools need.
3. A document over `MAX_INLINE_BYTES` is parsed in a thread, so that other calls go on meanwhile.
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
from interlock.text.surrogates import path_text
from interlock.text.urls import display, origin

MAX_URL_BYTES = 16 * 1024 * 1024
MAX_INLINE_BYTES = 1024 * 1024
FILE_INTERVAL = 2.0  # seconds between two checks of a file
URL_INTERVAL = 300.0  # seconds between two checks of a URL without a max-age
MIN_URL_INTERVAL, MAX_URL_INTERVAL = 60.0, 86_400.0
_HEADERS = {"Accept": "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.1"}
_MAX_AGE = re.compile(r"max-age\s*=\s*([0-9]{1,9})")


class _Kept(Struct, frozen=True):
    """The decoded copy of a document in the cache folder.

    Attributes:
        mark: Differs between two states of the document; "" if unknown.
        root: The document.
        files: The other files that its tools need, keyed by their path in the document's folder.
    """

    mark: str
    root: Raw
    files: dict[str, Raw]


class Source:
    """Reads one OpenAPI document from its place, and keeps a copy of it.

    Args:
        place: A file, a URL, or the decoded document itself.
        headers: Headers to send if the document's URL is on the same origin as `base_url`.
        base_url: The base URL of the API.

    Attributes:
        stale: Why the document could not be read again; "" if the document is current.
        interval: Seconds until the next call of `load_if_changed`.
    """

    def __init__(
        self, place: str | Path | Mapping[str, Any], headers: Mapping[str, str], base_url: str
    ) -> None:
        self.stale = ""
        self.interval = FILE_INTERVAL
        self._place = place
        self._etag = ""
        self._seen: dict[Path, tuple[int, ...] | None] = {}
        self._headers: dict[str, str] = dict(_HEADERS)
        if self.is_url and origin(str(place)) == origin(base_url):
            self._headers |= headers

    @property
    def is_url(self) -> bool:
        return isinstance(self._place, str) and "://" in self._place

    @property
    def can_change(self) -> bool:
        """Whether the document may change, as a file or a URL may."""
        return not isinstance(self._place, Mapping)

    async def read(self) -> Document:
        """Read the document as it is now.

        Raises:
            DocumentError: The document cannot be read, or is not an OpenAPI document.
            InterlockError: The document's URL does not answer.
        """
        if isinstance(self._place, Mapping):
            return await _parsed(msgspec.json.encode(self._place))
        if not self.is_url:
            return await self._read_file()
        found = await self._fetch()
        if found is None and self._etag == self._kept_mark():  # not modified since the copy
            found = await self.copy()
        if found is None:
            self._etag = ""
            found = await self._fetch()
        if found is None:
            raise DocumentError(f"{self._shown} sends no document")
        return found

    async def load(self) -> Document:
        """Read the document; if it cannot be read, return the last good copy and set `stale`.

        Raises:
            InterlockError: The document cannot be read (see `read`), and no copy exists.
        """
        try:
            return await self.read()
        except InterlockError as error:
            copy = await self.copy()
            if copy is None:
                raise
            self.stale = str(error)
            self.interval = MIN_URL_INTERVAL if self.is_url else FILE_INTERVAL
            return copy

    async def load_if_changed(self) -> Document | None:
        """Return the document if it has changed, else None; set `stale` if it cannot be read."""
        try:
            if self.is_url:
                return await self._fetch()
            if all(_stamp(path) == seen for path, seen in self._seen.items()):
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
        self._seen = {path: _stamp(path)}  # set before reading, so that no change is missed
        found = await _run(partial(documents.load, path), is_large=_is_large(path))
        self.stale = ""
        return found

    def note_files(self, found: Document) -> None:
        """Also watch the other files that a document's tools need."""
        for path in found.files:
            if path not in self._seen:
                self._seen[path] = _stamp(path)

    # URLs

    async def _fetch(self) -> Document | None:
        """Fetch the document; return None if it has not changed."""
        url = str(self._place)
        if not self._etag:
            self._etag = self._kept_mark()
        condition = {"If-None-Match": self._etag} if self._etag else {}
        fetcher = Fetcher(url, max_bytes=MAX_URL_BYTES)
        reply = await fetcher.get(url, {**self._headers, **condition})
        self.interval = _interval(reply.headers.get("Cache-Control", ""))
        if reply.status == 304:
            self.stale = ""
            return None
        if reply.status != 200:
            raise HttpError(f"{self._shown} answers {reply.status}", reply.status)
        found = await _parsed(reply.body)
        self.stale = ""
        self._etag = reply.headers.get("ETag", "")
        return found

    # The copy

    @property
    def drift_file(self) -> Path | None:
        """The file that counts answers that differ from this document; None if it has no place."""
        return self._cache_file().with_suffix(".drift.json") if self.can_change else None

    @property
    def kept_at(self) -> float | None:
        """The time when the copy was stored, in seconds since 1970; None if no copy exists."""
        try:
            return self._cache_file().stat().st_mtime if self.can_change else None
        except OSError:
            return None

    async def copy(self) -> Document | None:
        """Return the last good copy; None if no copy exists."""
        kept = self._kept()
        if kept is None:
            return None
        root = bytes(kept.root)
        own_name = "" if self.is_url else Path(str(self._place)).name
        work = partial(documents.restore, root, kept.files, own_name)
        with suppress(DocumentError):
            return await _run(work, is_large=len(root) > MAX_INLINE_BYTES)
        return None

    async def keep(self, found: Document) -> None:
        """Store a copy of a document that tools were made from, unless it is already stored."""
        if not self.can_change or self.stale:
            return
        mark = self._mark()
        if mark and mark == self._kept_mark():
            return
        kept = self._kept()
        others = kept.files if kept is not None else {}  # another server may need these files
        files = {**others, **found.references.parts}
        file = self._cache_file()

        def write() -> None:
            # If no copy can be written, the next start reads the document from its place.
            with suppress(OSError, durable.NotSynced, RecursionError, OverflowError):
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                copy = {"mark": mark, "root": found.root, "files": files}
                durable.replace(file, msgspec.json.encode(copy))
                durable.replace(file.with_suffix(".mark"), mark.encode())

        await in_thread(write)

    def _mark(self) -> str:
        seen = {path_text(path): stamp for path, stamp in self._seen.items()}
        return self._etag if self.is_url else msgspec.json.encode(seen).decode()

    def _kept_mark(self) -> str:
        """Return the mark of the copy, without reading the whole copy."""
        try:
            return self._cache_file().with_suffix(".mark").read_text()
        except (OSError, UnicodeError):
            return ""

    def _cache_file(self) -> Path:
        place = str(self._place) if self.is_url else str(Path(str(self._place)).absolute())
        key = sha256(repr((place, sorted(self._headers.items()))).encode()).hexdigest()
        return user_cache_path("interlock") / "openapi" / f"{key[:32]}.json"

    def _kept(self) -> _Kept | None:
        if not self.can_change:
            return None
        try:
            return msgspec.json.decode(self._cache_file().read_bytes(), type=_Kept)
        except (OSError, msgspec.DecodeError):
            return None


def _interval(cache_control: str) -> float:
    match = _MAX_AGE.search(cache_control.lower())
    wanted = float(match[1]) if match else URL_INTERVAL
    return min(max(wanted, MIN_URL_INTERVAL), MAX_URL_INTERVAL)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return values that change whenever the file does; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > MAX_INLINE_BYTES
    except OSError:
        return False


async def _parsed(data: bytes) -> Document:
    return await _run(partial(documents.read, data), is_large=len(data) > MAX_INLINE_BYTES)


async def _run(work: Callable[[], Document], *, is_large: bool) -> Document:
    return await in_thread(work) if is_large else work()
