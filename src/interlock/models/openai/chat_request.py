"""Writes a conversation and its tools in the format of the chat completions API."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence, Set
from hashlib import blake2s
from typing import Any

import msgspec

from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from interlock.models.model import ToolDefinition
from interlock.models.vendors import DOCUMENTS, IMAGES, call_id, call_name, stated_result
from interlock.protocol.envelope import encode_lossy

# What is sent back to the model that sent it, and its type. OpenRouter's and LiteLLM's details
# replace the reasoning as text.
RETURNED = {
    "reasoning_content": str,
    "reasoning": str,
    "thinking": str,
    "reasoning_details": list,
    "thinking_blocks": list,
    "extra_content": dict,
}
SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
FILES = IMAGES | DOCUMENTS | SOUNDS.keys()
# The value that Google defines for calls that it did not sign, such as calls by other models:
# https://ai.google.dev/gemini-api/docs/thought-signatures#faqs
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
_MISTRAL = "mistral|mixtral|magistral|ministral|devstral|codestral|pixtral"
# Requirements on conversations, and the models known to have them, whichever provider serves them.
# For other models, a requirement is learned from a refused request.
NEEDS = {
    # reasoning in every assistant message, even in one from another model
    "reasoning": re.compile(r"^deepseek:"),
    # a signature on every tool call, even on one by another model
    "signatures": re.compile(r"^gemini:|googleapis\.com/"),
    # an assistant message between a tool result and a user message
    "answers": re.compile(_MISTRAL, re.I),
    # call ids of exactly 9 letters and digits
    "ids": re.compile(_MISTRAL, re.I),
    # no two user messages in a row, not even with calls and results between them
    "turns": re.compile(rf"{_MISTRAL}|gemma", re.I),
    # instructions at the start of the first user message, instead of a system message
    "instructions": re.compile(r"^gemini:gemma", re.I),
}
_LONGEST_DESCRIPTION = 1024  # characters; OpenAI refuses the whole request above this


def wire_messages(
    messages: Sequence[Message],
    *,
    provider: str,
    refused: frozenset[str] = frozenset(),
    learned: frozenset[str] = frozenset(),
) -> list[dict[str, Any]]:
    """Return a conversation in the format of the chat completions API.

    Args:
        messages: The conversation; messages without text, calls and files are omitted.
        provider: The model that gets the request. What another one needs back is omitted.
        refused: Members of answers that the model does not take back.
        learned: The `NEEDS` that the model has shown.
    """
    needs = learned | {each for each, known in NEEDS.items() if known.search(provider)}
    # One message, because some templates have no place for a second one:
    # https://github.com/suitenumerique/conversations/issues/197
    system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
    role = "user" if "instructions" in needs else "system"
    wire = [{"role": role, "content": "\n\n".join(system)}] if system else []
    files: list[Attachment] = []  # the files of the results so far
    for message in messages:
        if isinstance(message, ToolMessage):
            files += message.attachments
        elif files:
            wire.append(_files_of_results(files, provider))
            files = []
        if written := _wire_message(message, provider, needs):
            wire.append({name: each for name, each in written.items() if name not in refused})
    if files:
        wire.append(_files_of_results(files, provider))
    if "ids" in needs:
        _shorten_ids(wire)
    if needs & {"answers", "turns"}:
        wire = _with_answers(wire)
    return _in_turns(wire) if needs & {"turns", "instructions"} else wire


def _shorten_ids(wire: Sequence[dict[str, Any]]) -> None:
    for message in wire:
        if message["role"] == "tool":
            message["tool_call_id"] = _short_id(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"] = _short_id(call["id"])


def _short_id(id: str) -> str:
    if re.fullmatch("[a-zA-Z0-9]{9}", id):
        return id
    return blake2s(id.encode(), digest_size=5).hexdigest()[:9]


def _with_answers(wire: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put a short answer between a result and a message of the user."""
    found: list[dict[str, Any]] = []
    for message in wire:
        if found and found[-1]["role"] == "tool" and message["role"] == "user":
            found.append({"role": "assistant", "content": "I have the results."})
        found.append(message)
    return found


def _in_turns(wire: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join messages of the user that follow each other."""
    found: list[dict[str, Any]] = []
    for message in wire:
        if found and found[-1]["role"] == message["role"] == "user":
            before, after = found[-1]["content"], message["content"]
            if isinstance(before, str) and isinstance(after, str):
                joined: Any = f"{before}\n\n{after}"
            else:
                joined = [*_as_parts(before), *_as_parts(after)]
            found[-1] = {"role": "user", "content": joined}
        else:
            found.append(message)
    return found


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _files_of_results(files: Sequence[Attachment], provider: str) -> dict[str, Any]:
    # Messages with the role "tool" can have only text, so the files follow in a user message.
    text = {"type": "text", "text": "The files of the results above:"}
    return {"role": "user", "content": [text, *(_file_part(each, provider) for each in files)]}


def _wire_message(message: Message, provider: str, needs: Set[str]) -> dict[str, Any] | None:
    text = message.content if message.content.strip() else ""
    if isinstance(message, SystemMessage):
        return None
    if isinstance(message, AssistantMessage):
        return _wire_assistant(message, text, provider, needs)
    if isinstance(message, ToolMessage):
        id = call_id(message.tool_call_id)
        return {"role": "tool", "tool_call_id": id, "content": stated_result(message)}
    if not message.attachments:
        return {"role": "user", "content": text or "(empty message)"}
    parts = [_file_part(each, provider) for each in message.attachments]
    return {"role": "user", "content": parts + ([{"type": "text", "text": text}] if text else [])}


def _file_part(file: Attachment, provider: str) -> dict[str, Any]:
    data = base64.b64encode(file.data).decode()
    url = f"data:{file.media_type};base64,{data}"
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    # Mistral has other forms for these: https://docs.mistral.ai/api/endpoint/chat
    is_mistral = provider.startswith("mistral:") or "//api.mistral.ai" in provider
    if sound := SOUNDS.get(file.media_type):
        audio = data if is_mistral else {"data": data, "format": sound}
        return {"type": "input_audio", "input_audio": audio}
    if is_mistral:
        return {"type": "document_url", "document_url": url}
    return {"type": "file", "file": {"filename": file.name or "file", "file_data": url}}


def _wire_assistant(
    message: AssistantMessage, text: str, provider: str, needs: Set[str]
) -> dict[str, Any] | None:
    if not (text or message.tool_calls):
        return None
    data = message.provider_data or {}
    if data.get("provider") != provider:
        data = {}
    wire: dict[str, Any] = {"role": "assistant", "content": text or None}
    if isinstance(thought := data.get("thinking_parts"), str):
        wire["content"] = _parts_with_thinking(thought, text)
    if message.tool_calls:
        wire["tool_calls"] = _wire_calls(message.tool_calls, data.get("calls"), needs)
    for member, kind in RETURNED.items():
        if isinstance(data.get(member), kind):
            wire[member] = data[member]
    if "reasoning_details" in wire:
        wire.pop("reasoning", None)
    if "reasoning" in needs and not wire.get("reasoning_content"):
        # DeepSeek refuses a conversation with tools if a message lacks reasoning, as messages from
        # other models do. It also refuses it if all messages have the same text as reasoning.
        wire["reasoning_content"] = _made_up_reasoning(message)
    return wire


def _parts_with_thinking(thought: str, text: str) -> list[dict[str, Any]]:
    # Mistral accepts one thinking part, at the start:
    # https://github.com/earendil-works/pi/issues/9674
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
    return [thinking, *([{"type": "text", "text": text}] if text else [])]


def _made_up_reasoning(message: AssistantMessage) -> str:
    if message.tool_calls:
        return f"Next: call {', '.join(call_name(call.name) for call in message.tool_calls)}."
    return f"Answer: {message.content[:80]}"


def _wire_calls(calls: Sequence[ToolCall], known: Any, needs: Set[str]) -> list[dict[str, Any]]:
    """Return calls with what the provider attached to them, which `known` has by id."""
    attached = known if isinstance(known, dict) else {}
    wire = [_wire_call(call) | (attached.get(call.id) or {}) for call in calls]
    if not attached and "signatures" in needs:
        wire[0]["extra_content"] = _UNSIGNED
    return wire


def _wire_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call_name(call.name), "arguments": encode_lossy(call.input).decode()}
    return {"id": call_id(call.id), "type": "function", "function": function}


def wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool in the format of the chat completions API."""
    description = tool.description
    if len(description) > _LONGEST_DESCRIPTION:
        description = f"{description[: _LONGEST_DESCRIPTION - 1]}…"
    function = {
        "name": tool.name,
        "description": description,
        "parameters": msgspec.json.decode(tool.input_schema),
    }
    return {"type": "function", "function": function}
