"""Credentials over the API: stored, named and deleted, but never shown."""

from __future__ import annotations

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering

PER_USER = {
    "url": "http://127.0.0.1:9/mcp",
    "headers": {"X-Token": "${user:TOKEN}"},
    "sharing": "per_user",
}
CANARY = "canary-9c1f77aa2b"
PLACE = "/me/credentials/crm/TOKEN"


@pytest.mark.slow("fills a database")
async def test_user_stores_and_deletes_a_value_that_cannot_be_read_back(running):
    async with running({}, crm=PER_USER) as gateway:
        anna = Operator(gateway, await gateway.key("anna"))
        operator = await Operator.of(gateway)
        (before,) = await anna.get("/me/credentials")
        await anna.change("PUT", PLACE, {"value": CANARY})
        (after,) = await anna.get("/me/credentials")
        shown = await operator.send("GET", "/credentials")
        (stored,) = shown.json

        assert (before["state"], after["state"]) == ("needs_login", "ok")
        assert (stored["user"], stored["server"], stored["name"]) == ("user:anna", "crm", "TOKEN")
        assert CANARY.encode() not in shown.body
        assert await operator.get("/credentials", "user=berta") == []
        await anna.change("DELETE", PLACE)
        gone = (404, "not_found")
        assert await anna.refused("DELETE", PLACE) == gone
        query = "user=anna&server=crm&name=TOKEN"
        assert await operator.refused("DELETE", "/credentials", query=query) == gone


@pytest.mark.slow("fills a database")
async def test_operator_deletes_a_credential_of_a_user(running):
    async with running({}, crm=PER_USER) as gateway:
        anna, operator = Operator(gateway, await gateway.key("anna")), await Operator.of(gateway)
        await anna.change("PUT", PLACE, {"value": CANARY})
        reply = await operator.send(
            "DELETE", "/credentials", query="user=anna&server=crm&name=TOKEN"
        )

        assert reply.code == 204
        states = {each["name"]: each["state"] for each in await anna.get("/me/credentials")}
        assert states["TOKEN"] == "revoked"


@pytest.mark.slow("fills a database")
async def test_value_is_stored_only_where_a_server_of_the_caller_needs_it(running):
    settings = {"views": {"other": {"servers": ["plain"]}}}
    async with running(settings, crm=PER_USER, plain=offering("x")) as gateway:
        anna = Operator(gateway, await gateway.key("anna"))
        bound = Operator(gateway, await gateway.key("berta", view="other"))
        absent = await anna.send("PUT", "/me/credentials/absent/TOKEN", {"value": "v"})
        for who, place in (
            (anna, "/me/credentials/crm/OTHER"),
            (anna, "/me/credentials/plain/TOKEN"),
            (bound, PLACE),
        ):
            reply = await who.send("PUT", place, {"value": "v"})
            assert (reply.code, reply.body) == (404, absent.body), place
        for body in ({}, {"value": ""}, {"value": 1}, {"value": "x" * 20_000}, {"value": "a\0b"}):
            assert await anna.refused("PUT", PLACE, body) == (400, "bad_request"), body
        assert await bound.get("/me/credentials") == []
