"""Whole conversations as JSON and as Markdown."""

from __future__ import annotations

import msgspec

from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.store import ConversationStore
from interlock.store.chat.transcripts import as_json, as_markdown

MESSAGES: list[Message] = [
    UserMessage("What is in it?"),
    AssistantMessage("I look.", (ToolCall("c1", "fs__read", {"path": "a"}),)),
    ToolMessage("c1", "```\ncode\n```", "fs__read", is_error=True),
]


async def test_json_contains_every_message_unchanged(sqlite: str):
    async with ConversationStore.open(sqlite) as store:
        conversation = await store.create("A title")

    encoded = msgspec.json.encode(as_json(conversation, MESSAGES))

    assert msgspec.convert(msgspec.json.decode(encoded)["messages"], list[Message]) == MESSAGES


async def test_markdown_fences_results_so_that_they_cannot_end_their_fence(sqlite: str):
    async with ConversationStore.open(sqlite) as store:
        text = as_markdown(await store.create("A title"), MESSAGES)

    assert text.startswith("# A title\n")
    assert 'Calls `fs__read`:\n\n```json\n{"path":"a"}\n```' in text
    assert "## tool `fs__read`, failed\n\n````\n```\ncode\n```\n````" in text
