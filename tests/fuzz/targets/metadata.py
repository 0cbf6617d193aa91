"""OAuth: documents and URLs of unknown servers are accepted safely, or refused with an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from interlock.errors import InterlockError
from interlock.oauth import addresses, documents
from interlock.oauth.authorization import Pending, begin, check_browsable
from interlock.oauth.discovery import covers, discover, same_issuer
from interlock.oauth.fetcher import FetchedResponse, parse_allowed
from interlock.text.urls import display, origin
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

URLS = [
    *(
        "https://mcp.example/mcp",
        "https://mcp.example",
        "https://as.example",
        "https://as.example/",
    ),
    *(
        "https://as.example/a",
        "http://127.0.0.1:80/",
        "http://[::1]/x",
        "https://user:pw@as.example",
    ),
    *(
        "https://as.example:99999",
        "https://[::1",
        "file:///x",
        "javascript:x",
        "//x",
        "",
        "https://",
    ),
    *("https://as.example/?q", "https://as.example/#f", "https://AS.example", "https://0x7f.1/"),
    *(
        "https://xn--a.example",
        "https://é.example",
        "https://mcp.example\\@as.example",
        "http://a b",
    ),
]
TOKENS = [
    *(each.encode() for each in URLS),
    *(b'"resource":', b'"issuer":', b'"authorization_servers":[', b'"S256"', b'"token_endpoint":'),
    *(b'"authorization_endpoint":', b'"scopes_supported":[', b"%2e", b"..", b"@", b"::ffff:7f00:1"),
]
MEMBERS = [
    *("resource", "authorization_servers", "issuer", "authorization_endpoint", "token_endpoint"),
    *("scopes_supported", "code_challenge_methods_supported", "registration_endpoint", "error"),
    *("client_id", "access_token", "token_type", "expires_in", "error_description", "scope"),
]
READERS: list[Any] = [
    partial(documents.read, type=documents.ResourceMetadata),
    partial(documents.read, type=documents.ServerMetadata),
    documents.read_registration,
    documents.read_tokens,
]
SERVER = "https://mcp.example/mcp"


def target(data: bytes) -> None:
    choices = Choices(data)
    match choices.number(3):
        case 0:
            address(choices.rest().decode(errors="replace"))
        case 1:
            for reader in READERS:
                document(reader, choices.rest() if choices.flag() else document_of(choices))
        case _:
            discovery(choices)


def address(text: str) -> None:
    assert len(display(text)) < 200
    for ask in (parse_allowed, check_browsable):
        try:
            taken = str(ask(text))
        except InterlockError as error:
            check_text(error)
        else:
            one, other = urlsplit(text), urlsplit(taken)  # all parsers must agree
            assert one.scheme.lower() == other.scheme
            assert other.scheme in ("https", "http")
            assert host_of(one) == host_of(other)
            assert not one.username
            assert not one.password
    try:
        literal = addresses.literal(text)
    except ValueError:
        return
    if literal is not None:
        assert addresses.kind(literal) in ("public", "private", "loopback", "special")
    for other in (SERVER, text):
        if covers(text, other):
            assert text == other or origin(text) == origin(other) or text.lower() != text
    assert same_issuer(text, text)


def host_of(url: SplitResult) -> object:
    host = url.hostname or ""
    return ip_address(host) if ":" in host and "%" not in host else host


def document(reader: Any, body: bytes) -> None:
    reply = FetchedResponse(400, {}, body, SERVER)
    documents.refusal(reply, ["secret-of-ours"])
    try:
        read = reader(reply)
    except InterlockError as error:
        check_text(error)
        return
    if isinstance(read, documents.TokenAnswer):
        lifetime = read.lifetime
        assert lifetime is None or 0 < lifetime < float("inf")
        try:
            documents.check_token(read.access_token, "a token")
        except InterlockError:
            return
        assert read.access_token.isascii()
        assert read.access_token.isprintable()


class Web:
    """Answers each URL with what the input contains."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self.asked: list[str] = []

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, may_move: bool
    ) -> FetchedResponse:
        self.asked.append(url)
        status = self._choices.one_of([200, 200, 200, 404, 403, 500])
        return FetchedResponse(status, {}, document_of(self._choices), url)


def discovery(choices: Choices) -> None:
    web: Any = Web(choices)
    advertised, issuer = choices.one_of(["", *URLS]), choices.one_of(["", *URLS])
    try:
        found = asyncio.run(discover(web, SERVER, advertised, issuer))
        pending = begin(
            found,
            server_url=SERVER,
            client_id="c",
            redirect_uri="http://127.0.0.1:1/callback",
            scopes=["a"],
        )
    except InterlockError as error:
        check_text(error)
    else:
        assert found.resource == "" or covers(found.resource, SERVER)
        check_browsable(pending.request.url)
        assert pending.verifier not in pending.request.url
        answered(choices, pending)
    assert len(web.asked) <= 7


def answered(choices: Choices, pending: Pending) -> None:
    """Answer the request with some of the expected parameters."""
    state = pending.request.state
    answer = {
        "state": choices.one_of([state, state, state, "x", ""]),
        "iss": choices.one_of([pending.request.issuer, "https://evil.example", ""]),
        "code": choices.one_of(["code", ""]),
        "error": choices.one_of(["", "", "access_denied", choices.text()]),
        "error_description": choices.one_of(["", "no", pending.verifier, choices.text()]),
    }
    for name in choices.some_of(list(answer), 3):
        answer.pop(name, None)
    try:
        code = pending.code(answer)
    except InterlockError as error:
        check_text(error)
        told = str(error)
    else:
        told = code
        assert code == answer["code"] == "code"
        assert answer["state"] == state
        assert answer.get("iss", pending.request.issuer) == pending.request.issuer
    assert pending.verifier not in told


def document_of(choices: Choices) -> bytes:
    if not choices.number(8):
        return choices.bytes()
    members: dict[str, Any] = {}
    for name in choices.some_of(MEMBERS, 8):
        one = choices.one_of([*URLS, "S256", "none", 3600, "3600", "nan", None])
        if name.startswith("error"):
            one = choices.one_of(["invalid_grant", "no", "secret-of-ours", choices.text()])
        members[name] = [one] if name.endswith(("servers", "supported")) else one
        if not choices.number(16):
            members[name] = choices.json(2)
    return json.dumps(members).encode()
