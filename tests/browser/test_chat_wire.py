"""A connection that is cut at any event of a turn changes nothing of what the page shows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from interlock.messages import Message
from interlock.models import ModelEvent, ReasoningDelta, ToolDefinition
from interlock.models.scripted import ScriptedModel
from interlock.types import JsonObject
from interlock.web.chat import turn_log
from interlock.web.chat.socket import Socket
from interlock.web.chat.turn import Turn
from tests.browser.chat import Chat, call, calls, chat
from tests.browser.conftest import OpenPage, Watch

ANSWER = "Gone:\n\n- **milk**\n- `bread`"
# What a person sees of a reply, without times and ids.
SHOWN = """() => [...document.querySelectorAll(".said, .reply")].map((each) => ({
  role: each.dataset.role,
  texts: [...each.querySelectorAll(".words:not(.muted)")].map((words) => words.innerHTML),
  calls: [...each.querySelectorAll("[data-call]")]
    .map((card) => [card.dataset.state, card.querySelector(".address").textContent]),
}))"""
REASONING = """() => [...document.querySelectorAll(".reasoning .words")]
  .map((each) => each.textContent)"""


class ThinkingModel(ScriptedModel):
    """A scripted model that streams its reasoning before each answer."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        for piece in ("I should ", "look."):
            yield ReasoningDelta(piece)
        async with aclosing(super().stream(messages, tools)) as events:
            async for event in events:
                yield event


class Cuts:
    """Closes all sockets when a turn has reached an event; 0 cuts before its first one."""

    def __init__(self, served: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self.last = 0
        self._sockets = served.site._chat._sockets
        emit = Turn._emit

        def cutting(turn: Turn, fields: Any) -> Any:
            if self.at == 0:
                for each in [*self._sockets._sockets]:
                    turn.unfollow(each._on_event)
                self._cut()
            event = emit(turn, fields)
            self.last = event.seq
            if event.seq == self.at:
                self._cut()
            return event

        monkeypatch.setattr(Turn, "_emit", cutting)
        monkeypatch.setattr(turn_log, "JOIN_SECONDS", -1.0)  # each word is an event

    def _cut(self) -> None:
        self.at = None
        for each in [*self._sockets._sockets]:
            each.close(1001, "cut")


async def run(page: Any, question: str) -> None:
    """Ask in a new conversation, and approve the call that waits."""
    await page.get_by_role("button", name="New conversation").click()
    await page.get_by_label("Message", exact=True).fill(question)
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Approve once").click()
    await expect(page.locator(".reply li code")).to_be_visible()
    await expect(page.locator(".reply[aria-busy=false]")).to_be_visible()


@pytest.mark.slow
async def test_turn_interrupted_at_any_event_is_shown_as_stored_and_runs_once(
    open_page: OpenPage, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    turn = [
        calls(call("find", "c1", text="x"), call("delete", "c2", name="y"), text="I look"),
        ANSWER,
    ]
    async with chat(tmp_path, open_page, *turn * 40, kind=ThinkingModel) as served:
        page = await served.open()
        await page.evaluate("setInterval(() => dispatchEvent(new Event('online')), 20)")
        cuts = Cuts(served, monkeypatch)
        await run(page, "Delete it")
        events = cuts.last
        async with page.expect_response("**/messages"):
            await page.reload()
        await expect(page.locator(".reply li code")).to_be_visible()
        stored = await page.evaluate(SHOWN)
        await page.evaluate("setInterval(() => dispatchEvent(new Event('online')), 20)")

        wrong = {}
        for at in range(events + 1):
            cuts.at = at
            await run(page, "Delete it")
            shown, thought = await page.evaluate(SHOWN), await page.evaluate(REASONING)
            # What a model thought is not stored: after the last event it may be loaded without.
            if shown != stored or (at < events and thought != ["I should look."] * 2):
                wrong[at] = shown, thought
            assert cuts.at is None

        assert events >= 14
        assert wrong == {}
        assert len(served.desk.deleted) == events + 2
        assert len(served.model.requests) == 2 * (events + 2)


@pytest.mark.parametrize("has_arrived", [True, False])
async def test_decision_sent_before_a_lost_connection_is_made_only_once(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_arrived: bool
):
    decide, is_cut = Socket._approve, False

    async def cutting(socket: Socket, frame: JsonObject) -> None:
        nonlocal is_cut
        if is_cut or has_arrived:
            await decide(socket, frame)
        if not is_cut:
            is_cut = True
            socket.close(1001, "cut")

    monkeypatch.setattr(Socket, "_approve", cutting)
    async with chat(tmp_path, open_page, calls(call("delete", name="y")), "Gone.") as served:
        page = await served.ask()
        await page.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Gone.", exact=True)).to_be_visible()
        await expect(page.get_by_role("dialog")).to_have_count(0)

    assert is_cut
    assert served.desk.deleted == ["y"]


async def test_decision_made_without_a_connection_is_sent_over_the_next(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["ERR_INTERNET_DISCONNECTED", "Failed to load"]
    async with chat(tmp_path, open_page, calls(call("delete", name="y")), "Gone.") as served:
        page = await served.ask()
        approve = page.get_by_role("button", name="Approve once")
        await expect(approve).to_be_visible()
        await page.context.set_offline(True)
        for each in [*served.site._chat._sockets._sockets]:
            each.close(1001, "cut")
        await expect(page.locator("[data-line=lost]")).to_be_visible()
        await approve.click()
        assert served.desk.deleted == []

        await page.context.set_offline(False)
        await expect(page.get_by_text("Gone.", exact=True)).to_be_visible()

    assert served.desk.deleted == ["y"]
