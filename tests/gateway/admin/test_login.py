"""Login to the pages over HTTP: who gets a session, and which requests it is good for."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.server.http.conftest import Reply

ORIGIN = "http://127.0.0.1:8000"


async def log_in(gateway: RunningGateway, **body: str) -> Reply:
    return await gateway.http.request(
        "POST", "/api/login", json.dumps(body).encode(), {"origin": ORIGIN}
    )


def session_of(reply: Reply) -> dict[str, str]:
    """Return the headers of a request of the page."""
    cookie = (reply.header("set-cookie") or "").partition(";")[0]
    return {"cookie": cookie, "x-interlock-key": reply.json["pageKey"], "origin": ORIGIN}


def reason_of(reply: Reply) -> Any:
    assert reply.header("content-type") == "application/problem+json", reply.body
    return json.loads(reply.body)["reason"]


@pytest.mark.slow("fills a database")
async def test_key_becomes_a_session_until_logout(running):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key("anna", "mcp:read")
        opened = await log_in(gateway, key=key)
        assert (opened.code, opened.header("cache-control")) == (200, "no-store")
        assert (opened.json["user"], opened.json["scopes"]) == ("user:anna", ["mcp:read"])
        assert key not in opened.body.decode()
        headers = session_of(opened)

        listed = await gateway.http.request("GET", "/me/sessions", headers=headers)
        assert [each["id"] for each in listed.json] == [opened.json["id"]]
        assert opened.json["pageKey"] not in listed.body.decode()
        closed = await gateway.http.request("POST", "/api/logout", headers=headers)
        assert (closed.code, closed.header("set-cookie")) == (
            204,
            "interlock-8000=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
        )
        after = await gateway.http.request("GET", "/me/sessions", headers=headers)
        assert (after.code, reason_of(after)) == (401, "bad_credential")


@pytest.mark.slow("fills a database")
async def test_cookie_behind_a_proxy_is_named_by_the_public_url(running):
    """All gateways behind the proxy must read it, though each has another port."""
    urls = {"http://127.0.0.1:8443/mcp": "interlock-8443", "http://localhost/mcp": "interlock-80"}
    for url, name in urls.items():
        async with running({"publicUrl": url}, crm=offering("x")) as gateway:
            body = json.dumps({"key": await gateway.key()}).encode()
            headers = {"origin": url.removesuffix("/mcp")}
            opened = await gateway.http.request("POST", "/api/login", body, headers)
        assert (opened.header("set-cookie") or "").partition("=")[0] == name


REFUSED = [
    ({"key": "ilk_x"}, (401, "bad_credential")),
    ({"code": "x"}, (401, "bad_credential")),
    ({"code": "x" * 101}, (401, "bad_credential")),
    ({"key": "\u2603"}, (401, "bad_credential")),
    ({}, (400, "bad_request")),
    ({"key": "x", "code": "y"}, (400, "bad_request")),
    ({"user": "anna"}, (400, "bad_request")),
]


async def test_login_without_a_valid_key_or_code_is_refused(running):
    async with running(crm=offering("x")) as gateway:
        for body, expected in REFUSED:
            reply = await log_in(gateway, **body)
            assert (reply.code, reason_of(reply)) == expected, body
            assert reply.header("set-cookie") is None


@pytest.mark.slow("fills a database")
async def test_code_opens_one_session(running):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key("anna", "mcp:read")
        principal = gateway.assembly.services.keys.find(key.encode()).principal
        code = await gateway.endpoint.sessions.issue_code(principal)

        assert (await log_in(gateway, code=code)).code == 200
        assert (await log_in(gateway, code=code)).code == 401


FOREIGN = [
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "http://127.0.0.1:9999"}, 403),  # a page of another program on this machine
    ({"origin": "http://localhost:8000"}, 403),
    ({"origin": "null"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"sec-fetch-site": "none"}, 403),
    ({"host": "evil.example"}, 403),
    ({"content-type": "text/plain"}, 415),
    ({"content-type": "-"}, 415),
]


async def test_request_of_another_site_is_refused_before_the_credential(running):
    async with running(crm=offering("x")) as gateway:
        for change, status in FOREIGN:
            for path in ("/api/login", "/api/logout", "/absent"):
                headers = {"origin": ORIGIN} | change
                reply = await gateway.http.request("POST", path, b'{"key": "x"}', headers)
                is_absent = path == "/absent" and status == 415
                assert reply.code == (404 if is_absent else status), (path, change)
        assert gateway.assembly.services.metrics.refusals == {}


@pytest.mark.slow("fills a database")
async def test_request_of_a_session_that_changes_something_must_state_its_origin(running):
    async with running(crm=offering("x")) as gateway:
        headers = session_of(await log_in(gateway, key=await gateway.key()))
        del headers["origin"]

        assert (await gateway.http.request("GET", "/me/sessions", headers=headers)).code == 200
        for method, path in (("POST", "/api/logout"), ("DELETE", "/me/sessions/x")):
            assert (await gateway.http.request(method, path, headers=headers)).code == 403


@pytest.mark.slow("fills a database")
async def test_page_session_is_refused_at_the_mcp_endpoint(running):
    async with running(crm=offering("x")) as gateway:
        headers = session_of(await log_in(gateway, key=await gateway.key()))

        assert (await gateway.http.ask("tools/list", headers=headers)).code == 401


@pytest.mark.slow("fills a database")
async def test_revoked_key_ends_its_sessions(running):
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key()
        headers = session_of(await log_in(gateway, key=key))
        await gateway.keys.revoke(gateway.assembly.services.keys.find(key.encode()).stored.id)
        await gateway.assembly.services.keys.refresh()

        assert (await gateway.http.request("GET", "/me/sessions", headers=headers)).code == 401


@pytest.mark.slow("fills a database")
async def test_session_of_another_user_answers_like_a_missing_one(running):
    async with running(crm=offering("x")) as gateway:
        foreign = (await log_in(gateway, key=await gateway.key("berta"))).json["id"]
        key = bearer(await gateway.key("anna"))
        answers = set()
        for id in (foreign, "0" * 16):
            reply = await gateway.http.request("DELETE", f"/me/sessions/{id}", headers=key)
            answers.add((reply.code, reply.body))

        ((code, _),) = answers
        assert code == 404


@pytest.mark.slow("fills a database")
async def test_no_secret_of_a_login_is_logged_or_recorded(running, caplog):
    caplog.set_level(logging.DEBUG)
    async with running(crm=offering("x")) as gateway:
        key = await gateway.key()
        opened = await log_in(gateway, key=key)
        headers = session_of(opened)
        await log_in(gateway, key="canary-5f0c2b7a9d3e")
        await gateway.http.request("GET", "/me/sessions", headers=headers | {"cookie": "-"})
        database = Path(gateway.assembly.services.database.location)
    dump = database.read_bytes() + caplog.text.encode()  # noqa: ASYNC240
    cookie = headers["cookie"].partition("=")[2]
    for secret in (key, opened.json["pageKey"], cookie, "canary-5f0c2b7a9d3e"):
        assert secret.encode() not in dump
