"""No token, code, verifier, state or secret is in an error, a log record or a repr."""

from __future__ import annotations

import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus, unquote_plus

import pytest
import rich.pretty
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from msgspec.structs import replace

from interlock.errors import InterlockError
from interlock.oauth import AuthorizationRequest, ClientCredentials, ClientIdentity
from interlock.oauth.authorization import Pending
from interlock.oauth.client_grant import client_key
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ErrorAnswer, RegistrationAnswer, ServerMetadata, TokenAnswer
from interlock.oauth.fetcher import FetchedResponse, Fetcher
from interlock.oauth.storage import Registration, Tokens
from interlock.oauth.tokens import TokenRefused, request_tokens
from tests.oauth.conftest import Build, World
from tests.servers.authorization_server import Handler
from tests.support.rows import each_row

MEMBERS = {
    "access_token",
    "client_secret",
    "code",
    "code_verifier",
    "refresh_token",
    "state",
}
SECRET = "s3cr3t of the operator"


def secrets(world: World) -> Iterator[str]:
    """Return every secret of a world, also form-encoded and base64-encoded."""
    plain = {SECRET, *world.authorization.codes, *world.authorization.access_tokens}
    plain |= set(world.authorization.refresh_tokens) | set(world.authorization.clients.values())
    for seen in world.authorization.requests:
        plain |= {str(value) for name, value in seen.sent.items() if name in MEMBERS}
        authorization = seen.headers.get("authorization", "")
        plain.add(authorization.partition(" ")[2])
    for each in plain - {""}:
        yield each
        yield quote_plus(each)
        yield b64encode(each.encode()).decode()


def printed(error: BaseException) -> str:
    """Return everything that a program would print of an error."""
    return "\n".join([str(error), repr(error), *traceback.format_exception(error)])


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Return what interlock has logged, without the logs of the test's servers."""
    ours = [record for record in caplog.records if record.name.startswith("interlock")]
    return "\n".join(f"{record.getMessage()} {record.exc_text}" for record in ours)


def echo(status: int = 400, error: str = "invalid_grant") -> Handler:
    """Return a reply that repeats everything it was sent."""

    async def reply(request: web.Request) -> web.StreamResponse:
        sent = dict(await request.post())
        words = " ".join([*map(str, sent.values()), *request.headers.values()])
        whole = {"error": error, "error_description": words, "error_uri": words, **sent}
        return web.json_response(whole, status=status, headers={"X-Echo": words.strip()})

    return reply


def echo_in_types() -> Handler:
    """Return a token answer of wrong types that repeats everything it was sent."""

    async def reply(request: web.Request) -> web.StreamResponse:
        sent = [str(value) for value in (await request.post()).values()]
        return web.json_response({"access_token": sent, "token_type": sent, "scope": sent})

    return reply


def echo_as_page() -> Handler:
    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"<p>{await request.text()}", content_type="text/html")

    return reply


def redirect() -> Handler:
    async def reply(request: web.Request) -> web.StreamResponse:
        query = (await request.text())[:4000]
        return web.Response(status=302, headers={"Location": f"https://evil.example/?{query}"})

    return reply


REPLIES = {
    "error": echo(),
    "error that is none of the known": echo(error=SECRET),
    "401": echo(401, "invalid_client"),
    "500": echo(500, "server_error"),
    "200": echo(200),
    "types": echo_in_types(),
    "page": echo_as_page(),
    "redirect": redirect(),
}


@pytest.mark.parametrize("kind", ["person", "renewal", "client"])
@each_row("reply", REPLIES.values(), ids=REPLIES)
@each_row("path", ["/token", "/register"])
async def test_errors_do_not_repeat_secrets_that_an_issuer_sends_back(
    build: Build, caplog: pytest.LogCaptureFixture, kind: str, path: str, reply: Handler
):
    world = await build()
    caplog.set_level(logging.DEBUG)
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    auth: Any = world.oauth()
    if kind == "client":
        world.authorization.clients["me"] = SECRET
        client = ClientIdentity(id="me", secret=SECRET)
        auth = ClientCredentials(world.server.url, client=client, store=world.store)
    elif kind == "renewal":
        await world.call(auth)
        world.authorization.access_tokens.clear()
    world.authorization.replies[path] = reply
    texts = []

    try:
        await world.call(auth)
    except InterlockError as error:
        texts = [printed(error)]

    place = client_key("me", world.server.url) if kind == "client" else world.server.url
    tokens = await world.store.load_tokens(place)
    registration = await world.store.load_registration(world.server.url, world.authorization.issuer)
    texts += [repr(each) for each in (auth, tokens, registration, world.browser.shown)]
    texts += [logged(caplog), repr(vars(auth))]
    text = unquote_plus("\n".join(texts)) + "\n".join(texts)
    for secret in secrets(world):
        assert secret not in text


@each_row(
    "callback",
    [
        {"error": "access_denied", "error_description": "{state} {code}"},
        {"error": "{code}", "error_description": "{state}"},
        {"iss": "https://evil.example/{code}"},
        {"state": "another {state}"},
        {"code": None},
    ],
)
async def test_errors_do_not_repeat_the_query_of_the_redirect(
    build: Build, caplog: pytest.LogCaptureFixture, callback: dict[str, str | None]
):
    world = await build()
    caplog.set_level(logging.DEBUG)

    async def ask(request: Any) -> dict[str, str]:
        brought = await world.browser(request)
        for name, value in callback.items():
            if value is None:
                del brought[name]
            else:
                brought[name] = value.format(**{"code": "", **brought})
        return brought

    auth = world.oauth(ask=ask)
    with pytest.raises(InterlockError) as raised:
        await world.call(auth)

    text = printed(raised.value) + logged(caplog) + repr(auth)
    for secret in secrets(world):
        assert secret not in text


def test_the_repr_of_an_identity_has_only_its_id():
    identity = ClientIdentity(id="me", secret=SECRET, issuer="https://as.example")

    assert repr(identity) == "ClientIdentity(id='me', issuer='https://as.example')"


REQUEST = AuthorizationRequest(
    url=f"https://as.example/authorize?state={SECRET}",
    server_url=f"https://mcp.example/mcp?key={SECRET}",
    issuer="https://as.example",
    scopes=("a",),
    redirect_uri="http://127.0.0.1:1/callback",
    state=SECRET,
)


@each_row(
    "struct",
    [
        ClientIdentity(id="me", secret=SECRET),
        ClientIdentity(id="me", private_key=SECRET),
        Tokens(access_token=SECRET, refresh_token=SECRET),
        Registration(issuer="https://as.example", client_id="me", client_secret=SECRET),
        TokenAnswer(SECRET, SECRET, 1.0, SECRET),
        RegistrationAnswer("me", SECRET),
        ErrorAnswer(SECRET, SECRET),
        REQUEST,
        Pending(request=REQUEST, verifier=SECRET, requires_iss=True),
        FetchedResponse(200, {"X": SECRET}, SECRET.encode(), f"https://as.example/?{SECRET}"),
    ],
)
def test_no_repr_has_a_secret(struct: object):
    for text in (repr(struct), str(struct), f"{[struct]}", rich.pretty.pretty_repr(struct)):
        assert text.startswith(("[", type(struct).__name__))
        assert SECRET not in text


@pytest.mark.slow("fills a database")
async def test_the_log_of_a_failed_refresh_has_no_secret(
    world: World, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    await world.call(world.oauth())
    world.authorization.replies["/token"] = echo(503, "temporarily_unavailable")
    tokens = await world.store.load_tokens(world.server.url)
    assert tokens is not None
    await world.store.save_tokens(world.server.url, replace(tokens, expires_at=1.0))

    assert await world.oauth(ask=None).valid_token() == ""

    assert "temporarily_unavailable" in logged(caplog)
    for secret in secrets(world):
        assert secret not in logged(caplog)


KEY = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
PROOFS: dict[str, dict[str, str]] = {
    "client_secret": {"secret": SECRET, "auth_method": "client_secret_post"},
    "client_assertion": {"private_key": KEY.decode()},
    "Authorization": {"secret": SECRET, "auth_method": "client_secret_basic"},
}


@each_row("member", ["assertion", "code", "code_verifier", "refresh_token", *PROOFS])
async def test_a_description_that_repeats_a_secret_of_the_request_is_dropped(member: str):
    class Repeating(Fetcher):
        async def post(self, url: str, **sent: Any) -> FetchedResponse:
            secret = {**sent["form"], **sent["headers"]}[member].removeprefix("Basic ")
            answer = {"error": "invalid_grant", "error_description": f"not with {secret}"}
            return FetchedResponse(400, {}, json.dumps(answer).encode(), url)

    server = ServerMetadata("https://as.example", token_endpoint="https://as.example/token")
    client = ClientIdentity(id="me", **PROOFS.get(member, {}))
    grant = {"assertion": "j.w.t", "code": "c0de", "code_verifier": "v3rifier"}
    grant["refresh_token"] = "r3fresh"

    refusal = await request_tokens(Repeating(), Discovery("", None, server), client, grant)

    assert isinstance(refusal, TokenRefused)
    assert not hasattr(refusal.error, "__notes__")
