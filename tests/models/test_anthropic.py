from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
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
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import TextDelta, ToolDefinition, Usage, answer_size, complete, learned
from interlock.models.anthropic import AnthropicModel
from interlock.models.http import ApiRefusal
from tests.models import wire_anthropic as wire
from tests.models.wire_http import Answer, WireServer, page
from tests.providers.schema_rules import anthropic
from tests.servers.ports import free_port
from tests.support.rows import each_row

KEY = "sk-ant-canary-7f3b9d2e5a8c"
TIME = ToolDefinition(
    "time__now", "The time.", b'{"type":"object","properties":{"zone":{"type":"string"}}}'
)
MARK = {"type": "ephemeral"}
ASK: list[Message] = [UserMessage("What time is it?")]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "AUTH_TOKEN", "BASE_URL", "CUSTOM_HEADERS", "PROFILE"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    server = wire.server()
    await server.start()
    yield server
    await server.stop()
    assert server.problems == []


@pytest.fixture
async def model(server: WireServer) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel("claude-test", api_key=KEY, base_url=server.root)
    yield model
    await model.close()


async def fails(model: AnthropicModel) -> ModelError:
    """Send a request; return its error after asserting that it shows no part of the key."""
    with pytest.raises(ModelError) as caught:
        await complete(model, ASK)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert KEY[8:] not in shown
    assert "\n" not in str(caught.value)
    return caught.value


# Requests


async def test_images_and_documents_are_sent_before_the_text(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("A cat.")]
    files = (Attachment("image/png", b"png"), Attachment("application/pdf", b"pdf", "a.pdf"))

    await complete(model, [UserMessage("What is this?", files)])

    assert wire.unmarked(server.asked[0].body["messages"][0]["content"]) == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
        },
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
        },
        {"type": "text", "text": "What is this?"},
    ]


async def test_deferred_definitions_are_sent_as_such_at_any_url_until_they_are_refused(
    server: WireServer, model: AnthropicModel
) -> None:
    refusal = "tools.1.custom.defer_loading: Extra inputs are not permitted"
    answers = [wire.says("Noon."), wire.error(400, "invalid_request_error", refusal)]
    server.script = [*answers, wire.says("Noon.")]
    search = ToolDefinition(SEARCH_TOOLS, "Find tools.", b'{"type":"object"}')
    tools = [replace(TIME, deferred=True), search]
    call = ToolCall("c1", SEARCH_TOOLS, {"query": "time"})
    found = ToolMessage("c1", "found", SEARCH_TOOLS, loads=(TIME.name,))
    messages = [*ASK, AssistantMessage("", (call,)), found]

    assert not model.defers_tools  # an agent does not defer definitions here
    await complete(model, messages, tools)
    await complete(model, messages, tools)

    first, _, last = (wire.unmarked(each.body) for each in server.asked)
    assert [each.get("defer_loading") for each in first["tools"]] == [None, True]
    reference = {"type": "tool_reference", "tool_name": TIME.name}
    assert first["messages"][2]["content"][0]["content"] == [reference]
    assert [each["name"] for each in last["tools"]] == [SEARCH_TOOLS, TIME.name]
    assert last["messages"][2]["content"][0]["content"] == "found"


async def test_options_are_members_of_the_request(server: WireServer) -> None:
    server.script = [wire.says("Yes.")]
    options = {"temperature": 0.2, "max_tokens": 500}
    model = AnthropicModel("claude-test", api_key=KEY, base_url=server.root, options=options)

    await complete(model, ASK)

    await model.close()
    body = server.asked[0].body
    assert (body["temperature"], body["max_tokens"]) == (0.2, 500)


async def test_system_messages_become_the_system_prompt(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("Yes.")]

    await complete(model, [SystemMessage("Be brief."), *ASK, SystemMessage("Be kind.")])

    assert wire.unmarked(server.asked[0].body["system"]) == [
        {"type": "text", "text": "Be brief.\n\nBe kind."}
    ]
    assert [m["role"] for m in server.asked[0].body["messages"]] == ["user"]


async def test_tools_are_offered_with_their_schema(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("Yes.")]

    await complete(model, ASK, [TIME])

    assert wire.unmarked(server.asked[0].body["tools"]) == [
        {
            "name": "time__now",
            "description": "The time.",
            "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}},
        }
    ]


async def test_fragments_of_parallel_calls_can_be_mixed(
    server: WireServer, model: AnthropicModel
) -> None:
    begin_a, _, *pieces_a, end_a = wire.tool_use(0, "toolu_a", "time__now", '{"zone"', ':"A"}')
    begin_b, _, *pieces_b, end_b = wire.tool_use(1, "toolu_b", "time__now", '{"zone"', ':"B"}')
    mixed = [begin_a, begin_b, pieces_b[0], pieces_a[0], pieces_a[1], end_a, pieces_b[1], end_b]
    server.script = [wire.events(wire.start(), *mixed, *wire.stop("tool_use"))]

    reply = await complete(model, ASK, [TIME])

    assert [(call.id, call.input) for call in reply.message.tool_calls] == [
        ("toolu_a", {"zone": "A"}),
        ("toolu_b", {"zone": "B"}),
    ]


async def test_calls_with_the_same_id_get_unique_ids(
    server: WireServer, model: AnthropicModel
) -> None:
    calls = [*wire.tool_use(0, "toolu_1", "a"), *wire.tool_use(1, "toolu_1", "b")]
    server.script = [wire.events(wire.start(), *calls, *wire.stop("tool_use"))]

    reply = await complete(model, ASK, [TIME])

    assert len({call.id for call in reply.message.tool_calls}) == 2


async def test_tokens_read_from_and_written_to_the_cache_count_as_input(
    server: WireServer, model: AnthropicModel
) -> None:
    start = wire.start(7, cache_read_input_tokens=100, cache_creation_input_tokens=1000)
    server.script = [wire.events(start, *wire.text(0, "Yes."), *wire.stop(output_tokens=42))]

    assert (await complete(model, ASK)).usage == Usage(1107, 42, 100, 1000)


async def test_ends_of_tools_instructions_and_conversation_are_marked_for_the_cache(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("Yes.")]
    call = AssistantMessage("", (ToolCall("1", "time__now"),))
    messages = [SystemMessage("Be brief."), *ASK, call, ToolMessage("1", "12:00")]

    await complete(model, messages, [TIME, TIME])

    body = server.asked[0].body
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert [block.get("cache_control") for block in body["system"]] == [MARK]
    ends = [message["content"][-1].get("cache_control") for message in body["messages"]]
    assert ends == [None, None, MARK]


async def test_server_that_refuses_cache_marks_gets_no_more_of_them(
    server: WireServer, model: AnthropicModel
) -> None:
    refusal = "tools.0.cache_control: Extra inputs are not permitted"
    server.script = [wire.error(400, "invalid_request_error", refusal)]
    server.script += [wire.says("One."), wire.says("Two.")]

    for _ in range(2):
        await complete(model, ASK, [TIME])

    assert ["cache_control" in str(asked.body) for asked in server.asked] == [True, False, False]


async def test_image_of_a_result_is_sent_in_its_block_and_a_sound_is_only_named(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("A cat.")]
    call = AssistantMessage("", (ToolCall("1", "time__now"),))
    files = (Attachment("image/png", b"png"), Attachment("audio/wav", b"wav"))

    await complete(model, [*ASK, call, ToolMessage("1", "[image/png, 3 bytes]", attachments=files)])

    (block,) = wire.unmarked(server.asked[0].body["messages"][-1]["content"])
    assert block["content"] == [
        {"type": "text", "text": "[image/png, 3 bytes]"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"},
        },
    ]


async def test_effort_is_sent_as_the_api_names_it(server: WireServer) -> None:
    server.script = [wire.says("Yes.")]
    model = AnthropicModel("m", api_key=KEY, base_url=server.root, options={"effort": "low"})

    await complete(model, ASK)
    await model.close()

    assert server.asked[0].body["output_config"] == {"effort": "low"}


@each_row(
    ("reason", "expected"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("refusal", "refusal"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "end"),
    ],
)
async def test_the_stop_reason_is_translated(
    server: WireServer, model: AnthropicModel, reason: str, expected: str
) -> None:
    server.script = [wire.events(wire.start(), *wire.text(0, "Well"), *wire.stop(reason))]

    assert (await complete(model, ASK)).stop_reason == expected


async def test_a_call_cut_off_by_the_token_limit_is_malformed(
    server: WireServer, model: AnthropicModel
) -> None:
    call = wire.tool_use(0, "toolu_1", "time__now", '{"zone": "As')
    server.script = [wire.events(wire.start(), *call, *wire.stop("max_tokens"))]

    reply = await complete(model, ASK, [TIME])

    assert reply.stop_reason == "length"
    assert reply.message.tool_calls[0].malformed == '{"zone": "As'


async def test_a_call_cut_off_before_its_arguments_is_dropped(
    server: WireServer, model: AnthropicModel
) -> None:
    blocks = [*wire.text(0, "I will"), *wire.tool_use(1, "toolu_1", "time__now")]
    server.script = [wire.events(wire.start(), *blocks, *wire.stop("max_tokens"))]

    reply = await complete(model, ASK, [TIME])

    assert (reply.message, reply.stop_reason) == (AssistantMessage("I will"), "length")


# Conversations


async def test_results_are_sent_as_blocks_of_one_user_message(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("Noon and midnight.")]
    calls = (ToolCall("toolu_a", "time__now", {"zone": "A"}), ToolCall("toolu_b", "time__now"))

    await complete(
        model,
        [
            *ASK,
            AssistantMessage("", calls),
            ToolMessage("toolu_a", "12:00", "time__now"),
            ToolMessage("toolu_b", "no such zone", "time__now", is_error=True),
            UserMessage("Thanks. And?"),
        ],
        [TIME],
    )

    assert wire.unmarked(server.asked[0].body["messages"][1:]) == [
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "toolu_a", "name": "time__now", "input": {"zone": "A"}},
                {"type": "tool_use", "id": "toolu_b", "name": "time__now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_a",
                    "content": "12:00",
                    "is_error": False,
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_b",
                    "content": "no such zone",
                    "is_error": True,
                },
                {"type": "text", "text": "Thanks. And?"},
            ],
        },
    ]


async def test_output_limit_of_a_model_is_read_from_its_error(
    server: WireServer, model: AnthropicModel
) -> None:
    message = (
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for "
        "claude-test"
    )
    refused = wire.error(400, "invalid_request_error", message)
    server.script = [refused, *map(wire.says, ("Yes.", "Again.", "Later.")), refused]

    assert (await complete(model, ASK)).message.content == "Yes."
    assert (await complete(model, ASK)).message.content == "Again."
    learned._read.clear()  # what a new process has read
    later = AnthropicModel("claude-test", api_key=KEY, base_url=server.root)
    assert (await complete(later, ASK)).message.content == "Later."
    await later.close()
    assert [each.body["max_tokens"] for each in server.asked] == [32_000, 8_192, 8_192, 8_192]
    with pytest.raises(ModelRefused, match="max_tokens"):  # the same refusal is not repeated
        await complete(model, ASK)


async def test_refused_thinking_is_left_out_on_a_retry(
    server: WireServer, model: AnthropicModel
) -> None:
    signed = [
        {"type": "thinking", "thinking": "Hm.", "signature": "for-other-tools"},
        {"type": "text", "text": "Hello."},
    ]
    before = AssistantMessage("Hello.", (), {"provider": model.name, "content": signed})
    message = "messages.1.content.0: Invalid `signature` in `thinking` block"
    server.script = [wire.error(400, "invalid_request_error", message), wire.says("Yes.")]

    reply = await complete(model, [*ASK, before, UserMessage("Go on")])

    assert reply.message.content == "Yes."
    assert server.asked[0].body["messages"][1]["content"] == signed
    assert server.asked[1].body["messages"][1]["content"] == [{"type": "text", "text": "Hello."}]


@each_row(
    "data",
    [
        {"provider": "anthropic:another", "content": [{"type": "tool_use", "id": "call_1"}]},
        {"content": "not a list"},
        {"content": ["not a block"]},
        {"content": [{"type": "tool_use", "id": "another"}]},
    ],
)
async def test_provider_data_of_another_model_is_ignored(
    server: WireServer, model: AnthropicModel, data: dict[str, object]
) -> None:
    server.script = [wire.says("Noon.")]
    data = {"provider": model.name, **data}
    asked = AssistantMessage("", (ToolCall("call_1", "time__now"),), data)

    await complete(model, [*ASK, asked, ToolMessage("call_1", "12:00")], [TIME])

    assert server.asked[-1].body["messages"][1]["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "time__now", "input": {}}
    ]


async def test_ids_and_names_of_other_providers_are_converted(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("Noon.")]
    calls = (
        ToolCall("functions.now:0", "time.now now"),
        ToolCall("ü", ""),
        ToolCall("x" * 99, "n"),
    )

    await complete(
        model, [*ASK, AssistantMessage("", calls), *(ToolMessage(call.id, "12") for call in calls)]
    )

    uses = server.asked[0].body["messages"][1]["content"]
    assert [use["name"] for use in uses] == ["time_now_now", "unknown", "n"]
    assert len({use["id"] for use in uses}) == 3


ODD = (
    b'{"type":"object","properties":{"ids[]":{"type":"array","items":{"type":"string"}}},'
    b'"anyOf":[{"required":["ids[]"]}]}'
)


async def test_arguments_whose_names_the_api_refuses_have_other_names_on_the_wire_only(
    server: WireServer, model: AnthropicModel
) -> None:
    call = wire.tool_use(0, "toolu_1", "t", '{"ids": ["a"]}')
    server.script = [
        wire.events(wire.start(), *call, *wire.stop("tool_use")),
        wire.says("Done."),
    ]
    tools = [ToolDefinition("t", "", ODD)]

    reply = await complete(model, ASK, tools)
    plain = AssistantMessage("", reply.message.tool_calls)  # as after another provider's answer
    await complete(model, [*ASK, plain, ToolMessage("toolu_1", "fine", "t")], tools)

    assert reply.message.tool_calls == (ToolCall("toolu_1", "t", {"ids[]": ["a"]}),)
    first, second = (each.body for each in server.asked)
    assert anthropic("t", first["tools"][0]["input_schema"]) == ""
    assert second["messages"][1]["content"][0]["input"] == {"ids": ["a"]}


# Errors


async def test_a_missing_key_is_an_error_with_the_variable() -> None:
    with pytest.raises(ModelUnavailable, match="ANTHROPIC_API_KEY"):
        await complete(AnthropicModel("claude-test"), ASK)


async def test_another_server_needs_no_key(server: WireServer) -> None:
    server.script = [wire.says("Yes.")]
    model = AnthropicModel("qwen3", base_url=server.root)

    await complete(model, ASK)
    await model.close()

    assert not {"Authorization", "X-Api-Key"} & server.asked[0].headers.keys()


async def test_the_key_can_come_from_the_environment(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.root)
    server.script = [wire.says("Yes.")]
    model = AnthropicModel("claude-test")

    await complete(model, ASK)
    await model.close()
    await model.close()

    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_a_refused_key_is_never_shown(server: WireServer, model: AnthropicModel) -> None:
    server.script = [wire.error(401, "authentication_error", f"invalid x-api-key: {KEY}")]

    error = await fails(model)

    assert isinstance(error, ModelRefused)
    assert "ANTHROPIC_API_KEY" in str(error)
    assert isinstance(error.__cause__, ApiRefusal)


async def test_a_part_of_the_key_in_an_error_is_redacted(
    server: WireServer, model: AnthropicModel
) -> None:
    said = f"no right: key …{KEY[8:]}, {KEY[:14]}, sk-****8c, {KEY} may not use it"
    server.script = [wire.error(403, "permission_error", said)]

    error = await fails(model)

    assert isinstance(error, ModelRefused)
    assert "no right: key" in str(error)
    assert "8c" not in str(error)


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (wire.error(404, "not_found_error", "model: claude-test"), ModelUnavailable, "claude-test"),
        (wire.error(400, "invalid_request_error", "too long"), ModelRefused, "too long"),
        (
            wire.error(400, "invalid_request_error", "prompt is too long: 210 tokens > 200"),
            ContextTooLong,
            "210 tokens > 200",
        ),
        (wire.error(413, "request_too_large", "too large"), ModelRefused, "too large"),
        (wire.error(402, "billing_error", "credit is used up"), ModelRefused, "credit"),
        (page(404), ModelUnavailable, "address"),
    ],
)
async def test_a_refused_request_is_not_retried(
    server: WireServer,
    model: AnthropicModel,
    answer: Answer,
    expected: type[ModelError],
    words: str,
) -> None:
    server.script = [answer]

    error = await fails(model)

    assert isinstance(error, expected)
    assert words in str(error)
    assert len(server.asked) == 1


@each_row(
    "blocks",
    [
        wire.text(0, "x" * 600, "x" * 600),
        wire.thinking(0, "signed", "x" * 600, "x" * 600),
        wire.tool_use(0, "a", "one", '{"x": "', "x" * 600, "x" * 600),
        [event for n in range(8) for event in wire.tool_use(n, str(n), "one", "{}")],
        wire.block(0, {"type": "search_result", "content": "x" * 1200}),
    ],
    ids=["text", "thinking", "arguments", "calls", "block"],
)
async def test_an_answer_over_the_size_limit_is_interrupted(
    server: WireServer,
    model: AnthropicModel,
    blocks: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 1024)
    server.script = [wire.events(wire.start(), *blocks, *wire.stop())]

    with pytest.raises(ModelInterrupted, match=r"the answer of anthropic:claude.* is too long"):
        await complete(model, ASK)


async def test_web_page_instead_of_a_stream_is_reported(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [page(200)]

    error = await fails(model)

    assert isinstance(error, ModelUnavailable)
    assert "sent a web page" in str(error)


async def test_overload_in_the_stream_is_overloaded(
    server: WireServer, model: AnthropicModel
) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    server.script = [wire.events(wire.start(), busy)]

    assert isinstance(await fails(model), ModelOverloaded)


@each_row(
    "nonsense",
    [
        b"event: message_start\ndata: {not json\n\n",
        b"event: message_start\ndata: 5\n\n",
        b"event: content_block_delta\ndata: "
        b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":5}}\n\n',
        b"event: content_block_delta\ndata: "
        b'{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}\n\n',
        b"event: message_stop\ndata: \xff\xfe\n\n",
    ],
)
async def test_invalid_data_in_the_stream_is_interrupted(
    server: WireServer, model: AnthropicModel, nonsense: bytes
) -> None:
    server.script = [Answer(wire.events(wire.start()).body + nonsense)]

    assert isinstance(await fails(model), ModelInterrupted)


async def test_arguments_of_an_unknown_call_are_interrupted(
    server: WireServer, model: AnthropicModel
) -> None:
    delta = {"type": "input_json_delta", "partial_json": "{}"}
    piece = {"type": "content_block_delta", "index": 7, "delta": delta}
    server.script = [wire.events(wire.start(), piece, *wire.text(0, "Yes."), *wire.stop())]

    assert isinstance(await fails(model), ModelInterrupted)


async def test_unknown_events_and_blocks_are_ignored(
    server: WireServer, model: AnthropicModel
) -> None:
    new = {"type": "new_event", "x": 1}
    blocks = [*wire.block(0, {"type": "new_block", "y": [1]}), *wire.text(1, "Yes.")]
    server.script = [wire.events(wire.start(), new, *blocks, *wire.stop())]

    assert (await complete(model, ASK)).message.content == "Yes."


async def test_an_unreachable_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from anthropic import _base_client

    monkeypatch.setattr(_base_client, "INITIAL_RETRY_DELAY", 0.001)
    with free_port() as port:
        address = f"http://me:hunter2@127.0.0.1:{port}"
        model = AnthropicModel("m", api_key=KEY, base_url=address)
        error = await fails(model)
        await model.close()

    assert isinstance(error, ModelUnavailable)
    assert f"127.0.0.1:{port}" in str(error)
    assert "hunter2" not in str(error)


async def test_closing_the_stream_ends_the_connection(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("a", "b", "c"), wire.says("Still here.")]
    stream = model.stream(ASK)

    assert await anext(stream) == TextDelta("a")
    await stream.aclose()  # type: ignore[attr-defined]  # the protocol promises an iterator only

    assert (await complete(model, ASK)).message.content == "Still here."


async def test_concurrent_requests_share_one_connection(
    server: WireServer, model: AnthropicModel
) -> None:
    server.script = [wire.says("One."), wire.says("Two.")]

    replies = await asyncio.gather(complete(model, ASK), complete(model, ASK))

    assert {reply.message.content for reply in replies} == {"One.", "Two."}


def test_the_name_of_a_model_contains_its_base_url_without_the_password() -> None:
    assert AnthropicModel("claude-x").name == "anthropic:claude-x"
    assert AnthropicModel("c", base_url="http://h/").name == "anthropic:c@http://h/"
    assert AnthropicModel("m", base_url=f"http://me:{KEY}@h/v1").name == "anthropic:m@http://h/v1"
