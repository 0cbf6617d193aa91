"""Half of a character never gets into a conversation, and ends no conversation that has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import Model, ToolDefinition, complete
from interlock.models.anthropic import AnthropicModel
from interlock.models.gguf import GgufModel
from interlock.models.half_characters import HalfCharacters
from interlock.models.openai import OpenAIModel
from tests.models import wire_anthropic, wire_openai
from tests.models.gguf.files import write_model
from tests.models.wire_http import WireServer
from tests.support.rows import each_row

FIRST, SECOND, FACE = "\ud83d", "\ude00", "\U0001f600"


@each_row(
    ("pieces", "shown", "end"),
    [
        ([f"a{FIRST}", f"{SECOND}b"], ["a", f"{FACE}b"], ""),
        ([FIRST, "", SECOND], ["", "", FACE], ""),
        ([FIRST, FIRST, SECOND], ["", "\ufffd", FACE], ""),
        ([FIRST, "a"], ["", "\ufffda"], ""),
        ([f"ö{SECOND}"], ["ö\ufffd"], ""),
        ([f"a{FIRST}"], ["a"], "\ufffd"),
    ],
)
def test_halves_are_joined_or_replaced(pieces: list[str], shown: list[str], end: str) -> None:
    halves = HalfCharacters()

    assert [halves.add(piece) for piece in pieces] == shown
    assert halves.end() == end


def conversation() -> list[Message]:
    data = {"provider": "openai:m", "reasoning": FIRST}
    call = AssistantMessage(FIRST, (ToolCall(FIRST, f"t{FIRST}", {FIRST: [FIRST]}),), data)
    return [
        SystemMessage(FIRST),
        UserMessage(FIRST, (Attachment("application/pdf", b"x", FIRST),)),
        call,
        ToolMessage(FIRST, FIRST),
        UserMessage("Go on"),
    ]


TOOL = ToolDefinition("t", FIRST, b'{"type":"object"}')


@each_row("wire", [wire_openai, wire_anthropic])
async def test_no_request_has_half_of_a_character(wire: Any) -> None:
    server: WireServer = wire.server()
    await server.start()
    server.script = [wire.says("Yes.")]
    model: Model
    if wire is wire_openai:
        model = OpenAIModel("m", api_key="", base_url=f"{server.root}/v1")
    else:
        model = AnthropicModel("m", api_key="k", base_url=server.root)

    reply = await complete(model, conversation(), [TOOL])

    await model.close()
    await server.stop()
    assert server.problems == []
    assert reply.message.content == "Yes."
    json.dumps(server.asked[0].body, ensure_ascii=False).encode()


@pytest.mark.slow("llama.cpp")
async def test_a_model_in_this_process_gets_no_half_of_a_character(tmp_path: Path) -> None:
    model = GgufModel(write_model(tmp_path / "m.gguf", {"\n": "Yes", "Yes": ""}))

    assert (await complete(model, conversation(), [TOOL])).message.content
    await model.close()
