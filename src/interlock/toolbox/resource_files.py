"""Resources as file arguments in API calls, so that a model need not copy a tool's result.

The toolbox reads the resource on the caller's behalf, through all layers, like any other read.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from interlock.calls import Call, Caller, CallHandler, Item
from interlock.config.gateway import OWN
from interlock.errors import InterlockError, InvalidArguments, UnknownResource
from interlock.layers.kept_results import URI
from interlock.protocol.decoding import decode
from interlock.toolbox.loose_template import LooseTemplate
from interlock.types import JsonObject, ReadResourceResult, ResourceContents

if TYPE_CHECKING:
    from interlock.toolbox.upstream import Upstream

_KEPT = re.compile(r"r_[0-9a-f]{20}(/[0-9]+)?")  # id of a kept result or of its part

MAX_FILE_BYTES = 16 * 1024 * 1024

FindResource = Callable[[str, Caller], Awaitable[Item | None]]


async def read(find: FindResource, handle: CallHandler, uri: str, call: Call) -> JsonObject:
    """Return the file argument for a resource: its contents in Base64, its name and media type.

    Args:
        handle: Passes the request for the resource through all layers.
        uri: The URI as the caller writes it, or the id of a kept result.
        call: The API call that needs the file.

    Raises:
        InvalidArguments: The resource does not exist, has several parts, or is too large.
        InterlockError: The caller may not read the resource, or its server has failed.
    """
    if _KEPT.fullmatch(uri):
        uri = f"{URI}{uri}"
    item = await find(uri, call.caller)
    if item is None:
        raise InvalidArguments(
            f"no resource {uri[:200]!r}; write the URI of a listed resource or of a kept result"
        )
    reading = Call(item, {}, call.caller, back=call.back, slots=call.slots, timeout=call.timeout)
    try:
        raw = (await handle(reading)).raw
    except UnknownResource:
        raise InvalidArguments(f"no resource {uri[:200]!r}; it may have expired") from None
    found = decode(ReadResourceResult, raw, "resources/read result")
    return _file(uri, _only(uri, item, found))


def _only(uri: str, item: Item, found: ReadResourceResult) -> ResourceContents:
    exact = [each for each in found.contents if each.uri == item.name]
    chosen = exact if len(exact) == 1 else found.contents
    if len(chosen) != 1:
        parts = ", ".join(each.uri for each in chosen[:10]) or "none"
        raise InvalidArguments(
            f"resource {uri[:200]!r} has {len(chosen)} parts; name one of them: {parts}"
        )
    return chosen[0]


def _file(uri: str, contents: ResourceContents) -> JsonObject:
    encoded = contents.blob
    if encoded is None:
        encoded = b64encode((contents.text or "").encode("utf-8", "replace")).decode()
    size = len(encoded) * 3 // 4 - encoded[-2:].count("=")
    if size > MAX_FILE_BYTES:
        raise InvalidArguments(
            f"resource {uri[:200]!r} is too large for a file ({size:,} bytes, "
            f"limit {MAX_FILE_BYTES:,})"
        )
    file: JsonObject = {"base64": encoded}
    name = unquote(urlsplit(contents.uri).path.rpartition("/")[2])
    if name:
        file["name"] = name
    if contents.mime_type:
        file["type"] = contents.mime_type
    return file


async def find(upstreams: Mapping[str, Upstream], uri: str) -> Item | None:
    """Find a resource by its URI: a kept result, or a resource that a server lists.

    `SERVER:URI` names a resource at one server, listed or not.

    Raises:
        InvalidArguments: Several servers may have the resource.
    """
    if uri.startswith(URI):
        return Item("resources", OWN, uri)
    working = [each for each in upstreams.values() if each.status.state == "ok"]
    listing = await asyncio.gather(*(_lists(each, uri) for each in working))
    having = [each.name for each, has_it in zip(working, listing, strict=True) if has_it]
    named = find_named(upstreams, uri)
    if named is not None and named.server not in having:
        return named
    if len(having) > 1:
        ways = " or ".join(f"{server}:{uri[:200]}" for server in having[:10])
        raise InvalidArguments(f"several servers may have {uri[:200]!r}; write {ways}")
    return Item("resources", having[0], uri) if having else None


def find_named(upstreams: Container[str], uri: str) -> Item | None:
    """Return the resource that `SERVER:URI` names; None if the text is not of this form.

    Another server that lists the whole text, or has a template for it, must not receive the
    request. A text such as `github://a` is a URI, even if a server is called `github`.
    """
    server, colon, rest = uri.partition(":")
    if not colon or server not in upstreams or rest.startswith("//"):
        return None
    return Item("resources", server, rest)


async def _lists(upstream: Upstream, uri: str) -> bool:
    """Return whether a server lists a resource, or a template that may match it."""
    try:
        if any(each.uri == uri for each in await upstream.list_resources()):
            return True
        templates = await upstream.list_resource_templates()
    except InterlockError:
        return False
    return any(LooseTemplate(each.uri_template).may_match(uri) for each in templates)
