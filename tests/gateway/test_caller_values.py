"""Headers and claims of a gateway's caller, as its servers get them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from interlock.auth import Principal, key_format
from interlock.auth.key_ring import principal_of
from interlock.calls import Caller
from interlock.gateway.explain.explainer import explainer_for
from interlock.gateway.forwarding.refusals import REASON_KEY
from interlock.text.redaction import HiddenValues
from tests.gateway.conftest import RunningGateway, bearer
from tests.server.http.conftest import LegacyClient
from tests.support.echoed_headers import echoing

HEADERS = {"X-User": "${caller.user}", "X-Trace": "v-${header:X-Trace}"}


def server(url: str, **headers: str) -> dict[str, Any]:
    return {"url": url, "auth": "none", "sharing": "per_user", "headers": headers or HEADERS}


def trace(key: str, value: str) -> dict[str, str]:
    return bearer(key) | {"x-trace": value}


@pytest.mark.slow("fills a database")
async def test_server_gets_user_and_named_header_of_each_call(running, caplog):
    caplog.set_level(logging.DEBUG)
    async with echoing() as url, running({"headers": ["X-Trace"]}, web=server(url)) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        listed = await gateway.http.ask("tools/list", headers=trace(anna, "canary-0"))
        assert [each["name"] for each in listed.json["result"]["tools"]][:1] == ["web__who"]
        for key, user, value in ((anna, "anna", "canary-1"), (bert, "bert", "canary-2")):
            reply = await gateway.http.call("web__who", headers=trace(key, value))
            assert reply.text == f"user:{user}||v-{value}"
        client = await gateway.http.initialize(headers=bearer(anna))
        reply = await _legacy_call(client, "canary-3")
        assert reply == "user:anna||v-canary-3"
        twice = await gateway.http.call(
            "web__who", headers=trace(anna, "a"), repeated=[("x-trace", "b")]
        )
        assert (twice.code, twice.json["error"]["message"]) == (400, "header given twice: x-trace")
        await gateway.settle()
        assert gateway.assembly.services.trail is not None
    recorded = (gateway.file.parent / "gateway.db").read_bytes()
    assert b"web:who" in recorded
    assert b"canary" not in recorded
    assert "canary" not in caplog.text


async def _legacy_call(client: LegacyClient, value: str) -> str:
    client.headers["x-trace"] = value
    return (await client.call("web__who")).text


@pytest.mark.slow("fills a database")
async def test_call_without_a_value_is_refused_and_not_sent(running):
    needs_claim = {"X-Tenant": "${caller.claim:tenant}"}
    servers = {"tenants": needs_claim, "traces": HEADERS}
    async with echoing() as url:
        entries = {name: server(url, **headers) for name, headers in servers.items()}
        async with running({"headers": ["X-Trace"]}, **entries) as gateway:
            key = await gateway.key("anna")
            listed = await gateway.http.ask("tools/list", headers=bearer(key))
            missing = {
                each["address"]: (each["reason"], each["detail"].partition(": ")[2])
                for each in listed.json["result"]["_meta"]["interlock/missing"]
            }
            assert missing == {
                "tenants": ("caller_value_missing", "the claim 'tenant' is missing"),
                "traces": ("caller_value_missing", "the header X-Trace is missing"),
            }
            assert await gateway.names(key) == []
            await gateway.http.ask("tools/list", headers=trace(key, "1"))
            assert await gateway.names(key) == ["traces__who"]
            for headers in (bearer(key), trace(key, "")):
                await _is_refused(gateway, headers)


async def _is_refused(gateway: RunningGateway, headers: dict[str, str]) -> None:
    reply = await gateway.http.call("traces__who", headers=headers)
    result = reply.json["result"]
    assert result["isError"]
    assert result["_meta"][REASON_KEY]["code"] == "caller_value_missing"
    assert "the header X-Trace is missing" in result["content"][0]["text"]


@pytest.mark.slow("fills a database")
async def test_explain_names_the_values_sent_to_a_server_and_denies_a_key_without_claims(running):
    servers = {"traces": HEADERS, "tenants": {"X-Tenant": "${caller.claim:tenant}"}}
    async with echoing() as url:
        entries = {name: server(url, **headers) for name, headers in servers.items()}
        async with running({"headers": ["X-Trace"]}, **entries) as gateway:
            secret = await gateway.key("anna")
            stored = await gateway.keys.get(key_format.id_of(secret))
            caller = Caller(principal_of(stored))
            claims = Principal("https://id.example#1", stored.scopes, {"tenant": "canary"})
            listing = Caller(claims, headers=HiddenValues({"x-trace": "canary"}))
            for each in gateway.assembly.server.toolbox.upstreams.values():
                await each.start_for_caller(listing)
            explainer = await explainer_for(caller, gateway.assembly)
            found = {}
            for name in servers:
                explained = await explainer.explain_call(caller, f"{name}:who", {}, key=stored)
                found[name] = explained.effect, explained.checks[-1].detail
                assert "canary" not in str(explained)

    assert found == {
        "traces": ("allow", "the server gets caller.user, header:X-Trace of each call"),
        "tenants": ("deny", "the server needs tenant, and a key has no claims"),
    }
