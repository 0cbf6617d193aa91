"""Log levels and subscriptions are requested again by each connection."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from interlock.errors import CapabilityError, RemoteError
from interlock.toolbox.pool import SHARED
from interlock.toolbox.standing import StandingRequests
from interlock.types import ServerCapabilities
from tests.support.scripted_server import LEGACY, MODERN


class Connection:
    """A connection that records what is requested."""

    def __init__(self, revision: str = LEGACY, *, refuses: str = "", key: Any = SHARED) -> None:
        self.key = key
        self.client = self
        self.revision = revision
        self.capabilities = ServerCapabilities(resources={"subscribe": True}, logging={})
        self.requested: list[str] = []
        self._refuses = refuses

    async def subscribe(self, uri: str) -> None:
        if uri == self._refuses:
            raise RemoteError(-32602, "gone")
        self.requested.append(uri)

    async def set_log_level(self, level: str) -> None:
        self.requested.append(level)


async def test_a_new_connection_gets_level_and_subscriptions():
    standing, first, second = StandingRequests("crm"), Connection(), Connection()
    await standing.follow(first, "a://1")
    await standing.follow(first, "a://2")
    standing.unfollow("a://1")
    await standing.want_log_level("info", [first])

    await standing.restore(second)

    assert second.requested == ["info", "a://2"]


async def test_only_a_lower_level_is_requested_and_only_of_legacy_servers():
    standing, legacy, modern = StandingRequests("crm"), Connection(), Connection(MODERN)
    for level in ("warning", "error", "debug"):
        await standing.want_log_level(level, [legacy, modern])

    assert (legacy.requested, modern.requested) == (["warning", "debug"], [])


async def test_a_subscription_that_is_refused_later_is_logged(caplog: pytest.LogCaptureFixture):
    standing = StandingRequests("crm")
    await standing.follow(Connection(), "a://1")

    with caplog.at_level(logging.WARNING):
        await standing.restore(Connection(refuses="a://1"))

    assert "server 'crm': a://1 is not followed any more: gone" in caplog.text


async def test_a_server_without_subscriptions_is_named():
    connection = Connection()
    connection.capabilities = ServerCapabilities(resources={})

    with pytest.raises(CapabilityError, match="server 'crm' has no subscriptions to resources"):
        await StandingRequests("crm").follow(connection, "a://1")
