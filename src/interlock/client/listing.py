"""Lists of tools, resources, templates and prompts: page by page, item by item, with bounds."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from interlock.client.decoding import decode
from interlock.errors import RemoteProtocolError
from interlock.protocol.envelope import encode
from interlock.types import ListPage, ListParams, Prompt, Resource, ResourceTemplate, Tool

MAX_PAGES = 100
MAX_ITEMS = 10_000
MAX_SKIPPED = 1_000  # items that are of no use
MAX_BYTES = 64 * 1024 * 1024  # of all pages

_T = TypeVar("_T")


class Kind(Struct, Generic[_T], frozen=True):
    """What is listed: how to ask for it, and what is in the answer."""

    noun: str
    method: str
    member: str  # of `ListPage`
    type: type[_T]
    key: Callable[[_T], str]  # no two items of a list have the same


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
    """A list of items, and what is missing in it.

    While it is fresh, everybody who asks gets the same one: change a copy.

    Attributes:
        ttl: Seconds for which the server calls the list fresh; 0 when it does not say.
        skipped: One line for each item that was left out, with the reason.
        truncated: Why the list ends early, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.ttl = 0.0
        self.skipped: list[str] = []
        self.truncated = ""


async def collect(kind: Kind[_T], ask: Callable[[bytes], Awaitable[Raw]]) -> Listing[_T]:
    """Ask for page after page.

    Args:
        kind: What to list.
        ask: Sends encoded params and gives the encoded result.

    Raises:
        RemoteProtocolError: A page, not just an item of it, is malformed.
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
            listing.truncated = f"{kind.method}: cut after {MAX_ITEMS} items"
            break
        if len(listing.skipped) > MAX_SKIPPED:
            del listing.skipped[MAX_SKIPPED:]
            listing.truncated = f"{kind.method}: cut after {MAX_SKIPPED} items that are of no use"
            break
        if cursor is None:
            break
        if cursor in cursors:
            listing.truncated = f"{kind.method}: the server gave cursor {cursor[:40]!r} twice"
            break
        cursors.add(cursor)
        params = ListParams(cursor=cursor)
    else:
        listing.truncated = f"{kind.method}: cut after {MAX_PAGES} pages"
    listing.ttl = max(0.0, ttl_ms / 1000)
    return listing


def _add(listing: Listing[_T], seen: set[str], kind: Kind[_T], page: ListPage) -> None:
    """Decode items one by one; what is malformed or there already is named and left out."""
    if page.result_type != "complete":
        raise RemoteProtocolError(f"{kind.method} gave resultType {page.result_type!r}")
    raws = getattr(page, kind.member)
    if not isinstance(raws, list):
        raise RemoteProtocolError(f"{kind.method} gave no list of {kind.noun}s")
    for place, raw in enumerate(raws):
        if len(listing.skipped) > MAX_SKIPPED:
            return
        try:
            item = _decode_item(raw, kind.type)
        except (msgspec.DecodeError, RecursionError) as error:
            name = _name_of(raw) or f"number {place + 1}"
            listing.skipped.append(f"{kind.noun} {name} is malformed: {error}")
            continue
        key = kind.key(item)
        if key in seen:
            name = repr(key[:128])
            listing.skipped.append(f"{kind.noun} {name} is there twice; the first one counts")
            continue
        seen.add(key)
        listing.append(item)


def _decode_item(raw: Raw, type: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError:
        # Many servers write null for what is not there. Not within schemas, where it means null.
        fields = msgspec.json.decode(raw)
        with contextlib.suppress(msgspec.ValidationError, TypeError, AttributeError):
            parts = [fields, fields.get("annotations") or {}, *(fields.get("arguments") or ())]
            for part in parts:
                for name in [name for name, value in part.items() if value is None]:
                    del part[name]
            return msgspec.convert(fields, type)
        raise


def _name_of(raw: Raw) -> str:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and isinstance(fields.get("name"), str):
            return repr(fields["name"][:128])
    return ""
