"""A model's requests after refusals, until one is accepted."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from interlock.errors import ContextTooLong, ModelRefused
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import Model, Notice, Reply, ToolDefinition, learned
from interlock.models.anthropic import AnthropicModel
from interlock.models.learned import Lesson
from interlock.models.openai import OpenAIModel
from tests.models import wire_anthropic, wire_openai, wire_responses
from tests.models.wire_http import WireServer

ASK: list[Message] = [UserMessage("Hi")]
AGAIN = [*ASK, AssistantMessage("Hello."), UserMessage("And now?")]
Refuses = Callable[[dict[str, Any]], str | None]


def tools(count: int) -> list[ToolDefinition]:
    schema = b'{"type":"object","properties":{}}'
    return [ToolDefinition(f"srv__tool{n}", "It works.", schema) for n in range(count)]


PATHS = {
    "anthropic": "/v1/messages",
    "openai": "/v1/chat/completions",
    "responses": "/v1/responses",
}


class Refusing:
    """A provider that refuses each request for which `refuses` returns a reason."""

    def __init__(self, kind: str) -> None:
        self.refuses: Refuses = lambda _: None
        self.models: list[Model] = []
        self._kind = kind
        self.server = WireServer(
            PATHS[kind],
            lambda body: self.refuses(body),
        )

    def model(self, **options: Any) -> Model:
        said = {
            "anthropic": wire_anthropic.says("Hello."),
            "openai": wire_openai.says("Hello."),
            "responses": wire_responses.answer(wire_responses.message("Hello.")),
        }
        self.server.script = [said[self._kind]] * 30
        root = self.server.root
        if self._kind == "anthropic":
            self.models.append(AnthropicModel("m", api_key="k", base_url=root, options=options))
        else:
            url = f"{root}/v1"
            self.models.append(OpenAIModel("m", api_key="k", base_url=url, options=options))
        if self._kind == "responses":
            learned.note(self.models[-1].name, Lesson("responses"))
        return self.models[-1]

    async def ask(
        self, model: Model, offered: list[ToolDefinition], messages: list[Message] = ASK
    ) -> list[str]:
        """Ask once; return the notices."""
        events = [event async for event in model.stream(messages, offered)]
        assert isinstance(events[-1], Reply)
        assert events[-1].message.content == "Hello."
        return [event.text for event in events if isinstance(event, Notice)]

    @property
    def sent(self) -> list[list[str]]:
        """The names of the tools in each request."""
        return [
            [each.get("name") or each["function"]["name"] for each in asked.body.get("tools", ())]
            for asked in self.server.asked
        ]


@pytest.fixture(params=PATHS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Refusing]:
    refusing = Refusing(request.param)
    await refusing.server.start()
    yield refusing
    for model in refusing.models:
        await model.close()
    await refusing.server.stop()


def named(body: dict[str, Any], *bad: str) -> str | None:
    for place, tool in enumerate(body.get("tools", ())):
        if "function" in tool and tool["function"]["name"] in bad:
            return f"Invalid schema for function '{tool['function']['name']}'"
        if tool.get("name") in bad:
            return f"tools.{place}.custom.input_schema: JSON schema is invalid"
    return None


async def test_refused_tool_is_left_out_visibly_and_remembered(provider: Refusing) -> None:
    provider.refuses = lambda body: named(body, "srv__tool1", "srv__tool2")
    model = provider.model()

    (notice,) = await provider.ask(model, tools(4))
    assert await provider.ask(model, tools(4), AGAIN) == []
    assert await provider.ask(model, tools(4)) == [notice]  # in another conversation
    learned._read.clear()  # what a new process has read
    later = provider.model()
    assert await provider.ask(later, tools(4)) == [notice]

    assert [len(each) for each in provider.sent] == [4, 3, 2, 2, 2, 2]
    assert "srv:tool1" in notice
    assert "chema" in notice  # the provider's own reason
    assert '"deny": ["tool1"]' in notice
    assert "\n" not in notice


async def test_refused_tool_is_named_as_in_the_configuration(provider: Refusing) -> None:
    provider.refuses = lambda body: named(body, "my_notes__read")
    model = provider.model()
    tool = ToolDefinition("my_notes__read", "", b'{"type":"object"}', "my notes:read/all")

    (notice,) = await provider.ask(model, [*tools(1), tool])

    assert "the tool my notes:read/all," in notice
    assert '"deny": ["read/all"]' in notice
    assert learned.described(learned.lessons(model.name)[-1]).startswith("the tool my notes:read")


async def test_changed_tool_is_offered_again(provider: Refusing) -> None:
    provider.refuses = lambda body: named(body, "srv__tool0")
    model = provider.model()
    await provider.ask(model, tools(2))

    provider.refuses = lambda _: None
    better = [ToolDefinition("srv__tool0", "Mended.", b'{"type":"object"}'), *tools(2)[1:]]
    assert await provider.ask(model, better) == []

    assert provider.sent[-1] == ["srv__tool0", "srv__tool1"]


async def test_first_tools_stay_if_a_provider_takes_fewer(provider: Refusing) -> None:
    own = ToolDefinition("interlock__read_result", "It reads.", b'{"type":"object"}')

    def refuses(body: dict[str, Any]) -> str | None:
        count = len(body.get("tools", ()))
        return f"tools: List should have at most 3 items, not {count}" if count > 3 else None

    provider.refuses = refuses
    model = provider.model()

    (notice,) = await provider.ask(model, [*tools(6), own])
    assert await provider.ask(model, [*tools(6), own], AGAIN) == []

    assert provider.sent[1:] == [["srv__tool0", "srv__tool1", "interlock__read_result"]] * 2
    assert "at most 3 tools, so 4 tools (srv:tool2, srv:tool3" in notice


async def test_tools_that_are_longer_than_the_context_are_cut(provider: Refusing) -> None:
    def refuses(body: dict[str, Any]) -> str | None:
        used = len(str(body)) // 4
        return f"prompt is too long: {used} tokens > 3000 maximum" if used > 3000 else None

    provider.refuses = refuses
    model = provider.model()

    (notice,) = await provider.ask(model, tools(300))

    assert 10 < len(provider.sent[-1]) < 200
    assert "no room in its context for more tools" in notice
    provider.refuses = lambda _: "prompt is too long: 4 tokens > 3 maximum"
    with pytest.raises(ContextTooLong):
        await provider.ask(model, [], [UserMessage("Hi " * 4000)])


async def test_no_number_of_refused_tools_ends_a_conversation(provider: Refusing) -> None:
    provider.refuses = lambda body: named(body, *(f"srv__tool{n}" for n in range(15)))
    model = provider.model()

    first = await provider.ask(model, tools(20))
    assert provider.sent[-1] == []
    second = await provider.ask(model, tools(20))

    assert "this answer is without tools" in " ".join(first)
    assert len(provider.sent[-1]) == 5
    assert "15 tools" in " ".join(second)


async def test_refusal_that_names_no_tool_leaves_all_out_for_this_process(
    provider: Refusing,
) -> None:
    provider.refuses = lambda body: "failed to parse grammar" if body.get("tools") else None
    model = provider.model()

    (notice,) = await provider.ask(model, tools(2))
    assert await provider.ask(model, tools(2), AGAIN) == []

    assert provider.sent == [["srv__tool0", "srv__tool1"], [], []]
    assert notice.endswith("it answers without them: failed to parse grammar")
    assert "tool" not in str(learned.lessons(model.name))


async def test_refusal_that_stays_without_tools_is_raised(provider: Refusing) -> None:
    provider.refuses = lambda _: "failed to parse grammar"
    model = provider.model()

    for _ in range(2):
        with pytest.raises(ModelRefused, match="failed to parse grammar"):
            await provider.ask(model, tools(2))

    assert [bool(each) for each in provider.sent] == [True, False, True, False]


async def test_refused_option_is_left_out_and_named(provider: Refusing) -> None:
    provider.refuses = lambda body: (
        "`temperature` is not supported" if "temperature" in body else None
    )
    model = provider.model(temperature=0.2)

    (notice,) = await provider.ask(model, [])
    assert await provider.ask(model, []) == []

    assert "does not take the option temperature" in notice
    assert ["temperature" in asked.body for asked in provider.server.asked] == [True, False, False]


async def test_refused_value_of_an_option_is_an_error(provider: Refusing) -> None:
    provider.refuses = lambda _: "temperature: must be at most 2"
    model = provider.model(temperature=5)

    with pytest.raises(ModelRefused, match="at most 2"):
        await provider.ask(model, [])

    assert len(provider.server.asked) == 1


async def test_server_that_cannot_stream_is_asked_for_the_whole_answer(provider: Refusing) -> None:
    provider.refuses = lambda body: "stream is not supported" if body["stream"] else None
    model = provider.model()
    says = {"content": [{"type": "text", "text": "Hello."}]}
    says["choices"] = [{"message": {"content": "Hello."}}]
    says["output"] = [wire_responses.message("Hello.")]
    provider.server.script = [wire_openai.failure(200, says)]

    assert await provider.ask(model, []) == []

    assert provider.server.asked[-1].body["stream"] is False
    assert "stream_options" not in provider.server.asked[-1].body


async def test_refused_picture_is_named_to_the_user(provider: Refusing) -> None:
    provider.refuses = lambda body: (
        "image input is not supported" if "base64" in str(body) else None
    )
    model = provider.model()
    picture = UserMessage("What is it?", (Attachment("image/png", b"png", "cat.png"),))

    (notice,) = await provider.ask(model, [], [picture, AssistantMessage("A cat."), *ASK])

    assert "cannot read images" in notice
    assert "cat.png" in str(provider.server.asked[-1].body)


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
async def test_reasoning_that_a_server_does_not_take_back_is_sent_once(provider: Refusing) -> None:
    def refuses(body: dict[str, Any]) -> str | None:
        # https://github.com/janhq/jan/issues/8136
        for place, message in enumerate(body["messages"]):
            if "reasoning" in message:
                return (
                    f"'messages.{place}' : for 'role:assistant' the following must be satisfied"
                    f"[('messages.{place}' : property 'reasoning' is unsupported)]"
                )
        return None

    provider.refuses = refuses
    model = provider.model()
    before = AssistantMessage("Hi.", (), {"provider": model.name, "reasoning": "Hm."})

    for _ in range(2):
        assert await provider.ask(model, [], [*ASK, before, UserMessage("Go on")]) == []

    sent = ["reasoning" in asked.body["messages"][1] for asked in provider.server.asked]
    assert sent == [True, False, False]


async def test_a_file_that_the_model_cannot_read_is_named_with_each_message(
    provider: Refusing,
) -> None:
    provider.refuses = lambda body: "image input is not supported" if "data" in str(body) else None
    model = provider.model()
    asking: list[Message] = [UserMessage("What?", (Attachment("image/png", b"x", "cat.png"),))]

    notices = [await provider.ask(model, [], asking) for _ in range(2)]

    assert "cannot read images" in notices[0][0]
    assert notices[1] == [f"{model.name} cannot read cat.png; it gets the name but not the content"]


RESULT: list[Message] = [
    SystemMessage("Be brief."),
    *ASK,
    AssistantMessage("", (ToolCall("a", "srv__tool0"),)),
    ToolMessage("a", "1"),
    UserMessage("More"),
    UserMessage("And more"),
]


def _lacks_reasoning(body: dict[str, Any]) -> str | None:
    # https://github.com/continuedev/continue/issues/11711
    lacking = any(
        each["role"] == "assistant" and "reasoning_content" not in each for each in body["messages"]
    )
    why = "thinking is enabled but reasoning_content is missing in assistant tool call message"
    return f"{why} at index 1" if lacking else None


def _lacks_signature(body: dict[str, Any]) -> str | None:
    # https://github.com/securo-finance/securo/issues/884
    calls = [call for each in body["messages"] for call in each.get("tool_calls", ())]
    signed = all("extra_content" in each for each in calls)
    return None if signed else "Function call is missing a thought_signature in functionCall parts."


def _lacks_answer(body: dict[str, Any]) -> str | None:
    # https://github.com/aaif-goose/goose/issues/5998
    roles = [each["role"] for each in body["messages"]]
    wrong = ("tool", "user") in itertools.pairwise(roles)
    return "Unexpected role 'user' after role 'tool'" if wrong else None


def _lacks_turns(body: dict[str, Any]) -> str | None:
    # https://github.com/ggml-org/llama.cpp/issues/19851
    roles = [each["role"] for each in body["messages"]]
    wrong = ("user", "user") in itertools.pairwise(roles)
    return "Conversation roles must alternate user/assistant/user/assistant/..." if wrong else None


def _has_system(body: dict[str, Any]) -> str | None:
    # https://github.com/google/adk-python/issues/3900
    wrong = any(each["role"] == "system" for each in body["messages"])
    return "Developer instruction is not enabled for models/gemma-3-12b-it" if wrong else None


@pytest.mark.parametrize("provider", ["openai"], indirect=True)
@pytest.mark.parametrize(
    "refuses", [_lacks_reasoning, _lacks_signature, _lacks_answer, _lacks_turns, _has_system]
)
async def test_a_conversation_of_another_model_is_adapted_to_the_needs_of_a_server(
    provider: Refusing, refuses: Refuses
) -> None:
    provider.refuses = refuses
    model = provider.model()

    for _ in range(2):
        assert await provider.ask(model, [], RESULT) == []

    assert len(provider.server.asked) == 3  # one was refused
    sent = provider.server.asked[-1].body["messages"]
    assert "Be brief." in sent[0]["content"]
    assert "And more" in str(sent[-1]["content"])
