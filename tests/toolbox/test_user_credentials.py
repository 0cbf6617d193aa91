"""What a configured server needs of each user."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.config import loads
from interlock.errors import LoginRequired
from interlock.toolbox.user_credentials import Needs, check_values, needs_of

HTTP = {"url": "https://crm.example/mcp"}
API = {
    "openapi": {
        "document": "crm.json",
        "auth": {"Key": {"value": "${user:API_KEY}"}},
    }
}


def needs(**server: Any) -> Needs:
    config = loads(msgspec.json.encode({"mcpServers": {"crm": server}}))
    return needs_of(config.servers["crm"])


def test_a_server_with_a_connection_for_each_user_needs_the_values_that_it_names():
    env = {"TOKEN": "${user:TOKEN}", "URL": "https://${user:HOST}/${REGION}"}

    found = needs(command="crm", env=env, sharing="per_user")

    assert found == Needs(frozenset({"TOKEN", "HOST"}))
    assert bool(found)


def test_a_login_is_needed_where_a_server_asks_for_one_of_each_user():
    assert needs(**HTTP, auth="oauth", sharing="per_user") == Needs(login=True)
    headers = {"X-Key": "${user:KEY}"}
    found = needs(**HTTP, headers=headers, auth="none", sharing="per_user")
    assert found == Needs(frozenset({"KEY"}))


def test_shared_server_needs_no_credential_of_its_users():
    assert not needs(command="crm", env={"TOKEN": "${TOKEN}"})
    assert not needs(**HTTP, auth="oauth")


def test_missing_values_are_named_in_their_order():
    check_values("crm", frozenset({"A"}), {"A": "1", "C": "2"})
    with pytest.raises(LoginRequired, match="server 'crm' needs A, B from the calling user"):
        check_values("crm", frozenset({"B", "A"}), {"C": "1"})
