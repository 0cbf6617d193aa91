"""The part of Anthropic's Messages API that a conversation with tools needs."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.models.wire_http import Answer, WireServer, failure

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "stream", "temperature", "top_p"}
FIELDS |= {"output_config"}


def server() -> WireServer:
    return WireServer("/v1/messages", problem)


# Responses


def events(*data: dict[str, Any], cut: bool = False) -> Answer:
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in data]
    return Answer("".join(lines).encode(), cut=cut)


def start(input_tokens: int = 10, **usage: int) -> dict[str, Any]:
    counted = {"input_tokens": input_tokens, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": counted}
    return {"type": "message_start", "message": message}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, signature: str, *pieces: str) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": p} for p in pieces]
    deltas.append({"type": "signature_delta", "signature": signature})
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas)


def tool_use(index: int, id: str, name: str, *fragments: str) -> list[dict[str, Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in fragments]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


def stop(reason: str = "end_turn", output_tokens: int = 20) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    return [
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


def says(*pieces: str) -> Answer:
    return events(start(), *text(0, *pieces), *stop())


def error(status: int, kind: str, message: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return failure(status, body, **headers)


def unmarked(value: Any) -> Any:
    """Return a part of a request without its marks for the prompt cache."""
    if isinstance(value, dict):
        return {key: unmarked(each) for key, each in value.items() if key != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


# Validation of requests


def problem(body: dict[str, Any]) -> str | None:
    """Return why the API would refuse this request, or None."""
    if unknown := body.keys() - FIELDS:
        return f"{unknown}: Extra inputs are not permitted"
    if str(body).count("'cache_control'") > 4:
        return "A maximum of 4 blocks with cache_control may be provided"
    if not isinstance(body.get("max_tokens"), int) or body.get("stream") is not True:
        return "max_tokens: Field required"
    if not all(block["text"].strip() for block in body.get("system", [])):
        return "system: text content blocks must be non-empty"
    if "tools" in body and not body["tools"]:
        return "tools: List should have at least 1 item"
    for tool in body.get("tools", []):
        schema = tool["input_schema"]
        if schema.get("type") != "object":
            return f"tools: {tool['name']}: input_schema.type: Field required"
        if schema.keys() & {"oneOf", "allOf", "anyOf"}:
            return "input_schema does not support oneOf, allOf, or anyOf at the top level"
    return _messages_problem(body["messages"])


def _messages_problem(messages: list[dict[str, Any]]) -> str | None:
    if not messages or messages[0]["role"] != "user":
        return "messages: first message must use the user role"
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        if message["role"] not in ("user", "assistant"):
            return f"messages.{position}.role: unknown"
        if position and messages[position - 1]["role"] == message["role"]:
            return f"messages.{position}: roles must alternate"
        blocks = message["content"]
        if not blocks:
            return f"messages.{position}.content: must be non-empty"
        found = [_block_problem(message["role"], block) for block in blocks]
        if any(found):
            return f"messages.{position}.content: {found}"
        answered = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        leading = [b["type"] for b in blocks[: len(answered)]]
        if answered != open_calls or leading != ["tool_result"] * len(answered):
            return f"messages.{position}: tool_use ids {open_calls} without tool_result right after"
        open_calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
    return f"tool_use ids {open_calls} without tool_result" if open_calls else None


def _block_problem(role: str, block: dict[str, Any]) -> str | None:
    match block:
        case {"type": "text", "text": str(said)} if said.strip():
            return None
        case {
            "type": "tool_result",
            "tool_use_id": str(),
            "content": str() | list(),
            "is_error": bool(),
        }:
            return None if role == "user" else "tool_result belongs to the user"
        case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict()}:
            fits = re.fullmatch(r"[A-Za-z0-9_-]+", id) and re.fullmatch(r"[\w-]{1,64}", name)
            return None if fits and role == "assistant" else f"tool_use {id!r} {name!r}"
        case {
            "type": "image" | "document",
            "source": {"type": "base64", "media_type": str(), "data": str(data)},
        } if data:
            return None if role == "user" else "files belong to the user"
        case {"type": "thinking", "thinking": str(), "signature": str(signature)} if signature:
            return None
        case {"type": "redacted_thinking", "data": str(data)} if data:
            return None
    return f"unknown or empty block {block}"
