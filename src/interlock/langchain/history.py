"""Repairs a conversation, so that it is valid for every provider.

Providers refuse a history in which a tool call has no answer, an answer has no call, answers do
not follow their call, or a tool's name has a character such as ":".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from interlock.toolbox.names import wire_name

INTERRUPTED = "[interrupted: the call was begun and may have happened; check before repeating it]"
STOPPED = "[stopped by the user]"
_VALID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def answer(call: Any, text: str = INTERRUPTED, outcome: str = "stopped") -> ToolMessage:
    """Return the answer to a call that has no result."""
    return ToolMessage(
        text,
        name=call["name"],
        tool_call_id=call["id"],
        status="error",
        additional_kwargs={"interlock": {"address": call["name"], "outcome": outcome}},
    )


def fitted(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    """Return a history that every provider accepts; the given messages stay unchanged.

    Tool calls get valid names. Answers get names, and directly follow their calls in the calls'
    order. Calls without an answer get an answer; answers without a call are left out.
    """
    return _ordered(messages, _wire_name)


def closed(messages: Sequence[AnyMessage]) -> list[AnyMessage] | None:
    """Return the history with an answer inserted for each open call; None if no call is open.

    Names are not changed.
    """
    made = [
        str(call["id"])
        for each in messages
        if isinstance(each, AIMessage)
        for call in each.tool_calls
    ]
    if _answers(messages).keys() >= set(made):
        return None
    return _ordered(messages, lambda name: name)


def last_calls(messages: Sequence[BaseMessage]) -> tuple[list[Any], dict[str, ToolMessage]]:
    """Return the calls of the model's last answer, and their answers so far by id.

    There are none if another message follows.
    """
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return list(message.tool_calls), answers
        if not isinstance(message, ToolMessage):
            break
        answers[message.tool_call_id] = message
    return [], {}


def open_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    """Return the calls of the model's last answer that have no answer yet."""
    calls, answers = last_calls(messages)
    return [each for each in calls if each["id"] not in answers]


def _ordered(messages: Sequence[AnyMessage], name_of: Callable[[str], str]) -> list[AnyMessage]:
    answers = _answers(messages)
    found: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AIMessage) or not message.tool_calls:
            found.append(message)
            continue
        message = _renamed(message, name_of)
        found.append(message)
        for call in message.tool_calls:
            queue = answers.get(str(call["id"]))
            known = queue.pop(0) if queue else None
            found.append(answer(call) if known is None else _named(known, call["name"]))
    return found


def _answers(messages: Iterable[AnyMessage]) -> dict[str, list[ToolMessage]]:
    found: dict[str, list[ToolMessage]] = {}
    for each in messages:
        if isinstance(each, ToolMessage):
            found.setdefault(each.tool_call_id, []).append(each)
    return found


def _named(message: ToolMessage, name: str) -> ToolMessage:
    return message if message.name == name else message.model_copy(update={"name": name})


def _renamed(message: AIMessage, name_of: Callable[[str], str]) -> AIMessage:
    names = {each["name"]: name_of(each["name"]) for each in message.tool_calls}
    if all(old == new for old, new in names.items()):
        return message
    calls = [{**each, "name": names[each["name"]]} for each in message.tool_calls]
    content = message.content
    if isinstance(content, list):  # Anthropic's messages repeat the calls in the content
        content = [
            {**each, "name": names.get(each["name"], each["name"])}
            if isinstance(each, dict) and each.get("type") == "tool_use" and "name" in each
            else each
            for each in content
        ]
    extra = {key: each for key, each in message.additional_kwargs.items() if key != "tool_calls"}
    return message.model_copy(
        update={"tool_calls": calls, "content": content, "additional_kwargs": extra}
    )


def _wire_name(name: str) -> str:
    if _VALID.fullmatch(name):
        return name
    server, _, tool = name.partition(":")
    return wire_name(server, tool) if tool else wire_name("", name)
