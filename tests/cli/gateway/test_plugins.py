"""`interlock plugins`: operators install plugins for users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def configured(home: Path) -> None:
    """Configure an API with the plugins "refunds" and "broken"."""
    folder = home / "config" / "interlock"
    for name in ("refunds", "broken"):
        (folder / "plugins" / name).mkdir(parents=True)
    (folder / "plugins" / "broken" / "manifest.json").write_text("{")
    tool = {"name": "refund", "operation_id": "createRefund", "description": "Refund an order."}
    manifest = {"name": "refunds", "version": "1.0", "mcp_tools": [tool]}
    (folder / "plugins" / "refunds" / "manifest.json").write_text(json.dumps(manifest))
    api: dict[str, Any] = {"document": "crm.json", "baseUrl": "https://crm.test", "tools": {}}
    gateway = {
        "database": str(home / "g.db"),
        "plugins": {"folder": "plugins", "server": "crm"},
    }
    config = {"mcpServers": {"crm": {"openapi": api}}, "gateway": gateway}
    (folder / "mcp.json").write_text(json.dumps(config))


@pytest.mark.slow("works through much data")
def test_installed_plugin_is_listed_with_its_user_until_it_is_removed(interlock):
    ran = interlock("plugins", "install", "refunds", "--user", "anna")
    again = interlock("plugins", "install", "refunds", "--user", "user:anna")

    assert (ran.code, ran.err) == (0, "installed refunds for user:anna\n")
    assert again.err == "user:anna has refunds already\n"
    listed = interlock("plugins", "list")
    assert listed.out.splitlines()[1].split() == ["refunds", "1.0", "refund", "user:anna"]
    assert listed.err.startswith("warning: plugin broken: ")
    assert interlock("plugins", "list", "--json").json[1] == {
        "name": "refunds",
        "version": "1.0",
        "tools": ["refund"],
        "users": ["user:anna"],
        "problems": {},
    }

    assert interlock("plugins", "remove", "refunds", "--user", "anna").code == 0
    assert interlock("plugins", "remove", "refunds", "--user", "anna").code == 1
    assert interlock("plugins", "list", "--json").json[1]["users"] == []


def test_unknown_plugin_cannot_be_installed(interlock):
    ran = interlock("plugins", "install", "refund", "--user", "anna")

    assert ran.code == 2
    assert "no plugin 'refund' (did you mean 'refunds'?)" in ran.err


def test_changes_of_installations_are_recorded(interlock):
    interlock("plugins", "install", "refunds", "--user", "anna")
    interlock("plugins", "remove", "refunds", "--user", "anna")

    records = [json.loads(line) for line in interlock("audit", "export").out.splitlines()]
    records.sort(key=lambda each: each["at"])  # each command is a writer of its own
    found = [(each["action"], each["of"]) for each in records if each["kind"] == "admin"]
    assert found == [("plugin_installed", "user:anna"), ("plugin_removed", "user:anna")]
