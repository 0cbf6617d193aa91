"""The tools of one turn, with what its conversation says of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from interlock import Agent, Server, StdioServer, Toolbox
from interlock.agent import ApprovalAsked
from interlock.auth import Principal
from interlock.calls import Call, Caller, CallHandler, Item, Outcome
from interlock.calls.decision import Decision
from interlock.errors import (
    ApprovalMissing,
    CallRefused,
    InvalidArguments,
    ServerUnavailable,
    UnknownTool,
)
from interlock.layers.asking import asking
from interlock.messages import SEARCH_TOOLS, Message, ToolCall, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.types import JsonObject
from interlock.web.by_hand import ask_on_page
from interlock.web.chat.events import TurnEvent
from interlock.web.chat.turn import Asked, Turn, TurnLimits
from interlock.web.chat.turn_toolbox import TurnToolbox
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY
from tests.support.toolboxes import described, kb

CALLER = Caller(surface="web")


class AllowingTurn(Turn):
    """A turn whose person allows every call. `addresses` are those that it asked about."""

    def __init__(self, **tool_states: str) -> None:
        asked = Asked("What is there?")
        super().__init__(cast("Any", None), TurnLimits(), "c1", "", CALLER, asked)
        self.tool_states = tool_states
        self.addresses: list[str] = []

    async def ask(self, approval: ApprovalAsked, seconds: float | None = None) -> JsonObject:
        self.addresses.append(approval.address)
        return {"decision": "allow"}


def notes() -> Server:
    server = Server("notes")

    @server.tool()
    def today() -> str:
        return "Buy milk."

    @server.resource("notes://today")
    def note() -> str:
        return "Buy milk."

    return server


@each_row("state", ["on", "off"])
async def test_model_reads_no_resource_of_a_server_that_the_conversation_switched_off(state: str):
    async with Toolbox({"notes": notes()}) as toolbox:
        tools = TurnToolbox(toolbox, AllowingTurn(notes=state))
        entry = tools.find("interlock:read_resource", CALLER)
        call = Call(entry, {"uri": "notes:notes://today"}, CALLER)
        if state == "on":
            assert "Buy milk." in bytes((await tools.handle(call)).raw).decode()
        else:
            with pytest.raises(InvalidArguments, match="no resource 'notes:notes://today'"):
                await tools.handle(call)


async def test_search_finds_no_tool_that_the_conversation_or_a_rule_has_switched_off() -> None:
    tools = [described(f"list_{each}") for each in ("files", "pages", "mails")]
    async with Toolbox({"kb": kb(tools)}, environ={}, revision=LEGACY) as toolbox:
        turn = AllowingTurn(**{"kb:list_pages": "off"})
        denied = TurnToolbox(
            toolbox, turn, may_use=lambda _, entry: entry.address != "kb:list_mails"
        )
        model = ScriptedModel([[ToolCall("c1", SEARCH_TOOLS, {"query": "list pages"})], "Done."])
        messages: list[Message] = [UserMessage("Hi")]
        await Agent(model, denied, caller=CALLER, tool_search="on").complete(messages)
    assert isinstance(messages[2], ToolMessage)
    assert messages[2].loads == ("kb__list_files",)
    assert "pages" not in messages[2].content
    assert "mails" not in messages[2].content


async def test_tool_of_others_is_as_unknown_to_a_user_as_one_that_does_not_exist() -> None:
    hints = {"annotations": {"readOnlyHint": True}}
    tools = [described(each, **hints) for each in ("list_files", "list_fines")]
    caller = Caller(Principal("anna"), surface="web")
    servers: dict[str, Any] = {"kb": kb(tools), "dead": StdioServer(command="no-such-program")}
    async with Toolbox(servers, environ={}, revision=LEGACY) as toolbox:
        mine = TurnToolbox(
            toolbox, AllowingTurn(), may_use=lambda _, entry: "fines" not in entry.address
        )
        texts = []
        for name in ("kb__list_fines", "kb__list_fires", "kb:list_fines", "dead:list", "deaf:list"):
            with pytest.raises(UnknownTool) as caught:
                mine.find(name, caller)
            texts.append(str(caught.value).replace(name, "X"))
        with pytest.raises(ServerUnavailable):
            mine.find("dead:list", CALLER)
    assert texts[:2] == ["no tool 'X'; did you mean kb__list_files?"] * 2
    assert texts[3:] == ["no tool 'X'"] * 2


@each_row(
    ("built_in", "state", "times"),
    [(True, "on", 0), (False, "on", 1), (True, "ask", 1), (False, "ask", 1), (True, "", 1)],
)
async def test_person_is_asked_once_about_a_call_of_a_turn(built_in: bool, state: str, times: int):
    turn = AllowingTurn(notes=state)
    async with Toolbox({"notes": notes()}, around=[rule("tool"), asking(ask_on_page)]) as toolbox:
        tools = TurnToolbox(toolbox, turn, asks_people=True, built_in=built_in)
        await tools.handle(Call(tools.find("notes:today", CALLER), {}, CALLER))

    assert turn.addresses == ["notes:today"] * times


async def test_person_is_asked_about_a_resource_that_a_call_of_a_turn_reads():
    turn = AllowingTurn()
    layers = [rule("resource"), asking(ask_on_page)]
    async with Toolbox({"notes": notes()}, around=layers) as toolbox:
        tools = TurnToolbox(toolbox, turn, asks_people=True)
        entry = tools.find("interlock:read_resource", CALLER)
        await tools.handle(Call(entry, {"uri": "notes:notes://today"}, CALLER))

    assert turn.addresses == [Item("resources", "notes", "notes://today").address]


def rule(kind: str) -> Any:
    """Return a layer that has all calls of a kind approved by their caller."""

    def wrap(handle: CallHandler) -> CallHandler:
        async def decided(call: Call) -> Outcome:
            if call.kind == kind:
                call.decision = Decision(*("ask", "", "a", ("caller",), None, None, "write", False))
            return await handle(call)

        return decided

    return wrap


class Asking:
    """A turn with the tool "shop:buy", which its conversation has set to a state.

    Attributes:
        bought: The arguments of the calls that ran.
        asked: The approvals that the user was asked for.
    """

    def __init__(self, state: str) -> None:
        self.bought: list[int] = []
        self.caller = Caller(surface="web")
        turn = Turn(cast("Any", None), TurnLimits(), "c1", "", self.caller, Asked("Buy milk."))
        turn.tool_states = {"shop:buy": state}
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        turn.follow(lambda _, event: self._note(event))
        self.turn = turn

    def _note(self, event: TurnEvent) -> None:
        if event.kind == "approval":
            self.asked.put_nowait(event.fields)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[TurnToolbox, Call]]:
        """Open the toolbox; return the turn's tools and a call."""
        server = Server("shop")

        @server.tool
        def buy(number: int) -> str:
            self.bought.append(number)
            return "bought"

        async with Toolbox({"shop": server}) as toolbox:
            (entry,) = (each for each in toolbox.tools if each.address == "shop:buy")
            yield TurnToolbox(toolbox, self.turn), Call(entry, {"number": 7}, self.caller)

    async def decide(self, decision: str, arguments: dict[str, Any] | None = None) -> None:
        """Wait for the next approval, before which nothing may have run, and decide."""
        asked = await self.asked.get()
        assert self.bought == []
        id, hash = asked["approval_id"], asked["hash"]
        self.turn.decide(id, hash, decision, "", "user:ann", arguments)


async def test_call_of_a_tool_on_ask_runs_only_if_the_user_allows_it():
    denied, allowed = Asking("ask"), Asking("ask")
    async with denied.opened() as (tools, call):
        calling = asyncio.create_task(tools.handle(call))
        await denied.decide("deny")
        with pytest.raises(ApprovalMissing, match="the user refused this call"):
            await calling
    async with allowed.opened() as (tools, call):
        calling = asyncio.create_task(tools.handle(call))
        await allowed.decide("allow")
        await calling

    assert (denied.bought, allowed.bought) == ([], [7])


async def test_call_with_changed_arguments_needs_another_approval_and_the_model_sees_the_change():
    asking = Asking("ask")
    async with asking.opened() as (tools, call):
        calling = asyncio.create_task(tools.handle(call))
        await asking.decide("deny", {"number": 2})
        await asking.decide("allow")
        outcome = await calling

    assert asking.bought == [2]
    assert outcome.result.text.startswith('A person changed the arguments to {"number":2}.')


async def test_call_that_the_user_stops_is_refused_and_the_turn_continues():
    asking = Asking("ask")
    async with asking.opened() as (tools, call):
        calling = asyncio.create_task(tools.handle(call))
        await asking.asked.get()
        asking.turn.stop_call(call.id)
        with pytest.raises(CallRefused, match="the user stopped this call"):
            await calling

    assert asking.bought == []
    assert not asking.turn.has_ended


async def test_tool_that_the_conversation_switched_off_does_not_exist_for_the_model():
    async with Asking("off").opened() as (tools, call):
        assert call.entry not in tools.tools
        with pytest.raises(UnknownTool, match="shop:buy"):
            tools.find("shop:buy", call.caller)
    async with Asking("on").opened() as (tools, call):
        assert call.entry in tools.tools
        assert tools.find("shop:buy", call.caller) == call.entry
