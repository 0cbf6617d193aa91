"""Where `${user:NAME}` may stand."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import config
from interlock.config import StdioServer
from interlock.errors import ConfigError
from tests.config.support import gateway
from tests.support.rows import each_row


@each_row("sharing", ["per_user", "per_session", "per_call"])
def test_user_credential_is_accepted_unless_users_share_the_server(sharing: str):
    loaded = gateway(
        a={"command": "a", "env": {"KEY": "${user:KEY}"}, "sharing": sharing},
        b={"url": "https://b.example", "headers": {"X-Key": "${user:KEY}"}, "sharing": sharing},
    )

    assert loaded.servers["a"] == StdioServer(
        command="a", env={"KEY": "${user:KEY}"}, sharing=sharing
    )
    with pytest.raises(ConfigError, match="a credential of the calling user: store yours with"):
        config.resolve(loaded.servers["b"], {})


@each_row(
    ("entry", "problem"),
    [
        ({"env": {"A": "${user:KEY}"}}, "env.A has .*, but all users share this server"),
        ({"args": ["${user:KEY}"], "sharing": "per_user"}, r"args\[0\] has .*, which only env"),
    ],
)
def test_user_credential_is_refused_elsewhere(entry: dict[str, Any], problem: str):
    with pytest.raises(ConfigError, match=problem):
        gateway(crm={"command": "crm"} | entry)
