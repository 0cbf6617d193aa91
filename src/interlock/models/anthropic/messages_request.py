"""Writes a conversation in the format of the Messages API."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from interlock.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolMessage
from interlock.models.vendors import (
    DOCUMENTS,
    IMAGES,
    call_id,
    call_name,
    result_text,
    without_files,
)

FILES = IMAGES | DOCUMENTS
LARGEST_IMAGE = 5 * 1024 * 1024  # bytes; the API refuses the whole request above this


def wire_messages(
    messages: Sequence[Message], *, provider: str = "", deferred: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Convert a conversation to the format of the Messages API, without its system messages.

    Args:
        messages: The conversation; empty messages are omitted, because the API refuses them.
        provider: The model whose own blocks, such as signed thinking, are sent back unchanged.
        deferred: The names of the request's deferred tools.
    """
    wire: list[dict[str, Any]] = []
    for message in without_files(messages, FILES, largest=LARGEST_IMAGE):
        role, blocks = _blocks(message, provider, deferred)
        if not blocks:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    return wire


def _blocks(
    message: Message, provider: str, deferred: frozenset[str]
) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(message, SystemMessage):
        return "system", []
    if isinstance(message, AssistantMessage):
        return "assistant", _own_blocks(message, provider) or _assistant_blocks(message)
    if isinstance(message, ToolMessage):
        id = call_id(message.tool_call_id)
        if loaded := [name for name in message.loads if name in deferred]:
            references = [{"type": "tool_reference", "tool_name": name} for name in loaded]
            return "user", [{"type": "tool_result", "tool_use_id": id, "content": references}]
        result = {
            "type": "tool_result",
            "tool_use_id": id,
            "content": result_text(message),
            "is_error": message.is_error,
        }
        if message.attachments:
            files = [_file_block(each) for each in message.attachments]
            result["content"] = [*text_blocks(message.content), *files]
        return "user", [result]
    files = [_file_block(each) for each in message.attachments]
    return "user", [*files, *text_blocks(message.content)] or text_blocks("(empty message)")


def _file_block(file: Attachment) -> dict[str, Any]:
    source = {
        "type": "base64",
        "media_type": file.media_type,
        "data": base64.b64encode(file.data).decode(),
    }
    kind = "image" if file.media_type.startswith("image/") else "document"
    return {"type": kind, "source": source}


def _assistant_blocks(message: AssistantMessage) -> list[dict[str, Any]]:
    return text_blocks(message.content) + [
        {
            "type": "tool_use",
            "id": call_id(call.id),
            "name": call_name(call.name),
            "input": call.input,
        }
        for call in message.tool_calls
    ]


def _own_blocks(message: AssistantMessage, provider: str) -> list[dict[str, Any]]:
    data = message.provider_data or {}
    blocks = data.get("content")
    if data.get("provider") != provider or not isinstance(blocks, list):
        return []
    if not all(isinstance(block, dict) for block in blocks):
        return []
    asked = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if asked != [call.id for call in message.tool_calls]:
        return []  # the message was changed, so its stored blocks are outdated
    if "@" not in provider:
        # Anthropic refuses thinking that is cut and so has no signature. Other servers do not
        # sign it, and some need it back.
        blocks = [
            each for each in blocks if each.get("type") != "thinking" or each.get("signature")
        ]
    return [
        {**block, "id": call_id(block["id"])} if block.get("type") == "tool_use" else block
        for block in blocks
    ]


def text_blocks(text: str) -> list[dict[str, Any]]:
    """Return one block of text; no block for blank text, which the API refuses."""
    return [{"type": "text", "text": text}] if text.strip() else []
