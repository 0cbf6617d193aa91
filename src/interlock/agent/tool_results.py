"""The results of tools as a model reads them: text, images and sounds."""

from __future__ import annotations

import base64

from interlock.messages import Attachment
from interlock.protocol.envelope import encode
from interlock.toolbox.resource_tool import LINK
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

NO_OUTPUT = "the tool ran without output"  # some providers refuse an empty message
MAX_FILE = 5 * 1024 * 1024  # bytes; larger images and sounds in results are not sent to the model
MAX_FILES = 8  # images and sounds of one result


def text_of(result: CallToolResult) -> str:
    """Return a tool's result as text for a model, with a note for each block that is not text."""
    parts = [describe(block) for block in result.content]
    text = "\n".join(parts)
    if not text.strip():
        empty = "the tool failed without a message" if result.is_error else NO_OUTPUT
        text = empty if result.structured is None else encode(result.structured).decode()
    return f"{text}\nwarning: {result.warning}" if result.warning else text


def files_of(result: CallToolResult) -> tuple[Attachment, ...]:
    """Return the images and sounds of a tool's result that are within the limits."""
    files: list[Attachment] = []
    for block in result.content:
        if isinstance(block, ImageContent | AudioContent) and len(files) < MAX_FILES:
            try:
                data = base64.b64decode(block.data, validate=True)
            except ValueError:
                continue  # the result's text has a note about it
            if 0 < len(data) <= MAX_FILE:
                files.append(Attachment(block.mime_type.lower(), data))
    return tuple(files)


def describe(block: Content) -> str:
    """Return a content block as text, or a note about it."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, EmbeddedResource):
        return block.resource.text or f"{LINK}{block.resource.uri}]"
    if isinstance(block, ResourceLink):
        return f"{LINK}{block.uri}]"
    return "[content of an unknown type]"
