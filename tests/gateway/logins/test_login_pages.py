"""Login of an organisation's people to the pages of a gateway."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from interlock.gateway.logins import login_attempt
from tests.gateway.conftest import offering
from tests.gateway.person import Person, data_of, issuer
from tests.support.oidc import SECRET, OidcIssuer

__all__ = ["issuer"]
pytestmark = pytest.mark.slow("fills a database")


async def test_groups_in_an_id_token_determine_the_usable_tools(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["support"]
    rule = {"id": "r", "effect": "allow", "who": ["group:support"], "tools": ["crm:x"]}
    settings = {"auth": {"issuers": [issuer.entry()]}, "policy": {"rules": [rule]}}
    async with running(settings, crm=offering("x", "y")) as gateway:
        person = Person(gateway, issuer)
        ways = (await person.get("/api/login")).json
        page = await person.log_in("/c/abc?x=1")
        me = await person.me(page)

    assert ways == {"issuers": [{"issuer": issuer.url, "name": urlsplit(issuer.url).netloc}]}
    assert (page.code, data_of(page)["to"]) == (200, "/c/abc?x=1")
    assert (me["user"], me["role"], me["scopes"]) == (f"{issuer.url}#4711", "user", ["mcp:*"])
    assert me["groups"] == ["support"]
    assert person.cookies["interlock-8000"] not in page.body.decode()


async def test_example_of_the_documentation_signs_people_in(running, issuer: OidcIssuer):
    page = Path(__file__).parents[3] / "docs/operate/logins.md"
    _, _, rest = page.read_text().partition('```json title="login.json"\n')
    text = rest.partition("```")[0].replace("https://id.example.com", issuer.url)
    settings = json.loads(text.replace("${ISSUER_SECRET}", SECRET))["gateway"]
    issuer.claims["groups"] = ["ops"]
    async with running(settings) as gateway:
        person = Person(gateway, issuer, "tools.example.com")
        page_key = data_of(await person.log_in())["key"]

    assert "__Host-interlock" in person.cookies
    assert len(page_key) == 43


async def test_groups_may_come_from_the_userinfo_endpoint(running, issuer: OidcIssuer):
    issuer.user_info = {"sub": "4711", "groups": ["ops"]}
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        me = await person.me(await person.log_in())
        issuer.user_info = {"sub": "another", "groups": ["ops"]}
        other = await Person(gateway, issuer).log_in()

    assert (me["role"], me["scopes"]) == ("auditor", ["admin:read", "mcp:*"])
    assert other.code >= 400


async def test_login_ends_once_and_only_in_the_browser_that_began_it(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person, other = Person(gateway, issuer), Person(gateway, issuer)
        answer = issuer.consented(await person.begin())
        stolen = await other.get("/login/callback", **answer)
        changed = await person.get("/login/callback", **{**answer, "state": "another"})
        kept = dict(person.cookies)
        first = await person.get("/login/callback", **answer)
        person.cookies.update(kept)
        issuer.consented(f"{issuer.url}/authorize?{urlencode(answer)}")  # the code is good again
        again = await person.get("/login/callback", **answer)

    assert [each.code for each in (stolen, changed, first, again)] == [400, 400, 200, 400]
    assert "interlock-8000" not in other.cookies


async def test_failed_login_shows_the_reason_and_the_next_step(running, issuer: OidcIssuer):
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        issuer.claims["groups"] = ["<b>nobody</b>"]
        no_rights = await person.log_in()
        state = issuer.consented(await person.begin())["state"]
        denied = await person.get("/login/callback", state=state, error="access_denied")
        elsewhere = await person.get("/login/begin", issuer="https://other.example")

    assert [each.code for each in (no_rights, denied, elsewhere)] == [403, 403, 404]
    assert b"&lt;b&gt;nobody&lt;/b&gt;" in no_rights.body
    assert b"access_denied" in denied.body
    assert "interlock-8000" not in person.cookies


async def test_issuer_that_is_down_is_named(running, issuer: OidcIssuer):
    issuer.is_down = True
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        page = await Person(gateway, issuer).get("/login/begin", issuer=issuer.url)

    assert page.code == 502
    assert b"answers 503" in page.body


async def test_nothing_secret_of_a_login_is_in_a_page_log_record_or_file(
    running, issuer: OidcIssuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    issuer.claims["groups"], issuer.user_info = ["ops"], {"sub": "4711"}
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        signed_in = Person(gateway, issuer)
        last = await signed_in.log_in()
        sessions = {data_of(last)["key"], signed_in.cookies["interlock-8000"]}
        issuer.repeats = True
        failed = await Person(gateway, issuer).log_in()
        issuer.claims["signed"] = "no.token.at-all"
        forged = await Person(gateway, issuer).log_in()
        await gateway.settle()

    ours = {SECRET, "access", *sessions}
    sent = {each for each in issuer.seen if each not in ("authorization_code", last.header("x"))}
    secrets = {each for each in ours | sent if not each.startswith("http") and each != "access"}
    assert (last.code, failed.code >= 400, forged.code >= 400) == (200, True, True)
    for page in (failed, forged):
        assert not [each for each in secrets if each in page.body.decode()]
    assert not [each for each in secrets if each in caplog.text]
    # Of the files, only the configuration holds the client's secret.
    for file in ("gateway.db", "gateway.db-wal", "gateway.key"):
        content = (tmp_path / file).read_bytes() if (tmp_path / file).exists() else b""
        assert not [each for each in secrets if each.encode() in content], file


async def test_abandoned_logins_do_not_block_others(
    running, issuer: OidcIssuer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_attempt, "MAX_USED", 2)
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        for _ in range(3):
            stranger = Person(gateway, issuer)
            state = issuer.consented(await stranger.begin())["state"]
            await stranger.get("/login/callback", state=state, code="of nobody")
        page = await Person(gateway, issuer).log_in()

    assert page.code == 200


async def test_login_never_leads_to_another_site(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        for to in ("//evil.example", "/\\evil.example", "https://evil.example", "x", "/\tx"):
            assert data_of(await Person(gateway, issuer).log_in(to))["to"] == "/", to


async def test_session_has_the_rights_of_a_new_configuration_and_ends_with_its_issuer(
    running, issuer: OidcIssuer
):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        page = await person.log_in()
        before = await person.me(page)
        narrow = issuer.entry(scopes={"ops": ["mcp:read"]})
        await gateway.reload({"auth": {"issuers": [narrow]}})
        narrowed = await person.me(page)
        await gateway.reload({})
        after = await person.me(page)

    assert "admin:read" in before["scopes"]
    assert narrowed["scopes"] == ["mcp:read"]
    assert before["user"] == f"{issuer.url}#4711"
    assert after["status"] == 401
