"""People of an organisation: clients log them in at issuers of each shape, by the URL only."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from interlock.auth.known_access import CLIENT_CLAIM
from interlock.calls import Caller
from interlock.config import loads
from interlock.gateway.front_door.metadata import BY_JWT
from interlock.policy import Policy
from interlock.store import AuditReader
from interlock.text.timestamps import now_micros
from tests.docs.page import ROOT, blocks
from tests.gateway.conftest import RESOURCE, offering
from tests.gateway.front_door.document_host import REDIRECT, Host, host
from tests.gateway.front_door.test_machines import JAG, statement
from tests.gateway.front_door.visitor import ORIGIN, Visitor
from tests.gateway.person import Person, data_of
from tests.support.issuer_shapes import SHAPES, ShapedIssuer

__all__ = ["host"]

pytestmark = pytest.mark.slow("fills a database")

# What each client registers and sends, by where it is described: see the docs of the clients, and
# the issues of anthropics/claude-ai-mcp (#82, #96, #228), bytebase/bytebase (#20510), and
# microsoft/vscode (#278512).
Client = tuple[dict[str, Any], str, dict[str, str | None]]
CLAUDE = ["https://claude.ai/api/mcp/auth_callback", "https://claude.com/api/mcp/auth_callback"]
CURSOR = [
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "https://www.cursor.com/agents/mcp/oauth/callback",
    "http://localhost:8787/callback",
]
CLIENTS: dict[str, Client] = {
    "Claude, blank before the scope": (
        {"redirect_uris": CLAUDE, "token_endpoint_auth_method": "client_secret_post"},
        CLAUDE[0],
        {"scope": " offline_access", "prompt": "consent"},
    ),
    "Claude, all scopes": (
        {"redirect_uris": CLAUDE, "token_endpoint_auth_method": "none"},
        CLAUDE[1],
        {"scope": "mcp:* mcp:read offline_access"},
    ),
    "ChatGPT": (
        {"redirect_uris": ["https://chatgpt.com/connector/oauth/abc"]},
        "https://chatgpt.com/connector/oauth/abc",
        {},
    ),
    "Cursor": ({"redirect_uris": CURSOR}, CURSOR[0], {"scope": None}),
    "VS Code": (
        {"redirect_uris": ["http://127.0.0.1/", "http://127.0.0.1:33418/"]},
        "http://127.0.0.1:51234/",
        {"scope": "mcp:*"},
    ),
    "Claude Code": (
        {"redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"]},
        "http://localhost:54545/callback",
        {},
    ),
    "Codex": (
        {"redirect_uris": ["http://127.0.0.1/callback"]},
        "http://127.0.0.1:1455/callback",
        {},
    ),
    "Inspector": (
        {"redirect_uris": ["http://localhost:6274/oauth/callback"]},
        "http://localhost:6274/oauth/callback",
        {"resource": ORIGIN},
    ),
    "mcp-remote": (
        {"redirect_uris": ["http://localhost:9001/oauth/callback"], "client_name": "MCP CLI Proxy"},
        "http://localhost:9001/oauth/callback",
        {"scope": "openid email profile"},
    ),
    "2025-03-26, neither resource nor scope": (
        {"redirect_uris": ["http://127.0.0.1:3000/callback"]},
        "http://127.0.0.1:3000/callback",
        {"resource": None, "scope": None},
    ),
}


@pytest.fixture
def organisation(running: Callable[..., Any]) -> Callable[..., Any]:
    """Run a gateway beside an issuer of a shape; yield a visitor, the person and the issuer."""

    @asynccontextmanager
    async def run(
        shape: str, *, policy: dict[str, Any] | None = None, **entry: Any
    ) -> AsyncIterator[tuple[Visitor, Person, ShapedIssuer]]:
        issuer = ShapedIssuer(SHAPES[shape])
        await issuer.open()
        try:
            auth = {"oauth": {}, "issuers": [issuer.entry(**entry)]}
            settings = {"publicUrl": RESOURCE, "auth": auth}
            if policy is not None:
                settings["policy"] = policy
            async with running(settings, crm=offering("x")) as gateway:
                visitor = Visitor(gateway)
                await visitor.register()
                yield visitor, Person(gateway, issuer), issuer
        finally:
            await issuer.close()

    return run


async def sign_in(visitor: Visitor, person: Person) -> None:
    page = await person.log_in("/authorize")
    assert page.code == 200, page.body
    cookie = f"interlock-8000={person.cookies['interlock-8000']}"
    key = data_of(page)["key"]
    visitor.session = {"cookie": cookie, "x-interlock-key": key, "origin": ORIGIN}


@pytest.mark.parametrize("shape", SHAPES)
async def test_every_client_logs_in_calls_and_refreshes_twice_at_once(
    organisation, host: Host, shape: str
):
    async with organisation(shape) as (visitor, person, _):
        await sign_in(visitor, person)
        for name, (metadata, redirect, asked) in CLIENTS.items():
            visitor.redirect = redirect
            made = (await visitor.register(**metadata)).json
            secret = {"client_secret": made["client_secret"]} if "client_secret" in made else {}
            code = (await visitor.answer(visitor.query(**asked)))["code"]
            tokens = (await visitor.redeem(code, **secret)).json
            assert (await visitor.call(tokens["access_token"])).text == "done", name
            one = await visitor.refresh(tokens["refresh_token"], **secret)
            two = await visitor.refresh(tokens["refresh_token"], **secret)
            assert one.json["refresh_token"] == two.json["refresh_token"], name
            for each in (one, two):
                assert (await visitor.call(each.json["access_token"])).text == "done", name
        await _log_in_by_document(visitor, host)


@pytest.mark.parametrize("shape", SHAPES)
async def test_configuration_on_the_page_of_an_issuer_logs_people_in(organisation, shape: str):
    found = list(blocks((ROOT / f"docs/operate/identity/{shape}.md").read_text()))
    (file,) = (json.loads(each.text) for each in found if each.title == "gateway.json")
    (claims,) = (json.loads(each.text) for each in found if each.language == "text")
    (entry,) = file["gateway"]["auth"]["issuers"]
    own = {name: entry[name] for name in ("groups", "scopes")}
    async with organisation(shape, **own) as (visitor, person, issuer):
        of_token = ("iss", "aud", "sub", "azp", "scope", "scp")
        issuer.claims |= {name: each for name, each in claims.items() if name not in of_token}
        await sign_in(visitor, person)
        assert (await visitor.log_in())["scope"] == "mcp:read"


async def _log_in_by_document(visitor: Visitor, host: Host) -> None:
    """Log in as Claude does, and as ChatGPT does with and without a signature."""
    for name, signs in (("claude", False), ("chatgpt", False), ("signing", True)):
        host.name(name)
        if name != "claude":
            host.signs()
        visitor.client, visitor.redirect = host.id, REDIRECT
        code = (await visitor.answer())["code"]
        tokens = (await visitor.redeem(code, **(host.proof() if signs else {}))).json
        assert (await visitor.call(tokens["access_token"])).text == "done", name
        for _ in range(2):
            proof = host.proof() if signs else {}
            again = await visitor.refresh(tokens["refresh_token"], **proof)
            assert (await visitor.call(again.json["access_token"])).text == "done", name


def later(visitor: Visitor, hours: float) -> None:
    """Let the time since the issuer's last word pass."""
    door = visitor.gateway.assembly.services.front_door
    for each in (door.rechecks, door.ring, door.tokens):
        each._wall = lambda: now_micros() + int(hours * 3_600_000_000)


async def test_person_whom_the_issuer_refuses_loses_all_access(organisation, tmp_path):
    async with organisation("keycloak") as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        unused = (await visitor.answer())["code"]
        later(visitor, 1.1)
        issuer.is_disabled = True
        refused = await visitor.refresh(tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"
        assert (await visitor.call(tokens["access_token"])).code == 401
        assert (await visitor.redeem(unused)).json["error"] == "invalid_grant"
        assert (await visitor.shown(visitor.query())).code == 401
        await visitor.gateway.settle()
        async with AuditReader.open(tmp_path / "gateway.db") as reader:
            lines = [line async for batch in reader.export() for line in batch]
    found = [each for each in lines if each["kind"] == "client"]
    assert found[0]["action"] == "signed_in"
    assert (found[-1]["action"], found[-1]["why"]) == ("ended", "issuer_refused")


async def test_person_whom_the_operator_no_longer_lets_in_loses_all_access(organisation):
    people = {"email": {"pattern": "@example[.]com$"}}
    async with organisation("okta", people=people) as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        later(visitor, 1.1)
        issuer.claims["email"] = "anna@example.org"
        assert (await visitor.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"
        assert (await visitor.call(tokens["access_token"])).code == 401


async def test_token_that_the_issuer_replaces_is_kept_whatever_follows(organisation):
    async with organisation("keycloak") as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        subject = issuer.claims.get("sub")
        for hours, told in ((1.1, "another"), (1.2, subject or "4711")):
            issuer.claims["sub"] = told  # at first an answer that cannot be used
            later(visitor, hours)
            tokens = (await visitor.refresh(tokens["refresh_token"])).json
            assert "access_token" in tokens, tokens
        assert issuer.asked_again == 2


async def test_answer_about_an_earlier_login_changes_nothing_for_a_later_one(organisation):
    async with organisation("keycloak") as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        rechecks = visitor.gateway.assembly.services.front_door.rechecks
        user = f"{issuer.url}#4711"
        before = await rechecks._store.get(user)
        await sign_in(visitor, person)
        issuer.is_disabled = True
        await rechecks._ask(*before)
        assert (await visitor.call(tokens["access_token"])).text == "done"
        now = await rechecks._store.get(user)
        assert now[1] != before[1]


async def test_group_that_is_taken_away_takes_its_rights(organisation):
    scopes = {"support": ["mcp:*"], "guests": ["mcp:read"]}
    async with organisation("keycloak", scopes=scopes) as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        later(visitor, 1.1)
        issuer.claims["groups"] = ["guests"]
        again = await visitor.refresh(tokens["refresh_token"])
        assert issuer.asked_again == 1
        await visitor.gateway.assembly.services.front_door.ring.refresh()
        assert "done" not in (await visitor.call(again.json["access_token"])).body.decode()


async def test_issuer_that_does_not_answer_changes_nothing_for_a_day(organisation):
    async with organisation("okta") as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        issuer.is_down = True
        later(visitor, 2)
        goes_on = await visitor.refresh(tokens["refresh_token"])
        assert goes_on.code == 200
        later(visitor, 23.5)
        goes_on = await visitor.refresh(goes_on.json["refresh_token"])
        assert (await visitor.call(goes_on.json["access_token"])).text == "done"
        later(visitor, 24.1)
        assert (await visitor.call(goes_on.json["access_token"])).code == 503
        late = await visitor.refresh(goes_on.json["refresh_token"])
        assert (late.code, late.json["error"]) == (503, "temporarily_unavailable")
        assert late.header("retry-after")
        again = await visitor.refresh(goes_on.json["refresh_token"])
        assert again.code == 503  # while the issuer need not be asked again
        issuer.is_down = False
        later(visitor, 24.2)
        assert (await visitor.call(goes_on.json["access_token"])).code == 503
        front = visitor.gateway.assembly.services.front_door
        await front.rechecks._ask_about(front.ring.in_use())  # as calls do in the background
        await front.ring.refresh()
        assert (await visitor.call(goes_on.json["access_token"])).text == "done"


async def test_claims_that_decide_remain_of_too_many(organisation, caplog):
    rule = {"id": "x", "effect": "allow", "who": ["*"], "tools": ["crm:x"],
            "claims": {"department": {"const": "sales"}}}  # fmt: skip
    async with organisation("okta", policy={"rules": [rule]}) as (visitor, person, issuer):
        issuer.claims |= {"picture": "x" * 9_000, "department": "sales"}
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        (found,) = visitor.gateway.assembly.services.front_door.ring.in_use()
    assert found.claims.keys() == {"sub", "groups", "department", CLIENT_CLAIM}
    assert "over 8192 bytes of claims" in caplog.text


async def test_only_some_people_of_an_issuer_may_sign_in(organisation):
    people = {"email": {"pattern": "@example[.]org$"}}
    async with organisation("google", people=people) as (_, person, _):
        page = await person.log_in("/authorize")
        assert page.code == 403
        assert b"only for some of its people" in page.body


async def test_person_with_too_many_groups_for_entra_learns_what_to_ask(organisation):
    async with organisation("entra") as (_, person, issuer):
        del issuer.claims["groups"]
        issuer.claims["_claim_names"] = {"groups": "src1"}
        page = await person.log_in("/authorize")
        assert page.code == 403
        assert b"app roles" in page.body


async def test_statement_about_a_person_changes_nothing_for_one_who_signed_in(organisation):
    async with organisation("okta", accepts=["id-jag"]) as (visitor, person, issuer):
        await sign_in(visitor, person)
        tokens = await visitor.log_in()
        told = {"client_id": visitor.client, "sub": "4711", "scope": "mcp:read", "groups": []}
        jag = statement(issuer, JAG, **{**told, "groups": ["support"]})
        narrow = await visitor.token(grant_type=BY_JWT, assertion=jag)
        assert narrow.json["scope"] == "mcp:read", narrow.body
        without = statement(issuer, JAG, **told)
        await visitor.token(grant_type=BY_JWT, assertion=without)
        await visitor.gateway.assembly.services.front_door.ring.refresh()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        later(visitor, 1.1)
        issuer.is_disabled = True
        assert (await visitor.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_tokens_of_one_person_lead_to_the_same_decisions(organisation):
    choose = random.Random(4711)

    def rule(number: int) -> dict[str, Any]:
        made = {
            "id": f"r{number}",
            "effect": choose.choice(["allow", "deny", "ask"]),
            "who": [choose.choice(["*", "group:support", "group:others"])],
            "tools": [choose.choice(["crm:x", "crm:*", "crm:y"])],
        }
        if choose.random() < 0.5:
            email = choose.choice(["anna@example.com", "bob@example.com"])
            made["claims"] = {"email": {"const": email}}
        if choose.random() < 0.3:
            made["arguments"] = {"amount": {"maximum": 5}}
        return made

    async with organisation("okta", audience=RESOURCE) as (visitor, person, issuer):
        await sign_in(visitor, person)
        assembly = visitor.gateway.assembly
        token = (await visitor.log_in())["access_token"].encode()
        jwt = issuer.signed(**issuer.claims | {"aud": RESOURCE}).encode()
        found = (
            await assembly.services.front_door.ring.find(token),
            await assembly.parts.issuers.find(jwt),
        )
        one, other = (Caller(each.principal) for each in found)
        seen = set()
        for _ in range(200):
            rules = [rule(number) for number in range(choose.randrange(1, 5))]
            settings = {"policy": {"rules": rules}}
            file = {"mcpServers": {"crm": {"command": "x"}}, "gateway": settings}
            policy = Policy(loads(json.dumps(file).encode()).gateway.policy, {}, {}, {})
            for entry in assembly.server.toolbox.tools:
                for arguments in (None, {"amount": 1}, {"amount": 9}):
                    decided = policy.decide(one, entry, arguments)
                    assert repr(decided) == repr(policy.decide(other, entry, arguments)), rules
                    seen.add(decided.effect)
        assert seen == {"allow", "ask", "deny"}


async def test_equal_subjects_of_two_issuers_are_two_people(organisation):
    async with organisation("okta") as (visitor, person, issuer):
        issuer.claims["name"] = "Anna \ud83d"  # half of a character
        await sign_in(visitor, person)
        shown = (await visitor.shown(visitor.query())).json
        assert shown["user"] == f"{issuer.url}#4711"
        assert shown["names"] == ["Anna \ufffd", "anna@example.com"]
