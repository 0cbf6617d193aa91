"""The tools of a server as the toolbox offers them, and those that it leaves out."""

from __future__ import annotations

import pytest

from interlock.errors import (
    RemoteProtocolError,
)
from interlock.toolbox import tool_list
from interlock.toolbox.tool_list import MAX_DESCRIPTION
from tests.support.scripted_server import tool
from tests.toolbox.upstreams import call, served, started

BOMB = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {
        **{f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(25)},
        "a25": {"type": "string"},
    },
}


async def test_unusable_tool_is_left_out_with_its_reason():
    server = served(
        tool("good"),
        tool("bomb", inputSchema=BOMB),
        tool("outside", inputSchema={"type": "object", "$ref": "https://example.org/x"}),
        tool("list", inputSchema={"type": "array"}),
        {"name": "nothing"},
        tool("good"),
        tool(""),
    )
    async with started(server) as upstream:
        missing = upstream.status.missing

        assert [each.tool.name for each in upstream.entries] == ["good"]
        names = ["nothing", "good", "bomb", "outside", "list", ""]
        for name, line in zip(names, missing, strict=True):
            assert f"tool '{name}'" in line
        assert upstream.status.state == "ok"


async def test_tool_with_malformed_results_is_flagged_until_the_next_list():
    server = served(tool("x"), tool("y"), call={"content": 7})
    async with started(server) as upstream:
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await call(upstream)
        (flag,) = upstream.status.flagged
        state = upstream.status.state
        upstream._lists._listed_until = 0.0
        await upstream.refresh()

        assert flag.startswith("tool 'x': 2 wrong results, the last one: malformed tools/call")
        assert state == "ok"  # the others may be as they should be
        assert upstream.status.flagged == ()


async def test_long_description_is_truncated():
    server = served(tool("x", description="d" * (MAX_DESCRIPTION + 1)), tool("y", description="d"))
    async with started(server) as upstream:
        long, short = (each.tool.description for each in upstream.entries)

    assert long == "d" * MAX_DESCRIPTION + " [cut]"
    assert short == "d"


async def test_tools_over_the_limit_are_reported_as_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool_list, "MAX_TOOLS", 2)
    async with started(served(*(tool(name) for name in "abcde"))) as upstream:
        assert [each.tool.name for each in upstream.entries] == ["a", "b"]
        assert upstream.status.missing == ("the list is cut after 2 tools of 5",)
