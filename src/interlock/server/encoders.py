"""Encoding of results for the client's revision: unsupported parts are omitted or rewritten.

A modern client gets every member, and also `resultType`, caching hints and the server's identity. A
result that another server has encoded is decoded only if the client's revision requires it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from interlock.errors import LocalProtocolError
from interlock.protocol.decoding import decode, decode_head, decode_prompt
from interlock.protocol.envelope import encode, encode_into, encode_large, encode_lossy, with_meta
from interlock.revisions import FEATURES, SERVER_INFO_KEY, Features
from interlock.server.catalogue import Definition, EncodedDefinition, output_schema
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
    Tool,
    UnknownContent,
    decode_content,
)

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_blocks = msgspec.json.Decoder(list[Raw]).decode
_NULL = Raw(b"null")
_EMPTY_LIST = Raw(b"[]")  # an empty object, as PHP writes it
_ZERO = Raw(b"0")
_PRIVATE = Raw(b'"private"')  # the default, because answers may depend on the caller
_RESERVED = "io.modelcontextprotocol/"


class Encoder:
    """Encodes the results of one server."""

    def __init__(self, info: Implementation) -> None:
        self._meta = encode({SERVER_INFO_KEY: info})[1:-1]
        self._server_info = msgspec.to_builtins(info)
        self._complete = b'%b,"_meta":{%b}' % (_COMPLETE, self._meta)

    # Any result

    def result(self, body: bytes, revision: str, meta: JsonObject | None = None) -> bytes:
        """Complete an encoded result that has no `_meta`."""
        features = FEATURES[revision]
        if not features.is_modern:
            has_meta = meta and features.structured
            return with_meta(body, encode(meta)[1:-1]) if has_meta else body
        if meta:
            body = with_meta(body, encode({SERVER_INFO_KEY: self._server_info, **meta})[1:-1])
            return b'{"resultType":"complete",%b' % body[1:]
        return self._complete + (b"," + body[1:] if len(body) > 2 else b"}")

    def input_required(self, questions: dict[str, tuple[str, bytes]], state: str) -> bytes:
        asked = {
            key: {"method": method, "params": Raw(params)}
            for key, (method, params) in questions.items()
        }
        body = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        return with_meta(encode(body), self._meta)

    def task(self, body: bytes) -> bytes:
        return with_meta(b'{"resultType":"task",%b' % body[1:], self._meta)

    # Calls, prompts, resources

    def call(
        self, result: CallToolResult | Raw, revision: str, definition: Tool | JsonObject
    ) -> bytes:
        """Encode a tool's result. It always has `content`, even if `content` is empty.

        Args:
            result: The tool's result.
            revision: The client's revision.
            definition: The tool's definition. Its output schema decides whether legacy clients get
                the structured value as it is, or inside an object.

        Raises:
            LocalProtocolError: `result` is encoded, but not a JSON object.
        """
        features = FEATURES[revision]
        if type(result) is Raw:
            # Inlined, to save a function call for most results.
            try:
                outer = decode_head(result)
            except (msgspec.DecodeError, RecursionError):  # the call below raises a clearer error
                return self._encoded_call(result, features, definition)
            if outer.meta is UNSET and outer.content is not UNSET:
                body = bytes(result)
                has_type = outer.result_type is not UNSET
                if has_type and body.endswith(_COMPLETE_AT_END) and body.count(_RESULT_TYPE) == 1:
                    body = body[: -len(_COMPLETE_AT_END)] + b"}"
                    has_type = False
                if not has_type and features.is_modern:
                    return b"%b,%b" % (self._complete, body[1:])
                if not has_type and features.icons and outer.structured_content is UNSET:
                    return body
            return self._encoded_call(result, features, definition)
        if not features.is_modern:
            result = _for_legacy(result, features, definition)
        if result.content:  # true for most results
            head = self._complete if features.is_modern else b""
            if result.meta is not None:
                head = _COMPLETE if features.is_modern else b""
                result = replace(result, meta=self._meta_for(result.meta, features))
            whole = bytearray(head)
            try:
                encode_into(result, whole, -1)
            except UnicodeEncodeError:
                whole = bytearray(head + encode_lossy(result))
            if _UNKNOWN not in whole:
                if head:
                    whole[len(head)] = _COMMA
                return bytes(whole)
        return self._whole_call(result, revision)

    def _meta_for(self, meta: JsonObject, features: Features) -> JsonObject | None:
        if features.is_modern:
            return {SERVER_INFO_KEY: self._server_info, **meta}
        return meta if meta and features.structured else None

    def _whole_call(self, result: CallToolResult, revision: str) -> bytes:
        meta = result.meta
        if meta is not None:
            result = replace(result, meta=None)
        body = encode_lossy(result)
        if _UNKNOWN in body:
            body = _encode_whole(result)
        if not result.content:
            body = b'{"content":[]' + (b"," + body[1:] if len(body) > 2 else b"}")
        return self.result(body, revision, meta)

    def _encoded_call(
        self, result: Raw, features: Features, definition: Tool | JsonObject
    ) -> bytes:
        members = _members_of(result)
        if not features.is_modern:
            try:
                _members_for_legacy(members, features, definition)
            except (msgspec.DecodeError, RecursionError) as error:
                raise LocalProtocolError(f"an encoded result is malformed: {error}") from None
        members.setdefault("content", Raw(b"[]"))
        return self._finish(members, features)

    def prompt(self, result: GetPromptResult | Raw, revision: str) -> bytes:
        features = FEATURES[revision]
        if isinstance(result, Raw):
            if features.icons:
                return self.encoded(result, revision)
            result = decode_prompt(result)
        if not features.is_modern:
            messages = [
                replace(each, content=_block_for(each.content, features))
                for each in result.messages
            ]
            result = replace(result, messages=messages)
        body = encode_lossy(replace(result, meta=None))
        if not result.messages:
            body = b'{"messages":[]' + (b"," + body[1:] if len(body) > 2 else b"}")
        return self.result(body, revision, result.meta)

    def read(self, result: ReadResourceResult | Raw, revision: str) -> bytes:
        features = FEATURES[revision]
        if isinstance(result, Raw):
            if features.links:
                return self._encoded_read(result, features)
            result = decode(ReadResourceResult, result, "resources/read result")
        contents = result.contents
        if not features.links:
            contents = [replace(each, meta=None) for each in contents]
        body: dict[str, Any] = {"contents": contents}
        if features.is_modern:
            body |= {"ttlMs": result.ttl_ms, "cacheScope": result.cache_scope}
        return self.result(encode_lossy(body), revision, result.meta)

    def _encoded_read(self, result: Raw, features: Features) -> bytes:
        members = _members_of(result)
        ttl_ms = members.pop("ttlMs", _ZERO)
        members.pop("cacheScope", None)
        if features.is_modern:
            members |= {"ttlMs": ttl_ms, "cacheScope": _PRIVATE}
        return self._finish(members, features)

    # Lists

    def item(self, item: Definition, revision: str) -> bytes:
        """Encode an item of a list."""
        found = _item_for(item, FEATURES[revision])
        return bytes(found) if isinstance(found, Raw) else encode_lossy(found)

    def listing(
        self,
        member: str,
        items: Iterable[bytes],
        revision: str,
        *,
        next_cursor: str | None,
        ttl_ms: int,
        cache_scope: str,
        meta: JsonObject | None = None,
    ) -> bytes:
        """Encode a list of encoded items."""
        features = FEATURES[revision]
        body: dict[str, Any] = {}
        if next_cursor is not None:
            body["nextCursor"] = next_cursor
        if features.is_modern:
            body |= {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        others = self.result(encode_lossy(body), revision, meta)[1:-1]
        parts = [b'{"%b":[' % member.encode()]
        for item in items:  # joined at once, because each copy of a long list takes milliseconds
            parts += (item, b",")
        parts[max(1, len(parts) - 1) :] = [b"],", others, b"}"] if others else [b"]}"]
        return b"".join(parts)

    # Results of other servers

    def encoded(self, result: Raw, revision: str) -> bytes:
        """Encode a result that another server has already encoded, with this server's identity.

        Raises:
            LocalProtocolError: The result is not an object.
        """
        return self._finish(_members_of(result), FEATURES[revision])

    def _finish(self, members: dict[str, Any], features: Features) -> bytes:
        members.pop("resultType", None)
        meta = _passed_on(members.pop("_meta", None))
        if features.is_modern:
            whole = b"%b,%b" % (self._meta, encode_large(meta)[1:-1]) if meta else self._meta
            return b'{"resultType":"complete",%b' % with_meta(encode_large(members), whole)[1:]
        if meta and features.structured:
            members["_meta"] = meta
        return encode_large(members)


def _members_of(result: Raw) -> dict[str, Any]:
    try:
        return _decode_members(result)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LocalProtocolError(f"an encoded result is malformed: {error}") from None


def _passed_on(meta: Raw | None) -> dict[str, Raw]:
    """Return the `_meta` of another server's result without what concerns the connection to it."""
    if meta is None or meta in (_NULL, _EMPTY_LIST):
        return {}
    try:
        members = _decode_members(meta)
    except (msgspec.DecodeError, RecursionError) as error:
        raise LocalProtocolError(f"_meta of an encoded result is malformed: {error}") from None
    return {key: each for key, each in members.items() if not key.startswith(_RESERVED)}


def implementation_for(info: Implementation, revision: str) -> JsonObject:
    """Return the server's identity, without the members that a revision does not define."""
    features = FEATURES[revision]
    fields: JsonObject = {"version": "", **msgspec.to_builtins(info)}
    if not features.structured:
        fields.pop("title", None)
    if not features.icons:
        for member in ("description", "websiteUrl", "icons"):
            fields.pop(member, None)
    return fields


# For legacy clients


def _item_for(item: Definition, features: Features) -> Struct | JsonObject | Raw:
    if isinstance(item, EncodedDefinition):
        needs_change = not features.icons or b'"outputSchema"' in bytes(item.raw)
        if features.is_modern or not needs_change:
            return item.raw
        item = msgspec.json.decode(item.raw, type=JsonObject)  # not cached, as it may be large
    if features.is_modern:
        return item
    fields: JsonObject = msgspec.to_builtins(item)
    if not features.icons:
        fields.pop("icons", None)
    if not features.structured:
        for member in ("title", "_meta", "outputSchema"):
            fields.pop(member, None)
        for argument in fields.get("arguments") or ():
            argument.pop("title", None)
    if "inputSchema" in fields and not features.tool_annotations:
        fields.pop("annotations", None)
    if fields.get("annotations") and not features.links:
        fields["annotations"].pop("lastModified", None)
    output = fields.get("outputSchema")
    if output is not None and _needs_wrapping(output):
        fields["outputSchema"] = _wrapped_schema(output)
    return fields


def _needs_wrapping(schema: Mapping[str, Any] | None) -> bool:
    """Return whether legacy clients, which accept only objects, get the value in an object."""
    return schema is not None and schema.get("type") != "object"


def _wrapped_schema(schema: JsonObject) -> JsonObject:
    # References in the schema start at its root, so these members must stay at the root.
    kept = {key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in kept}
    return kept | {"type": "object", "properties": {"result": inner}, "required": ["result"]}


def _for_legacy(
    result: CallToolResult, features: Features, definition: Tool | JsonObject
) -> CallToolResult:
    structured = result.structured_content
    if structured is not UNSET:
        schema = definition.output_schema if type(definition) is Tool else output_schema(definition)
        if not features.structured:
            result = replace(result, structured_content=UNSET)
        elif (schema is not None and schema.get("type") != "object") or not _is_object(structured):
            result = replace(result, structured_content={"result": structured})
    if features.icons:
        return result
    for each in result.content:
        if type(each) is not TextContent or each.meta is not None or each.annotations is not None:
            content = [_block_for(block, features) for block in result.content]
            return replace(result, content=content)
    return result


def _members_for_legacy(
    members: dict[str, Any], features: Features, definition: Tool | JsonObject
) -> None:
    """Rewrite a result's members for a legacy client; leave them encoded where possible."""
    members.pop("resultType", None)
    if not features.structured:
        members.pop("_meta", None)
        members.pop("structuredContent", None)
    elif "structuredContent" in members:
        structured = members["structuredContent"]
        if _needs_wrapping(output_schema(definition)) or not _is_object(structured):
            members["structuredContent"] = {"result": structured}
    content: Raw | None = members.get("content")
    if content is None or features.icons or (features.links and b'"icons"' not in bytes(content)):
        return
    blocks = [_block_for(decode_content(each), features) for each in _decode_blocks(content)]
    members["content"] = [
        each.fields if isinstance(each, UnknownContent) else each for each in blocks
    ]


def _is_object(value: Any) -> bool:
    if isinstance(value, Raw):
        return bytes(value).startswith(b"{")
    return isinstance(value, dict)


def _block_for(block: Content, features: Features) -> Content:
    if features.icons:
        return block
    if features.links:
        return replace(block, icons=None) if isinstance(block, ResourceLink) else block
    if isinstance(block, ResourceLink):
        return TextContent(text=f"{block.name or 'resource'}: {block.uri}")
    if isinstance(block, AudioContent) and not features.tool_annotations:
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


# msgspec encodes a content block of unknown type as this struct; only `fields` is for clients.
_UNKNOWN = b'{"type":"","fields":{'
_RESULT_TYPE = b'"resultType"'
_COMPLETE = b'{"resultType":"complete"'
_COMPLETE_AT_END = b',"resultType":"complete"}'  # cannot be in a string: quotes are escaped there
_COMMA = ord(",")


def _encode_whole(result: CallToolResult) -> bytes:
    members = msgspec.to_builtins(result, enc_hook=msgspec.json.decode)  # the hook decodes Raw
    members["content"] = [
        block.fields if isinstance(block, UnknownContent) else block for block in result.content
    ]
    return encode_lossy(members)
