"""Servers that are objects of Python modules, beside the others of a configuration."""

from __future__ import annotations

import pytest

from interlock import Server
from interlock.config import PythonServer, ToolFilter
from interlock.toolbox import Toolbox

notes = Server("notes")


@notes.tool
def add(text: str) -> str:
    """Add a note."""
    return f"added {text}"


@notes.tool
def clear() -> str:
    """Delete all notes."""
    return "cleared"


async def test_object_is_a_server_like_the_others():
    entry = PythonServer(object=f"{__name__}:notes", tools=ToolFilter(deny=("clear",)))
    async with Toolbox({"notes": entry}) as toolbox:
        addresses = [each.address for each in toolbox.tools]
        result = await toolbox.call("notes:add", {"text": "x"})

    assert addresses == ["notes:add"]
    assert result.text == "added x"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such.module:x", "no.such.module:x cannot be imported: No module named 'no'"),
        (f"{__name__}:missing", "has no attribute 'missing'"),
        (f"{__name__}:__doc__", "is not a server; it has no method connect()"),
    ],
)
async def test_object_that_cannot_be_a_server_fails_alone_and_says_why(name: str, reason: str):
    servers = {"bad": PythonServer(object=name), "notes": PythonServer(object=f"{__name__}:notes")}
    async with Toolbox(servers) as toolbox:
        status = toolbox.status

    assert status["bad"].state == "failed"
    assert reason in status["bad"].reason
    assert status["notes"].state == "ok"


async def test_disabled_object_is_not_imported():
    async with Toolbox({"off": PythonServer(object="no.such:x", enabled=False)}) as toolbox:
        assert toolbox.status["off"].state == "disabled"
