"""Images of results reach models that take them only in messages of the user."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from interlock.langchain.user_images import with_user_images
from tests.langchain.test_history import calls
from tests.support.providers import KEY

IMAGE = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def history() -> list[AnyMessage]:
    both: list[Any] = [{"type": "text", "text": "A cat."}, IMAGE]
    return [
        HumanMessage("go"),
        calls("1", "2"),
        ToolMessage(both, tool_call_id="1"),
        ToolMessage([IMAGE], tool_call_id="2"),
        HumanMessage("more"),
    ]


@pytest.mark.slow("loads the client of a provider")
def test_chat_completions_get_images_of_results_in_a_message_of_the_user() -> None:
    from langchain_openai import ChatOpenAI

    given = history()
    model = ChatOpenAI(model="gpt", api_key=KEY)
    sent = model._get_request_payload(with_user_images(model, given))["messages"]

    assert [each["role"] for each in sent] == [
        *("user", "assistant", "tool", "tool", "user", "user")
    ]
    assert [each["content"] for each in sent[2:4]] == ["A cat.", "[1 image: see below]"]
    assert sent[4]["content"][1:] == [URL, URL]
    assert given == history()


@pytest.mark.slow("loads the client of a provider")
def test_anthropic_gets_images_within_the_results() -> None:
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model_name="claude", api_key=KEY, timeout=1, stop=None)

    assert with_user_images(model, history()) == history()
