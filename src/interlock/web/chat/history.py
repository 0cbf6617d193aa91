"""Stored messages as the page shows them: each reply of the model with cards of its calls."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.messages import INTERRUPTED, AssistantMessage, ToolCall, ToolMessage, UserMessage
from interlock.store.chat.chat_calls import ChatCall
from interlock.store.chat.conversations import StoredMessage
from interlock.text.timestamps import rfc3339
from interlock.toolbox import Toolbox
from interlock.types import JsonObject
from interlock.web.chat.attachments import split_files
from interlock.web.chat.events import MAX_RESULT


class Cards:
    """Makes the cards of the calls in one page of messages.

    Args:
        calls: Recorded calls, in the order in which they ended.
        toolbox: Converts wire names to addresses.
    """

    def __init__(self, calls: Sequence[ChatCall], toolbox: Toolbox | None) -> None:
        self._toolbox = toolbox
        self._calls: dict[str, list[ChatCall]] = {}
        for each in calls:
            self._calls.setdefault(each.tool_call_id, []).append(each)

    def take(self, asked: ToolCall, answer: ToolMessage | None, since: int) -> JsonObject:
        """Return the card of a call, and use up the call's record.

        Args:
            asked: The call as the model requested it.
            answer: The result that the model got; None if it got none.
            since: When the model requested the call, in microseconds. Earlier records with the
                same id are of other calls, because a model may reuse ids.
        """
        text = answer.content if answer is not None else ""
        card: JsonObject = {
            "tool_call_id": asked.id,
            "call_id": None,
            "tool": self._address(asked.name),
            "arguments": asked.input,
            "result": text[:MAX_RESULT],
            "truncated": len(text) > MAX_RESULT,
            "outcome": "ran",
            "reason": "",
            "seconds": None,
            "approval": None,
        }
        known = self._calls.get(asked.id, [])
        found = next((each for each in known if each.at >= since), None)
        if found is not None:
            known.remove(found)
            return card | {
                "call_id": found.id,
                "tool": found.tool,
                "arguments": found.arguments,
                "outcome": found.outcome,
                "reason": found.reason,
                "seconds": found.seconds,
                "at": rfc3339(found.at),
                "approval": found.approval,
                "hasResult": True,
            }
        if answer is None or text == INTERRUPTED:
            return card | {"outcome": "failed", "reason": "unfinished", "result": INTERRUPTED}
        return card | {"outcome": "failed" if answer.is_error else "ran"}

    def _address(self, wire_name: str) -> str:
        entry = self._toolbox.by_wire_name(wire_name) if self._toolbox is not None else None
        return entry.address if entry is not None else wire_name.replace("__", ":", 1)


def shown_page(stored: Sequence[StoredMessage], cards: Cards) -> list[JsonObject]:
    """Return one page of messages as JSON. Tool results are in the cards of their calls."""
    answers: dict[int, dict[str, ToolMessage]] = {}
    asking = -1
    for each in stored:
        if isinstance(each.message, ToolMessage):
            answers.setdefault(asking, {}).setdefault(each.message.tool_call_id, each.message)
        else:
            asking = each.position
    return [
        shown
        for each in stored
        if (shown := _shown(each, answers.get(each.position, {}), cards)) is not None
    ]


def _shown(each: StoredMessage, answers: dict[str, ToolMessage], cards: Cards) -> JsonObject | None:
    message = each.message
    common: JsonObject = {"id": each.position, "created": each.created}
    if isinstance(message, UserMessage):
        text, files = split_files(message.content)
        return {**common, "role": "user", "content": text, "files": files}
    if isinstance(message, AssistantMessage):
        since = int(each.created.timestamp() * 1_000_000)
        calls = [cards.take(call, answers.get(call.id), since) for call in message.tool_calls]
        shown = {
            **common,
            "role": "assistant",
            "content": message.content,
            "model": each.model,
            "calls": calls,
        }
        if (why := message.unfinished) is not None:
            shown["unfinished"] = {"code": why.reason or "draft", "message": why.detail}
        return shown
    return None
