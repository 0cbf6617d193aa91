"""Halves of characters from a server: in lists, results, notifications and errors."""

from __future__ import annotations

import pytest

from interlock import Toolbox
from interlock.errors import RemoteError
from interlock.types import JsonObject, LogMessage
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, ScriptedServer, text, tool
from tests.toolbox.upstreams import settle

HALF, WHOLE = "half \ud83d", "half \ufffd"


@each_row("revision", [LEGACY, MODERN])
async def test_no_result_list_or_notification_is_lost(revision: str):
    def refuse(_: JsonObject) -> JsonObject:
        raise RemoteError(-32000, HALF)

    answers = {
        "tools/list": {"tools": [tool("x", description=HALF), tool("y")]},
        "tools/call": lambda params: (
            refuse(params)
            if params["name"] == "y"
            else text(HALF, structuredContent={HALF: ["\ud83d\ude00"]})
        ),
        "resources/read": {"contents": [{"uri": "x:y", "text": HALF}]},
        "prompts/list": {"prompts": [{"name": "p", "description": HALF}]},
    }
    server = ScriptedServer(revision, answers, capabilities={"tools": {}, "resources": {}})
    logs: list[LogMessage] = []
    async with Toolbox({"s": server}, environ={}, on_log=logs.append) as toolbox:
        server.notify("notifications/message", level="info", data=HALF)
        result = await toolbox.call("s:x", {})
        read = await toolbox.read_resource("s", "x:y")
        with pytest.raises(RemoteError, match=WHOLE):
            await toolbox.call("s:y", {})
        await settle()
        described = [each.tool.description for each in toolbox.tools]
        assert toolbox.status["s"].state == "ok"
        assert toolbox.status["s"].dropped == {}

    assert described[0] == WHOLE
    assert (result.text, result.structured) == (WHOLE, {WHOLE: ["😀"]})
    assert read.text == WHOLE
    assert [each.data for each in logs] == [WHOLE]
