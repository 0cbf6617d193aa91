"""The pages of a user's login to a server."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.gateway.notes import Notes, User, allowed, cookie_of, notes, users
from tests.server.http.conftest import Reply

__all__ = ["notes", "users"]


def problem(reply: Reply) -> str:
    return str(json.loads(reply.body)["reason"])


@pytest.mark.slow("fills a database")
async def test_link_of_a_user_is_refused_to_others(users: tuple[User, User], notes: Notes):
    anna, bert = users
    url = await anna.url()
    refused, nobody = await bert.open(url), await User(anna.gateway, "none").open(url)

    assert (refused.code, problem(refused)) == (403, "other_user")
    assert nobody.code == 401
    assert notes.authorization.sent("/register") == []


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("id", ["", "x", "A" * 120])
async def test_link_that_was_not_made_here_is_refused(users: tuple[User, User], id: str):
    anna, _ = users
    opened = await anna.open(f"http://127.0.0.1:8000/connect/{id}")
    shown = await anna.gateway.http.request("GET", f"/connect/{id}")

    assert opened.code == 404
    assert (shown.code, b"no longer valid" in shown.body) == (404, True)


@pytest.mark.slow("works through much data")
async def test_login_ends_only_in_the_browser_that_began_it_and_only_once(
    users: tuple[User, User],
):
    anna, _ = users
    opened = await anna.open(await anna.url())
    callback, cookie = await allowed(opened), cookie_of(opened)
    elsewhere = await anna.come_back(callback, "")
    path, _, query = callback.partition("?")
    other_issuer = await anna.come_back(f"{path[:-1]}x?{query}", cookie)
    done = await anna.come_back(callback, cookie)
    again = await anna.come_back(callback, cookie)

    assert [each.code for each in (elsewhere, other_issuer, done, again)] == [400, 400, 200, 400]
    assert b"began in another browser" in elsewhere.body
    assert (await anna.call()).text.startswith("access-1")


@pytest.mark.slow("works through much data")
async def test_login_begun_at_one_gateway_is_completed_at_another(running, notes: Notes):
    async with running(notes=notes.entry()) as one, running(notes=notes.entry()) as other:
        anna = User(one, await one.key("anna"))
        opened = await anna.open(await anna.url())
        callback, cookie = await allowed(opened), cookie_of(opened)
        there = User(other, anna.key)
        done = await there.come_back(callback, cookie)
        again = await anna.come_back(callback, cookie)  # the authorization server refuses the code
        answer = (await there.call()).text
        while (await anna.call()).text != answer:  # the gateway follows the database
            await one.assembly.services.vault.refresh(patience=1.0)

    assert [done.code, again.code] == [200, 400]
    assert (done.header("set-cookie") or "").endswith("Max-Age=0")
    assert answer.startswith("access-1")


@pytest.mark.slow("works through much data")
async def test_cookie_of_a_login_is_sent_to_the_callback_only(users: tuple[User, User]):
    anna, _ = users
    opened = await anna.open(await anna.url())
    _, *attributes = (opened.header("set-cookie") or "").split("; ")

    assert attributes == ["Path=/oauth/callback", "HttpOnly", "SameSite=Lax", "Max-Age=600"]


@pytest.mark.slow("works through much data")
async def test_refusal_of_the_authorization_server_is_shown_as_text(users: tuple[User, User]):
    anna, _ = users
    opened = await anna.open(await anna.url())
    callback = await allowed(opened)
    query = dict(parse_qsl(urlsplit(callback).query))
    bad = {"state": query["state"], "error": "access_denied", "error_description": "<b>no</b>"}
    ended = await anna.come_back(
        f"{callback.partition('?')[0]}?{urlencode(bad)}", cookie_of(opened)
    )

    assert ended.code == 400
    assert b"denied the login" in ended.body
    assert b"<b>no" not in ended.body


@pytest.mark.slow("fills a database")
async def test_page_asks_for_the_key_and_no_other_site_may_frame_it(users: tuple[User, User]):
    anna, _ = users
    page = await anna.gateway.http.request("GET", urlsplit(await anna.url()).path)

    assert (page.code, page.header("content-type")) == (200, "text/html; charset=utf-8")
    assert b'type="password" name="key"' in page.body
    assert "frame-ancestors 'none'" in str(page.header("content-security-policy"))
    assert page.header("referrer-policy") == "no-referrer"


@pytest.mark.slow("fills a database")
async def test_session_of_the_pages_opens_a_link_like_a_key(users: tuple[User, User]):
    anna, bert = users
    url = urlsplit(await anna.url()).path
    codes = []
    for user in (anna, bert):
        http = user.gateway.http
        login = await http.request("POST", "/api/login", json.dumps({"key": user.key}).encode())
        headers = {
            "cookie": cookie_of(login),
            "x-interlock-key": login.json["pageKey"],
            "origin": "http://127.0.0.1:8000",
        }
        codes.append((await http.request("POST", url, b"{}", headers=headers)).code)

    assert codes == [200, 403]
