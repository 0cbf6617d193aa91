"""The tool with which a model reads the servers' resources."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from interlock.calls import Call, CallHandler, Outcome
from interlock.errors import InterlockError, InvalidArguments
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode_lossy
from interlock.toolbox.own_tools import OwnTool
from interlock.toolbox.resource_files import FindResource
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    ImageContent,
    ReadResourceResult,
    ResourceContents,
    TextContent,
    Tool,
    ToolAnnotations,
)

if TYPE_CHECKING:
    from interlock.toolbox.upstream import Upstream

LINK = "[resource "  # the start of a linked resource in the text of a result
MOST_LISTED = 200  # the most resources and templates in a list
_SURFACES = ("agent", "chat", "web")  # surfaces with a model; other callers read resources directly
READ_RESOURCE = Tool(
    name="read_resource",
    title="Read a resource",
    description=(
        "Read a resource of a server: one that a tool result links to, or that a server lists. "
        "Write SERVER:URI, where SERVER is the part of a tool's name before the two underscores. "
        "Without uri, list the resources and templates."
    ),
    input_schema={
        "type": "object",
        "properties": {"uri": {"type": "string", "description": "SERVER:URI, or a listed URI"}},
        "additionalProperties": False,
    },
    annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True),
)


def resource_tool(
    find: FindResource, handle: CallHandler, upstreams: Callable[[], Mapping[str, Upstream]]
) -> OwnTool:
    """Return the tool that reads and lists resources.

    Args:
        find: Finds a resource that a caller may read.
        handle: Passes the request for the resource through all layers.
        upstreams: Returns the servers by name.
    """

    async def answer(call: Call) -> Outcome:
        uri = call.arguments.get("uri") or ""
        if not uri:
            return _outcome([TextContent(await _listing(call, upstreams()))])
        item = await find(uri, call.caller)
        if item is None:
            raise InvalidArguments(
                f"no resource {uri[:200]!r}; write SERVER:URI, or leave uri out to list resources"
            )
        reading = Call(
            item, {}, call.caller, back=call.back, slots=call.slots, timeout=call.timeout
        )
        found = decode(ReadResourceResult, (await handle(reading)).raw, "resources/read result")
        return _outcome([_content(each) for each in found.contents])

    def is_offered(results: Sequence[str]) -> bool:
        links = any(LINK in text for text in results)
        return links or any(each.has_resources for each in upstreams().values())

    return OwnTool(READ_RESOURCE, answer, lambda caller: caller.surface in _SURFACES, is_offered)


def _outcome(contents: list[Content]) -> Outcome:
    return Outcome(Raw(encode_lossy(CallToolResult(content=contents))))


def _content(contents: ResourceContents) -> Content:
    if contents.text is not None:
        return TextContent(contents.text)
    blob, kind = contents.blob or "", contents.mime_type or "bytes"
    if kind.startswith("image/"):
        return ImageContent(blob, kind)
    if kind.startswith("audio/"):
        return AudioContent(blob, kind)
    return TextContent(f"[{kind}, {len(b64decode(blob)):,} bytes]")


async def _listing(call: Call, upstreams: Mapping[str, Upstream]) -> str:
    if call.caller.principal is not None:
        # These lists are the servers' own; a gateway's user may not be allowed to see all of them.
        raise InvalidArguments("resources cannot be listed here; write the URI of one")
    having = [each for each in upstreams.values() if each.has_resources]
    listed = await asyncio.gather(*map(_lines, having))
    lines = [line for each in listed for line in each]
    if len(lines) > MOST_LISTED:
        lines[MOST_LISTED:] = [f"[{len(lines) - MOST_LISTED} more]"]
    return "\n".join(lines) or "no resources"


async def _lines(upstream: Upstream) -> list[str]:
    try:
        resources = await upstream.list_resources()
        templates = await upstream.list_resource_templates()
    except InterlockError as error:
        return [f"{upstream.name}: {error}"]
    rows = [(each.uri, each.title or each.name) for each in resources]
    rows += [(each.uri_template, each.title or each.name) for each in templates]
    return [f"{upstream.name}:{uri}  {title}" for uri, title in rows]
