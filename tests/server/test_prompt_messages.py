"""What a prompt's function may return."""

from __future__ import annotations

import pytest

from interlock.errors import LocalProtocolError
from interlock.messages import (
    AssistantMessage,
    Attachment,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.server.prompt_messages import prompt_result
from interlock.types import (
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ResourceContents,
    TextContent,
)
from tests.support.rows import each_row

PICTURE = ImageContent(data="iVBORw==", mime_type="image/png")
TABLE = Attachment("text/csv", b"a,b", "t.csv")


def text(role: str, text: str) -> PromptMessage:
    return PromptMessage(role=role, content=TextContent(text=text))


@each_row(
    ("returned", "messages"),
    [
        ("a", [text("user", "a")]),
        ({"a": 1}, [text("user", '{"a":1}')]),
        (
            [UserMessage("a"), AssistantMessage("b"), PICTURE, "c", {"role": "user"}],
            [
                text("user", "a"),
                text("assistant", "b"),
                PromptMessage(role="user", content=PICTURE),
                text("user", "c"),
                text("user", '{"role":"user"}'),
            ],
        ),
        (
            [
                {"role": "assistant", "content": "a"},
                {"role": "user", "content": {"type": "text", "text": "b"}},
                {"role": "user", "content": ["c", PICTURE]},
            ],
            [
                text("assistant", "a"),
                text("user", "b"),
                text("user", "c"),
                PromptMessage(role="user", content=PICTURE),
            ],
        ),
        (UserMessage({"key": 1}), [text("user", '{"key":1}')]),  # type: ignore[arg-type]  # a slip
        (
            UserMessage("see", (Attachment("image/png", b"\x89PNG"), TABLE)),
            [
                text("user", "see"),
                PromptMessage(role="user", content=PICTURE),
                PromptMessage(
                    role="user",
                    content=EmbeddedResource(
                        resource=ResourceContents(
                            uri="attachment:t.csv", mime_type="text/csv", blob="YSxi"
                        )
                    ),
                ),
            ],
        ),
    ],
)
def test_values_become_messages_of_their_role(returned, messages):
    assert prompt_result(returned, "d") == GetPromptResult(messages=messages, description="d")


@each_row(
    ("returned", "says"),
    [
        ({"role": "system", "content": "a"}, "the role 'system' is not 'user' or 'assistant'"),
        (SystemMessage("a"), "no SystemMessage"),
        (ToolMessage("1", "a"), "no ToolMessage"),
        (AssistantMessage(tool_calls=(ToolCall("1", "t"),)), "cannot have tool calls"),
    ],
)
def test_message_that_a_prompt_cannot_have_is_refused(returned, says):
    with pytest.raises(LocalProtocolError, match=says):
        prompt_result([returned], None)
