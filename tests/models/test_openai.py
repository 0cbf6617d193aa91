from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
)
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import (
    Notice,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    Usage,
    answer_size,
    complete,
)
from interlock.models.http import ApiRefusal
from interlock.models.openai import OpenAIModel
from interlock.models.providers import BY_NAME
from tests.models import wire_openai as wire
from tests.models.processes import python
from tests.models.wire_http import Answer, WireServer, failure, page
from tests.servers.certificate_authority import CertificateAuthority
from tests.servers.ports import free_port
from tests.support.rows import each_row

KEY = "sk-proj-canary-7f3b9d2e5a8c"
TIME = ToolDefinition("time__now", "The time.", b'{"type":"object","properties":{"zone":{}}}')
ASK_ONCE = """
import asyncio, sys
from interlock.errors import ModelUnavailable
from interlock.messages import UserMessage
from interlock.models import choose, complete

async def main():
    model = await choose(sys.argv[1])
    try:
        print((await complete(model, [UserMessage("?")])).message.content)
    except ModelUnavailable as error:
        print(error)
    await model.close()

asyncio.run(main())
"""
ASK: list[Message] = [UserMessage("What time is it?")]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    server = wire.server()
    await server.start()
    yield server
    await server.stop()
    assert server.problems == []


@pytest.fixture
async def model(server: WireServer) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("gpt-test", api_key=KEY, base_url=f"{server.root}/v1")
    yield model
    await model.close()


@pytest.fixture
async def deepseek_server() -> AsyncIterator[WireServer]:
    server = wire.deepseek_server()
    await server.start()
    yield server
    await server.stop()
    assert server.problems == []


@pytest.fixture
async def deepseek(deepseek_server: WireServer) -> AsyncIterator[OpenAIModel]:
    url = f"{deepseek_server.root}/v1"
    model = OpenAIModel("deepseek-test", provider="deepseek", api_key=KEY, base_url=url)
    yield model
    await model.close()


async def fails(model: OpenAIModel) -> ModelError:
    """Send a request; return its error after asserting that it shows no part of the key."""
    with pytest.raises(ModelError) as caught:
        await complete(model, ASK)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert KEY[9:] not in shown
    assert "\n" not in str(caught.value)
    return caught.value


async def calls_of(
    server: WireServer, model: OpenAIModel, *chunks: dict[str, Any], end: str = "tool_calls"
) -> tuple[ToolCall, ...]:
    server.script = [wire.chunks(wire.chunk(role="assistant"), *chunks, wire.chunk(end))]
    return (await complete(model, ASK, [TIME])).message.tool_calls


# Requests


async def test_text_arrives_in_pieces_and_then_as_a_reply(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [
        wire.chunks(
            wire.chunk(role="assistant", content=""),
            wire.chunk(content="It is "),
            wire.chunk(content="nöön ☀."),
            wire.chunk("stop"),
            wire.usage(10, 20),
        )
    ]

    events = [event async for event in model.stream(ASK)]

    assert events == [
        TextDelta("It is "),
        TextDelta("nöön ☀."),
        Reply(AssistantMessage("It is nöön ☀."), Usage(10, 20), "end"),
    ]


@pytest.mark.parametrize(
    "details",
    [{"prompt_tokens_details": {"cached_tokens": 8}}, {"prompt_cache_hit_tokens": 8}],
    ids=["OpenAI", "DeepSeek"],
)
async def test_tokens_from_the_cache_are_counted(
    server: WireServer, model: OpenAIModel, details: dict[str, Any]
) -> None:
    usage = wire.usage(10, 20, **details)
    server.script = [wire.chunks(wire.chunk(content="Yes."), wire.chunk("stop"), usage)]

    assert (await complete(model, ASK)).usage == Usage(10, 20, 8)


async def test_a_request_without_tools_has_no_tools_field(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Noon.")]

    await complete(model, [SystemMessage("Be brief."), *ASK])

    assert server.asked[0].body == {
        "model": "gpt-test",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What time is it?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_images_and_documents_are_sent_before_the_text(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("A cat.")]
    files = (Attachment("image/png", b"png"), Attachment("application/pdf", b"pdf", "a.pdf"))

    await complete(model, [UserMessage("What is this?", files)])

    pdf = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}
    assert server.asked[0].body["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
        {"type": "file", "file": pdf},
        {"type": "text", "text": "What is this?"},
    ]


async def test_files_of_results_follow_them_in_a_message_of_the_user(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("A cat.")]
    call = AssistantMessage("", (ToolCall("1", "time__now"), ToolCall("2", "time__now")))
    image, sound = Attachment("image/png", b"png"), Attachment("audio/wav", b"wav")
    unknown = Attachment("audio/ogg", b"ogg")
    results = [
        ToolMessage("1", "one", attachments=(image,)),
        ToolMessage("2", "two", attachments=(sound, unknown)),
    ]

    await complete(model, [*ASK, call, *results], [TIME])

    *_, second, files = server.asked[0].body["messages"]
    assert second == {"role": "tool", "tool_call_id": "2", "content": "two"}
    assert files["role"] == "user"
    assert files["content"][1:] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
        {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}},
    ]


async def test_model_that_refuses_images_gets_a_line_of_text_for_each_image(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(400, "image input is not supported")]
    server.script += [wire.says("One."), wire.says("Two.")]
    asking = UserMessage("What is this?", (Attachment("image/png", b"png", "cat.png"),))

    for _ in range(2):
        await complete(model, [asking])

    line = "What is this?\n[image/png cat.png, 3 bytes: this model cannot read it]"
    sent = [asked.body["messages"][0]["content"] for asked in server.asked]
    assert sent[1:] == [line, line]


async def test_model_that_refuses_sounds_still_gets_images(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(400, "audio is not supported"), wire.says("A cat.")]
    files = (Attachment("image/png", b"png"), Attachment("audio/wav", b"wav"))

    await complete(model, [UserMessage("What is this?", files)])

    sent = server.asked[1].body["messages"][0]["content"]
    assert [part["type"] for part in sent] == ["image_url", "text"]
    assert "[audio/wav, 3 bytes: this model cannot read it]" in sent[1]["text"]


async def test_model_without_tool_support_answers_without_tools_with_one_notice(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(400, "gemma does not support tools")]
    server.script += [wire.says("One."), wire.says("Two.")]

    events = [event for _ in range(2) async for event in model.stream(ASK, [TIME])]

    assert ["tools" in asked.body for asked in server.asked] == [True, False, False]
    refused = f"{model.name} cannot use tools; it answers without them"
    assert events[0] == Notice(f"{refused}: gemma does not support tools")
    assert [type(event) for event in events].count(Notice) == 1


async def test_effort_is_sent_as_the_api_names_it(server: WireServer) -> None:
    server.script = [wire.says("Yes.")]
    url = f"{server.root}/v1"
    model = OpenAIModel("m", api_key=KEY, base_url=url, options={"effort": "low"})

    await complete(model, ASK, [TIME])
    await model.close()

    assert server.asked[0].body["reasoning_effort"] == "low"


async def test_answer_that_is_not_streamed_becomes_a_whole_reply(
    server: WireServer, model: OpenAIModel
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "time__now", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    answer = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    server.script = [failure(200, answer)]

    events = [event async for event in model.stream(ASK, [TIME])]

    calls = (ToolCall("c1", "time__now"),)
    reply = Reply(AssistantMessage("I look.", calls), Usage(5, 2), "tool_calls")
    assert events == [TextDelta("I look."), reply]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (page(200), "sent a web page .* check the address"),
        (failure(200, {"error": {"message": "no\nGPU"}}), "failed to run .* no GPU"),
    ],
    ids=["page", "error"],
)
async def test_response_with_status_200_that_is_not_an_answer_is_an_error(
    server: WireServer, model: OpenAIModel, answer: Answer, problem: str
) -> None:
    server.script = [answer]

    with pytest.raises(ModelUnavailable, match=problem):
        await complete(model, ASK)


@pytest.mark.parametrize("is_own", [True, False])
async def test_options_are_members_of_the_request(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    url = f"{server.root}/v1"
    if is_own:
        row = replace(BY_NAME["openai"], url=url)
        monkeypatch.setitem(BY_NAME, "openai", row)
    server.script = [wire.says("Yes.")]
    options = {"temperature": 0.2, "max_tokens": 500}
    model = OpenAIModel("gpt-test", api_key=KEY, base_url=url, options=options)

    await complete(model, ASK)

    await model.close()
    body = server.asked[0].body
    assert body["temperature"] == 0.2
    assert body["max_completion_tokens" if is_own else "max_tokens"] == 500


async def test_tools_are_offered_with_their_schema_unchanged(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Yes.")]

    await complete(model, ASK, [TIME])

    assert server.asked[0].body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "time__now",
                "description": "The time.",
                "parameters": {"type": "object", "properties": {"zone": {}}},
            },
        }
    ]


async def test_a_tool_that_the_api_would_refuse_is_converted(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Yes.")]
    schema = b'{"oneOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}'

    await complete(model, ASK, [ToolDefinition("t", "x" * 2000, schema)])

    function = server.asked[0].body["tools"][0]["function"]
    assert function["parameters"] == {"type": "object", "properties": {"a": {}, "b": {}}}
    assert len(function["description"]) == 1024


async def test_a_tool_without_parameters_is_offered_with_empty_properties(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Yes.")]

    await complete(model, ASK, [ToolDefinition("t", "", b'{"type":"object"}')])

    parameters = server.asked[0].body["tools"][0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}}


# Formats of tool calls


async def test_a_call_is_assembled_from_fragments(server: WireServer, model: OpenAIModel) -> None:
    server.script = [
        wire.chunks(
            wire.chunk(role="assistant", content=None),
            wire.chunk(content="Let me see."),
            wire.fragment(0, "", id="call_1", name="time__now"),
            wire.fragment(0, '{"zo'),
            wire.fragment(0, 'ne": "Asia/Tokyo"}'),
            wire.chunk("tool_calls"),
        )
    ]

    reply = await complete(model, ASK, [TIME])

    assert reply.message == AssistantMessage(
        "Let me see.", (ToolCall("call_1", "time__now", {"zone": "Asia/Tokyo"}),)
    )
    assert reply.stop_reason == "tool_calls"


async def test_fragments_of_parallel_calls_can_be_mixed(
    server: WireServer, model: OpenAIModel
) -> None:
    calls = await calls_of(
        server,
        model,
        wire.fragment(0, "", id="a", name="one"),
        wire.fragment(1, '{"x"', id="b", name="two"),
        wire.fragment(0, '{"y": 1'),
        wire.fragment(1, ": 2}"),
        wire.fragment(0, "}"),
    )

    assert calls == (ToolCall("a", "one", {"y": 1}), ToolCall("b", "two", {"x": 2}))


@each_row(
    "chunks",
    [
        [wire.chunk(content="x" * 600)] * 2,
        [wire.chunk(reasoning_content="x" * 600)] * 2,
        [wire.fragment(0, '{"x": "', id="a", name="one"), *[wire.fragment(0, "x" * 500)] * 2],
        [wire.fragment(n, "{}", id=str(n), name="one") for n in range(8)],
    ],
    ids=["text", "reasoning", "arguments", "calls"],
)
async def test_an_answer_over_the_size_limit_is_interrupted(
    server: WireServer,
    model: OpenAIModel,
    chunks: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 1024)
    server.script = [wire.chunks(wire.chunk(role="assistant"), *chunks, wire.chunk("stop"))]

    with pytest.raises(ModelInterrupted, match=r"the answer of openai:gpt-test.* is too long"):
        await complete(model, ASK, [TIME])


async def test_one_chunk_can_hold_several_fragments(server: WireServer, model: OpenAIModel) -> None:
    both = [
        {"index": 0, "id": "a", "function": {"name": "one", "arguments": "{}"}},
        {"index": 1, "id": "b", "function": {"name": "two", "arguments": '{"x": 2}'}},
    ]

    calls = await calls_of(server, model, wire.chunk(tool_calls=both), end="stop")

    assert calls == (ToolCall("a", "one"), ToolCall("b", "two", {"x": 2}))


async def test_an_id_can_come_after_the_name(server: WireServer, model: OpenAIModel) -> None:
    calls = await calls_of(
        server,
        model,
        wire.fragment(0, '{"x"', name="one"),
        wire.fragment(0, ": 1}", id="a"),
    )

    assert calls == (ToolCall("a", "one", {"x": 1}),)


async def test_repeated_ids_and_names_belong_to_one_call(
    server: WireServer, model: OpenAIModel
) -> None:
    calls = await calls_of(
        server,
        model,
        wire.fragment(0, '{"x"', id="a", name="one"),
        wire.fragment(0, ": 1}", id="a", name="one"),
    )

    assert calls == (ToolCall("a", "one", {"x": 1}),)


async def test_calls_without_ids_get_unique_ids(server: WireServer, model: OpenAIModel) -> None:
    calls = await calls_of(
        server, model, wire.fragment(0, "{}", id="", name="one"), wire.fragment(1, "{}", name="two")
    )

    assert [call.name for call in calls] == ["one", "two"]
    assert len({call.id for call in calls} - {""}) == 2


async def test_complete_calls_that_all_have_index_zero_are_separate_calls(
    server: WireServer, model: OpenAIModel
) -> None:
    calls = await calls_of(
        server,
        model,
        wire.fragment(0, '{"x": 1}', id="a", name="one"),
        wire.fragment(0, '{"x": 2}', id="b", name="one"),
    )

    assert calls == (ToolCall("a", "one", {"x": 1}), ToolCall("b", "one", {"x": 2}))


async def test_fragments_without_an_index_are_assembled(
    server: WireServer, model: OpenAIModel
) -> None:
    calls = await calls_of(
        server,
        model,
        wire.fragment(None, '{"x"', id="a", name="one"),
        wire.fragment(None, ": 1}"),
        wire.fragment(None, '{"x"', id="b", name="two"),
        wire.fragment(None, ": 2}", id="b"),
        wire.fragment(None, "{}", name="three"),
    )

    assert [(call.name, call.input) for call in calls] == [
        ("one", {"x": 1}),
        ("two", {"x": 2}),
        ("three", {}),
    ]


async def test_arguments_can_come_as_an_object(server: WireServer, model: OpenAIModel) -> None:
    calls = await calls_of(server, model, wire.fragment(0, {"x": 1}, id="a", name="one"))

    assert calls == (ToolCall("a", "one", {"x": 1}),)


@each_row(
    ("written", "malformed"),
    [
        ("", None),
        (" ", None),
        ("null", None),
        ('{"zone": ', '{"zone": '),
        ("[1]", "[1]"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[" * 5000, "[" * 5000),
    ],
)
async def test_arguments_that_are_not_an_object_are_malformed(
    server: WireServer, model: OpenAIModel, written: str, malformed: str | None
) -> None:
    calls = await calls_of(server, model, wire.fragment(0, written, id="a", name="one"))

    assert calls == (ToolCall("a", "one", {}, malformed),)


async def test_a_call_cut_off_by_the_token_limit_is_malformed(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [
        wire.chunks(wire.fragment(0, '{"zone": "As', id="a", name="one"), wire.chunk("length"))
    ]

    reply = await complete(model, ASK, [TIME])

    assert reply.stop_reason == "length"
    assert reply.message.tool_calls == (ToolCall("a", "one", {}, '{"zone": "As'),)


async def test_a_call_cut_off_before_its_arguments_is_dropped(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [
        wire.chunks(
            wire.fragment(0, "{}", id="a", name="one"),
            wire.fragment(1, "", id="b", name="two"),
            wire.chunk("length"),
        )
    ]

    assert (await complete(model, ASK, [TIME])).message.tool_calls == (ToolCall("a", "one"),)


@each_row(
    ("reason", "expected"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("tool_calls", "end"),
        ("something_new", "end"),
    ],
)
async def test_the_stop_reason_is_translated(
    server: WireServer, model: OpenAIModel, reason: str, expected: str
) -> None:
    server.script = [wire.chunks(wire.chunk(content="Well"), wire.chunk(reason))]

    assert (await complete(model, ASK)).stop_reason == expected


async def test_a_refusal_is_text_with_the_stop_reason_refusal(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.chunks(wire.chunk(refusal="I will not."), wire.chunk("stop"))]

    reply = await complete(model, ASK)

    assert (reply.message.content, reply.stop_reason) == ("I will not.", "refusal")


# Conversations


async def test_results_are_sent_with_the_role_tool(server: WireServer, model: OpenAIModel) -> None:
    server.script = [wire.says("Noon.")]
    calls = (ToolCall("a", "time__now", {"zone": "A"}), ToolCall("b", "time__now"))

    await complete(
        model,
        [
            *ASK,
            AssistantMessage("", calls),
            ToolMessage("a", "12:00", "time__now"),
            ToolMessage("b", "no such zone", "time__now", is_error=True),
            AssistantMessage(""),
            UserMessage("And?"),
        ],
        [TIME],
    )

    sent = server.asked[0].body["messages"][1:]
    assert sent[0]["content"] is None
    assert [json.loads(c["function"]["arguments"]) for c in sent[0]["tool_calls"]] == [
        {"zone": "A"},
        {},
    ]
    assert sent[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "12:00"},
        {"role": "tool", "tool_call_id": "b", "content": "Error: no such zone"},
        {"role": "user", "content": "And?"},
    ]


async def test_ids_and_names_of_other_providers_are_converted(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Noon.")]
    call = ToolCall("chatcmpl-tool-" + "f" * 32, "time.now", malformed="{")
    provider_data = {"provider": "anthropic", "content": [{"type": "thinking"}]}

    await complete(
        model, [*ASK, AssistantMessage("", (call,), provider_data), ToolMessage(call.id, "12")]
    )

    sent = server.asked[0].body["messages"]
    assert sent[1].keys() == {"role", "content", "tool_calls"}
    assert sent[1]["tool_calls"][0]["function"] == {"name": "time_now", "arguments": "{}"}


async def test_reasoning_is_shown_and_sent_back_to_deepseek(
    deepseek_server: WireServer, deepseek: OpenAIModel
) -> None:
    deepseek_server.script = [
        wire.chunks(
            wire.chunk(role="assistant", content=None, reasoning_content=""),
            wire.chunk(reasoning_content="The user "),
            wire.chunk(reasoning_content="wants the time."),
            wire.fragment(0, "{}", id="a", name="time__now"),
            wire.chunk("tool_calls"),
        ),
        wire.says("Noon."),
    ]

    events = [event async for event in deepseek.stream(ASK, [TIME])]
    reply = events[-1]
    assert isinstance(reply, Reply)
    await complete(deepseek, [*ASK, reply.message, ToolMessage("a", "12:00")], [TIME])

    assert events[:2] == [ReasoningDelta("The user "), ReasoningDelta("wants the time.")]
    sent = deepseek_server.asked[1].body["messages"][1]
    assert sent["reasoning_content"] == "The user wants the time."


async def test_deepseek_gets_reasoning_for_messages_of_other_models(
    deepseek_server: WireServer, deepseek: OpenAIModel
) -> None:
    deepseek_server.script = [wire.says("Noon.")]
    begun = [
        *ASK,
        AssistantMessage("", (ToolCall("a", "time__now"),)),
        ToolMessage("a", "12:00"),
        AssistantMessage("It is noon."),
        UserMessage("And in Oslo?"),
    ]

    assert (await complete(deepseek, begun, [TIME])).message.content == "Noon."


async def test_reasoning_of_one_server_is_not_sent_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = WireServer("/v1/chat/completions", lambda _: None)
    await server.start()
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.script = [wire.chunks(wire.chunk(reasoning="Hm.", content="Hi."), wire.chunk("stop"))]
    server.script += [wire.says("Yes."), wire.says("No.")]
    kept = []
    for url in ("/v1", "/v1", "/v1/"):  # the same model at the same server, and at another one
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.root}{url}")
        model = OpenAIModel("m")
        reply = await complete(model, [*ASK, *kept, UserMessage("Go on")])
        kept = kept or [reply.message]
        await model.close()
    await server.stop()

    sent = [asked.body["messages"] for asked in server.asked]
    assert ["reasoning" in each[1] for each in sent[1:]] == [True, False]


async def test_the_reasoning_field_of_ollama_is_read(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [
        wire.chunks(wire.chunk(reasoning="Hm."), wire.chunk(content="Yes."), wire.chunk("stop"))
    ]

    events = [event async for event in model.stream(ASK)]

    assert events[:2] == [ReasoningDelta("Hm."), TextDelta("Yes.")]


async def test_a_model_that_refuses_tools_with_reasoning_is_retried_without_reasoning(
    server: WireServer, model: OpenAIModel
) -> None:
    message = "Function tools with reasoning_effort are not supported; set it to 'none'."
    refusal = wire.error(400, message, param="reasoning_effort", code=None)
    server.script = [refusal, wire.says("One."), wire.says("Two."), wire.says("Three.")]

    for tools in ([TIME], [TIME], []):
        await complete(model, ASK, tools)

    efforts = [asked.body.get("reasoning_effort") for asked in server.asked]
    assert efforts == [None, "none", "none", None]


async def test_a_model_that_requires_reasoning_with_tools_is_an_error(
    server: WireServer, model: OpenAIModel
) -> None:
    refusal = wire.error(400, "'none' is not supported", param="reasoning_effort")
    server.script = [refusal, refusal, refusal]

    for _ in range(2):
        with pytest.raises(ModelRefused, match="not supported"):
            await complete(model, ASK, [TIME])

    efforts = [asked.body.get("reasoning_effort") for asked in server.asked]
    assert efforts == [None, "none", "none"]


# Errors


@each_row(
    ("provider", "variable"), [("openai", "OPENAI_API_KEY"), ("deepseek", "DEEPSEEK_API_KEY")]
)
async def test_a_missing_key_is_an_error_with_the_variable(provider: str, variable: str) -> None:
    with pytest.raises(ModelUnavailable, match=variable):
        await complete(OpenAIModel("m", provider=provider), ASK)


async def test_server_at_openai_base_url_needs_no_key(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.root}/v1")
    server.script = [wire.says("Yes.")]
    model = OpenAIModel("m")

    assert (await complete(model, ASK)).message.content == "Yes."
    await model.close()
    await model.close()


async def test_an_empty_api_key_sends_no_key_of_the_environment(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.script = [wire.says("Yes.")]
    model = OpenAIModel("m", api_key="", base_url=f"{server.root}/v1")

    await complete(model, ASK)
    await model.close()

    assert KEY not in str(server.asked[0].headers)


async def test_a_loopback_server_is_reached_without_a_proxy(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.script = [wire.says("Yes.")]
    model = OpenAIModel("m", api_key="", base_url=f"{server.root}/v1")

    assert (await complete(model, ASK)).message.content == "Yes."
    await model.close()


@pytest.mark.slow("starts two programs")
async def test_a_certificate_may_come_from_the_authority_in_ssl_cert_file(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    server = wire.server()
    await server.start(tls=authority.server("localhost"))
    server.script = [wire.says("Yes.")]
    model = f"openai:m@{server.root}/v1"

    trusting = await asyncio.to_thread(python, ASK_ONCE, model, SSL_CERT_FILE=str(authority.file))
    others = await asyncio.to_thread(python, ASK_ONCE, model)
    await server.stop()

    assert trusting.stdout == "Yes.\n"
    assert "certificate is not trusted" in others.stdout
    assert "SSL_CERT_FILE" in others.stdout


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ValueError, match="openai, deepseek, gemini"):
        OpenAIModel("m", provider="openia")


async def test_a_refused_key_is_never_shown(server: WireServer, model: OpenAIModel) -> None:
    said = f"Incorrect API key provided: {KEY} ({KEY[:8]}*****{KEY[-4:]})."
    server.script = [wire.error(401, said, code="invalid_api_key")]

    error = await fails(model)

    assert isinstance(error, ModelRefused)
    assert "OPENAI_API_KEY" in str(error)
    assert isinstance(error.__cause__, ApiRefusal)


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (wire.error(404, "The model does not exist"), ModelUnavailable, "gpt-test"),
        (wire.error(400, "context too long"), ModelRefused, "context too long"),
        (
            wire.error(
                400,
                "This model's maximum context length is 128 tokens. However, your messages "
                "resulted in 130 tokens. Please reduce their length.",
            ),
            ContextTooLong,
            "maximum context length",
        ),
        (wire.error(400, "the request exceeds the available context size"), ContextTooLong, "size"),
        (wire.error(402, "Insufficient Balance"), ModelRefused, "Balance"),
        (wire.error(403, f"Not for {KEY}"), ModelRefused, "Not for [key]"),
        (page(404), ModelUnavailable, "address"),
    ],
)
async def test_a_refused_request_is_not_retried(
    server: WireServer, model: OpenAIModel, answer: Answer, expected: type[ModelError], words: str
) -> None:
    server.script = [answer]

    error = await fails(model)

    assert isinstance(error, expected)
    assert words in str(error)
    assert len(server.asked) == 1


async def test_rate_limit_error_states_when_to_retry(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(429, "too fast", retry_after="30", retry_after_ms="1")] * 3

    error = await fails(model)

    assert isinstance(error, ModelOverloaded)
    assert "try again in 30 s" in str(error)
    assert len(server.asked) == 3


async def test_an_exhausted_quota_is_refused(server: WireServer, model: OpenAIModel) -> None:
    used_up = wire.error(429, "used up", code="insufficient_quota", retry_after_ms="1")
    server.script = [used_up] * 3

    assert isinstance(await fails(model), ModelRefused)


async def test_a_server_error_is_retried(server: WireServer, model: OpenAIModel) -> None:
    server.script = [wire.error(500, "Oops", retry_after_ms="1"), page(502), wire.says("Noon.")]

    assert (await complete(model, ASK)).message.content == "Noon."


async def test_a_persistent_server_error_is_reported(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(500, "Oops", retry_after_ms="1")] * 3

    assert isinstance(await fails(model), ModelUnavailable)


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_that_ends_early_is_interrupted(
    server: WireServer, model: OpenAIModel, cut: bool
) -> None:
    server.script = [wire.chunks(wire.chunk(content="It is"), done=False, cut=cut)]

    error = await fails(model)

    assert isinstance(error, ModelInterrupted)
    assert "cut off" in str(error)
    assert len(server.asked) == 1


async def test_a_connection_that_breaks_after_the_answer_does_no_harm(
    server: WireServer, model: OpenAIModel
) -> None:
    chunks = (wire.chunk(content="Noon."), wire.chunk("stop"))
    server.script = [wire.chunks(*chunks, done=False, cut=True)]

    assert (await complete(model, ASK)).message.content == "Noon."


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
async def test_an_answer_with_a_failed_finish_reason_is_interrupted(
    server: WireServer, model: OpenAIModel, reason: str
) -> None:
    server.script = [wire.chunks(wire.chunk(content="It is"), wire.chunk(reason))]

    assert isinstance(await fails(model), ModelInterrupted)


async def test_an_error_in_the_stream_is_interrupted(
    server: WireServer, model: OpenAIModel
) -> None:
    broken = {"error": {"message": f"Oops {KEY}", "type": "server_error"}}
    server.script = [wire.chunks(wire.chunk(content="It is"), broken)]

    error = await fails(model)

    assert isinstance(error, ModelInterrupted)
    assert "Oops" in str(error)


@each_row(
    "nonsense",
    [
        b"data: {not json\n\n",
        b"data: 5\n\n",
        b'data: {"choices": 5}\n\n',
        b'data: {"choices": [{"delta": {"content": {"x": 1}}}]}\n\n',
        b"data: \xff\xfe\n\n",
        page(200).body,
    ],
)
async def test_invalid_data_in_the_stream_is_interrupted(
    server: WireServer, model: OpenAIModel, nonsense: bytes
) -> None:
    server.script = [Answer(nonsense)]

    assert isinstance(await fails(model), ModelInterrupted)


async def test_an_unreachable_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from openai import _base_client

    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.001)
    with free_port() as port:
        address = f"http://me:hunter2@127.0.0.1:{port}/v1"
        model = OpenAIModel("m", api_key=KEY, base_url=address)
        error = await fails(model)
        await model.close()

    assert isinstance(error, ModelUnavailable)
    assert f"127.0.0.1:{port}" in str(error)
    assert "hunter2" not in str(error)


@each_row(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000/v1"),
        ("gpu.example", "http://gpu.example:11434/v1"),
        ("https://gpu.example:443/", "https://gpu.example:443/v1"),
        ("[::1]", "http://[::1]:11434/v1"),
        ("[::1]:9", "http://[::1]:9/v1"),
    ],
)
def test_ollama_host_is_read_like_ollama_does(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", host)

    assert BY_NAME["ollama"].address() == url


def test_the_name_of_a_model_contains_its_base_url() -> None:
    assert OpenAIModel("gpt-x").name == "openai:gpt-x"
    assert OpenAIModel("q:8b", provider="ollama").name == "ollama:q:8b"
    assert OpenAIModel("m", base_url="http://h/v1").name == "openai:m@http://h/v1"


def test_the_name_of_a_model_omits_the_password_of_its_url() -> None:
    model = OpenAIModel("m", base_url=f"http://me:{KEY}@h/v1")

    assert model.name == "openai:m@http://h/v1"


async def test_a_long_retry_after_raises_overloaded_without_waiting(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.error(429, "used up", retry_after="3600")]

    error = await fails(model)

    assert isinstance(error, ModelOverloaded)
    assert "3600 s" in str(error)
