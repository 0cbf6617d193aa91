"""Logins that are bound to a key, with and without nonces."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import jwt
import pytest
from msgspec.structs import replace

from interlock.errors import AuthRequired, MissingExtra
from interlock.oauth import ClientCredentials, ClientIdentity
from interlock.oauth.client_grant import client_key
from interlock.oauth.dpop import DpopKey
from interlock.oauth.storage import Tokens
from tests.oauth.conftest import World
from tests.servers.dpop import ProofChecker

SUPPORTED = "dpop_signing_alg_values_supported"


@pytest.fixture
def world(world: World) -> World:
    world.authorization.dpop = ProofChecker()
    world.authorization.metadata[SUPPORTED] = ["RS256", "ES256"]
    world.server.dpop = ProofChecker()
    return world


async def stored(world: World) -> Tokens:
    tokens = await world.store.load_tokens(world.server.url)
    assert tokens is not None
    return tokens


async def expire(world: World) -> None:
    await world.store.save_tokens(world.server.url, replace(await stored(world), expires_at=1.0))


# The key


def test_a_stored_key_signs_proofs_of_the_same_thumbprint():
    key = DpopKey()
    thumbprint, why = ProofChecker().check(
        DpopKey(key.pem).proof("GET", "https://mcp.example/"), "GET", "https://mcp.example/"
    )

    assert (thumbprint, why) == (key.thumbprint, "")


def test_two_proofs_of_the_same_request_differ():
    key, checker = DpopKey(), ProofChecker()

    for _ in range(2):
        proof = key.proof("POST", "https://mcp.example/mcp", token="t")
        assert checker.check(proof, "POST", "https://mcp.example/mcp", "t")[1] == ""


def test_a_proof_does_not_contain_query_fragment_and_private_key():
    proof = DpopKey().proof("GET", "https://mcp.example/mcp?key=1#top")

    assert jwt.decode(proof, options={"verify_signature": False})["htu"] == (
        "https://mcp.example/mcp"
    )
    assert "d" not in jwt.get_unverified_header(proof)["jwk"]


def test_the_repr_of_a_key_and_of_tokens_does_not_show_it():
    key = DpopKey()

    assert repr(key) == "DpopKey()"
    assert "PRIVATE" not in repr(Tokens(access_token="a", dpop_key=key.pem))


# Logins


async def test_a_login_at_a_dpop_server_is_bound_to_a_key(world: World):
    await world.call(world.oauth())

    asked = world.authorization.sent("/authorize")[0]
    assert asked["dpop_jkt"] == DpopKey((await stored(world)).dpop_key).thumbprint
    assert world.server.dpop is not None
    assert len(world.server.dpop.proofs) == 1


async def test_the_metadata_of_the_protected_server_may_require_dpop(world: World):
    world.server.metadata["dpop_bound_access_tokens_required"] = True
    world.server.challenge = "Bearer"

    assert await world.call(world.oauth())


async def test_a_server_that_accepts_bearer_tokens_only_gets_one(world: World):
    world.server.dpop = world.authorization.dpop = None

    assert await world.call(world.oauth())

    assert (await stored(world)).dpop_key == ""
    assert all("dpop" not in seen.headers for seen in world.authorization.requests)


async def test_authorization_server_without_dpop_issues_bearer_tokens(world: World):
    world.server.challenge = "Bearer, DPoP"
    world.server.dpop = world.authorization.dpop = None
    del world.authorization.metadata[SUPPORTED]

    assert await world.call(world.oauth())


async def test_a_token_that_the_authorization_server_did_not_bind_is_sent_as_bearer(world: World):
    world.server.challenge = "Bearer, DPoP"
    world.server.dpop = world.authorization.dpop = None

    assert await world.call(world.oauth())

    assert (await stored(world)).dpop_key == ""


async def test_each_login_has_its_own_dpop_key(world: World):
    auth = world.oauth()
    await world.call(auth)
    before = (await stored(world)).dpop_key

    await auth.login("DPoP")

    assert (await stored(world)).dpop_key != before


async def test_a_refresh_in_another_program_uses_the_key_of_the_login(world: World):
    await world.call(world.oauth())
    before = (await stored(world)).dpop_key
    await expire(world)

    await world.call(world.oauth(ask=None))

    assert world.authorization.sent("/token")[1]["grant_type"] == "refresh_token"
    assert (await stored(world)).dpop_key == before


async def test_a_login_made_with_a_bearer_token_is_bound_once_the_server_requires_it(world: World):
    world.authorization.dpop, checker = None, world.authorization.dpop
    dpop, world.server.dpop = world.server.dpop, None
    auth = world.oauth()
    await world.call(auth)
    world.authorization.dpop, world.server.dpop = checker, dpop

    assert await world.call(auth)

    assert (await stored(world)).dpop_key


async def test_a_stored_key_that_is_damaged_leads_to_a_new_login(world: World):
    await world.call(world.oauth())
    await world.store.save_tokens(
        world.server.url, replace(await stored(world), dpop_key="-----BEGIN NOTHING-----")
    )

    assert await world.call(world.oauth())

    assert len(world.browser.shown) == 2


async def test_client_credentials_are_bound_to_a_key_before_and_after_they_expire(world: World):
    world.authorization.clients["me"] = "s3cr3t"
    del world.authorization.metadata["token_endpoint_auth_methods_supported"]
    client = ClientIdentity(id="me", secret="s3cr3t")
    auth = ClientCredentials(world.server.url, client=client, store=world.store)
    await world.call(auth)
    place = client_key("me", world.server.url)
    tokens = await world.store.load_tokens(place)
    assert tokens is not None
    await world.store.save_tokens(place, replace(tokens, expires_at=1.0))

    await world.call(ClientCredentials(world.server.url, client=client, store=world.store))

    token_requests = [seen for seen in world.authorization.requests if seen.path == "/token"]
    assert ["dpop" in seen.headers for seen in token_requests] == [True, True]


# Nonces


async def test_the_nonces_of_both_servers_are_put_into_the_next_proofs(world: World):
    assert world.authorization.dpop is not None
    assert world.server.dpop is not None
    world.authorization.dpop.nonce, world.server.dpop.nonce = "as-1", "rs-1"
    auth = world.oauth()

    await world.call(auth)

    nonces = [proof.get("nonce") for proof in world.authorization.dpop.proofs]
    assert nonces == [None, "as-1"]
    assert [proof.get("nonce") for proof in world.server.dpop.proofs] == [None, "rs-1"]
    assert len(world.browser.shown) == 1

    world.server.dpop.nonce = "rs-2"
    await world.call(auth)

    assert [proof.get("nonce") for proof in world.server.dpop.proofs[2:]] == ["rs-1", "rs-2"]
    assert len(world.authorization.sent("/token")) == 2


async def test_a_nonce_in_a_successful_answer_is_used_in_the_next_proof(world: World):
    auth = world.oauth()
    await world.call(auth)

    assert not auth.needs_resend(200, {"DPoP-Nonce": "next"})

    proof = auth.headers("GET", world.server.url)["DPoP"]
    assert jwt.decode(proof, options={"verify_signature": False})["nonce"] == "next"


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"'}),
        (401, {"WWW-Authenticate": 'DPoP error="invalid_token"', "DPoP-Nonce": "n"}),
        (403, {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "n"}),
    ],
    ids=["no nonce", "another error", "another status"],
)
async def test_request_is_not_sent_again_if_the_refusal_is_not_about_the_nonce(
    world: World, status: int, headers: dict[str, str]
):
    auth = world.oauth()
    await world.call(auth)

    assert not auth.needs_resend(status, headers)


async def test_a_bearer_token_is_not_sent_again_for_a_nonce(world: World):
    world.server.dpop = world.authorization.dpop = None
    auth = world.oauth()
    await world.call(auth)

    headers = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": "n"}
    assert not auth.needs_resend(401, headers)


async def test_a_token_endpoint_that_never_accepts_a_nonce_gets_two_requests(world: World):
    class Forgetful(ProofChecker):
        def check(self, *args: Any, **options: Any) -> tuple[str, str]:
            return "", "use_dpop_nonce"

    world.authorization.dpop = Forgetful("as-1")

    with pytest.raises(Exception, match="gave no token: use_dpop_nonce"):
        await world.call(world.oauth())

    assert len(world.authorization.sent("/token")) == 2


# Without the libraries


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "interlock.oauth.dpop", raising=False)


@pytest.mark.usefixtures("no_libraries")
async def test_a_required_key_without_the_extra_is_an_error_that_names_it(world: World):
    with pytest.raises(MissingExtra, match="needs the extra oauth: "):
        await world.oauth().refresh_after(AuthRequired("no", 401, "DPoP"))


@pytest.mark.usefixtures("no_libraries")
async def test_without_the_extra_a_server_that_offers_both_gets_a_bearer_token(world: World):
    world.server.challenge = "Bearer, DPoP"
    world.server.dpop = world.authorization.dpop = None

    assert await world.call(world.oauth())


def test_the_extra_is_named_when_the_module_is_imported(no_libraries: None):
    with pytest.raises(MissingExtra):
        import_module("interlock.oauth.dpop")
