"""Tools and calls as a provider sees them, and as everything else does."""

from __future__ import annotations

import msgspec

from interlock.messages import AssistantMessage, ToolCall, UserMessage
from interlock.models import Reply, ToolDefinition
from interlock.models.wire_tools import WireTools
from tests.providers.schema_rules import gemini, refusals
from tests.support.rows import each_row

ODD = b'{"properties":{"ids[]":{"items":[{"type":"string"}]}},"required":["ids[]"]}'
TOOLS = [ToolDefinition("odd", "", ODD), ToolDefinition("plain", "", b"{}")]
SERVER = ToolCall("1", "odd", {"ids[]": ["a"]})
MODEL = ToolCall("1", "odd", {"ids": ["a"]})


def test_only_requests_and_answers_have_the_names_for_the_model() -> None:
    wire = WireTools(TOOLS)
    other = ToolCall("2", "plain", {"ids": 1})
    ours = [UserMessage("hi"), AssistantMessage("", (SERVER, other))]

    sent = wire.sent(ours)
    reply = wire.received(Reply(AssistantMessage("", (MODEL, other))))

    assert sent == [UserMessage("hi"), AssistantMessage("", (MODEL, other))]
    assert ours[1] == reply.message == AssistantMessage("", (SERVER, other))
    for tool in wire.definitions:
        assert refusals(tool.name, msgspec.json.decode(tool.input_schema)) == {}


@each_row(
    "name",
    [
        "openrouter:google/gemini-3-pro",
        "gemini:gemma-4-27b-it",
        "openai:m@https://generativelanguage.googleapis.com/v1beta/openai",
    ],
)
def test_gemini_gets_the_schemas_that_it_accepts_from_every_provider(name: str) -> None:
    wire = WireTools(TOOLS, name)

    for tool in wire.definitions:
        assert gemini(tool.name, msgspec.json.decode(tool.input_schema)) == ""


def test_messages_are_the_same_objects_if_nothing_is_renamed() -> None:
    wire = WireTools(TOOLS[1:])
    messages = [UserMessage("hi")]

    assert wire.sent(messages) is messages
