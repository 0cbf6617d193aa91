"""The state of stored logins, without a request."""

from __future__ import annotations

from time import time

import msgspec

from interlock.cli.servers.login_status import login_url, logins
from interlock.config import loads
from interlock.oauth import UserTokenStore
from interlock.oauth.storage import Tokens

URL = "https://{}.example/mcp"


async def test_a_login_is_kept_until_it_cannot_be_renewed():
    tokens = {
        "fresh": Tokens(access_token="a", expires_at=time() + 3_600),
        "renewable": Tokens(access_token="a", refresh_token="r", expires_at=1.0),
        "expired": Tokens(access_token="a", expires_at=1.0),
    }
    for name, each in tokens.items():
        await UserTokenStore().save_tokens(URL.format(name), each)
    servers = {name: {"url": URL.format(name)} for name in (*tokens, "missing")}
    config = loads(msgspec.json.encode({"mcpServers": {**servers, "program": {"command": "x"}}}))

    assert await logins(config.servers) == {
        "fresh": "kept",
        "renewable": "kept",
        "expired": "expired",
        "missing": "none",
    }


def test_a_server_with_other_credentials_or_an_unset_variable_has_no_login():
    headers = {"Authorization": "Bearer x"}
    servers = {
        "own": {"url": URL.format("own"), "headers": headers},
        "unset": {"url": "https://${NOT_SET_7d2f}/mcp"},
    }
    config = loads(msgspec.json.encode({"mcpServers": servers}))

    assert [login_url(each) for each in config.servers.values()] == ["", ""]
