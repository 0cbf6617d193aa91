"""OpenAI's chat completions API, and the further requirements of DeepSeek."""

from __future__ import annotations

import json
from typing import Any

from tests.models.wire_http import Answer, WireServer, failure

FIELDS = {
    "model",
    "messages",
    "tools",
    "stream",
    "stream_options",
    "reasoning_effort",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "max_tokens",
    "max_completion_tokens",
}


def server() -> WireServer:
    return WireServer("/v1/chat/completions", problem)


# Responses


def chunks(*data: object, done: bool = True, cut: bool = False) -> Answer:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in data]
    lines += ["data: [DONE]\n\n"] if done else []
    return Answer("".join(lines).encode(), cut=cut)


def chunk(finish_reason: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {**_envelope(), "choices": [choice], "usage": None}


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    counted = {"prompt_tokens": prompt, "completion_tokens": completion, **details}
    return {**_envelope(), "choices": [], "usage": {**counted, "total_tokens": prompt + completion}}


def fragment(index: int | None = None, arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk with one piece of one tool call; `name` goes into its function."""
    function = {"name": fields.pop("name", None), "arguments": arguments}
    call = {"index": index, "type": "function", "function": function, **fields}
    return chunk(tool_calls=[{key: value for key, value in call.items() if value is not None}])


def says(*pieces: str) -> Answer:
    return chunks(
        chunk(role="assistant", content=""), *(chunk(content=p) for p in pieces), chunk("stop")
    )


def error(status: int, message: str, **fields: Any) -> Answer:
    headers = {
        name: fields.pop(name) for name in ("retry_after", "retry_after_ms") if name in fields
    }
    return failure(status, {"error": {"message": message, "type": "error", **fields}}, **headers)


def _envelope() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "test"}


# Validation of requests


def problem(body: dict[str, Any]) -> str | None:
    """Return why the API would refuse this request, or None."""
    if unknown := body.keys() - FIELDS:
        return f"Unknown parameter: {unknown}"
    if body.get("stream_options") != {"include_usage": True}:
        return "stream_options.include_usage"
    if "tools" in body and not body["tools"]:
        return "[] is too short - 'tools'"
    for tool in body.get("tools", []):
        parameters = tool["function"]["parameters"]
        if parameters.get("type") != "object" or "properties" not in parameters:
            return f"Invalid schema for function {tool['function']['name']!r}"
        if parameters.keys() & {"oneOf", "anyOf", "allOf", "enum", "not"}:
            return "schema must not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"
        if len(tool["function"]["description"]) > 1024:
            return "Invalid 'tools[0].function.description': string too long"
    return _messages_problem(body["messages"], {"role", "content", "tool_calls"})


def _messages_problem(messages: list[dict[str, Any]], assistant: set[str]) -> str | None:
    open_calls: list[str] = []
    for position, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if not open_calls or message["tool_call_id"] != open_calls.pop(0):
                return f"messages[{position}]: role 'tool' must answer the next of 'tool_calls'"
        elif open_calls:
            return f"tool_call_ids {open_calls} did not have response messages"
        if role not in ("system", "user", "assistant", "tool"):
            return f"Invalid value: {role!r}"
        if role == "assistant":
            if message.keys() - assistant:
                return f"Unknown parameter: messages[{position}].{message.keys() - assistant}"
            if not message.get("content") and not message.get("tool_calls"):
                return f"messages[{position}]: content is required"
            for call in message.get("tool_calls", []):
                if not 0 < len(call["id"]) <= 40:
                    return "tool_calls[0].id: string too long"
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    return "arguments must be an object"
                open_calls.append(call["id"])
        elif not isinstance(message["content"], str) and not _are_parts(role, message["content"]):
            return f"messages[{position}].content: expected a string"
    return f"tool_call_ids {open_calls} did not have response messages" if open_calls else None


def _are_parts(role: str, content: Any) -> bool:
    return role == "user" and isinstance(content, list) and all(map(_is_part, content))


def _is_part(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return url.startswith("data:image/")
        case {"type": "file", "file": {"filename": str(), "file_data": str(url)}}:
            return url.startswith("data:application/pdf;base64,")
        case {"type": "input_audio", "input_audio": {"data": str(), "format": "wav" | "mp3"}}:
            return True
    return False
