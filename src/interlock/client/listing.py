"""Lists of tools, resources, templates and prompts, read page by page within limits."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from interlock import aio
from interlock.errors import RemoteProtocolError
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode, encode_large
from interlock.protocol.leniency import strict_form
from interlock.schema.tool_input import read_input
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
MAX_SKIPPED = 1_000  # the most malformed or repeated items in a list
MAX_BYTES = 64 * 1024 * 1024  # total size of all pages in a list

_T = TypeVar("_T")
_OF_EVERY_PAGE = frozenset(("_meta", "nextCursor", "ttlMs", "cacheScope", "resultType"))
_HAS_NULL = re.compile(rb":\s*null\b")


class Kind(Struct, Generic[_T], frozen=True):
    """A kind of list, such as tools: the method that requests it, and the type of its items."""

    noun: str
    method: str
    member: str  # the member of `ListPage` that contains the items
    type: type[_T]
    key: Callable[[_T], str]  # returns an item's key, which is unique within a list
    read: Callable[[JsonObject], JsonObject] = lambda definition: definition


def _read_tool(definition: JsonObject) -> JsonObject:
    given = definition.get("inputSchema")
    # Some servers write the definition of a model's API.
    others = (definition.get(name) for name in ("input_schema", "parameters"))
    meant = given or next((each for each in others if isinstance(each, dict)), given)
    found = read_input(meant)
    return definition if found is given else {**definition, "inputSchema": found}


TOOLS = Kind("tool", "tools/list", "tools", Tool, lambda tool: tool.name, _read_tool)
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
    """A list of items from a server, and why some items are missing.

    While the list is cached, all callers get the same object, so do not change it.

    Attributes:
        definitions: Each item as the server sent it, including members unknown to interlock.
        ttl: Seconds for which the server allows caching the list; 0 to forbid it.
        skipped: One line for each omitted item, with the reason.
        truncated: Why the list ends early; "" if it is complete.
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
        RemoteProtocolError: A page is malformed. A malformed item is skipped without an error.
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
        page = _page_of(raw, kind)
        await _add(listing, seen, kind, page)
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


def _page_of(raw: Raw, kind: Kind[_T]) -> ListPage:
    """Decode a page; a list instead of it is its items, and an empty object has none.

    https://github.com/GopherSecurity/gopher-mcp/issues/199; servers in Go omit an empty list.
    """
    what = f"{kind.method} result"
    if bytes(memoryview(raw)[:1]) == b"[":
        return replace(ListPage(), **{kind.member: decode(list[Raw], raw, what)})
    page = decode(ListPage, raw, what)
    is_empty = getattr(page, kind.member) is UNSET and page == ListPage()
    if is_empty and not decode(dict[str, Raw], raw, what).keys() - _OF_EVERY_PAGE:
        return replace(page, **{kind.member: []})
    return page


async def _add(listing: Listing[_T], seen: set[str], kind: Kind[_T], page: ListPage) -> None:
    """Decode a page's items one by one; name malformed and repeated items in `skipped`."""
    if page.result_type != "complete":
        raise RemoteProtocolError(f"{kind.method} returned unknown resultType {page.result_type!r}")
    raws = getattr(page, kind.member)
    if raws is None:
        return
    if not isinstance(raws, list):
        raise RemoteProtocolError(f"{kind.method} returned no list of {kind.noun}s")
    for place, raw in enumerate(raws):
        if place % aio.SLICE == aio.SLICE - 1:
            await asyncio.sleep(0)
        if len(listing.skipped) > MAX_SKIPPED:
            return
        try:
            definition, item = _convert(raw, kind)
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


def _convert(raw: Raw, kind: Kind[_T]) -> tuple[JsonObject, _T]:
    """Return the definition of an item, in its strict form if the server sent another one."""
    definition = msgspec.json.decode(raw, type=JsonObject)
    given = kind.read(definition)
    # Strict clients refuse a whole list because of null in one of its items.
    if _HAS_NULL.search(raw) is None:
        with contextlib.suppress(msgspec.ValidationError):
            return definition, msgspec.convert(given, kind.type)
    strict = strict_form(kind.type, raw if given is definition else encode_large(given))
    return msgspec.json.decode(strict), msgspec.json.decode(strict, type=kind.type)


def _name_of(raw: Raw) -> str:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and isinstance(fields.get("name"), str):
            return repr(fields["name"][:128])
    return ""
