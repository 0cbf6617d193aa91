"""The tools of one turn, with what its conversation says of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from interlock import Server, Toolbox
from interlock.calls import Call, Caller
from interlock.errors import InvalidArguments
from interlock.web.chat.turn import Asked, Turn, TurnLimits
from interlock.web.chat.turn_toolbox import TurnToolbox


@pytest.mark.parametrize("state", ["on", "off"])
async def test_model_reads_no_resource_of_a_server_that_the_conversation_switched_off(state: str):
    server = Server("notes")

    @server.resource("notes://today")
    def today() -> str:
        return "Buy milk."

    caller = Caller(surface="web")
    turn = Turn(cast("Any", None), TurnLimits(), "c1", "", caller, Asked("What is there?"))
    turn.tool_states = {"notes": state}
    async with Toolbox({"notes": server}) as toolbox:
        tools = TurnToolbox(toolbox, turn)
        entry = next(each for each in toolbox.own.entries if each.tool.name == "read_resource")
        call = Call(entry, {"uri": "notes:notes://today"}, caller)
        if state == "on":
            assert "Buy milk." in bytes((await tools.handle(call)).raw).decode()
        else:
            with pytest.raises(InvalidArguments, match="no resource 'notes:notes://today'"):
                await tools.handle(call)
