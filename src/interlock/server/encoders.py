"""Results -> bytes for the client's revision: what it does not know is dropped or rewritten.

What is new to a revision is in two tables; a modern client gets everything, and what only it
knows (`resultType`, caching hints, who the server is) is added for it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from interlock.protocol.envelope import encode, encode_into, encode_large, with_meta
from interlock.revisions import (
    IMPLEMENTATION_DETAILS,
    LEGACY,
    MODERN,
    SERVER_INFO_KEY,
    TITLES,
    at_least,
    is_modern,
)
from interlock.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Implementation,
    JsonObject,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    UnknownContent,
)

# First revision of members of tools, resources, templates, prompts and their arguments.
_ITEM_MEMBERS = {
    "title": "2025-06-18",
    "_meta": "2025-06-18",
    "outputSchema": "2025-06-18",
    "icons": "2025-11-25",
    "execution": "2025-11-25",
}
# ... and of those who speak.
_IMPLEMENTATION_MEMBERS = {
    "title": TITLES,
    "description": IMPLEMENTATION_DETAILS,
    "websiteUrl": IMPLEMENTATION_DETAILS,
    "icons": IMPLEMENTATION_DETAILS,
}
_TOOL_ANNOTATIONS = "2025-03-26"
_AUDIO = "2025-03-26"
_LINKS = "2025-06-18"  # and metadata of content, and when it was modified
_STRUCTURED = "2025-06-18"
_OBJECT_ONLY_UNTIL = "2025-11-25"


class Encoder:
    """Encodes a server's results. One a server; what does not change is encoded once."""

    def __init__(self, info: Implementation) -> None:
        self._meta = encode({SERVER_INFO_KEY: info})[1:-1]
        self._server_info = msgspec.to_builtins(info)
        self._complete = b'{"resultType":"complete","_meta":{%b}' % self._meta

    # Any result

    def result(self, body: bytes, revision: str, meta: JsonObject | None = None) -> bytes:
        """Finish an encoded result that has no `_meta` of its own."""
        if not is_modern(revision):
            known = meta and at_least(revision, _ITEM_MEMBERS["_meta"])
            return with_meta(body, encode(meta)[1:-1]) if known else body
        if meta:
            body = with_meta(body, encode({SERVER_INFO_KEY: self._server_info, **meta})[1:-1])
            return b'{"resultType":"complete",%b' % body[1:]
        return self._complete + (b"," + body[1:] if len(body) > 2 else b"}")

    def input_required(self, questions: dict[str, tuple[str, bytes]], state: str) -> bytes:
        """Encode questions to a modern client."""
        asked = {
            key: {"method": method, "params": Raw(params)}
            for key, (method, params) in questions.items()
        }
        body = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        return with_meta(encode(body), self._meta)

    def task(self, body: bytes) -> bytes:
        """Encode a task that a call has become."""
        return with_meta(b'{"resultType":"task",%b' % body[1:], self._meta)

    # Calls, prompts, resources

    def call(self, result: CallToolResult, revision: str, *, wraps: bool = False) -> bytes:
        """Encode a tool's result; `content` is there even when empty.

        Args:
            result: What the tool gave.
            revision: The client's.
            wraps: Older clients know the tool's output as an object around the value.
        """
        meta = result.meta
        if meta is None and result.content and revision in MODERN:
            whole = bytearray(self._complete)  # what most calls are
            encode_into(result, whole, -1)
            if _UNKNOWN in whole:
                return b"%b,%b" % (self._complete, _encode_whole(result)[1:])
            whole[len(self._complete)] = _COMMA
            return bytes(whole)
        if meta is not None:
            result = replace(result, meta=None)
        if not is_modern(revision):
            result = _for_legacy(result, revision, wraps)
        body = encode_large(result)
        if _UNKNOWN in body:
            body = _encode_whole(result)
        if not result.content:
            body = b'{"content":[]' + (b"," + body[1:] if len(body) > 2 else b"}")
        return self.result(body, revision, meta)

    def prompt(self, result: GetPromptResult, revision: str) -> bytes:
        """Encode a prompt."""
        if not is_modern(revision):
            messages = [
                replace(each, content=_content_for([each.content], revision)[0])
                for each in result.messages
            ]
            result = replace(result, messages=messages)
        body = encode_large(replace(result, meta=None))
        if not result.messages:
            body = b'{"messages":[]' + (b"," + body[1:] if len(body) > 2 else b"}")
        return self.result(body, revision, result.meta)

    def read(self, result: ReadResourceResult, revision: str) -> bytes:
        """Encode the contents of a resource."""
        contents = result.contents
        if not at_least(revision, _LINKS):
            contents = [replace(each, meta=None) for each in contents]
        body: dict[str, Any] = {"contents": contents}
        if is_modern(revision):
            body |= {"ttlMs": result.ttl_ms, "cacheScope": result.cache_scope}
        return self.result(encode_large(body), revision, result.meta)

    # Lists

    def listing(
        self,
        member: str,
        items: Iterable[Struct],
        revision: str,
        *,
        next_cursor: str | None,
        ttl_ms: int,
        cache_scope: str,
    ) -> bytes:
        """Encode one page of a list."""
        body: dict[str, Any] = {member: [item_for(item, revision) for item in items]}
        if next_cursor is not None:
            body["nextCursor"] = next_cursor
        if is_modern(revision):
            body |= {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        return self.result(encode(body), revision)


def implementation_for(info: Implementation, revision: str) -> JsonObject:
    """Write who the server is, for a revision."""
    fields: JsonObject = {"version": "", **msgspec.to_builtins(info)}
    return {
        member: value
        for member, value in fields.items()
        if at_least(revision, _IMPLEMENTATION_MEMBERS.get(member, LEGACY[0]))
    }


def item_for(item: Struct, revision: str) -> JsonObject:
    """Write an item of a list for a revision."""
    fields: JsonObject = msgspec.to_builtins(item)
    if is_modern(revision):
        return fields
    for member, first in _ITEM_MEMBERS.items():
        if member in fields and not at_least(revision, first):
            del fields[member]
    if "inputSchema" in fields and not at_least(revision, _TOOL_ANNOTATIONS):
        fields.pop("annotations", None)
    if "annotations" in fields and not at_least(revision, _LINKS):
        fields["annotations"].pop("lastModified", None)
    output = fields.get("outputSchema")
    if output is not None and wraps_for_legacy(output):
        fields["outputSchema"] = _wrapped_schema(output)
    for argument in fields.get("arguments") or ():
        if not at_least(revision, _ITEM_MEMBERS["title"]):
            argument.pop("title", None)
    return fields


def wraps_for_legacy(schema: Mapping[str, Any]) -> bool:
    """Tell whether older clients, which know objects only, get the value in a member "result"."""
    return schema.get("type") != "object"


def _wrapped_schema(schema: JsonObject) -> JsonObject:
    # References lead to places below the root, so these stay there.
    kept = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in kept}
    return kept | {"type": "object", "properties": {"result": inner}, "required": ["result"]}


def _for_legacy(result: CallToolResult, revision: str, wraps: bool) -> CallToolResult:
    structured = result.structured_content
    if structured is not UNSET:
        if not at_least(revision, _STRUCTURED):
            structured = UNSET
        elif wraps or not _is_object(structured):
            structured = {"result": structured}
    content = _content_for(result.content, revision)
    return replace(result, content=content, structured_content=structured)


def _is_object(value: Any) -> bool:
    if isinstance(value, Raw):
        return bytes(value).startswith(b"{")
    return isinstance(value, dict)


def _content_for(content: list[Content], revision: str) -> list[Content]:
    return [_block_for(block, revision) for block in content]


def _block_for(block: Content, revision: str) -> Content:
    if at_least(revision, _ITEM_MEMBERS["icons"]):
        return block
    if at_least(revision, _LINKS):
        return replace(block, icons=None) if isinstance(block, ResourceLink) else block
    if isinstance(block, ResourceLink):
        return TextContent(text=f"{block.name or 'resource'}: {block.uri}")
    if isinstance(block, AudioContent) and not at_least(revision, _AUDIO):
        return TextContent(text=f"[audio, {block.mime_type}]")
    if isinstance(block, TextContent | ImageContent | AudioContent):
        return replace(block, meta=None, annotations=_annotations_for(block.annotations))
    if isinstance(block, EmbeddedResource):
        resource = replace(block.resource, meta=None)
        annotations = _annotations_for(block.annotations)
        return replace(block, meta=None, annotations=annotations, resource=resource)
    return TextContent(text="[content of an unknown type]")


def _annotations_for(annotations: Annotations | None) -> Annotations | None:
    return None if annotations is None else replace(annotations, last_modified=None)


# How msgspec writes a block of a type that we do not know; on the wire it is what it was.
_UNKNOWN = b'{"type":"","fields":{'
_COMMA = ord(",")


def _encode_whole(result: CallToolResult) -> bytes:
    members = msgspec.to_builtins(result)
    members["content"] = [
        block.fields if isinstance(block, UnknownContent) else block for block in result.content
    ]
    return encode_large(members)
