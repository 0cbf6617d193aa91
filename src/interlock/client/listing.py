"""Lists of tools, resources, templates and prompts, read page by page within limits."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from interlock.errors import RemoteProtocolError
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.types import (
    JsonObject,
    ListPage,
    ListParams,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)

MAX_PAGES = 100
MAX_ITEMS = 10_000
MAX_SKIPPED = 1_000  # malformed or repeated items
MAX_BYTES = 64 * 1024 * 1024  # total size of all pages

_T = TypeVar("_T")


class Kind(Struct, Generic[_T], frozen=True):
    """A kind of list: its request, and the items in its result."""

    noun: str
    method: str
    member: str  # the member of `ListPage` with the items
    type: type[_T]
    key: Callable[[_T], str]  # returns the key of an item, unique within a list


TOOLS = Kind("tool", "tools/list", "tools", Tool, lambda tool: tool.name)
RESOURCES = Kind("resource", "resources/list", "resources", Resource, lambda each: each.uri)
TEMPLATES = Kind(
    "resource template",
    "resources/templates/list",
    "resource_templates",
    ResourceTemplate,
    lambda each: each.uri_template,
)
PROMPTS = Kind("prompt", "prompts/list", "prompts", Prompt, lambda each: each.name)


class Listing(list[_T]):
    """A list of items, with the reasons why some are missing.

    Callers share the list while it is fresh, so change only a copy.

    Attributes:
        definitions: Each item as the server wrote it, with members unknown to interlock.
        ttl: The seconds for which the list is fresh, as the server states; 0 for none.
        skipped: One line for each omitted item, with the reason.
        truncated: The reason why the list ends early; "" for a whole list.
    """

    def __init__(self) -> None:
        super().__init__()
        self.definitions: list[JsonObject] = []
        self.ttl = 0.0
        self.skipped: list[str] = []
        self.truncated = ""


async def collect(kind: Kind[_T], ask: Callable[[bytes], Awaitable[Raw]]) -> Listing[_T]:
    """Request all pages of a list.

    Args:
        kind: The kind of list.
        ask: Sends encoded params and returns the encoded result.

    Raises:
        RemoteProtocolError: A page is malformed; a malformed item is only skipped.
    """
    listing: Listing[_T] = Listing()
    seen: set[str] = set()
    cursors: set[str] = set()
    ttl_ms, size = float("inf"), 0
    params = ListParams()
    for _ in range(MAX_PAGES):
        raw = await ask(encode(params))
        size += memoryview(raw).nbytes
        if size > MAX_BYTES:
            listing.truncated = f"{kind.method}: cut after {MAX_BYTES / 2**20:g} MiB"
            break
        page = decode(ListPage, raw, f"{kind.method} result")
        _add(listing, seen, kind, page)
        ttl_ms = min(ttl_ms, page.ttl_ms)
        cursor = page.next_cursor
        if len(listing) > MAX_ITEMS or (len(listing) == MAX_ITEMS and cursor is not None):
            del listing[MAX_ITEMS:]
            del listing.definitions[MAX_ITEMS:]
            listing.truncated = f"{kind.method}: cut after {MAX_ITEMS} items"
            break
        if len(listing.skipped) > MAX_SKIPPED:
            del listing.skipped[MAX_SKIPPED:]
            listing.truncated = f"{kind.method}: cut after {MAX_SKIPPED} malformed items"
            break
        if cursor is None:
            break
        if cursor in cursors:
            listing.truncated = f"{kind.method}: the server returned cursor {cursor[:40]!r} twice"
            break
        cursors.add(cursor)
        params = ListParams(cursor=cursor)
    else:
        listing.truncated = f"{kind.method}: cut after {MAX_PAGES} pages"
    listing.ttl = max(0.0, ttl_ms / 1000)
    return listing


def _add(listing: Listing[_T], seen: set[str], kind: Kind[_T], page: ListPage) -> None:
    """Decode items one by one; name malformed and repeated ones in `skipped`."""
    if page.result_type != "complete":
        raise RemoteProtocolError(f"{kind.method} returned unknown resultType {page.result_type!r}")
    raws = getattr(page, kind.member)
    if not isinstance(raws, list):
        raise RemoteProtocolError(f"{kind.method} returned no list of {kind.noun}s")
    for place, raw in enumerate(raws):
        if len(listing.skipped) > MAX_SKIPPED:
            return
        try:
            definition = msgspec.json.decode(raw, type=JsonObject)
            item = _convert(definition, kind.type)
        except (msgspec.DecodeError, RecursionError) as error:
            name = _name_of(raw) or f"number {place + 1}"
            listing.skipped.append(f"{kind.noun} {name} is malformed: {error}")
            continue
        key = kind.key(item)
        if key in seen:
            name = repr(key[:128])
            listing.skipped.append(f"{kind.noun} {name} is listed twice; the first one counts")
            continue
        seen.add(key)
        listing.append(item)
        listing.definitions.append(definition)


def _convert(definition: JsonObject, type: type[_T]) -> _T:
    try:
        return msgspec.convert(definition, type)
    except msgspec.ValidationError:
        # Many servers write null for an absent member, so nulls are removed. Nulls inside a schema
        # stay, because they have a meaning there.
        with contextlib.suppress(msgspec.ValidationError, TypeError, AttributeError):
            parts = [
                definition,
                definition.get("annotations") or {},
                *(definition.get("arguments") or ()),
            ]
            for part in parts:
                for name in [name for name, value in part.items() if value is None]:
                    del part[name]
            return msgspec.convert(definition, type)
        raise


def _name_of(raw: Raw) -> str:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and isinstance(fields.get("name"), str):
            return repr(fields["name"][:128])
    return ""
