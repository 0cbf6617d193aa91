"""Credentials of users for an API that the gateway offers as tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.auth import Principal
from interlock.config import load
from interlock.config.servers import KeptLogin
from interlock.toolbox import Toolbox
from tests.gateway.conftest import RunningGateway
from tests.gateway.notes import User, allowed, cookie_of, reason
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api
from tests.openapi.test_identity import document
from tests.servers.authorization_server import AuthorizationServer
from tests.support.scripted_server import Json


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        api.answers = [lambda request: http(200, json.dumps(request.headers).encode())]
        yield api


def entry(folder: Path, api: ScriptedApi, place: str, auth: Json, **more: Any) -> Json:
    described = document(place, [{name: [] for name in auth}])
    described["paths"]["/open"] = {"get": {"operationId": "open", "security": []}}
    file = folder / "api.json"
    file.write_text(json.dumps(described))
    tools = {name: {"operation": name} for name in ("list", "open")}
    settings = {"document": str(file), "baseUrl": api.url, "auth": auth, "tools": tools}
    return {"openapi": settings, "sharing": "per_user", **more}


async def store(gateway: RunningGateway, user: str, **values: str) -> None:
    for name, value in values.items():
        by = Principal("user:root")
        await gateway.assembly.services.vault.set(f"/user:{user}", "shop", name, value, by=by)


@pytest.mark.slow("fills a database")
async def test_each_request_has_the_values_of_its_user(running, api, tmp_path: Path):
    auth = {
        "header": "${user:KEY}",
        "basic": {"username": "${user:NAME}", "password": "${user:PW}"},
    }
    shop = entry(tmp_path, api, api.url, auth, headers={"X-Team": "t-${user:TEAM}"})
    async with running(shop=shop) as gateway:
        for user in ("anna", "bert"):
            key = await gateway.key(user)
            before = await gateway.call("shop__list", key)
            assert reason(before)["code"] == "needs_login"
            assert "needs KEY, NAME, PW, TEAM from the calling user" in before.text
            values = {"KEY": f"key-of-{user}", "NAME": user, "PW": "pw", "TEAM": f"team-{user}"}
            await store(gateway, user, **values)
            answer = await gateway.call("shop__list", key)
            sent = api.received[-1].headers

            assert sent["x-key"] == f"key-of-{user}"
            assert sent["x-team"] == f"t-team-{user}"
            assert sent["authorization"].startswith("Basic ")
            assert f"key-of-{user}" not in answer.text
        await store(gateway, "anna", KEY="key-that-is-new")
        await gateway.call("shop__list", await gateway.key("anna"))

    assert api.received[-1].headers["x-key"] == "key-that-is-new"


@pytest.mark.slow("fills a database")
async def test_operation_without_security_needs_no_credential(running, api, tmp_path: Path):
    async with running(shop=entry(tmp_path, api, api.url, {"header": "${user:KEY}"})) as gateway:
        key = await gateway.key("anna")
        names = await gateway.names(key)
        answer = await gateway.call("shop__open", key)

    assert names[:2] == ["shop__list", "shop__open"]
    assert not answer.json["result"].get("isError")


@pytest.mark.slow("fills a database")
async def test_value_with_characters_invalid_in_headers_is_not_sent(running, api, tmp_path: Path):
    async with running(shop=entry(tmp_path, api, api.url, {"header": "${user:KEY}"})) as gateway:
        await store(gateway, "anna", KEY="a\r\nX-Evil: 1")
        answer = await gateway.call("shop__list", await gateway.key("anna"))

    assert "a character that no header can have" in answer.text
    assert api.received == []


@pytest.mark.slow("fills a database")
async def test_users_log_in_at_the_server_of_the_security_scheme(running, api, tmp_path: Path):
    authorization = AuthorizationServer()
    await authorization.open()
    authorization.clients["client-of-the-operator"] = ""
    auth = {"login": {"login": True, "clientId": "client-of-the-operator"}}
    try:
        async with running(shop=entry(tmp_path, api, authorization.origin, auth)) as gateway:
            for number, name in enumerate(("anna", "bert", "local"), 1):
                user = User(gateway, await gateway.key(name))
                refused = reason(await user.call("shop__list"))
                opened = await user.open(refused["url"])
                done = await user.come_back(await allowed(opened), cookie_of(opened))
                await user.call("shop__list")

                assert refused["code"] == "needs_login"
                assert done.code == 200, done.body
                sent = api.received[-1].headers["authorization"]
                assert sent.startswith(f"Bearer access-{number}-")
            beside = load(gateway.file).servers["shop"]  # as commands have it
            kept = KeptLogin(str(tmp_path / "gateway.db"), "shop")
            async with Toolbox({"shop": replace(beside, kept_login=kept)}, environ={}) as toolbox:
                await toolbox.call("shop:list", {})
            assert api.received[-1].headers["authorization"] == sent
    finally:
        await authorization.close()


@pytest.mark.slow("fills a database")
async def test_refused_value_names_the_page_where_it_is_replaced(running, api, tmp_path: Path):
    api.answers = [http(401)]
    async with running(shop=entry(tmp_path, api, api.url, {"header": "${user:KEY}"})) as gateway:
        await store(gateway, "anna", KEY="key-of-anna")
        answer = await gateway.call("shop__list", await gateway.key("anna"))

    assert "connect again at http://127.0.0.1:8000/connect/" in answer.text
