"""Keys over the API: as the command makes them, and narrowed but never widened."""

from __future__ import annotations

import json
from itertools import chain

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering

SETTINGS = {"views": {"support": {"servers": ["crm"]}}, "limits": {"perKey": {"rate": "20/s"}}}


@pytest.mark.slow("fills a database")
async def test_key_is_shown_once_and_works_at_once(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change(
            "POST", "/keys", {"user": "anna", "scopes": ["mcp:*"], "expires": "90d", "rate": "5/s"}
        )

        assert (made["user"], made["scopes"], made["state"]) == ("user:anna", ["mcp:*"], "active")
        assert await gateway.names(made["key"]) == ["crm__x"]
        shown = await operator.get(f"/keys/{made['id']}")
        assert shown == {name: each for name, each in made.items() if name != "key"}
        assert shown in await operator.get("/keys")


REFUSED = [
    {},
    {"user": "a b"},
    {"user": "*"},
    {"user": "anna", "scopes": []},
    {"user": "anna", "scopes": ["root"]},
    {"user": "anna", "scopes": "mcp:*"},
    {"user": "anna", "view": "absent"},
    {"user": "anna", "rate": "fast"},
    {"user": "anna", "expires": "soon"},
    {"user": "anna", "key": "ilk_mine"},
    {"user": "a" * 201},
]


@pytest.mark.slow("fills a database")
async def test_key_that_the_command_would_refuse_is_refused(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        for body in REFUSED:
            refused = await operator.refused("POST", "/keys", body)
            assert refused == (400, "bad_request"), body
        assert len(await operator.get("/keys")) == 1


@pytest.mark.slow("fills a database")
async def test_revoked_key_ends_at_once(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change("POST", "/keys", {"user": "anna"})
        revoked = await operator.change("DELETE", f"/keys/{made['id']}")

        assert revoked["state"] == "revoked"
        assert (await gateway.call("crm__x", made["key"])).code == 401
        ended = (409, "key_ended")
        assert await operator.refused("POST", f"/keys/{made['id']}/rotate", {}) == ended
        assert await operator.refused("PATCH", f"/keys/{made['id']}", {"name": "x"}) == ended


@pytest.mark.slow("fills a database")
async def test_rotated_key_and_its_successor_both_work_for_the_overlap(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        old = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
        new = await operator.change("POST", f"/keys/{old['id']}/rotate", {"overlap": "1h"})

        for key in (old["key"], new["key"]):
            assert await gateway.names(key) == ["crm__x"]
        assert (await operator.get(f"/keys/{old['id']}"))["replacedBy"] == new["id"]


CHANGES = [
    ({"scopes": ["mcp:read"]}, True),
    ({"scopes": ["mcp:crm:*", "mcp:crm:get_*"]}, True),
    ({"scopes": ["mcp:*", "admin:read"]}, False),
    ({"scopes": []}, False),
    ({"expires": "1h"}, True),
    ({"expires": "400d"}, False),
    ({"expires": "never"}, False),
    ({"view": "support"}, True),
    ({"rate": "20/s"}, True),
    ({"rate": "21/s"}, False),
    ({"rate": "1200/min"}, False),  # as many a second, but all of a minute at once
    ({"rate": "600/min", "burst": 20}, True),
    ({"burst": 21}, False),
    ({"concurrent": 16}, True),
    ({"concurrent": 17}, False),
    ({"perDay": 10}, True),
    ({"perDay": 0}, None),
    ({"name": "laptop"}, True),
]


@pytest.mark.slow("fills a database")
async def test_rights_of_a_key_can_be_reduced_but_never_extended(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        for change, is_allowed in CHANGES:
            made = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
            place = f"/keys/{made['id']}"
            before = await operator.get(place)
            if is_allowed:
                assert await operator.change("PATCH", place, change) != before, change
            else:
                refused = await operator.refused("PATCH", place, change)
                reason = "bad_request" if is_allowed is None else "not_narrower"
                assert refused == (400, reason), change
                assert await operator.get(place) == before


@pytest.mark.slow("fills a database")
async def test_reduced_key_cannot_get_its_rights_back(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
        place = f"/keys/{made['id']}"
        await operator.change(
            "PATCH", place, {"scopes": ["mcp:crm:get_*"], "view": "support", "rate": "1/s"}
        )

        assert await gateway.names(made["key"], "/mcp/support") == []
        for change in ({"scopes": ["mcp:crm:*"]}, {"view": ""}, {"rate": "2/s"}, {"rate": ""}):
            assert await operator.refused("PATCH", place, change) == (400, "not_narrower"), change


@pytest.mark.slow("fills a database")
async def test_every_key_change_is_recorded_with_actor_action_and_both_states(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        made = await operator.change("POST", "/keys", {"user": "anna", "scopes": ["mcp:*"]})
        place = f"/keys/{made['id']}"
        await operator.change("PATCH", place, {"scopes": ["mcp:read"]})
        new = await operator.change("POST", f"{place}/rotate", {})
        await operator.change("DELETE", place)
        records = await operator.recorded()

    did = [(each["action"], each["id"]) for each in records]
    id = made["id"]
    assert did == [
        ("key_created", id),
        ("key_narrowed", id),
        ("key_rotated", id),
        ("key_revoked", id),
    ]
    assert {each["user"] for each in records} == {"user:op"}
    _, narrowed, rotated, revoked = records
    assert (narrowed["before"]["scopes"], narrowed["after"]["scopes"]) == (["mcp:*"], ["mcp:read"])
    assert (revoked["before"]["state"], revoked["after"]["state"]) == ("active", "revoked")
    assert (rotated["after"]["replacedBy"], rotated["created"]["id"]) == (new["id"], new["id"])
    assert made["key"] not in str(records)


@pytest.mark.slow("fills a database")
async def test_keys_are_listed_in_pages(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        for number in range(4):
            await gateway.key(f"user{number}")
        whole = await operator.get("/keys")
        pages, query = [], "limit=2"
        while query:
            reply = await operator.send("GET", "/keys", query=query)
            pages.append(reply.json)
            link = reply.header("link") or ""
            assert not link or link.endswith('>; rel="next"')
            query = link.partition("?")[2].partition(">")[0]

        assert [len(each) for each in pages] == [2, 2, 1]
        assert [*chain(*pages)] == whole
        assert len(await operator.get("/keys", "user=user1")) == 1
        assert await operator.get("/keys", "state=revoked") == []


MALFORMED = [
    "limit=0", "limit=501", "limit=x", "after=absent", "other=1", "limit=1&limit=2", "user=%ff",
    "user=" + "x" * 9_000,
    "state=ended",
]  # fmt: skip


@pytest.mark.slow("fills a database")
async def test_malformed_query_is_refused(running):
    async with running(SETTINGS, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        for query in MALFORMED:
            refused = await operator.refused("GET", "/keys", query=query)
            assert refused == (400, "bad_request"), query
        reply = await operator.send("GET", "/keys", query="limit=1000")
        assert json.loads(reply.body)["detail"] == "query.limit: Expected `int` <= 500"
        reply = await operator.send("POST", "/keys", {"user": "berta", "scopes": "mcp:read"})
        assert json.loads(reply.body)["detail"].startswith("body.scopes: Expected `array`")
