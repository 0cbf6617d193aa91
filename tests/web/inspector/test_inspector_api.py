"""The JSON routes of the inspector, in front of a gateway: rights, policy, approvals, audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.web.inspector.inspector_api import routes
from tests.gateway.conftest import offering, running
from tests.support.scripted_server import LEGACY, ScriptedServer, text, tool
from tests.web.inspecting import begun

__all__ = ["running"]
pytestmark = pytest.mark.slow


async def test_result_that_does_not_fit_its_schema_is_shown_with_the_problems(running):
    schema = {"type": "object", "properties": {"total": {"type": "number"}}}
    definition = tool("price") | {"outputSchema": schema}
    answers = {
        "tools/list": {"tools": [definition]},
        "tools/call": text("x") | {"structuredContent": {"total": "much"}},
    }
    async with running({}, crm=ScriptedServer(LEGACY, answers)) as gateway:
        inspecting = await begun(gateway)
        card = await inspecting.call("price")

    assert card["state"] == "failed"
    assert card["result"]["structuredContent"] == {"total": "much"}
    assert card["check"] == ["total: 'much' is not a number"]


async def test_inspector_shows_the_wire_and_switches_the_era(running):
    async with running({}, crm=offering("x")) as gateway:
        inspecting = await begun(gateway)
        await inspecting.call("x")
        first = (await inspecting.ask("GET", f"/{inspecting.id}/wire?limit=500")).json
        after = first["entries"][-1]["n"]
        reply = await inspecting.ask("POST", f"/{inspecting.id}/restart", {"era": "2025-11-25"})
        await inspecting.call("x")
        rest = (await inspecting.ask("GET", f"/{inspecting.id}/wire?after={after}")).json

    methods = [each.get("method") for each in first["entries"]]
    assert "tools/call" in methods
    assert reply.json["era"] == "2025-11-25"
    assert next(each["method"] for each in rest["entries"] if "method" in each) == "initialize"


def test_documentation_lists_every_route_of_the_inspector():
    page = (Path(__file__).parents[3] / "docs/author/inspector.md").read_text()

    for route in routes("admin:write"):
        path = route.path.replace("{id}", "ID")
        assert f"| `{route.method} {path}` | {route.about} |" in page
