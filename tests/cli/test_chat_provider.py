"""`interlock chat` with a provider: what reaches the model, and what its refusals change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.models import learned
from tests.cli.conftest import Ran
from tests.models import wire_anthropic, wire_responses
from tests.models import wire_openai as wire
from tests.models.wire_http import WireServer, page

PICTURE = wire.chunks(
    wire.chunk(role="assistant"),
    wire.chunk(tool_calls=[]),
    wire.fragment(0, "{}", id="c1", name="e__picture"),
    wire.chunk("tool_calls"),
)


@pytest.fixture
def ask(interlock: Callable[..., Ran], served: WireServer) -> Callable[..., Ran]:
    def ask(*words: str) -> Ran:
        return interlock("chat", *words, "--model", f"openai:m@{served.root}/v1")

    return ask


@pytest.mark.slow("starts a program")
def test_image_in_a_result_of_a_tool_reaches_the_model(ask, servers, served: WireServer):
    servers()
    served.script = [PICTURE, wire.says("A cat.")]

    assert ask("Draw!").out == "A cat.\n"

    parts = [
        part
        for message in served.asked[1].body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    assert "data:image/png;base64,AAAA" in str(parts)


def test_model_refused_by_chat_completions_is_used_through_the_responses_api(
    ask, served: WireServer
):
    answer = wire_responses.answer(wire_responses.message("Noon."))
    served.script = [wire_responses.REFUSAL, answer, answer]

    assert [ask("When?", "--no-tools").out for _ in range(2)] == ["Noon.\n"] * 2
    chat, responses = "/v1/chat/completions", "/v1/responses"
    assert [asked.path for asked in served.asked] == [chat, responses, responses]
    assert served.problems == []


@pytest.mark.slow("starts the program on a terminal")
def test_tokens_of_a_turn_and_their_price_follow_the_answer(terminal, home, served: WireServer):
    model = f"openai:m@{served.root}/v1"
    price = {"models": {model: {"price": {"input": 2, "output": 10, "cached": 0.5}}}}
    (home / "config" / "interlock").mkdir(parents=True)
    (home / "config" / "interlock" / "settings.json").write_text(json.dumps(price))
    details = {"prompt_tokens_details": {"cached_tokens": 200_000}}
    text = wire.chunk(role="assistant", content="Noon."), wire.chunk("stop")
    served.script = [wire.chunks(*text, wire.usage(600_000, 50_000, **details))]

    chat = terminal("chat", "--no-tools", "--model", model)
    chat.expect("\x1b[?2004h")
    chat.type("When?\r")
    chat.expect("Noon.")
    chat.expect("tokens: 600,000 in (200,000 cached), 50,000 out; cost: 1.4000")
    chat.expect("\x1b[?2004h")
    chat.type("\x04")
    assert chat.leave() == 0


def test_output_limit_is_learned_once_and_the_conversation_is_cached(
    interlock, anthropic: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4 one page")
    too_many = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens"
    anthropic.script = [
        wire_anthropic.error(400, "invalid_request_error", too_many),
        wire_anthropic.says("Noon."),
        wire_anthropic.says("Night."),
    ]
    words = ("--no-tools", "-s", "Be short.", "--model", f"anthropic:m@{anthropic.root}")

    assert interlock("chat", "When?", "-a", tmp_path / "a.pdf", *words).out == "Noon.\n"
    learned._read.clear()  # what a new process has read
    assert interlock("chat", "And now?", *words).out == "Night.\n"
    bodies = [asked.body for asked in anthropic.asked]
    assert [each["max_tokens"] for each in bodies] == [32_000, 8_192, 8_192]
    assert "cache_control" in bodies[0]["system"][-1]
    content = bodies[0]["messages"][0]["content"]
    assert [each["type"] for each in content] == ["document", "text"]
    assert "cache_control" in content[-1]
    assert anthropic.problems == []


@pytest.mark.slow("starts a program")
def test_model_may_read_a_resource_of_a_server(ask, library, served: WireServer):
    reading = wire.fragment(
        0, '{"uri":"library:book://moby"}', id="c1", name="interlock__read_resource"
    )
    served.script = [wire.chunks(reading, wire.chunk("tool_calls")), wire.says("Read.")]

    assert ask("Read it!").out == "Read.\n"
    offered = {each["function"]["name"] for each in served.asked[0].body["tools"]}
    assert "interlock__read_resource" in offered
    assert "Call me Ishmael." in served.asked[1].body["messages"][-1]["content"]


def test_conversation_that_is_too_long_is_shortened_visibly(ask, served: WireServer):
    refusal = wire.error(400, "the request exceeds the available context size")
    served.script = [wire.says("Yes. " * 400), refusal, wire.says("Noon.")]
    assert ask("What is the time? " * 200, "--no-tools").code == 0
    ran = ask("-c", "And now?", "--no-tools")

    assert ran.out == "Noon.\n"
    assert "too long for the model:" in ran.err
    sizes = [len(str(asked.body["messages"])) for asked in served.asked]
    assert sizes[2] < sizes[1]
    assert "And now?" in str(served.asked[2].body["messages"])


def test_web_page_in_place_of_an_answer_is_an_error_with_the_address(ask, served: WireServer):
    served.script = [page(200)]
    ran = ask("Hi", "--no-tools")

    assert (ran.code, ran.out) == (1, "")
    assert served.root.removeprefix("http://") in ran.err
    assert "web page" in ran.err
