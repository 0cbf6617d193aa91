"""Histories as requests to providers, made by LangChain's own classes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import SecretStr, TypeAdapter

KEY = SecretStr("none")


def check_for_providers(messages: Sequence[BaseMessage]) -> None:
    """Check what OpenAI and Anthropic demand: valid names, and each call answered at once."""
    # Here, as they take a second to load.
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    openai = ChatOpenAI(model="gpt", api_key=KEY)
    anthropic = ChatAnthropic(model_name="claude", api_key=KEY, timeout=1, stop=None)
    _check_openai(openai._get_request_payload(list(messages))["messages"])
    _check_anthropic(anthropic._get_request_payload(list(messages))["messages"])


def _check_openai(messages: list[Any]) -> None:
    from openai.types.chat import ChatCompletionMessageParam

    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(messages)
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
            continue
        assert waiting == []
        for call in message.get("tool_calls", ()):
            _check_name(call["function"]["name"])
            waiting.append(call["id"])
    assert waiting == []


def _check_anthropic(messages: list[Any]) -> None:
    from anthropic.types import MessageParam

    TypeAdapter(list[MessageParam]).validate_python(messages)
    waiting: list[str] = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        waiting = []
        for each in blocks:
            if each["type"] == "tool_use":
                _check_name(each["name"])
                waiting.append(each["id"])
    assert waiting == []


def _check_name(name: str) -> None:
    assert name.replace("_", "").replace("-", "").isalnum()
    assert name.isascii()
    assert len(name) <= 64
