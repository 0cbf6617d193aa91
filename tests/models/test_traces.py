"""The span of a request to a provider, for each API."""

from __future__ import annotations

from typing import Any

from interlock.agent.model_requests import request_answer
from interlock.messages import UserMessage
from interlock.models.anthropic import AnthropicModel
from interlock.models.http.http_model import HttpModel
from interlock.models.openai import OpenAIModel
from interlock.telemetry.span import CLIENT
from tests.models import wire_anthropic, wire_openai, wire_responses
from tests.models.wire_http import Answer, WireServer
from tests.support.recorded_spans import recorded_spans
from tests.support.rows import each_row

WAYS: dict[str, tuple[Any, list[Answer]]] = {
    "claude-test": (wire_anthropic, [wire_anthropic.says("canary")]),
    "test": (wire_openai, [wire_openai.says("canary")]),
    "gpt-pro": (
        wire_responses,
        [wire_responses.REFUSAL, wire_responses.answer(wire_responses.message("canary"))],
    ),
}


def model_at(server: WireServer, name: str) -> HttpModel:
    if name == "claude-test":
        return AnthropicModel(name, api_key="canary", base_url=server.root)
    return OpenAIModel(name, api_key="canary", base_url=f"{server.root}/v1")


@each_row("name", WAYS)
async def test_a_span_names_the_model_that_answered_and_its_server(name: str) -> None:
    wire, script = WAYS[name]
    server: WireServer = wire.server()
    await server.start()
    server.script = list(script)
    model = model_at(server, name)
    with recorded_spans() as spans:
        async for _ in request_answer(model, [UserMessage("canary")]):
            pass
    await model.close()
    await server.stop()

    (span,) = spans
    assert (span.kind, span.name) == (CLIENT, f"chat {name}")
    assert span.attributes["gen_ai.response.model"] in ("claude-test", "test")
    address = f"http://{span.attributes['server.address']}:{span.attributes['server.port']}"
    assert address == server.root
    assert "canary" not in repr(span.attributes)
