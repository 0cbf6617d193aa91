"""OpenAI's chat completions API, and the further requirements of DeepSeek."""

from __future__ import annotations

import json
from typing import Any

from tests.models.wire_http import Answer, WireServer, failure
from tests.providers import request_rules, schema_rules
from tests.providers.fake_provider import Refused, problem_with

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


_RULES = (
    request_rules.members(FIELDS, "Unknown parameter: {}"),
    request_rules.message_members((), "Unknown parameter: messages[{}].{}"),
    request_rules.answered_calls,
    request_rules.call_form("[^\\s]{1,40}", "tool_calls[0].id: {!r}"),
    request_rules.contents(
        "image_url", "file", "input_audio", refuse=lambda _, kind: Refused(f"Invalid type {kind}")
    ),
    request_rules.tools(schema_rules.openai),
)


def problem(body: dict[str, Any]) -> str | None:
    """Return why the API would refuse this request, or None."""
    return problem_with(body, _RULES)
