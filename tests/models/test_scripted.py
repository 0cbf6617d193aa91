from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from interlock.errors import ConfigError, ModelOverloaded, ModelUnavailable
from interlock.messages import AssistantMessage, Message, ToolCall, UserMessage
from interlock.models import Reply, TextDelta, ToolDefinition, complete
from interlock.models.scripted import Scripted, ScriptedModel, ScriptedRequest
from tests.support.rows import each_row

ASK: list[Message] = [UserMessage("Hello?")]
CALL = ToolCall("1", "time__now")
TIME = ToolDefinition("time__now", "The time.", b"{}")


@each_row("text", ["Hello", "It is  noon.\n\nReally. ", "", " ", "\n- a\n- b\n"])
async def test_text_is_streamed_word_by_word(text: str) -> None:
    events = [event async for event in ScriptedModel([text]).stream(ASK)]

    words = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(words) == text
    assert all(len(word.split()) <= 1 for word in words)
    assert events[-1] == Reply(AssistantMessage(text))


@each_row(
    ("entry", "message"),
    [
        ("Yes.", AssistantMessage("Yes.")),
        ([CALL], AssistantMessage("", (CALL,))),
        ((CALL,), AssistantMessage("", (CALL,))),
        (AssistantMessage("Well:", (CALL,)), AssistantMessage("Well:", (CALL,))),
    ],
)
async def test_an_entry_can_be_a_text_calls_or_a_message(
    entry: Scripted, message: AssistantMessage
) -> None:
    reply = await complete(ScriptedModel([entry]), ASK)

    assert reply.message == message
    assert reply.stop_reason == ("tool_calls" if message.tool_calls else "end")


async def test_a_function_gets_the_messages_and_tools() -> None:
    def answer(messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> AssistantMessage:
        return AssistantMessage(f"{len(messages)} messages, {tools[0].name}")

    reply = await complete(ScriptedModel([answer]), ASK, [TIME])

    assert reply.message.content == "1 messages, time__now"


async def test_an_exception_is_raised_and_the_next_entry_follows() -> None:
    model = ScriptedModel([ModelOverloaded("busy"), "Now."])

    with pytest.raises(ModelOverloaded, match="busy"):
        await complete(model, ASK)
    assert (await complete(model, ASK)).message.content == "Now."


async def test_requests_of_a_scripted_model_are_copies() -> None:
    model = ScriptedModel(["One.", "Two."])
    messages = list(ASK)

    messages.append((await complete(model, messages, [TIME])).message)
    await complete(model, messages)

    assert model.requests == [
        ScriptedRequest((ASK[0],), (TIME,)),
        ScriptedRequest((ASK[0], AssistantMessage("One.")), ()),
    ]


async def test_the_end_of_the_script_is_an_error() -> None:
    model = ScriptedModel(["One."])
    await complete(model, ASK)

    with pytest.raises(ModelUnavailable, match="no answer 2"):
        await complete(model, ASK)
    await model.close()


async def test_from_file_reads_a_script(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(
        '[{"role": "assistant", "tool_calls": [{"id": "1", "name": "time__now"}]},'
        ' {"content": "Noon."}]'
    )
    model = ScriptedModel.from_file(path)

    assert model.name == f"scripted:{path}"
    assert (await complete(model, ASK)).message == AssistantMessage("", (CALL,))
    assert (await complete(model, ASK)).message == AssistantMessage("Noon.")


@each_row(
    "content", [b"", b"[", b"{}", b'["Hello"]', b'[{"content": 5}]', b'[{"role": "user"}]', b"\xff"]
)
def test_from_file_of_another_format_is_an_error_with_the_path(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"script\.json.*JSON list"):
        ScriptedModel.from_file(path)


@each_row(
    ("content", "member"),
    [
        ('[{"text": "Hello"}]', "text"),
        ('[{"tool_calls": [{"id": "1", "name": "a", "arguments": {}}]}]', "arguments"),
    ],
)
def test_from_file_with_an_unknown_member_is_an_error_with_its_name(
    tmp_path: Path, content: str, member: str
) -> None:
    path = tmp_path / "script.json"
    path.write_text(content)

    with pytest.raises(ConfigError, match=f"unknown field `{member}`"):
        ScriptedModel.from_file(path)


def test_from_file_of_a_missing_file_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json: No such file"):
        ScriptedModel.from_file(tmp_path / "nothing.json")
