"""The parts that a configuration decides: servers, limits, policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from interlock.config import Config, loads
from interlock.config.gateway import GatewaySettings, Keep
from interlock.gateway.parts import make_parts, restart_needed
from tests.gateway.conftest import offering


@pytest.mark.slow("fills a database")
async def test_broken_python_server_disables_only_its_own_tools(running):
    async with running(crm=offering("x"), gone=object()) as gateway:
        key = await gateway.key()
        assert await gateway.names(key) == ["crm__x"]
        reason = gateway.assembly.server.toolbox.status["gone"].reason
        assert "has no method connect()" in reason


@pytest.mark.slow("fills a database")
async def test_python_server_obeys_the_filter_and_can_be_disabled(running):
    filtered = offering("x", "delete_x"), {"tools": {"deny": ["delete_*"]}}
    async with running(crm=filtered, off=(offering("y"), {"enabled": False})) as gateway:
        assert await gateway.names(await gateway.key()) == ["crm__x"]


@pytest.mark.slow("fills a database")
async def test_used_rate_limit_stays_used_after_a_reload(running):
    limits = {"perKey": {"rate": "1/min"}}
    crm = offering("x")
    async with running({"limits": limits}, crm=crm) as gateway:
        key = await gateway.key()
        await gateway.call("crm__x", key)
        await gateway.reload({"limits": limits}, crm=crm, time=offering("now"))
        assert (await gateway.call("crm__x", key)).code == 429


def test_a_server_that_has_become_wrong_keeps_its_last_good_definition():
    def written(**servers: object) -> Config:
        return loads(json.dumps({"mcpServers": servers}).encode())

    good, other = {"command": "crm"}, {"command": "x"}
    first = make_parts(written(crm=good, time=good), {})
    second = make_parts(written(crm=good | {"timeout": []}, new={"args": []}), {}, first)
    third = make_parts(written(crm=None, time=other | {"namespace": "crm"}), {}, second)

    assert second.config.servers == {"crm": first.config.servers["crm"]}
    assert second.written.warnings[-1] == "server 'crm' keeps its last good definition"
    assert list(third.config.servers) == ["time"]  # another server has taken its name


def test_reload_names_the_retention_times_that_need_a_restart():
    changed = GatewaySettings(keep=Keep(audit=1.0, results=1.0, conversations=1.0))

    assert restart_needed(GatewaySettings(), changed) == ["keep.audit"]


def test_configurations_in_the_documentation_are_valid_and_warn_of_nothing():
    docs = Path(__file__).parents[2] / "docs"
    names = ["reference/policy", *(f"operate/{each}" for each in ("approvals", "credentials"))]
    pages = "".join((docs / f"{each}.md").read_text() for each in (*names, "reference/limits"))
    examples = re.findall(r"```json[^\n]*\n(\{\s*\"mcpServers\".*?)```", pages, re.DOTALL)
    configs = [loads(each.encode()) for each in examples]

    assert [each.warnings for each in configs] == [()] * 5
    policies = [make_parts(each, {}).settings.policy for each in configs]
    assert [each is not None for each in policies] == [True, True, False, False, False]
