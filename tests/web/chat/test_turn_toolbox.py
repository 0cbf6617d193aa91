"""The tools of one turn, with what its conversation says of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from interlock import Server, Toolbox
from interlock.agent import ApprovalAsked
from interlock.calls import Call, Caller, CallHandler, Item, Outcome
from interlock.calls.decision import Decision
from interlock.errors import InvalidArguments
from interlock.layers.asking import asking
from interlock.types import JsonObject
from interlock.web.by_hand import ask_on_page
from interlock.web.chat.turn import Asked, Turn, TurnLimits
from interlock.web.chat.turn_toolbox import TurnToolbox

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


@pytest.mark.parametrize("state", ["on", "off"])
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


@pytest.mark.parametrize(
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
                call.decision = Decision(
                    *("ask", "", "a", ("caller",), None, None, "write", False), lambda _: ()
                )
            return await handle(call)

        return decided

    return wrap
