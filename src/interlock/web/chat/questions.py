"""Questions that arise during a call, for the people who see the call's turn."""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from interlock import schema
from interlock.agent import QuestionAsked
from interlock.calls import Call
from interlock.errors import AskRefused
from interlock.layers.asking import AskCaller
from interlock.protocol.envelope import encode
from interlock.types import ClientCapabilities, ElicitParams, ElicitResult, JsonObject
from interlock.web.app_documents import SUPPORT
from interlock.web.chat.errors import TurnError

if TYPE_CHECKING:
    from interlock.web.chat.turn import Turn

ASKABLE = ClientCapabilities(elicitation={"form": {}, "url": {}}, extensions=SUPPORT)


class TurnQuestions:
    """A call's back channel to the people who see its turn; it also implements `AsksOnPage`."""

    def __init__(self, turn: Turn, call: Call, approve: AskCaller) -> None:
        self.approve = approve
        self._turn = turn
        self._call = call

    @property
    def caller(self) -> Hashable:
        """The conversation, so that conversations share the servers fairly."""
        return self._turn.conversation

    def notify(self, method: str, params: bytes) -> None:
        """Do nothing: the agent reports progress, and log messages are not shown."""

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Ask the people who see the turn, and return the answer.

        Raises:
            AskRefused: The page cannot ask this question.
        """
        if method != "elicitation/create":
            raise AskRefused(f"the chat page does not support {method}", "cannot_ask")
        given: JsonObject = msgspec.json.decode(params)
        msgspec.convert(given, ElicitParams)
        expires = datetime.now(UTC) + timedelta(seconds=timeout)
        question = QuestionAsked(
            id=f"q_{secrets.token_urlsafe(12)}",
            tool_call_id=self._turn.tool_call_of(self._call.id),
            server=self._call.entry.server,
            method=method,
            params=given,
            expires=expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
        )
        try:
            answer = await self._turn.ask_question(question, timeout)
        except TimeoutError:
            answer = {"action": "cancel"}
        return Raw(encode(ElicitResult(answer["action"], answer.get("content"))))

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the page's connection does not depend on the call."""


def checked_answer(question: QuestionAsked, action: str, content: object) -> JsonObject:
    """Check an answer to a question and return it.

    Raises:
        TurnError: The answer does not fit the question.
    """
    if action not in ("accept", "decline", "cancel"):
        raise TurnError("bad_message", 'action must be "accept", "decline" or "cancel"')
    is_form = question.params.get("mode", "form") == "form"
    if action != "accept" or not is_form:
        return {"action": action}
    if not isinstance(content, dict):
        raise TurnError("bad_message", "content must be an object")
    form = schema.compile(encode(question.params.get("requestedSchema") or {}))
    if problems := form.errors(content):
        raise TurnError("bad_message", "; ".join(problems)[:500])
    return {"action": action, "content": content}
