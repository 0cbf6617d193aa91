"""Credentials of users: required, looked up and checked for one server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from interlock.config import HttpServer, StdioServer
from interlock.errors import LoginRequired
from interlock.toolbox.user_access import UserAccess
from interlock.toolbox.user_credentials import Needs

PROGRAM = StdioServer(command="crm", env={"KEY": "${user:KEY}"}, sharing="per_user")


class Login:
    token = ""
    refreshed = 0

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: Exception) -> None:
        self.refreshed += 1
        raise LoginRequired("log in")


class Credentials:
    def __init__(self) -> None:
        self.stored: dict[str, Mapping[str, str]] = {"anna": {"KEY": "k"}}
        self.made = Login()

    async def values(self, owner: str, server: str) -> Mapping[str, str]:
        return self.stored.get(owner, {})

    def login(self, owner: str, server: str, config: HttpServer) -> Any:
        return self.made

    is_local = False

    def connect_url(self, owner: str, server: str) -> str:
        return f"https://gateway.example/connect/{server}"

    async def owners(self, server: str) -> list[str]:
        return [*self.stored]


def access(server: Any = PROGRAM) -> tuple[UserAccess, Credentials]:
    credentials: Any = Credentials()
    return UserAccess("crm", server, {}, credentials), credentials


async def test_values_come_from_the_calling_user():
    users, _ = access()

    assert users.is_personal
    assert await users.values("anna") == {"KEY": "k"}
    await users.check("anna")
    for owner in ("bert", ""):
        with pytest.raises(LoginRequired, match="server 'crm' needs KEY"):
            await users.values(owner)
    with pytest.raises(LoginRequired):
        await users.check("bert")


async def test_the_local_user_needs_no_stored_credential():
    users = UserAccess("crm", PROGRAM, {}, None)

    assert users.needs == Needs()
    assert await users.values("anna") is None
    assert (await users.owners(), users.connect_url("anna")) == ([], "")
    await users.check("anna")


async def test_login_is_checked_after_require_login():
    users, credentials = access(HttpServer(url="https://crm.example/mcp", sharing="per_user"))
    await users.check("anna")

    users.require_login()

    assert users.needs.login
    with pytest.raises(LoginRequired):
        await users.check("anna")
    assert credentials.made.refreshed == 1


def test_users_of_a_shared_server_have_no_login_of_their_own():
    users, _ = access(HttpServer(url="https://crm.example/mcp"))
    users.require_login()

    assert users.login("anna") is None
    assert not users.is_personal
