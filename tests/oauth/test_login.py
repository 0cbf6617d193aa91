"""Logging in with a user: from the first refusal to an accepted token."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from msgspec.structs import replace

from interlock.errors import (
    AuthError,
    ConfigError,
    HttpError,
    InsufficientScope,
    InterlockError,
    LoginExpired,
    LoginRequired,
    StoreError,
)
from interlock.oauth import (
    AuthorizationRequest,
    ClientCredentials,
    ClientIdentity,
    MemoryTokenStore,
    OAuth,
)
from interlock.oauth import callback as callback_module
from interlock.oauth import login as login_module
from interlock.oauth import login_throttle as attempts_module
from interlock.oauth import storage as storage_module
from interlock.oauth.callback import callback_server
from interlock.oauth.logout import logout
from tests.oauth.conftest import REDIRECT, Build, World
from tests.oauth.support import Counting
from tests.servers.authorization_server import (
    OPENID,
    SERVER_METADATA,
    AuthorizationServer,
    Handler,
    always,
    html,
    refused,
)
from tests.support.rows import each_row

# From nothing


async def test_a_first_request_discovers_registers_logs_in_and_succeeds(world: World):
    token = await world.call(world.oauth())

    assert token in world.authorization.access_tokens
    assert world.authorization.paths == [SERVER_METADATA, "/register", "/authorize", "/token"]
    assert world.authorization.sent("/register") == [
        {
            "client_name": "interlock",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
        }
    ]


async def test_login_requests_send_the_resource_exactly_as_in_its_metadata(build: Build):
    world = await build(path="/a/mcp")
    world.server.metadata["resource"] = world.server.origin  # no slash is added

    await world.call(world.oauth())

    assert world.authorization.sent("/authorize")[0]["resource"] == world.server.origin
    assert world.authorization.sent("/token")[0]["resource"] == world.server.origin


async def test_metadata_at_unusual_urls_is_found(build: Build):
    world = await build(issuer_path="/tenant")
    world.server.metadata_path = "/custom/metadata.json"
    world.server.documents = {"/custom/metadata.json": world.server.metadata}
    world.authorization.documents = {f"/tenant{OPENID}": world.authorization.metadata}

    assert await world.call(world.oauth())


async def test_the_next_client_uses_the_stored_token(world: World):
    token = await world.call(world.oauth())

    assert await world.call(world.oauth(ask=None)) == token
    assert len(world.browser.shown) == 1


async def test_the_request_shown_to_the_user_names_host_issuer_and_scopes(world: World):
    world.server.scope = "a b"

    await world.call(world.oauth())

    request = world.browser.shown[0]
    assert request.server_url == world.server.url
    assert request.issuer == world.authorization.issuer
    assert request.scopes == ("a", "b")
    assert f"http://{request.host}" == world.authorization.origin


async def test_without_a_user_a_login_is_required(world: World):
    with pytest.raises(LoginRequired, match=rf"^{world.server.origin} needs a login") as raised:
        await world.call(world.oauth(ask=None))

    assert not isinstance(raised.value, LoginExpired)


@each_row("challenge", ["", "Bearer", 'Basic realm="x"'])
async def test_without_a_user_a_server_without_metadata_may_need_a_key(
    build: Build, challenge: str
):
    world = await build()
    world.server.challenge = challenge

    text = "needs a login, or a key in its configuration: interlock servers login$"
    with pytest.raises(LoginRequired, match=text):
        await world.call(world.oauth(ask=None))


async def test_without_a_user_no_url_that_the_server_names_is_requested(world: World):
    world.server.challenge = f'Bearer resource_metadata="{world.authorization.origin}/probe"'

    with pytest.raises(LoginRequired, match="needs a login"):
        await world.call(world.oauth(ask=None))
    assert world.authorization.paths == []

    world.authorization.answers["/token"] = {"refresh_token": None}
    world.server.challenge = None
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.requests.clear()
    with pytest.raises(LoginExpired):
        await world.call(world.oauth(ask=None))
    assert world.authorization.paths == []


async def test_login_works_before_the_first_refusal(world: World):
    auth = world.oauth()

    await auth.login()

    assert auth.token in world.authorization.access_tokens
    assert world.server.paths == [world.server.metadata_path]


async def test_login_replaces_the_earlier_login(world: World):
    auth = world.oauth()
    before = await world.call(auth)

    await auth.login()

    assert auth.token != before
    assert len(world.browser.shown) == 2


@pytest.mark.slow("works through much data")
async def test_a_server_of_2025_03_26_is_its_own_authorization_server(world: World):
    world.server.documents.clear()
    world.server.challenge = "Bearer"
    world.server.authorization = world.authorization
    for path in ("/register", "/authorize", "/token"):
        world.server.replies[path] = world.authorization._handle  # type: ignore[assignment]

    assert await world.call(world.oauth())
    assert "resource" not in world.authorization.sent("/token")[0]


async def test_a_guessed_endpoint_that_refuses_a_code_is_an_authorization_server(world: World):
    world.server.documents.clear()
    world.server.challenge = "Bearer"
    for path in ("/register", "/authorize"):
        world.server.replies[path] = world.authorization._handle  # type: ignore[assignment]
    world.server.replies["/token"] = always('{"error": "invalid_grant"}', status=400)

    with pytest.raises(AuthError, match=rf"^{world.server.origin} gave no token: invalid_grant$"):
        await world.call(world.oauth())


@each_row(
    ("reply", "cause"),
    [
        (always(status=404), "was refused: it answers 404"),
        (always(status=302, Location="/login"), "/register redirects to http"),
        (html, "/register cannot be used: it is not JSON"),
    ],
    ids=["404", "redirect", "a page for people"],
)
async def test_a_server_without_logins_is_an_error_that_suggests_a_key(
    build: Build, reply: Handler, cause: str
):
    world = await build()
    world.server.documents.clear()
    world.server.challenge = "Bearer"
    for path in (SERVER_METADATA, "/register"):
        world.server.replies[path] = reply

    with pytest.raises(AuthError, match=cause) as raised:
        await world.call(world.oauth())

    text = str(raised.value)
    assert text.startswith(f"{world.server.origin} publishes no way to log in (")
    assert text.endswith("servers add --auth bearer or --header 'Authorization: Bearer …'")
    assert world.browser.shown == []


async def test_error_text_of_a_guessed_endpoint_is_only_in_a_note(world: World):
    world.server.documents.clear()
    world.server.challenge = ""
    world.server.replies["/register"] = always(
        '{"error": "invalid_request", "error_description": "Ask Ada"}', status=400
    )

    with pytest.raises(AuthError, match=r"publishes no way to log in .*invalid_request") as raised:
        await world.call(world.oauth())

    assert raised.value.__notes__ == ["in its own words: Ask Ada"]


@each_row("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_invalid_endpoint_is_refused_before_the_user_must_log_in(build: Build, name: str):
    world = await build()
    world.authorization.metadata[name] = "/here?secret=SECRET"

    text = rf"^the {name} of {world.authorization.origin} .*'/here'"
    with pytest.raises(AuthError, match=text) as raised:
        await world.call(world.oauth())

    assert "SECRET" not in str(raised.value)
    assert world.browser.shown == []


# Who we are


async def test_a_client_metadata_document_replaces_the_registration(world: World):
    world.authorization.metadata["client_id_metadata_document_supported"] = True
    url = "https://me.example/client.json"

    await world.call(world.oauth(client_metadata_url=url))

    assert world.authorization.paths == [SERVER_METADATA, "/authorize", "/token"]
    assert world.authorization.sent("/authorize")[0]["client_id"] == url
    assert world.authorization.sent("/token")[0]["client_id"] == url


async def test_a_client_metadata_url_is_not_sent_where_it_is_not_supported(world: World):
    await world.call(world.oauth(client_metadata_url="https://me.example/client.json"))

    assert world.authorization.sent("/authorize")[0]["client_id"] in world.authorization.clients


@each_row("method", ["client_secret_basic", "client_secret_post", "none"])
async def test_a_registered_client_authenticates_by_the_supported_method(build: Build, method: str):
    world = await build()
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = [method]

    assert await world.call(world.oauth())

    seen = next(seen for seen in world.authorization.requests if seen.path == "/token")
    assert world.authorization.sent("/register")[0]["token_endpoint_auth_method"] == method
    assert ("authorization" in seen.headers) == (method == "client_secret_basic")
    assert ("client_secret" in seen.sent) == (method == "client_secret_post")
    assert ("client_id" in seen.sent) == (method != "client_secret_basic")


async def test_a_registration_requests_a_secret_only_where_it_is_needed(world: World):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = [
        "client_secret_basic",
        "none",
    ]

    await world.call(world.oauth())

    assert world.authorization.sent("/register")[0]["token_endpoint_auth_method"] == "none"


async def test_a_registered_client_is_used_instead_of_registering(world: World):
    world.authorization.clients["me"] = "s3cr3t: /&="
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = None
    client = ClientIdentity(id="me", secret="s3cr3t: /&=", issuer=world.authorization.issuer)

    assert await world.call(world.oauth(client=client))
    assert world.authorization.paths == [SERVER_METADATA, "/authorize", "/token"]


@each_row("ours", [True, False], ids=["ours", "theirs"])
async def test_a_registered_client_accepts_its_issuer_with_a_final_slash(build: Build, ours: bool):
    world = await build()
    world.authorization.clients["me"] = ""
    issuer = world.authorization.issuer
    if not ours:
        world.authorization.metadata["issuer"] = f"{issuer}/"
    client = ClientIdentity(id="me", issuer=f"{issuer}/" if ours else issuer)

    token = await world.call(world.oauth(client=client))

    assert await world.oauth(client=client).valid_token() == token


async def test_a_registered_client_sends_no_secret_where_none_is_supported(world: World):
    world.authorization.clients["me"] = ""
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["none"]

    assert await world.call(world.oauth(client=ClientIdentity(id="me", secret="s3cr3t")))


async def test_a_registered_client_does_not_use_the_token_of_another_client(world: World):
    theirs = await world.call(world.oauth())
    world.authorization.clients["me"] = ""
    auth = world.oauth(client=ClientIdentity(id="me"))

    assert await auth.valid_token() == ""
    assert await world.call(auth) != theirs


async def test_a_registered_client_does_not_use_the_token_of_another_issuer(world: World):
    world.authorization.clients["me"] = ""
    await world.call(world.oauth(client=ClientIdentity(id="me")))
    moved = ClientIdentity(id="me", issuer="https://as.example")

    assert await world.oauth(client=moved).valid_token() == ""


async def test_a_registered_client_is_not_used_at_another_issuer(world: World):
    client = ClientIdentity(id="me", secret="s3cr3t", issuer="https://127.0.0.1:1")

    with pytest.raises(AuthError, match=r"127.0.0.1:1, which is configured as oauth.issuer"):
        await world.call(world.oauth(client=client))

    assert world.authorization.paths == []


@each_row("named", ["https://127.0.0.1:1", "", "{server}"], ids=["another", "none", "an impostor"])
async def test_a_configured_issuer_is_used_whatever_the_server_names(build: Build, named: str):
    """Its metadata comes from itself, so that an impostor gets neither code nor secret."""
    world = await build()
    claims = {**world.authorization.metadata, "token_endpoint": f"{world.server.origin}/token"}
    world.server.documents[SERVER_METADATA] = claims
    issuers = [named.format(server=world.server.origin)] if named else []
    world.server.metadata["authorization_servers"] = issuers
    with pytest.raises(InterlockError, match=r"oauth.issuer|cannot be reached"):
        await world.call(world.oauth())

    assert await world.call(world.oauth(issuer=world.authorization.issuer))
    assert "/token" not in world.server.paths
    assert await world.oauth(ask=None, issuer=world.authorization.issuer).valid_token()
    assert await world.oauth(ask=None, issuer="https://as.example").valid_token() == ""


async def test_a_registered_client_uses_its_own_of_two_issuers(world: World):
    world.authorization.clients["me"] = ""
    world.server.metadata["authorization_servers"].insert(0, "https://as.example")

    client = ClientIdentity(id="me", issuer=world.authorization.issuer)

    assert await world.call(world.oauth(client=client))


async def test_registered_client_without_issuer_is_used_at_its_first_issuer_only(world: World):
    world.authorization.clients["me"] = ""
    client = ClientIdentity(id="me")
    await world.call(world.oauth(client=client))
    other = AuthorizationServer()
    await other.open()
    world.server.authorization = other
    world.server.metadata["authorization_servers"] = [other.issuer]

    with pytest.raises(AuthError, match="'me' is registered at"):
        await world.call(world.oauth(client=client))

    await other.close()
    assert other.paths == [SERVER_METADATA]


async def test_registered_client_keeps_its_first_issuer_after_a_logout(
    world: World,
):
    world.authorization.clients["me"] = "s3cr3t"
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = None
    client = ClientIdentity(id="me", secret="s3cr3t")
    other = AuthorizationServer()
    await other.open()

    world.authorization.callback = {"error": "access_denied", "code": None}
    with pytest.raises(AuthError, match="access_denied"):
        await world.call(world.oauth(client=client))
    world.server.metadata["authorization_servers"] = [other.issuer]
    with pytest.raises(AuthError, match="'me' is registered at"):
        await world.oauth(client=client).login()

    world.server.metadata["authorization_servers"] = [world.authorization.issuer]
    world.authorization.callback = {}
    await world.call(world.oauth(client=client))
    await logout(world.server.url, world.store)
    world.server.metadata["authorization_servers"] = [other.issuer]
    with pytest.raises(AuthError, match=r"if both are right, set oauth.issuer"):
        await world.oauth(client=client).login()

    await other.close()
    assert other.paths == [SERVER_METADATA] * 2


async def test_authorization_server_without_registration_is_an_error_with_the_remedy(world: World):
    del world.authorization.metadata["registration_endpoint"]

    with pytest.raises(AuthError, match=r"does not register clients; .*--client-id") as raised:
        await world.call(world.oauth(redirect_uri_of=lambda _: f"{REDIRECT}/own"))

    told = re.search(r"the redirect URL (\S+) ", str(raised.value))
    world.authorization.clients["me"] = ""
    client = ClientIdentity(id="me")
    await world.call(world.oauth(client=client, redirect_uri_of=lambda _: f"{REDIRECT}/own"))
    assert told is not None
    assert world.authorization.sent("/authorize")[0]["redirect_uri"] == told[1] == REDIRECT


async def test_a_registration_contains_the_client_name(world: World):
    await world.call(world.oauth(client_name="My app"))

    assert world.authorization.sent("/register")[0]["client_name"] == "My app"


async def test_a_registration_for_an_https_redirect_is_a_web_application(world: World):
    await world.call(world.oauth(redirect_uri="https://app.example/callback"))

    assert world.authorization.sent("/register")[0]["application_type"] == "web"


async def test_a_registration_is_used_again(world: World):
    await world.oauth().login()
    await world.oauth().login()

    assert len(world.authorization.sent("/register")) == 1
    assert len(world.browser.shown) == 2


async def test_a_registration_is_used_again_with_the_callback_server(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(callback_module, "PORT", free.getsockname()[1])
    for _ in range(2):
        async with callback_server() as callback:
            await world.oauth(redirect_uri_of=callback.redirect_uri_of).login()

    assert len(world.authorization.sent("/register")) == 1


async def test_registration_without_scopes_is_used_for_any_scopes(world: World):
    await world.oauth().login()
    await world.oauth(scopes=("a",)).login()

    assert len(world.authorization.sent("/register")) == 1


async def test_a_registration_for_another_redirect_is_not_used(world: World):
    await world.oauth().login()
    await world.oauth(redirect_uri="http://127.0.0.1:2/callback").login()

    assert len(world.authorization.sent("/register")) == 2


@each_row(
    ("ends", "registrations"),
    [(1.5e9, 2), ("1500000000", 2), (0, 1), ("0", 1), (-1, 1), ("never", 1), (3600, 1)],
)
async def test_an_expired_registration_is_replaced(build: Build, ends: object, registrations: int):
    world = await build()
    world.authorization.answers["/register"] = {"client_secret_expires_at": ends}
    await world.oauth().login()
    await world.oauth().login()

    assert len(world.authorization.sent("/register")) == registrations


async def test_a_registration_that_the_issuer_rejects_is_replaced(world: World):
    auth = world.oauth()
    await auth.login()
    world.authorization.clients.clear()
    with pytest.raises(AuthError, match="gave no token: invalid_client"):
        await auth.login()

    await auth.login()

    assert len(world.authorization.sent("/register")) == 2


@each_row(
    ("answer", "text"),
    [
        (
            refused("invalid_client_metadata", error_description="no"),
            r"invalid_client_metadata; .*--client-id or as clientId .*\nin its own words: no$",
        ),
        (refused("SECRET"), "an error without a known code; .*--client-id"),
        (refused("access_denied", 403), "access_denied; .*--client-id"),
        (refused("invalid_redirect_uri", 200), "invalid_redirect_uri; .*--client-id"),
        (web.Response(status=405), "it answers 405; .*--client-id"),
        (web.Response(status=501), "it answers 501; .*--client-id"),
    ],
    ids=["known", "unknown", "403", "200", "405", "501"],
)
async def test_a_refused_registration_is_an_error(build: Build, answer: object, text: str):
    world = await build()

    async def reply(request: object) -> object:
        return answer

    world.authorization.replies["/register"] = reply  # type: ignore[assignment]

    with pytest.raises(AuthError, match=r"the registration at .* was refused: .*" + text):
        await world.call(world.oauth())

    assert world.browser.shown == []


@each_row(
    "answer",
    [{"client_id": 7.5}, {"client_id": True}, {"client_id": None}, {"client_id": ""}],
)
async def test_an_invalid_registration_answer_is_an_error(build: Build, answer: dict[str, object]):
    world = await build()
    world.authorization.answers["/register"] = answer

    with pytest.raises(InterlockError, match=r"cannot be used|returned no client_id"):
        await world.call(world.oauth())


@each_row("method", ["tls_client_auth", "private_key_jwt"])
async def test_a_registration_with_an_unsupported_method_is_an_error(build: Build, method: str):
    world = await build()
    world.authorization.answers["/register"] = {"token_endpoint_auth_method": method}

    with pytest.raises(AuthError, match=f"requires '{method}', which is not supported"):
        await world.call(world.oauth())


async def test_a_registration_without_secret_needs_none_whatever_method_it_repeats(world: World):
    world.authorization.answers["/register"] = {"token_endpoint_auth_method": "client_secret_post"}

    await world.call(world.oauth())

    assert "client_secret" not in world.authorization.sent("/token")[0]


async def test_a_registration_with_a_secret_authenticates_by_its_method(world: World):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = None
    world.authorization.answers["/register"] = {
        "client_secret": "s3cr3t",
        "token_endpoint_auth_method": "client_secret_post",
    }

    assert await world.call(world.oauth())
    assert world.authorization.sent("/token")[0]["client_secret"] == "s3cr3t"


async def test_a_registration_with_a_secret_without_method_uses_a_supported_one(
    world: World,
):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    world.authorization.answers["/register"] = {"token_endpoint_auth_method": None}

    assert await world.call(world.oauth())
    assert world.authorization.sent("/token")[0]["client_secret"]


# Scopes


async def test_without_a_challenge_the_supported_scopes_are_requested(world: World):
    world.server.metadata["scopes_supported"] = ["a", "b", "c"]

    await world.call(world.oauth())

    assert world.authorization.sent("/authorize")[0]["scope"] == "a b c"


async def test_configured_scopes_are_requested_instead(world: World):
    world.server.metadata["scopes_supported"] = ["a", "b", "c"]

    await world.call(world.oauth(scopes=("b",)))
    await world.oauth(scopes=("c",)).login()

    assert [sent["scope"] for sent in world.authorization.sent("/authorize")] == ["b", "c"]


async def test_without_any_scopes_the_parameter_is_omitted(world: World):
    await world.call(world.oauth())

    assert "scope" not in world.authorization.sent("/authorize")[0]


async def test_offline_access_is_requested_where_it_is_supported(world: World):
    world.server.scope = "a"
    world.authorization.metadata["scopes_supported"] = ["a", "offline_access"]

    await world.call(world.oauth())

    assert world.authorization.sent("/authorize")[0]["scope"] == "a offline_access"


async def test_a_step_up_also_requests_the_earlier_scopes(world: World):
    world.server.scope = "a"
    world.server.metadata["scopes_supported"] = ["a", "b", "decoy"]
    auth = world.oauth()
    await world.call(auth)
    world.server.needs = ("b",)

    assert await world.call(auth)

    assert [sent["scope"] for sent in world.authorization.sent("/authorize")] == ["a", "a b"]
    assert (
        world.authorization.sent("/register")[-1]["scope"] == "a b"
    )  # the client is limited to these


async def test_a_step_up_after_a_restart_also_requests_the_earlier_scopes(world: World):
    world.server.scope = "a"
    await world.call(world.oauth())
    world.server.needs = ("b",)

    await world.call(world.oauth())

    assert [sent["scope"] for sent in world.authorization.sent("/authorize")] == ["a", "a b"]


async def test_a_401_with_new_scopes_is_a_step_up(world: World):
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    world.server.scope = "a"

    await world.call(auth)

    assert [sent.get("scope") for sent in world.authorization.sent("/authorize")] == [None, "a"]


async def test_scopes_that_are_never_enough_are_requested_once(world: World):
    world.server.scope = "a"
    auth = world.oauth()
    await world.call(auth)
    world.server.needs = ("b",)
    world.authorization.answers["/token"] = {"access_token": "always-the-same"}
    world.authorization.access_tokens["always-the-same"] = "a"

    class Forgetful(dict[str, str]):
        def __setitem__(self, token: str, scope: str) -> None:
            super().__setitem__(token, "a")

    world.authorization.access_tokens = Forgetful(world.authorization.access_tokens)

    for _ in range(3):
        with pytest.raises(InsufficientScope, match=r"needs the scope b; these .*--scope"):
            await world.call(auth)

    assert [sent["scope"] for sent in world.authorization.sent("/authorize")] == ["a", "a b"]


async def test_a_step_up_after_a_refresh_asks_the_user_once(world: World):
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    await world.call(auth)
    world.server.needs = ("b",)

    await world.call(auth)

    assert len(world.browser.shown) == 2


async def test_scopes_that_were_not_granted_are_requested_again(world: World):
    world.server.scope = "a b"
    world.authorization.answers["/token"] = {"scope": "a"}
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    world.authorization.refresh_tokens.clear()
    world.server.scope = ""

    await world.call(auth)

    assert [sent["scope"] for sent in world.authorization.sent("/authorize")] == ["a b", "a b"]


async def test_without_a_user_a_step_up_is_an_error(world: World):
    await world.call(world.oauth())
    world.server.needs = ("b",)

    with pytest.raises(InsufficientScope, match="the key or token needs the scope b"):
        await world.call(world.oauth(ask=None))


async def test_missing_scopes_are_stored_once_if_the_store_works(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.store = store = Counting()
    await world.call(world.oauth())
    auth = world.oauth(ask=None)
    store.writes = 0

    for needed in ("b", "b"):
        world.server.needs = (needed,)
        with pytest.raises(InsufficientScope):
            await world.call(auth)
    assert store.writes == 1

    monkeypatch.setattr(storage_module, "LOCK_SECONDS", 0.0)
    world.server.needs = ("c",)
    async with store.lock(world.server.url):
        with pytest.raises(InsufficientScope):
            await world.call(auth)
    assert store.writes == 1


class Contended(MemoryTokenStore):
    """Sets an event when a task waits for a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = asyncio.Event()

    def _try_lock(self, key: str) -> Callable[[], object] | None:
        release = super()._try_lock(key)
        if release is None:
            self.wanted.set()
        return release


async def test_missing_scopes_are_not_stored_after_a_logout(
    world: World,
):
    world.store = store = Contended()
    await world.call(world.oauth())
    world.server.needs = ("b",)

    async with store.lock(world.server.url):
        calling = asyncio.create_task(world.call(world.oauth(ask=None)))
        await store.wanted.wait()
        await store.delete(world.server.url)
    with pytest.raises(InsufficientScope):
        await calling

    assert await store.load_tokens(world.server.url) is None


async def test_missing_scopes_are_stored_with_the_newest_tokens(
    world: World,
):
    world.store = store = Contended()
    await world.call(world.oauth())
    world.server.needs = ("b",)

    async with store.lock(world.server.url):
        calling = asyncio.create_task(world.call(world.oauth(ask=None)))
        await store.wanted.wait()
        tokens = await world.store.load_tokens(world.server.url)
        assert tokens is not None
        await world.store.save_tokens(world.server.url, replace(tokens, access_token="newer"))
    with pytest.raises(InsufficientScope):
        await calling

    tokens = await world.store.load_tokens(world.server.url)
    assert tokens is not None
    assert (tokens.access_token, tokens.missing_scopes) == ("newer", "b")


async def test_missing_scopes_of_one_issuer_are_not_requested_from_another(world: World):
    await world.call(world.oauth())
    world.server.needs = ("b",)
    with pytest.raises(InsufficientScope):
        await world.call(world.oauth(ask=None))
    other = AuthorizationServer()
    await other.open()
    world.server.metadata["authorization_servers"] = [other.issuer]

    await world.oauth().login()

    await other.close()
    assert "scope" not in other.sent("/authorize")[0]


async def test_login_works_though_the_store_cannot_be_read(world: World):
    class Locked(MemoryTokenStore):
        async def _read(self, key: str) -> bytes | None:
            raise StoreError("the keyring is locked")

    world.authorization.clients["me"] = ""
    client = ClientIdentity(id="me", issuer=world.authorization.issuer)
    auth = world.oauth(client=client, store=Locked())

    await auth.login()

    assert auth.token


async def test_missing_scopes_are_requested_at_the_next_login(world: World):
    world.server.scope = "a"
    await world.call(world.oauth())
    auth = world.oauth(ask=None)
    for needed in ("b", "b", "c"):
        world.server.needs = (needed,)
        with pytest.raises(InsufficientScope):
            await world.call(auth)
    world.authorization.access_tokens.clear()
    world.server.needs = ()
    assert await world.call(auth)  # a refresh keeps them

    await world.oauth().login()
    await world.oauth().login()  # nothing is missing now

    asked = [sent.get("scope") for sent in world.authorization.sent("/authorize")]
    assert asked == ["a", "a b c", None]


@each_row("status", [401, 403])
@each_row("restarted", [False, True])
async def test_scopes_of_one_issuer_are_not_requested_from_another(
    build: Build, restarted: bool, status: int
):
    world = await build()
    world.server.scope = "a"
    auth = world.oauth()
    token = await world.call(auth)
    other = AuthorizationServer()
    await other.open()
    world.server.metadata["authorization_servers"] = [other.issuer]
    challenge = 'Bearer error="insufficient_scope", scope="b"'

    auth = world.oauth() if restarted else auth
    await auth.refresh_after(world.refusal(status, challenge, token))

    await other.close()
    assert other.sent("/authorize")[0]["scope"] == "b"


async def test_scopes_that_another_program_obtained_are_used(world: World):
    auth = world.oauth(ask=None)
    other = world.oauth()
    await world.call(other)
    await world.call(auth)
    world.server.needs = ("b",)
    await world.call(other)

    assert await world.call(auth) == other.token


async def test_the_metadata_url_of_an_earlier_challenge_is_kept(world: World):
    world.server.metadata_path = "/custom"
    world.server.documents = {"/custom": world.server.metadata}
    auth = world.oauth()
    await world.call(auth)
    world.server.needs = ("b",)

    assert await world.call(auth)


async def test_a_403_without_scopes_is_raised(world: World):
    auth = world.oauth()
    await world.call(auth)
    error = world.refusal(403, "Bearer error=insufficient_scope", auth.token)
    world.server.requests.clear()
    world.authorization.requests.clear()

    with pytest.raises(InsufficientScope):
        await auth.refresh_after(error)

    assert len(world.browser.shown) == 1
    assert world.server.paths == world.authorization.paths == []  # no discovery


# Refusals


@each_row("refresh_token", ["kept", None])
async def test_a_server_that_refuses_every_token_causes_one_login(
    build: Build, refresh_token: str | None, monkeypatch: pytest.MonkeyPatch
):
    world = await build()
    world.server.authorization = AuthorizationServer()  # accepts none of the tokens
    world.authorization.answers["/token"] = {"refresh_token": refresh_token}
    auth = world.oauth()

    for _ in range(3):
        text = rf"no login at {world.server.origin}: it refuses the token that .* --scope"
        with pytest.raises(LoginRequired, match=text):
            await world.call(auth)
        if refresh_token is None:  # the same token is refused much later, too
            monkeypatch.setattr(login_module, "FRESH", 0.0)

    assert len(world.browser.shown) == 1


async def test_a_token_that_was_accepted_before_it_is_refused_causes_another_login(world: World):
    world.authorization.answers["/token"] = {"refresh_token": None}
    auth = world.oauth()

    for _ in range(2):
        await world.call(auth)
        world.authorization.access_tokens.clear()
    world.server.scope = "more"

    assert await world.call(auth)
    assert len(world.browser.shown) == 3


async def test_user_who_denied_the_login_is_not_asked_again(world: World):
    world.authorization.callback = {"error": "access_denied", "code": None}
    auth = world.oauth()
    with pytest.raises(AuthError, match="denied the login: access_denied"):
        await world.call(auth)

    with pytest.raises(LoginRequired, match="access_denied; the next try is possible in 5 minutes"):
        await world.call(auth)

    assert len(world.browser.shown) == 1


async def test_user_who_denied_the_login_is_asked_again_after_five_minutes(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.authorization.callback = {"error": "access_denied", "code": None}
    auth = world.oauth()
    with pytest.raises(AuthError):
        await world.call(auth)
    world.authorization.callback = {}
    monkeypatch.setattr(attempts_module, "WINDOW", 0.0)

    assert await world.call(auth)


async def test_login_asks_the_user_again_although_the_user_denied_before(world: World):
    world.authorization.callback = {"error": "access_denied", "code": None}
    auth = world.oauth()
    with pytest.raises(AuthError):
        await world.call(auth)
    world.authorization.callback = {}

    await auth.login()

    assert await world.call(auth)


async def test_the_reason_of_a_failed_login_is_raised_though_the_store_is_locked(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(storage_module, "LOCK_SECONDS", 0.0)

    async with AsyncExitStack() as held:

        async def ask(request: AuthorizationRequest) -> dict[str, str]:
            await held.enter_async_context(world.store.lock(world.server.url))
            raise AuthError("nobody is here")

        with pytest.raises(AuthError, match="nobody is here"):
            await world.oauth(ask=ask).login()


async def test_login_during_a_refresh_still_asks_the_user(world: World):
    auth = world.oauth()
    token = await world.call(auth)
    world.authorization.access_tokens.clear()
    world.authorization.holding.clear()
    renewal = asyncio.create_task(auth.refresh_after(world.refusal(401, "", token)))
    await world.authorization.held.wait()

    login = asyncio.create_task(auth.login())
    await asyncio.sleep(0)  # it waits for the refresh now
    world.authorization.holding.set()
    await asyncio.gather(renewal, login)

    assert len(world.browser.shown) == 2


async def test_an_error_of_ask_is_raised_and_blocks_the_next_login(world: World):
    async def ask(request: AuthorizationRequest) -> dict[str, str]:
        raise RuntimeError("SECRET")

    auth = world.oauth(ask=ask)
    with pytest.raises(RuntimeError):
        await world.call(auth)

    with pytest.raises(LoginRequired, match="RuntimeError; the next try is possible") as raised:
        await world.call(auth)

    assert "SECRET" not in str(raised.value)


@each_row(
    ("member", "value", "text"),
    [
        ("code_challenge_methods_supported", None, "PKCE with S256"),
        ("code_challenge_methods_supported", ["plain"], "PKCE with S256"),
        ("authorization_endpoint", None, "has no authorization endpoint or no token endpoint"),
        ("authorization_endpoint", "javascript:alert(1)", "is not a valid URL for a browser"),
        ("token_endpoint", None, "has no authorization endpoint or no token endpoint"),
    ],
)
async def test_unsafe_authorization_server_is_refused_before_the_user_must_log_in(
    build: Build, member: str, value: object, text: str
):
    world = await build()
    world.authorization.metadata[member] = value

    with pytest.raises(AuthError, match=text):
        await world.call(world.oauth())

    assert world.browser.shown == []


async def test_wrong_resource_or_issuer_is_refused_before_the_user_must_log_in(world: World):
    world.authorization.metadata["issuer"] = "https://evil.example"
    with pytest.raises(AuthError, match="another issuer"):
        await world.call(world.oauth())
    world.server.metadata["resource"] = "https://evil.example/mcp"
    with pytest.raises(AuthError, match="another resource"):
        await world.call(world.oauth())

    assert world.browser.shown == []
    assert "/register" not in world.authorization.paths


# What the browser brings


@each_row("promised", [True, False])
async def test_a_redirect_that_names_its_issuer_is_accepted(build: Build, promised: bool):
    world = await build()
    world.authorization.metadata["authorization_response_iss_parameter_supported"] = promised
    world.authorization.callback["iss"] = world.authorization.issuer

    assert await world.call(world.oauth())


async def test_a_redirect_without_issuer_is_accepted_if_none_is_declared(world: World):
    assert await world.call(world.oauth())


@each_row("promised", [True, False])
@each_row("iss", ["https://evil.example", "{}/", None])
async def test_a_redirect_of_another_issuer_gets_no_token(
    build: Build, promised: bool, iss: str | None
):
    world = await build()
    world.authorization.metadata["authorization_response_iss_parameter_supported"] = promised
    world.authorization.callback["iss"] = iss and iss.format(world.authorization.issuer)

    if iss is None and not promised:
        assert await world.call(world.oauth())
        return
    with pytest.raises(AuthError, match="the answer from the browser"):
        await world.call(world.oauth())

    assert world.authorization.sent("/token") == []


async def test_a_redirect_must_spell_the_issuer_as_in_its_document(world: World):
    world.authorization.metadata["issuer"] += "/"
    world.authorization.callback["iss"] = world.authorization.issuer

    with pytest.raises(AuthError, match=r"comes from .*, not from"):
        await world.call(world.oauth())

    assert world.authorization.sent("/token") == []


async def test_a_redirect_with_another_state_gets_no_token(world: World):
    world.authorization.callback["state"] = "other"

    with pytest.raises(AuthError, match="is not for the login at"):
        await world.call(world.oauth())

    assert world.authorization.sent("/token") == []


async def test_a_code_of_another_issuer_is_not_sent_to_the_first(world: World):
    """Mix-up attack: the user logs in at an honest issuer, and an evil one wants the code."""
    honest = AuthorizationServer()
    await honest.open()
    world.authorization.metadata["authorization_endpoint"] = f"{honest.origin}/authorize"
    honest.callback["iss"] = honest.issuer

    with pytest.raises(AuthError, match=r"comes from .*, not from"):
        await world.call(world.oauth())

    await honest.close()
    assert world.authorization.sent("/token") == []


async def test_each_issuer_has_its_own_redirect_uri(world: World):
    async with callback_server() as callback:
        await world.call(world.oauth(redirect_uri_of=callback.redirect_uri_of))
        ours = callback.redirect_uri_of(world.authorization.issuer)

    assert ours != callback.redirect_uri_of(world.authorization.issuer + "/")
    assert world.authorization.sent("/register")[0]["redirect_uris"] == [ours]
    assert world.authorization.sent("/authorize")[0]["redirect_uri"] == ours
    assert world.authorization.sent("/token")[0]["redirect_uri"] == ours


async def test_a_code_of_an_issuer_that_is_not_named_is_not_sent_to_another(world: World):
    """Mix-up attack without `iss`: the honest issuer knows only its own redirect URI."""
    honest = AuthorizationServer()
    await honest.open()
    world.server.metadata["authorization_servers"] = [honest.issuer]
    async with callback_server() as callback:
        await world.oauth(redirect_uri_of=callback.redirect_uri_of).login()
        known = honest.sent("/register")[0]["redirect_uris"]
        world.server.metadata["authorization_servers"] = [world.authorization.issuer]
        world.authorization.metadata["authorization_endpoint"] = f"{honest.origin}/authorize"

        with pytest.raises(AuthError):
            await world.oauth(redirect_uri_of=callback.redirect_uri_of).login()

    assert honest.sent("/authorize")[1]["redirect_uri"] not in known  # so it returns no code
    await honest.close()


# Tokens


@each_row("type", [None, "bearer", "BEARER", "Bearer "])
async def test_a_token_of_this_type_is_a_bearer_token(build: Build, type: str | None):
    world = await build()
    world.authorization.answers["/token"] = {"token_type": type}

    assert await world.call(world.oauth())


@each_row(("status", "is_accepted"), [(200, True), (201, True), (203, True), (300, False)])
async def test_tokens_are_accepted_with_any_status_of_success(
    build: Build, status: int, is_accepted: bool
):
    """As GitHub answers with a form: https://docs.github.com/apps/oauth-apps"""
    world = await build()
    world.authorization.access_tokens["form"] = ""
    form = "access_token=form&token_type=bearer&scope="
    world.authorization.replies["/token"] = always(
        form, status, "application/x-www-form-urlencoded"
    )

    if is_accepted:
        assert await world.call(world.oauth()) == "form"
    else:
        with pytest.raises(AuthError, match="gave no token: it answers 300"):
            await world.call(world.oauth())


@each_row(
    "answer",
    [
        {"access_token": None},
        {"access_token": 7},
        {"access_token": ""},
        {"access_token": "a b"},
        {"access_token": "a\r\nX-Evil: yes"},
        {"token_type": ""},
        {"token_type": "DPoP"},
        {"token_type": ["Bearer"]},
        {"token_type": 7},
        {"refresh_token": "a b"},
    ],
)
async def test_an_invalid_token_answer_is_an_error(build: Build, answer: dict[str, object]):
    world = await build()
    world.authorization.answers["/token"] = answer
    auth = world.oauth()

    with pytest.raises((AuthError, HttpError)) as raised:
        await world.call(auth)

    assert world.authorization.origin in str(raised.value)
    assert "access-1" not in str(raised.value)
    assert auth.token == ""
    assert await world.store.load_tokens(world.server.url) is None


@each_row(
    ("reply", "text"),
    [
        (html, "it is not JSON"),
        (always("[]"), "cannot be used"),
        (always("{}", status=500), "gave no token: it answers 500"),
        (always('{"error":"temporarily_unavailable"}', status=503), "temporarily_unavailable"),
        (always('{"error":"invalid_grant"}', status=200), "invalid_grant"),
        (always("<h1>no", status=400, content_type="text/html"), "it answers 400"),
        (always(status=302, Location="https://evil.example/"), "redirects to https://evil"),
    ],
    ids=["HTML", "a list", "500", "503", "an error with 200", "400 and HTML", "redirect"],
)
async def test_a_token_endpoint_that_misbehaves_is_an_error(build: Build, reply: object, text: str):
    world = await build()
    world.authorization.replies["/token"] = reply  # type: ignore[assignment]

    with pytest.raises(InterlockError, match=text) as raised:
        await world.call(world.oauth())

    assert world.authorization.origin in str(raised.value)
    assert len(world.authorization.sent("/token")) == 1


async def test_a_server_that_moves_to_another_issuer_causes_a_new_login_there(world: World):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    auth = world.oauth()
    await world.call(auth)
    other = AuthorizationServer()
    await other.open()
    world.server.authorization = other
    world.server.metadata["authorization_servers"] = [other.issuer]

    assert await world.call(auth) in other.access_tokens

    await other.close()
    assert other.paths == [SERVER_METADATA, "/register", "/authorize", "/token"]
    said = repr(other.requests)
    for secret in (*world.authorization.clients, *world.authorization.clients.values()):
        assert secret not in said
    for token in (*world.authorization.refresh_tokens, *world.authorization.access_tokens):
        assert token not in said


# Options


@each_row(
    "options",
    [
        {"redirect_uri": "http://app.example/callback"},
        {"redirect_uri": "app://callback"},
        {"client_metadata_url": "http://me.example/client.json"},
        {"client_metadata_url": "https://me.example/"},
        {"client_metadata_url": "https://me.example"},
    ],
)
async def test_an_invalid_redirect_or_metadata_url_is_an_error(
    build: Build, options: dict[str, str]
):
    world = await build()
    with pytest.raises(ConfigError, match="must be"):
        world.oauth(**options)


async def test_an_invalid_redirect_uri_of_one_issuer_is_an_error(world: World):
    auth = world.oauth(redirect_uri_of=lambda issuer: f"http://app.example/{len(issuer)}")

    with pytest.raises(ConfigError, match="must be http on loopback, or https"):
        await auth.login()

    assert world.browser.shown == []


@each_row(
    "url",
    [
        "http://mcp.example/mcp?key=SECRET",
        "http://localhost.evil.example/",
        "http://10.0.0.1/mcp",
        "http://a.localhost/mcp",
        "ws://mcp.example/mcp",
        "mcp.example",
    ],
)
def test_a_server_without_https_is_an_error(url: str):
    store, client = MemoryTokenStore(), ClientIdentity(id="me", secret="s3cr3t")

    with pytest.raises(ConfigError, match=r"receives no tokens: it must be https$") as raised:
        OAuth(url, redirect_uri=REDIRECT, ask=None, store=store)
    with pytest.raises(ConfigError, match=r"it must be https$"):
        ClientCredentials(url, client=client, store=store)
    assert "SECRET" not in str(raised.value)


@each_row("url", ["https://mcp.example/mcp", "http://[::1]:8/mcp"])
def test_server_url_is_accepted_if_it_is_https_or_on_loopback(url: str):
    OAuth(url, redirect_uri=REDIRECT, ask=None, store=MemoryTokenStore())


def test_an_invalid_client_identity_is_an_error():
    with pytest.raises(ConfigError, match="needs an id"):
        ClientIdentity(id="")
    with pytest.raises(ConfigError, match="has a secret and a private key"):
        ClientIdentity(id="me", secret="a", private_key="b")
    with pytest.raises(ConfigError, match="auth_method 'tls' must be one of client_secret_basic"):
        ClientIdentity(id="me", auth_method="tls")


async def test_two_stores_have_different_logins(world: World):
    await world.call(world.oauth())

    with pytest.raises(LoginRequired):
        await world.call(world.oauth(ask=None, store=MemoryTokenStore()))
