"""The part of Anthropic's Messages API that a conversation with tools needs."""

from __future__ import annotations

import json
from typing import Any

from tests.models.wire_http import Answer, WireServer, failure
from tests.providers import request_rules, schema_rules
from tests.providers.fake_provider import problem_with


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


_RULES = (
    request_rules.anthropic_request,
    request_rules.anthropic_messages,
    request_rules.anthropic_deferred_tools,
    request_rules.tools(schema_rules.anthropic),
)


def problem(body: dict[str, Any]) -> str | None:
    """Return why the API would refuse this request, or None."""
    return problem_with(body, _RULES)
