"""Logging in with nothing but the gateway's URL, and what every attack on it meets."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest

from interlock.auth import authorization_ring
from interlock.calls import Caller
from interlock.gateway.front_door import door_app
from interlock.gateway.front_door import tokens as tokens_module
from interlock.gateway.front_door.operating import ClientOperations
from interlock.store import AuditReader
from interlock.text.timestamps import now_micros
from tests.gateway.conftest import RESOURCE, bearer
from tests.gateway.front_door.visitor import FORM, ORIGIN, REDIRECT, Visitor
from tests.gateway.notes import Notes, User, allowed, cookie_of, notes

__all__ = ["notes"]  # a fixture

pytestmark = pytest.mark.slow("fills a database")


async def test_a_client_finds_the_login_registers_and_calls(door):
    async with door() as visitor:
        http = visitor.gateway.http
        refused = await http.ask("tools/list")
        assert refused.code == 401
        document = (refused.header("www-authenticate") or "").split('resource_metadata="')[1]
        path = urlsplit(document.partition('"')[0]).path
        resource = (await http.request("GET", path, b"", {})).json
        assert resource["authorization_servers"] == [ORIGIN]
        about = await http.request("GET", "/.well-known/oauth-authorization-server", b"", {})
        assert about.json["issuer"] == ORIGIN
        assert about.json["registration_endpoint"] == f"{ORIGIN}/register"
        assert about.json["code_challenge_methods_supported"] == ["S256"]
        same = await http.request("GET", "/.well-known/oauth-authorization-server/mcp", b"", {})
        assert same.json == about.json
        assert "offline_access" in about.json["scopes_supported"]
        assert "offline_access" not in f"{resource}{refused.header('www-authenticate')}"
        for unknown in ("openid-configuration", "oauth-authorization-server/mcp/other"):
            assert (await http.request("GET", f"/.well-known/{unknown}", b"", {})).code == 404

        answer = await visitor.answer()
        assert (answer["state"], answer["iss"]) == ("state-1", ORIGIN)
        tokens = (await visitor.redeem(answer["code"])).json
        assert (await visitor.call(tokens["access_token"])).text == "done"


async def test_a_person_sees_the_client_and_its_request_and_can_grant_less(door):
    async with door() as visitor:
        shown = (await visitor.shown(visitor.query())).json
        assert shown["client"]["name"] == "Client"
        assert shown["client"]["verified"] is None
        assert shown["client"]["place"] == "client.example.com"
        assert shown["user"] == "user:anna"
        assert (shown["scopes"], shown["before"]) == (["mcp:*"], False)
        assert shown["tools"]["all"] == 2
        tokens = await visitor.log_in(visitor.query(scope="mcp:read openid"))
        assert tokens["scope"] == "mcp:read"
        both = visitor.query(scope="mcp:crm:x mcp:crm:y")
        code = (await visitor.answer(both, scopes=["mcp:crm:x"]))["code"]  # one is unticked
        assert (await visitor.redeem(code)).json["scope"] == "mcp:crm:x"
        assert (await visitor.decide(both, scopes=[])).code == 400
        assert (await visitor.shown(visitor.query())).json["before"] is True


async def test_a_person_who_denies_sends_an_error_to_the_client(door):
    async with door() as visitor:
        answer = await visitor.answer(allow=False)
        assert answer["error"] == "access_denied"
        assert (answer["state"], answer["iss"]) == ("state-1", ORIGIN)


# Requests


REFUSED: list[tuple[dict[str, str | None], str]] = [
    ({"code_challenge": None}, "invalid_request"),
    ({"code_challenge_method": "plain"}, "invalid_request"),
    ({"response_type": "token"}, "unsupported_response_type"),
    ({"response_mode": "fragment"}, "invalid_request"),
    ({"request": "eyJ"}, "request_not_supported"),
    ({"request_uri": "https://a.example/r"}, "request_uri_not_supported"),
    ({"prompt": "none"}, "login_required"),
    ({"resource": "https://other.example/mcp"}, "invalid_target"),
    ({"resource": f"{RESOURCE}/nowhere"}, "invalid_target"),
    ({"resource": "https://[/mcp"}, "invalid_target"),
]


async def test_refused_request_goes_back_to_the_client(door):
    async with door() as visitor:
        for more, error in REFUSED:
            reply = await visitor.authorize(visitor.query(**more))
            assert reply.code == 302, more
            location = reply.header("location") or ""
            assert location.startswith(f"{REDIRECT}?")
            answer = dict(parse_qsl(urlsplit(location).query))
            assert (answer["error"], answer["state"], answer["iss"]) == (error, "state-1", ORIGIN)
            assert (await visitor.decide(visitor.query(**more))).code == 400, more


async def test_repeated_or_long_parameters_are_refused_without_a_redirect(door):
    async with door() as visitor:
        for more in (
            "&state=2",
            f"&client_id={visitor.client}",
            "&redirect_uri=https://evil.example/",
            f"&x={'x' * 8_192}",
            "&state2=%ff",
        ):
            reply = await visitor.authorize(visitor.query() + more)
            assert (reply.code, reply.header("location")) == (400, None), more


async def test_spellings_of_the_resource_are_understood(door):
    spelled = [None, RESOURCE, f"{RESOURCE}/", "HTTP://127.0.0.1:8000/mcp", ORIGIN, f"{ORIGIN}/sse"]
    async with door() as visitor:
        for resource in spelled:
            tokens = await visitor.log_in(visitor.query(resource=resource))
            assert (await visitor.call(tokens["access_token"])).text == "done", resource


TRICKS = [
    "https://client.example.com@evil.example/callback",
    "https://client.example.com.evil.example/callback",
    "https://client.example.com/callback/../evil",
    "https://client.example.com/Callback",
    "https://CLIENT.example.com/callback",
    "https://client.example.com/%63allback",
    "https://client.example.com/callback?next=evil",
    "https://client.example.com/callback#x",
    "https://client.example.com\\@evil.example/callback",
    "https://client.example.com:99999/callback",
    "https://client.example.com:8443/callback",
    "https://client.example.com/callback/",
    "https://client.example.com/callbac",
    "https://client.example.com.",
    "http://client.example.com/callback",
    "//client.example.com/callback",
    "https:client.example.com/callback",
    "https://[::1]/callback",
    "javascript:alert(1)",
    " https://client.example.com/callback",
]


async def test_redirect_uri_that_is_not_registered_gets_nothing(door):
    async with door() as visitor:
        for uri in TRICKS:
            reply = await visitor.authorize(visitor.query(redirect_uri=uri))
            assert (reply.code, reply.header("location")) == (400, None), uri
            assert b"<script" not in reply.body
            assert (await visitor.decide(visitor.query(redirect_uri=uri))).code == 400, uri


async def test_program_on_this_computer_may_take_any_port(door):
    async with door() as visitor:
        visitor.redirect = "http://localhost:53111/callback"
        await visitor.register(redirect_uris=["http://localhost/callback", "http://127.0.0.1/"])
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        for other in ("http://127.0.0.1:53111/callback", "http://localhost:53111/other"):
            assert (await visitor.authorize(visitor.query(redirect_uri=other))).code == 400


HARMFUL = [
    *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x"),
    *("http://client.example.com/callback", "https://*.example.com/callback", "blob:x"),
    *("ftp://a.example/x", "https://a.example/x#y", "x", "", "https://user@a.example/"),
    f"https://a.example/{'x' * 512}",
]


async def test_redirect_uri_that_could_harm_is_not_registered(door):
    async with door() as visitor:
        for uri in HARMFUL:
            reply = await visitor.register(redirect_uris=[uri])
            assert (reply.code, reply.json["error"]) == (400, "invalid_redirect_uri"), uri


async def test_registration_that_is_too_long_or_of_no_use_is_refused(door):
    long = [f"https://{number}.example/{'x' * 400}" for number in range(3)]
    async with door() as visitor:
        for metadata, error in (
            ({"redirect_uris": [f"https://a.example/{n}" for n in range(11)]}, "redirect_uri"),
            ({"redirect_uris": long}, "client_metadata"),
            ({"token_endpoint_auth_method": "private_key_jwt"}, "client_metadata"),
            ({"token_endpoint_auth_method": "tls_client_auth"}, "client_metadata"),
            ({"grant_types": ["client_credentials"]}, "client_metadata"),
            ({"redirect_uris": "https://a.example/"}, "client_metadata"),
        ):
            reply = await visitor.register(**metadata)
            assert (reply.code, reply.json["error"]) == (400, f"invalid_{error}"), metadata
        text = await visitor.post("/register", {}, {"content-type": "text/plain"})
        long_body = await visitor.register(client_name="x" * 70_000)
        for reply, code in ((text, 415), (long_body, 413)):
            assert (reply.code, reply.json["error"]) == (code, "invalid_request")
        assert (await visitor.register(client_id=None, scope=None)).code == 201


async def test_requests_over_the_rate_are_told_when_to_come_back(door, monkeypatch):
    monkeypatch.setattr(door_app, "RATES", dict.fromkeys(door_app.RATES, 1))
    async with door() as visitor:
        await visitor.authorize(visitor.query())
        page = await visitor.authorize(visitor.query())
        assert (page.code, page.header("retry-after")) == (429, "1")
        await visitor.token(grant_type="refresh_token")
        refused = await visitor.token(grant_type="refresh_token")
        assert (refused.code, refused.json["error"]) == (429, "temporarily_unavailable")
        assert refused.header("retry-after") == "1"


async def test_registration_is_its_own_id_and_has_no_null(door):
    """Claude Code refuses a registration with a member that is null."""
    cursor = [
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "http://localhost:8787/callback",
    ]
    async with door() as visitor:
        one = (await visitor.register(client_name="Cursor", redirect_uris=cursor)).json
        two = (await visitor.register(client_name="Cursor", redirect_uris=cursor)).json
        assert one == two
        assert None not in one.values()
        forged = f"{one['client_id'][:-4]}AAAA"
        reply = await visitor.authorize(visitor.query(client_id=forged, redirect_uri=cursor[0]))
        assert reply.code == 400
        unknown = await visitor.token(grant_type="refresh_token", client_id=forged)
        assert (unknown.code, unknown.json["error"]) == (401, "invalid_client")


async def test_client_that_asks_for_a_secret_must_show_it(door):
    async with door() as visitor:
        made = await visitor.register(token_endpoint_auth_method="client_secret_post")
        code = (await visitor.answer())["code"]
        assert (await visitor.redeem(code)).json["error"] == "invalid_client"
        assert (await visitor.redeem(code, client_secret="wrong")).code == 401
        assert (await visitor.redeem(code, client_secret=made.json["client_secret"])).code == 200


# The decision


async def test_only_a_session_of_the_pages_decides(door):
    async with door() as visitor:
        query, session = visitor.query(), visitor.session
        seen = (await visitor.shown(query)).json["seen"]
        body = {"query": query, "seen": seen, "allow": True}
        path = "/api/authorize/decide"
        key = await visitor.gateway.key("anna")
        halves: list[tuple[dict[str, str], tuple[int, ...]]] = [
            ({"cookie": session["cookie"], "origin": ORIGIN}, (401,)),
            ({"x-interlock-key": session["x-interlock-key"], "origin": ORIGIN}, (401,)),
            ({"authorization": f"Bearer {key}"}, (401,)),
            ({**session, "origin": "https://evil.example"}, (403,)),
            ({**session, "sec-fetch-site": "cross-site"}, (403,)),
            ({**session, "content-type": "text/plain"}, (415,)),
            ({}, (401,)),
        ]
        for headers, expected in halves:
            assert (await visitor.post(path, body, headers)).code in expected, headers


async def test_decision_about_something_else_than_what_was_shown_is_refused(door):
    async with door() as visitor:
        query = visitor.query()
        seen = (await visitor.shown(query)).json["seen"]
        other = visitor.query(scope="mcp:read")
        path = "/api/authorize/decide"
        for told in (
            {"query": other, "seen": seen, "allow": True},
            {"query": query, "seen": "0" * 64, "allow": True},
        ):
            reply = await visitor.post(path, told, visitor.session)
            assert reply.code == 409
        another = Visitor(visitor.gateway)
        await another.sign_in(await visitor.gateway.key("bob"))
        told = {"query": query, "seen": seen, "allow": True}
        assert (await another.post(path, told, another.session)).code == 409


# Codes


async def test_code_works_once_and_its_second_use_ends_what_it_led_to(door):
    async with door() as visitor:
        code = (await visitor.answer())["code"]
        tokens = (await visitor.redeem(code)).json
        assert (await visitor.call(tokens["access_token"])).text == "done"
        again = await visitor.redeem(code)
        assert (again.code, again.json["error"]) == (400, "invalid_grant")
        assert (await visitor.call(tokens["access_token"])).code == 401
        assert (await visitor.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_code_belongs_to_its_client_its_redirect_uri_and_its_verifier(door):
    async with door() as visitor:
        code = (await visitor.answer())["code"]
        thief = Visitor(visitor.gateway, "https://thief.example/callback")
        await thief.register()
        refused: list[dict[str, Any]] = [
            (await thief.redeem(code, code_verifier=visitor.verifier, redirect_uri=REDIRECT)).json,
            (await visitor.redeem(code, redirect_uri="https://client.example.com/other")).json,
            (await visitor.redeem(code, code_verifier="w" * 43)).json,
        ]
        assert [each["error"] for each in refused] == ["invalid_grant"] * 3
        assert (await visitor.redeem(code)).code == 200  # nobody else has used it up


# Refresh tokens


async def test_replayed_refresh_token_ends_the_access(door):
    async with door() as visitor:
        first = await visitor.log_in()
        second = (await visitor.refresh(first["refresh_token"])).json
        third = (await visitor.refresh(second["refresh_token"])).json
        assert (await visitor.call(third["access_token"])).text == "done"
        replayed = await visitor.refresh(first["refresh_token"])
        assert replayed.json["error"] == "invalid_grant"
        assert (await visitor.call(third["access_token"])).code == 401
        assert (await visitor.refresh(third["refresh_token"])).code == 400


async def test_lost_answer_and_refreshes_at_once_get_the_same_successor(door):
    async with door() as visitor:
        token = (await visitor.log_in())["refresh_token"]
        replies = await asyncio.gather(*(visitor.refresh(token) for _ in range(10)))
        assert [each.code for each in replies] == [200] * 10
        assert len({each.json["refresh_token"] for each in replies}) == 1


async def test_refresh_token_belongs_to_its_client_and_cannot_be_invented(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        thief = Visitor(visitor.gateway, "https://thief.example/callback")
        await thief.register()
        stolen = await thief.refresh(tokens["refresh_token"])
        assert stolen.json["error"] == "invalid_grant"
        forged = f"{tokens['refresh_token'][:-4]}AAAA"
        assert (await visitor.refresh(forged)).json["error"] == "invalid_grant"
        assert (await visitor.refresh(tokens["refresh_token"])).code == 200


async def test_refresh_narrows_scopes_and_never_widens_them(door):
    async with door() as visitor:
        tokens = await visitor.log_in(visitor.query(scope="mcp:read"))
        wider = await visitor.refresh(tokens["refresh_token"], scope="mcp:* admin:write")
        assert wider.json["scope"] == "mcp:read"
        nothing = await visitor.refresh(wider.json["refresh_token"], scope="mcp:other:*")
        assert nothing.json["error"] == "invalid_scope"


async def test_call_that_needs_a_wider_token_says_which_and_others_stay_unknown(door):
    rule = {"id": "x", "effect": "allow", "who": ["*"], "tools": ["crm:x"]}
    async with door(policy={"rules": [rule]}) as visitor:
        tokens = await visitor.log_in(visitor.query(scope="mcp:read"))
        refused = await visitor.call(tokens["access_token"])
        assert refused.code == 403
        challenge = refused.header("www-authenticate") or ""
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="mcp:read mcp:crm:x"' in challenge
        assert "resource_metadata=" in challenge
        wider = await visitor.log_in(visitor.query(scope="mcp:read mcp:crm:x"))
        assert (await visitor.call(wider["access_token"])).text == "done"
        for name in ("crm__y", "crm__z"):  # no rule allows the first one, the second does not exist
            headers = bearer(tokens["access_token"])
            unknown = await visitor.gateway.http.call(name, {}, headers=headers)
            assert (unknown.code, unknown.json["error"]["code"]) == (200, -32602)


# Tokens


async def test_nothing_else_opens_the_endpoint(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        code = (await visitor.answer())["code"]
        access = tokens["access_token"]
        others = [tokens["refresh_token"], code, f"{access[:-4]}AAAA", f"{access}A", "ilo_", "x"]
        others += [f"{access[:9]}!{access[9:]}", f"{access}="]
        assert [(await visitor.call(each)).code for each in others] == [401] * len(others)


async def test_access_that_left_the_memory_still_ends(door, monkeypatch):
    monkeypatch.setattr(authorization_ring, "MAX_KEPT", 1)
    async with door() as visitor:
        tokens, other = await visitor.log_in(), await visitor.log_in()
        for each in (tokens, other):
            assert (await visitor.call(each["access_token"])).text == "done"
        front = visitor.gateway.assembly.services.front_door
        ended: list[str] = []
        monkeypatch.setattr(front.ring, "_on_end", ended.extend)
        body = f"client_id={visitor.client}&token={tokens['refresh_token']}".encode()
        await visitor.gateway.http.request("POST", "/revoke", body, FORM)
        assert len(ended) == 1
        await front.ring._step(False)
        assert len(ended) == 1
        front.ring._wall = lambda: now_micros() + 31 * 86_400_000_000
        await front.ring._step(False)
        stored = await front.store.list()
        assert set(ended) == {each.id for each in stored}


async def test_streams_end_with_the_key_that_signed_in(door, monkeypatch):
    monkeypatch.setattr(authorization_ring, "MAX_KEPT", 1)
    async with door() as visitor:
        (signed_in,) = await visitor.gateway.keys.list()
        tokens, other = await visitor.log_in(), await visitor.log_in()
        session = await visitor.gateway.http.initialize(headers=bearer(tokens["access_token"]))
        stream = session.listen()
        assert await stream.status() == 200
        assert (await visitor.call(other["access_token"])).text == "done"  # the first one leaves
        await visitor.gateway.keys.revoke(signed_in.id)
        keys = visitor.gateway.assembly.services.keys
        await keys.refresh()
        keys.report_ended()
        await stream.finished()


async def test_token_of_one_resource_opens_no_other(door):
    async with door(views={"one": {}}) as visitor:
        everything = await visitor.log_in()
        one = await visitor.log_in(visitor.query(resource=f"{RESOURCE}/one"))
        assert (await visitor.call(one["access_token"], "/mcp/one")).text == "done"
        for token, path in ((one, "/mcp"), (everything, "/mcp/one")):
            refused = await visitor.call(token["access_token"], path)
            assert refused.code == 401
            assert "resource_metadata" in (refused.header("www-authenticate") or "")
        pages = {"authorization": f"Bearer {everything['access_token']}"}
        assert (await visitor.gateway.http.request("GET", "/me", b"", pages)).code == 401


async def test_access_ends_with_the_key_that_signed_in(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        (stored, *_) = await visitor.gateway.keys.list()
        await visitor.gateway.keys.revoke(stored.id)
        await visitor.gateway.assembly.services.keys.refresh()
        await visitor.gateway.assembly.services.front_door.ring.refresh()
        assert (await visitor.call(tokens["access_token"])).code == 401
        assert (await visitor.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_access_has_the_current_rights_of_the_key_that_signed_in(door):
    async with door() as visitor:
        tokens, services = await visitor.log_in(), visitor.gateway.assembly.services
        await services.front_door.ring.refresh()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        (stored,) = await visitor.gateway.keys.list()
        await visitor.gateway.keys.change(
            stored.id, lambda key: msgspec.structs.replace(key, scopes=("mcp:read",))
        )
        await services.keys.refresh()
        await services.front_door.ring.refresh()
        assert (await visitor.call(tokens["access_token"])).code == 200
        assert "done" not in (await visitor.call(tokens["access_token"])).body.decode()


async def test_a_person_ends_the_access_and_others_cannot(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        request = visitor.gateway.http.request
        (mine,) = (await request("GET", "/me/clients", b"", visitor.session)).json["clients"]
        bob = Visitor(visitor.gateway)
        await bob.sign_in(await visitor.gateway.key("bob"))
        path = f"/me/clients/{mine['id']}"
        assert (await request("DELETE", path, b"", bob.session)).code == 404
        assert (await visitor.call(tokens["access_token"])).text == "done"
        assert (await request("DELETE", path, b"", visitor.session)).code == 204
        assert (await visitor.call(tokens["access_token"])).code == 401


async def test_client_revokes_its_own_tokens_only(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        thief = Visitor(visitor.gateway, "https://thief.example/callback")
        await thief.register()
        for who, token, code in (
            (thief, tokens["refresh_token"], 200),
            (visitor, "unknown", 200),
        ):
            body = f"client_id={who.client}&token={token}".encode()
            reply = await visitor.gateway.http.request("POST", "/revoke", body, FORM)
            assert reply.code == code
            assert (await visitor.call(tokens["access_token"])).text == "done"
        body = f"client_id={visitor.client}&token={tokens['refresh_token']}".encode()
        await visitor.gateway.http.request("POST", "/revoke", body, FORM)
        assert (await visitor.call(tokens["access_token"])).code == 401


MALFORMED: list[tuple[bytes, dict[str, str], int, str]] = [
    (b"", {}, 400, "invalid_request"),
    (b"grant_type=x&grant_type=y", {}, 400, "invalid_request"),
    (b"\xff", {}, 400, "invalid_request"),
    (b"grant_type=password&client_id=x", {}, 400, "unsupported_grant_type"),
    (b"grant_type=refresh_token", {}, 401, "invalid_client"),
    (b"grant_type=refresh_token&client_id=x", {}, 401, "invalid_client"),
    (b"{}", {"content-type": "application/json"}, 400, "invalid_request"),
    (b"grant_type=refresh_token", {"authorization": "Basic %%"}, 401, "invalid_client"),
    (b"grant_type=refresh_token", {"authorization": "Bearer x"}, 401, "invalid_client"),
]


async def test_malformed_token_request_gets_an_error_as_json(door):
    async with door() as visitor:
        for body, headers, code, error in MALFORMED:
            reply = await visitor.gateway.http.request("POST", "/token", body, FORM | headers)
            assert (reply.code, reply.json["error"]) == (code, error), body
            assert reply.header("cache-control") == "no-store"


async def test_least_used_access_ends_when_one_client_has_too_many(door, monkeypatch):
    monkeypatch.setattr(tokens_module, "PER_CLIENT", 2)
    async with door() as visitor:
        tokens = [await visitor.log_in() for _ in range(2)]
        await visitor.refresh(tokens[0]["refresh_token"])  # a use
        tokens.append(await visitor.log_in())
        codes = [(await visitor.call(each["access_token"])).code for each in tokens]
        assert codes == [200, 401, 200]


async def test_refresh_breaks_no_session(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        session = await visitor.gateway.http.initialize(headers=bearer(tokens["access_token"]))
        again = (await visitor.refresh(tokens["refresh_token"])).json
        answer = await session.call("crm__x", headers=bearer(again["access_token"]))
        assert answer.text == "done"


async def test_access_goes_on_for_a_minute_without_the_database(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        ring = visitor.gateway.assembly.services.front_door.ring
        clock = ring._clock
        for seconds, code in ((50, 200), (70, 503)):
            ring._clock = lambda seconds=seconds: clock() + seconds
            assert (await visitor.call(tokens["access_token"])).code == code


async def test_requests_are_counted_by_their_outcome(door):
    async with door() as visitor:
        await visitor.log_in()
        await visitor.token(grant_type="refresh_token", refresh_token="x")
        page = (await visitor.gateway.endpoint.metrics()).body.decode()
    for name, outcome in (("register", "ok"), ("token", "ok"), ("token", "invalid_grant")):
        labels = f'{{endpoint="{name}",outcome="{outcome}"}}'
        assert f"interlock_oauth_requests_total{labels} 1" in page
    assert "interlock_authorizations 0" in page


# Around the login


async def test_blocked_client_gets_no_page_and_no_tokens_while_others_go_on(door):
    async with door() as visitor:
        tokens = await visitor.log_in()
        other = Visitor(visitor.gateway, "https://other.example/callback")
        await other.register()
        other.session = visitor.session
        others = await other.log_in()
        assert (await visitor.operate("block", "client.example.com")).json["ended"] == 1
        assert (await visitor.call(tokens["access_token"])).code == 401
        assert (await visitor.authorize(visitor.query())).code == 400
        assert (await visitor.refresh(tokens["refresh_token"])).code == 401
        assert (await other.call(others["access_token"])).text == "done"
        assert (await other.refresh(others["refresh_token"])).code == 200
        await visitor.operate("allow", visitor.client)
        assert (await visitor.authorize(visitor.query())).code == 200


async def test_created_client_logs_in_with_its_secret_and_outlives_a_block(door):
    async with door() as visitor:
        front = visitor.gateway.assembly.services.front_door
        operations = ClientOperations(front.store, front.clients.store, lambda _: None, "user:boss")
        made = await operations.create("Reports", [visitor.redirect], has_secret=True)
        await front.clients.refresh()
        visitor.client = made.stored.id
        code = (await visitor.answer())["code"]
        assert (await visitor.redeem(code, client_secret="x")).json["error"] == "invalid_client"
        basic = b64encode(f"{made.stored.id}:{made.secret}".encode()).decode()
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": visitor.verifier}
        headers = {**FORM, "authorization": f"Basic {basic}"}
        body = urlencode(form).encode()
        reply = await visitor.gateway.http.request("POST", "/token", body, headers)
        assert reply.code == 200, reply.body
        assert (await visitor.operate("block", visitor.client)).json["ended"] == 1
        assert (await visitor.authorize(visitor.query())).code == 400
        assert (await visitor.call(reply.json["access_token"])).code == 401
        await visitor.operate("allow", visitor.client)
        assert (await visitor.authorize(visitor.query())).code == 200


async def test_key_of_a_view_grants_access_to_its_view_only(door):
    async with door(views={"one": {}}) as visitor:
        bound = Visitor(visitor.gateway)
        await bound.register()
        await bound.sign_in(await visitor.gateway.key("bob", view="one"))
        tokens = await bound.log_in(bound.query(resource=None))
        assert (await bound.call(tokens["access_token"], "/mcp/one")).text == "done"
        assert (await bound.call(tokens["access_token"])).code == 401
        refused = await bound.decide(bound.query())
        assert (refused.code, b'"invalid_target"' in refused.body) == (400, True)


async def test_only_listed_clients_may_ask(door):
    auth = {"oauth": {"clients": ["claude.ai", "cursor:", "localhost"], "registration": True}}
    async with door(auth=auth) as visitor:
        assert (await visitor.authorize(visitor.query())).code == 400
        for uri, code in (
            ("https://claude.ai/api/mcp/auth_callback", 200),
            ("cursor://anysphere.cursor-mcp/oauth/callback", 200),
            ("http://localhost:8787/callback", 200),
            ("https://claude.ai.evil.example/callback", 400),
        ):
            visitor.redirect = uri
            await visitor.register()
            assert (await visitor.authorize(visitor.query())).code == code, uri


async def test_foreign_host_is_in_no_document_and_no_redirect(door):
    async with door() as visitor:
        request = visitor.gateway.http.request
        evil = {"host": "evil.example"}
        for path in ("/.well-known/oauth-authorization-server", "/authorize"):
            reply = await request("GET", path, b"", evil, query=visitor.query())
            assert reply.code == 403
            assert b"evil" not in reply.body
        forwarded = {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
        about = await request("GET", "/.well-known/oauth-authorization-server", b"", forwarded)
        assert b"evil" not in about.body


async def test_pages_of_any_origin_may_use_the_paths_of_clients(door):
    async with door() as visitor:
        request = visitor.gateway.http.request
        page = {"origin": "http://localhost:6274"}
        ask = {**page, "access-control-request-method": "POST"}
        for method, path, headers in (
            ("GET", "/.well-known/oauth-authorization-server", page),
            ("GET", "/.well-known/oauth-protected-resource/mcp", page),
            ("OPTIONS", "/register", ask),
            ("OPTIONS", "/token", ask),
            ("POST", "/token", {**page, **FORM}),
        ):
            reply = await request(method, path, b"", headers)
            assert reply.header("access-control-allow-origin") == page["origin"], path
            assert reply.header("access-control-allow-credentials") is None


async def test_page_cannot_be_framed_and_names_are_text(door):
    async with door() as visitor:
        name = '<img src=x onerror=alert(1)>\u202e" </script>'
        await visitor.register(client_name=name)
        page = await visitor.authorize(visitor.query())
        policy = page.header("content-security-policy") or ""
        assert "frame-ancestors 'none'" in policy
        assert "'unsafe-inline'" not in policy
        assert page.header("referrer-policy") == "no-referrer"
        assert page.header("cache-control") == "no-store"
        assert b"<img" not in page.body
        assert "\u202e".encode() not in page.body


async def test_nothing_secret_is_in_the_database_the_log_or_the_audit_trail(door, caplog, tmp_path):
    async with door() as visitor:
        code = (await visitor.answer())["code"]
        tokens = (await visitor.redeem(code)).json
        again = (await visitor.refresh(tokens["refresh_token"])).json
        await visitor.refresh(tokens["refresh_token"][:-4] + "AAAA")
        await visitor.call(again["access_token"])
        await visitor.gateway.settle()
        secrets = [code, visitor.verifier]
        secrets += [each[name] for each in (tokens, again) for name in each if "_token" in name]
        written = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
        for secret in secrets:
            assert secret.encode() not in written
            assert secret not in caplog.text


async def test_what_people_and_clients_did_is_recorded(door, tmp_path):
    async with door() as visitor:
        await visitor.answer(allow=False)
        tokens = await visitor.log_in()
        await visitor.call(tokens["access_token"])
        for _ in range(2):
            tokens = (await visitor.refresh(tokens["refresh_token"])).json
        first = (await visitor.log_in())["refresh_token"]
        await visitor.refresh((await visitor.refresh(first)).json["refresh_token"])
        await visitor.refresh(first)
        await visitor.gateway.settle()
        async with AuditReader.open(tmp_path / "gateway.db") as reader:
            lines = [line async for batch in reader.export() for line in batch]
    found = [each for each in lines if each["kind"] == "client"]
    actions = [each["action"] for each in found]
    assert actions == ["denied", "allowed", "redeemed", "allowed", "redeemed", "ended"]
    assert found[-1]["why"] == "reused"
    assert all(each["user"] == "user:anna" for each in found)
    assert "invalid_grant" in [each["reason"] for each in lines if each["kind"] == "refused"]


async def test_person_connects_a_server_on_the_way_and_comes_back(running, notes: Notes):
    settings = {"publicUrl": RESOURCE, "auth": {"oauth": {}}}
    async with running(settings, notes=notes.entry()) as gateway:
        visitor = Visitor(gateway)
        await visitor.register()
        await visitor.sign_in(await gateway.key("anna"))
        query = visitor.query()
        (missing,) = (await visitor.shown(query)).json["connect"]
        assert (missing["server"], missing["values"]) == ("notes", False)
        back = f"/authorize?{query}"
        for wanted, to in ((back, back), ("https://evil.example/", "/"), ("//evil.example", "/")):
            path = urlsplit(missing["url"]).path
            begun = await visitor.post(path, {"to": wanted}, visitor.session)
            done = await User(gateway, "").come_back(await allowed(begun), cookie_of(begun))
            assert (done.code, done.header("location")) == (302, to)
        assert (await visitor.shown(query)).json["connect"] == []
        assert (await visitor.answer(query))["code"]


async def test_token_gets_the_same_decisions_as_the_key_of_its_person(door):
    rules = [
        {"id": "a", "effect": "deny", "who": ["group:guests"], "tools": ["crm:y"]},
        {"id": "b", "effect": "ask", "who": ["user:anna"], "tools": ["crm:x"],
         "arguments": {"amount": {"minimum": 100}}, "approvers": ["user:berta"]},
        {"id": "c", "effect": "allow", "who": ["group:staff"], "tools": ["crm:*"]},
    ]  # fmt: skip
    groups = {"staff": ["user:anna"], "guests": ["user:anna"]}
    async with door(policy={"rules": rules}, groups=groups, views={"v": {}}) as visitor:
        gateway = visitor.gateway
        key = gateway.assembly.services.keys.find((await gateway.key("anna")).encode())
        token = (await visitor.log_in())["access_token"]
        access = await gateway.assembly.services.front_door.ring.find(token.encode())
        policy, entries = gateway.assembly.parts.policy, gateway.assembly.server.toolbox.tools
        decided = [
            [
                policy.decide(Caller(each), entry, arguments)
                for entry in entries
                for arguments in (None, {"amount": 1}, {"amount": 100})
            ]
            for each in (key.principal, access.principal)
        ]
    assert [each.effect for each in decided[0]] == [each.effect for each in decided[1]]
    assert {each.effect for each in decided[0]} >= {"allow", "ask", "deny"}
