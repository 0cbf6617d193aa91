from __future__ import annotations

import asyncio
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
from interlock.messages import AssistantMessage, Attachment, Message, ToolCall, UserMessage
from interlock.models import Notice, Reply, TextDelta, ToolDefinition, Usage, answer_size, complete
from interlock.models.http import ApiRefusal
from interlock.models.openai import OpenAIModel
from interlock.models.providers import BY_NAME
from tests.models import wire_openai as wire
from tests.models.processes import python
from tests.models.wire_http import Answer, WireServer, failure, page
from tests.providers.schema_rules import openai
from tests.servers.certificate_authority import CertificateAuthority
from tests.servers.ports import free_port
from tests.support.rows import each_row

KEY = "sk-proj-canary-7f3b9d2e5a8c"
TIME = ToolDefinition(
    "time__now", "The time.", b'{"type":"object","properties":{"zone":{"type":"string"}}}'
)
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


async def fails(model: OpenAIModel) -> ModelError:
    """Send a request; return its error after asserting that it shows no part of the key."""
    with pytest.raises(ModelError) as caught:
        await complete(model, ASK)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in shown
    assert KEY[9:] not in shown
    assert "\n" not in str(caught.value)
    return caught.value


# Requests


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

    events = [event async for event in model.stream(ASK, [TIME])]
    reply = events[-1]
    assert isinstance(reply, Reply)
    later = [*ASK, reply.message, UserMessage("And now?")]
    events += [event async for event in model.stream(later, [TIME])]

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
                "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
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
    assert openai("t", function["parameters"]) == ""
    assert function["parameters"]["properties"].keys() == {"a", "b"}
    assert len(function["description"]) == 1024


async def test_a_tool_without_parameters_is_offered_with_empty_properties(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.says("Yes.")]

    await complete(model, ASK, [ToolDefinition("t", "", b'{"type":"object"}')])

    parameters = server.asked[0].body["tools"][0]["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}}


# Formats of tool calls


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


async def test_a_refusal_is_text_with_the_stop_reason_refusal(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [wire.chunks(wire.chunk(refusal="I will not."), wire.chunk("stop"))]

    reply = await complete(model, ASK)

    assert (reply.message.content, reply.stop_reason) == ("I will not.", "refusal")


# Conversations


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
        (
            wire.error(429, "Request too large for m: Limit 30000, Requested 47000"),
            ContextTooLong,
            "Requested 47000",
        ),
        (wire.error(402, "Insufficient Balance"), ModelRefused, "Balance"),
        (wire.error(403, f"Not for {KEY}"), ModelRefused, "Not for [key]"),
        (page(404), ModelUnavailable, "address"),
        (failure(404, {"detail": "Not Found"}), ModelUnavailable, "check the address and"),
        (
            failure(429, {"error": "slowly"}, retry_after="4000"),
            ModelOverloaded,
            "slowly; try again in an hour or later",
        ),
        (Answer(b""), ModelInterrupted, "before any text; try again"),
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


async def test_address_without_its_path_is_suggested_with_it(server: WireServer) -> None:
    model = OpenAIModel("m", api_key=KEY, base_url=server.root)

    error = await fails(model)
    await model.close()

    assert f"did you mean {server.root}/v1?" in str(error)


async def test_a_page_of_a_proxy_whose_server_fails_does_not_blame_the_address(
    server: WireServer, model: OpenAIModel
) -> None:
    server.script = [page(502)] * 3

    assert str(await fails(model)).endswith("(Welcome to nginx); try again later")


async def test_an_exhausted_quota_is_refused(server: WireServer, model: OpenAIModel) -> None:
    used_up = wire.error(429, "used up", code="insufficient_quota", retry_after_ms="1")
    server.script = [used_up] * 3

    assert isinstance(await fails(model), ModelRefused)


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


@each_row(
    "url",
    ["http://[::1/v1", "http:///v1", "http://h:99999/v1", "nonsense", "ftp://h/v1"],
)
async def test_invalid_address_is_an_error_that_shows_no_password(url: str) -> None:
    for address in (url, url.replace("://", "://me:hunter2@")):
        error = await fails(OpenAIModel("m", api_key=KEY, base_url=address))
        assert isinstance(error, ModelUnavailable)
        assert "hunter2" not in str(error)


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


def test_the_name_of_a_model_contains_its_base_url_without_the_password() -> None:
    assert OpenAIModel("gpt-x").name == "openai:gpt-x"
    assert OpenAIModel("q:8b", provider="ollama").name == "ollama:q:8b"
    assert OpenAIModel("m", base_url="http://h/v1").name == "openai:m@http://h/v1"
    assert OpenAIModel("m", base_url=f"http://me:{KEY}@h/v1").name == "openai:m@http://h/v1"
