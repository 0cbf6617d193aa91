"""Moves the images of results to a message of the user.

OpenAI's chat completions, and the APIs that imitate them, accept images only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

# Classes of models, and of their bases, that send the format of chat completions.
_CLASSES = {
    *("BaseChatOpenAI", "ChatDeepInfra", "ChatFireworks", "ChatGroq", "ChatLiteLLM"),
    *("ChatMistralAI", "ChatOllama", "ChatOpenRouter", "ChatTogether"),
}
_NOTE = "The images of the results above:"


def with_user_images(model: Any, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return the messages as a model accepts them; the given ones stay unchanged.

    Args:
        model: The LangChain chat model.
        messages: A history in which results directly follow their calls.
    """
    classes = {each.__name__ for each in type(model).__mro__}
    if not classes & _CLASSES:
        return list(messages)
    found: list[AnyMessage] = []
    images: list[Any] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            message, moved = _split(message)
            images += moved
        elif images:
            found += _with_images(images, classes)
            images = []
        found.append(message)
    return found + (_with_images(images, classes) if images else [])


def _split(message: ToolMessage) -> tuple[ToolMessage, list[Any]]:
    content = message.content
    if isinstance(content, str):
        return message, []
    images = [
        each for each in content if isinstance(each, dict) and "image" in each.get("type", "")
    ]
    if not images:
        return message, []
    count = "1 image" if len(images) == 1 else f"{len(images)} images"
    text = message.text if message.text.strip() else f"[{count}: see below]"
    return message.model_copy(update={"content": text}), images


def _with_images(images: list[Any], classes: set[str]) -> list[AnyMessage]:
    shown = HumanMessage([{"type": "text", "text": _NOTE}, *images])
    if "ChatMistralAI" in classes:  # "Unexpected role 'user' after role 'tool'"
        return [AIMessage("I have the results."), shown]
    return [shown]
