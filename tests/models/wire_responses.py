"""OpenAI's Responses API, beside the chat completions that refuse its models."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pydantic
from openai.types.responses import ResponseInputItemParam

from tests.models import wire_openai
from tests.models.wire_http import Answer, WireServer

FIELDS = {"model", "input", "stream", "store", "include", "instructions", "tools"}
FIELDS |= {"reasoning", "max_output_tokens", "temperature"}
REFUSAL = wire_openai.error(
    404,
    "This model is only supported in v1/responses and not in v1/chat/completions.",
    param="model",
    code=None,
)


def server() -> WireServer:
    return WireServer("/v1/chat/completions", problem, "/v1/responses")


# Responses


def answer(*items: dict[str, Any], end: str = "completed", **response: Any) -> Answer:
    """Return a stream with these items, text and arguments in pieces."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": _response()}]
    for place, item in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        events += [{**event, "output_index": place} for event in _deltas(item)]
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    done = _response(status=end, output=list(items), **response)
    return stream(*events, {"type": f"response.{end}", "response": done})


def stream(*events: dict[str, Any]) -> Answer:
    lines = (
        f"event: {event['type']}\ndata: {json.dumps({'sequence_number': number, **event})}\n\n"
        for number, event in enumerate(events)
    )
    return Answer("".join(lines).encode())


def message(text: str) -> dict[str, Any]:
    content = {"type": "output_text", "text": text, "annotations": []}
    fields = {"id": "msg_1", "status": "completed", "role": "assistant", "content": [content]}
    return {"type": "message", **fields}


def reasoning(summary: str, encrypted: str) -> dict[str, Any]:
    text = {"type": "summary_text", "text": summary}
    return {"type": "reasoning", "id": "rs_1", "summary": [text], "encrypted_content": encrypted}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    fields = {"id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments}
    return {"type": "function_call", "status": "completed", **fields}


def searches(id: str, arguments: dict[str, Any]) -> Answer:
    """Return an answer that only searches for tools."""
    item = {"type": "tool_search_call", "id": f"ts_{id}", "call_id": id, "execution": "client"}
    return answer({**item, "status": "completed", "arguments": arguments})


def usage(read: int, written: int, cached: int = 0, stored: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": stored},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }


def _response(**fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "test", "output": [], **fields}


def _deltas(item: dict[str, Any]) -> list[dict[str, Any]]:
    if item["type"] == "message":
        text = item["content"][0]["text"]
        kind = "response.output_text.delta"
    elif item["type"] == "reasoning":
        text = item["summary"][0]["text"]
        kind = "response.reasoning_summary_text.delta"
    elif item["type"] == "tool_search_call":
        return []
    else:
        text = item["arguments"]
        kind = "response.function_call_arguments.delta"
    half = len(text) // 2
    return [{"type": kind, "delta": piece} for piece in (text[:half], text[half:])]


# Validation of requests


@cache
def _input_item() -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(ResponseInputItemParam)


def problem(body: dict[str, Any]) -> str | None:
    """Return why the API would refuse this request, or None."""
    if "messages" in body:
        return wire_openai.problem(body)
    if unknown := body.keys() - FIELDS:
        return f"Unknown parameter: {unknown}"
    if body["store"] or "reasoning.encrypted_content" not in body["include"]:
        return "store"
    open_calls = []
    for item in body["input"]:
        try:
            _input_item().validate_python(item)
        except pydantic.ValidationError as error:
            return str(error)
        if item.get("type") in ("function_call", "tool_search_call"):
            open_calls.append(item["call_id"])
        elif item.get("type") in ("function_call_output", "tool_search_output"):
            if item["call_id"] not in open_calls:
                return "No tool call found for function call output"
            open_calls.remove(item["call_id"])
    if open_calls:
        return f"No tool output found for function call {open_calls[0]}."
    for tool in body.get("tools", []):
        members = {"execution"} if tool["type"] == "tool_search" else {"name", "strict"}
        if tool.keys() != {"type", "description", "parameters"} | members:
            return "Invalid tool"
    return None
