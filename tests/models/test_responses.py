from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from interlock.errors import ModelInterrupted, ModelOverloaded, ModelRefused
from interlock.messages import Message, UserMessage
from interlock.models import ToolDefinition, complete, learned
from interlock.models.openai import OpenAIModel
from tests.models import wire_openai
from tests.models import wire_responses as wire
from tests.models.wire_http import WireServer

TIME = ToolDefinition("time__now", "The time.", b'{"type":"object","properties":{"zone":{}}}')
ASK: list[Message] = [UserMessage("What time is it?")]
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    server = wire.server()
    await server.start()
    server.script = [wire.REFUSAL]
    yield server
    await server.stop()
    assert server.problems == []


@pytest.fixture
async def model(server: WireServer) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("gpt-pro", api_key="sk-x", base_url=f"{server.root}/v1")
    yield model
    await model.close()


async def test_refusal_of_chat_completions_is_stored_for_the_next_process(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script += [wire.answer(wire.message("Noon.")) for _ in range(3)]

    await complete(model, ASK)
    await complete(model, ASK)
    learned._read.clear()  # what a new process has read
    again = OpenAIModel("gpt-pro", api_key="sk-x", base_url=f"{server.root}/v1")
    await complete(again, ASK)
    await again.close()

    assert [asked.path for asked in server.asked] == [CHAT, RESPONSES, RESPONSES, RESPONSES]


async def test_reasoning_that_cannot_be_decrypted_is_left_out(
    server: WireServer, model: OpenAIModel
) -> None:
    first = wire.answer(wire.reasoning("Hm.", "e1"), wire.message("Noon."))
    refusal = wire_openai.error(400, "The encrypted content e1 could not be verified.")
    server.script += [first, refusal, wire.answer(wire.message("Still."))]

    reply = await complete(model, ASK)
    await complete(model, [*ASK, reply.message, UserMessage("And now?")])

    sent = [[item.get("type") for item in asked.body["input"]] for asked in server.asked[2:]]
    assert sent == [[None, "reasoning", "message", None], [None, None, None]]


async def test_options_have_the_names_of_this_api(server: WireServer) -> None:
    options = {"max_tokens": 99, "effort": "low", "temperature": 0.5}
    url = f"{server.root}/v1"
    model = OpenAIModel("gpt-pro-2", api_key="sk-x", base_url=url, options=options)
    server.script = [wire.REFUSAL, wire.answer(wire.message("Noon."))]

    await complete(model, ASK)
    await model.close()

    body = server.asked[-1].body
    assert (body["max_output_tokens"], body["temperature"]) == (99, 0.5)
    assert body["reasoning"] == {"effort": "low"}


@pytest.mark.parametrize(
    ("reason", "expected"), [("max_output_tokens", "length"), ("content_filter", "refusal")]
)
async def test_incomplete_answer_states_why(
    server: WireServer, model: OpenAIModel, reason: str, expected: str
) -> None:
    items = wire.message("It"), wire.call("c1", "time__now", "")
    details = {"reason": reason}
    server.script += [wire.answer(*items, end="incomplete", incomplete_details=details)]

    reply = await complete(model, ASK, [TIME])

    assert (reply.message.content, reply.stop_reason) == ("It", expected)


@pytest.mark.parametrize(
    ("code", "error"),
    [("server_error", ModelInterrupted), ("rate_limit_exceeded", ModelOverloaded)],
)
async def test_failed_answer_is_an_error_with_its_reason(
    server: WireServer, model: OpenAIModel, code: str, error: type[Exception]
) -> None:
    response = {"id": "resp_1", "error": {"code": code, "message": "It\nbroke."}}
    server.script += [wire.stream({"type": "response.failed", "response": response})]

    with pytest.raises(error, match=r"It broke"):
        await complete(model, ASK)


async def test_refused_request_without_a_remedy_is_not_retried(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script += [wire_openai.error(400, "Unsupported value.")]

    with pytest.raises(ModelRefused, match="Unsupported value"):
        await complete(model, ASK)

    assert len(server.asked) == 2
