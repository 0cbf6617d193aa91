"""Converts the result of a call to LangChain's `ToolMessage`."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from langchain_core.messages import ToolMessage
from msgspec import UNSET, Struct

from interlock.agent import text_of
from interlock.agent.tool_results import describe
from interlock.calls.endings import Ending, ending_of, reason_of
from interlock.errors import InterlockError
from interlock.protocol.envelope import encode
from interlock.types import CallToolResult, Content, ImageContent

MAX_ARTIFACT = 16 * 1024  # bytes: an artifact is stored with every checkpoint
MAX_IMAGE = 1024 * 1024  # bytes of an image that goes to the model

JsonBlock = dict[str, Any]


class Finished(Struct, frozen=True):
    """The end of a call.

    Attributes:
        content: The content for the model: text, or blocks with images.
        is_error: Whether the call failed, or the tool reported an error.
        ending: How the call ended.
        reason: The code of the layer that refused the call; "" if no layer did.
        artifact: Data for the program, which the model does not get.
        loads: The wire names of the tools that the result loads.
    """

    content: str | list[str | JsonBlock]
    is_error: bool = False
    ending: Ending = "ran"
    reason: str = ""
    artifact: dict[str, Any] | None = None
    loads: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The content without its images."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(
            each if isinstance(each, str) else str(each.get("text", "[image]"))
            for each in self.content
        )


def finished(result: CallToolResult, images: int = 0) -> Finished:
    """Convert the result of a tool.

    Args:
        images: The largest image in bytes that becomes an image block; with 0 no image does.
    """
    content: str | list[str | JsonBlock]
    if images and any(_is_shown(each, images) for each in result.content):
        content = [_block(each, images) for each in result.content]
        if result.warning:
            content.append({"type": "text", "text": f"warning: {result.warning}"})
    else:
        content = text_of(result)
    ending: Ending = "failed" if result.is_error else "ran"
    return Finished(content, result.is_error, ending, artifact=_artifact(result))


def failed(error: InterlockError) -> Finished:
    """Convert the error of a call that has no result."""
    return Finished(f"error: {error}", True, ending_of(error), reason_of(error))


def message(done: Finished, call: dict[str, Any], facts: dict[str, Any]) -> ToolMessage:
    """Return the answer to a tool call."""
    about = {**facts, "outcome": done.ending}
    if done.reason:
        about["reason"] = done.reason
    if done.loads:
        about["loads"] = list(done.loads)
    return ToolMessage(
        content=done.content,
        name=call["name"],
        tool_call_id=call["id"],
        artifact=done.artifact,
        status="error" if done.is_error else "success",
        additional_kwargs={"interlock": about},
    )


def _artifact(result: CallToolResult) -> dict[str, Any] | None:
    if result.structured_content is UNSET:
        return None
    size = len(encode(result.structured_content))
    if size > MAX_ARTIFACT:
        return {"omitted": f"structured_content has {size:,} bytes (limit {MAX_ARTIFACT:,})"}
    return {"structured_content": result.structured_content}


def _is_shown(block: Content, most: int) -> bool:
    return (
        isinstance(block, ImageContent)
        and block.mime_type.startswith("image/")
        and len(block.data) * 3 // 4 <= most
        and _is_base64(block.data)
    )


def _is_base64(data: str) -> bool:
    try:
        return bool(b64decode(data, validate=True))
    except ValueError:
        return False


def _block(block: Content, most: int) -> JsonBlock:
    if isinstance(block, ImageContent) and _is_shown(block, most):
        return {"type": "image", "base64": block.data, "mime_type": block.mime_type}
    return {"type": "text", "text": describe(block)}
