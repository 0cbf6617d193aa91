"""The client, a protected server, a real authorization server and a user."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace

from interlock import Client
from interlock.errors import AuthError, LoginExpired
from interlock.oauth import (
    AuthorizationRequest,
    ClientCredentials,
    ClientIdentity,
    MemoryTokenStore,
    OAuth,
    TokenStore,
)
from interlock.oauth.callback import callback_server
from tests.support.authorization import CALLBACK, MACHINE, NATIVE_CLIENT, Protected

BROWSER = Path(__file__).parents[1] / "servers" / "browser.py"

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class User:
    """A user who logs in and consents in a browser."""

    def __init__(self, server: Protected) -> None:
        self.asked: list[AuthorizationRequest] = []
        self._server = server

    async def __call__(self, request: AuthorizationRequest) -> dict[str, str]:
        self.asked.append(request)
        return await self._server.browser(request.url)


@pytest.fixture
def user(protected_server: Protected) -> User:
    return User(protected_server)


@pytest.fixture
def store() -> TokenStore:
    return MemoryTokenStore()


@pytest.fixture
def connect(protected_server: Protected, user: User, store: TokenStore) -> Callable[..., Client]:
    """Return a function that makes clients, each like a separate program."""

    def client(revision: str = "auto", **options: Any) -> Client:
        given = {"redirect_uri": CALLBACK, "ask": user, "store": store, **options}
        auth = OAuth(protected_server.url, **given)
        return Client.http(protected_server.url, auth=auth, revision=revision)

    return client


async def who(client: Client) -> str:
    """Return the user and scopes that the server sees."""
    return (await client.call_tool("who")).text


@pytest.mark.parametrize("revision", ["auto", "legacy"])
async def test_a_new_user_logs_in_once_and_calls_tools(
    protected_server: Protected, user: User, connect: Callable[..., Client], revision: str
) -> None:
    async with connect(revision) as client:
        first, second = await who(client), await who(client)

    (request,) = user.asked
    assert first == second == "ada: notes:read"
    assert (request.issuer, request.server_url) == (protected_server.issuer, protected_server.url)
    assert set(request.scopes) == {"notes:read", "offline_access"}
    assert await protected_server.done() == {
        "registrations": 1,
        "authorizations": 1,
        "authorization_code": 1,
    }


async def test_login_is_stored_for_the_next_process(
    protected_server: Protected, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await who(client)
    before = await protected_server.done()
    async with connect(ask=None) as client:
        seen = await who(client)

    assert seen == "ada: notes:read"
    assert await protected_server.done() == before


async def test_a_denied_login_is_an_error_with_its_cause(
    protected_server: Protected, connect: Callable[..., Client]
) -> None:
    protected_server.browser.refuses = True
    with pytest.raises(AuthError, match="denied the login: access_denied"):
        await connect().open()


async def test_an_expired_token_is_refreshed_before_it_is_sent(
    protected_server: Protected, store: TokenStore, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await who(client)
    used = []
    for _ in range(3):
        used.append(await expire(store, protected_server))
        async with connect(ask=None) as client:
            assert await who(client) == "ada: notes:read"

    assert len(set(used)) == 3  # each was accepted until it was signed out
    done = await protected_server.done()
    assert done["refresh_token"] == 3
    assert "invalid_grant" not in done


async def expire(store: TokenStore, server: Protected) -> str:
    """Make the stored access token expired; return its refresh token."""
    tokens = await store.load_tokens(server.url)
    assert tokens is not None
    async with store.lock(server.url):
        await store.save_tokens(server.url, replace(tokens, expires_at=1.0))
    return tokens.refresh_token


async def test_a_refused_token_is_refreshed_and_the_request_repeated(
    protected_server: Protected, user: User, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await client.call_tool("sign_out")
        seen = await who(client)

    assert seen == "ada: notes:read"
    assert len(user.asked) == 1
    assert (await protected_server.done())["refresh_token"] == 1


async def test_a_token_that_expires_on_arrival_is_refreshed(
    protected_server: Protected, user: User, connect: Callable[..., Client]
) -> None:
    async def agree(request: AuthorizationRequest) -> dict[str, str]:
        await protected_server.wish(expired=1)
        return await user(request)

    async with connect(ask=agree) as client:
        assert await who(client) == "ada: notes:read"

    assert (await protected_server.done())["refresh_token"] == 1


async def test_many_calls_with_a_refused_token_share_one_refresh(
    protected_server: Protected, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await client.call_tool("sign_out")
        seen = await asyncio.gather(*(who(client) for _ in range(20)))

    assert set(seen) == {"ada: notes:read"}
    assert (await protected_server.done())["refresh_token"] == 1


async def test_a_revoked_login_is_repeated(
    protected_server: Protected, user: User, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await client.call_tool("sign_out")
        await protected_server.wish(revoke=True)
        seen = await who(client)

    done = await protected_server.done()
    assert seen == "ada: notes:read"
    assert len(user.asked) == 2
    assert (done["registrations"], done["invalid_grant"]) == (1, 1)


async def test_a_revoked_login_without_a_user_is_an_error(
    protected_server: Protected, store: TokenStore, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        await who(client)
    await expire(store, protected_server)
    await protected_server.wish(revoke=True)

    with pytest.raises(LoginExpired, match="has expired"):
        await connect(ask=None).open()


async def test_a_tool_that_requires_more_scopes_causes_one_more_login(
    protected_server: Protected, user: User, connect: Callable[..., Client]
) -> None:
    async with connect() as client:
        before = await who(client)
        wrote = await client.call_tool("write", {"text": "tea"})
        after = await who(client)

    assert wrote.text == "wrote tea"
    assert (before, after) == ("ada: notes:read", "ada: notes:read notes:write")
    assert set(user.asked[1].scopes) == {"notes:read", "notes:write", "offline_access"}
    assert len(user.asked) == 2
    done = await protected_server.done()
    assert done["registrations"] == 2  # the first one is limited to "notes:read"


async def test_configured_scopes_are_requested_at_the_first_login(
    user: User, connect: Callable[..., Client]
) -> None:
    async with connect(scopes=["notes:read", "notes:write"]) as client:
        wrote = await client.call_tool("write", {"text": "tea"})

    assert wrote.text == "wrote tea"
    assert len(user.asked) == 1


async def test_the_browser_is_redirected_to_the_callback_server(
    connect: Callable[..., Client],
) -> None:
    browsers = []

    def open_browser(url: str) -> None:
        browsers.append(subprocess.Popen([sys.executable, str(BROWSER), url]))

    async def ask(request: AuthorizationRequest) -> dict[str, str]:
        open_browser(request.url)
        return await callback.query(request)

    async with (
        callback_server() as callback,
        connect(redirect_uri=callback.redirect_uri, ask=ask) as client,
    ):
        seen = await who(client)

    assert seen == "ada: notes:read"
    assert [each.wait() for each in browsers] == [0]


# Other ways to identify the client


async def test_a_client_that_the_operator_has_registered_is_used(
    protected_server: Protected, connect: Callable[..., Client]
) -> None:
    known = await protected_server.register(token_endpoint_auth_method="client_secret_basic")
    identity = ClientIdentity(
        id=known["client_id"], secret=known["client_secret"], issuer=protected_server.issuer
    )
    async with connect(client=identity) as client:
        assert await who(client) == "ada: notes:read"
        await client.call_tool("sign_out")
        assert await who(client) == "ada: notes:read"

    done = await protected_server.done()
    assert (done["registrations"], done["refresh_token"]) == (1, 1)  # by the operator


async def test_a_client_is_identified_by_its_metadata_document(
    protected_server: Protected, connect: Callable[..., Client]
) -> None:
    url = "https://client.example.com/metadata.json"
    await protected_server.wish(documents={url: {**NATIVE_CLIENT, "client_id": url}})
    async with connect(client_metadata_url=url) as client:
        assert await who(client) == "ada: notes:read"

    assert "registrations" not in await protected_server.done()


async def test_client_credentials_with_a_secret_need_no_user(
    protected_server: Protected, store: TokenStore
) -> None:
    known = await protected_server.register(
        **MACHINE, token_endpoint_auth_method="client_secret_basic"
    )
    identity = ClientIdentity(id=known["client_id"], secret=known["client_secret"])
    await use_without_a_user(protected_server, identity, store)


async def test_client_credentials_with_a_private_key_need_no_user(
    protected_server: Protected, store: TokenStore
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    known = await protected_server.register(
        **MACHINE, token_endpoint_auth_method="private_key_jwt", jwks={"keys": [public]}
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    identity = ClientIdentity(id=known["client_id"], private_key=pem.decode())
    await use_without_a_user(protected_server, identity, store)


async def use_without_a_user(
    server: Protected, identity: ClientIdentity, store: TokenStore
) -> None:
    """Log in, be signed out, log in again, and step up."""
    auth = ClientCredentials(server.url, client=identity, store=store)
    async with Client.http(server.url, auth=auth) as client:
        assert await who(client) == f"{identity.id}: notes:read"
        await client.call_tool("sign_out")
        assert await who(client) == f"{identity.id}: notes:read"
        assert (await client.call_tool("write", {"text": "tea"})).text == "wrote tea"

    assert (await server.done())["client_credentials"] == 3


async def test_a_wrong_secret_is_an_error_that_does_not_show_it(
    protected_server: Protected, store: TokenStore
) -> None:
    known = await protected_server.register(
        **MACHINE, token_endpoint_auth_method="client_secret_basic"
    )
    identity = ClientIdentity(id=known["client_id"], secret="not-the-secret")
    auth = ClientCredentials(protected_server.url, client=identity, store=store)
    with pytest.raises(AuthError, match="invalid_client") as refused:
        await Client.http(protected_server.url, auth=auth).open()

    assert "not-the-secret" not in str(refused.value)
