"""The front door's own paths on the public listener.

        GET  /.well-known/oauth-authorization-server[/mcp[/VIEW]]   the metadata
        GET  /authorize                                             the page, or an error
        GET  /clients                                               what a person has allowed
        POST /token, /revoke, /register                             for clients

Clients in web pages may call all of them but `/authorize`, so these answers allow any origin; they
use no cookies. How often each path is answered is limited for all callers together, of which one
address gets at most half, so that it cannot lock out the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from urllib.parse import parse_qsl, quote

import msgspec

from interlock.auth.gateway_auth import RefusedCredential
from interlock.errors import AuthUnavailable, ParseError, StoreError
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_authentication import (
    ProvenClient,
    authenticated,
    with_basic,
)
from interlock.gateway.front_door.clients import Metadata
from interlock.gateway.front_door.consent import Consent, described
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.machines import Machines
from interlock.gateway.front_door.metadata import BY_JWT, GRANTS, WELL_KNOWN, metadata
from interlock.gateway.front_door.pages import (
    OWN_SCRIPT,
    SCRIPT,
    consent_page,
    own_page,
    refused_page,
)
from interlock.gateway.front_door.request import (
    OAuthError,
    answer_url,
    check_request,
)
from interlock.gateway.front_door.shared_limit import SharedLimit
from interlock.gateway.front_door.tokens import TokenIssuer
from interlock.gateway.logins.plain_page import HTML, headers_for
from interlock.protocol.envelope import check_bounds, encode
from interlock.server.http.guard import Guard
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import (
    ClientGone,
    Header,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    refuse,
    reply,
    reply_empty,
)
from interlock.types import JsonObject

MAX_BODY = 65_536  # bytes
FORM = b"application/x-www-form-urlencoded"
RATES = {"/authorize": 100, "/token": 200, "/revoke": 200, "/register": 50}  # a second
_NO_STORE: tuple[Header, ...] = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
_RECORDED = ("invalid_client", "invalid_grant")  # refusals that the audit trail has
_PAGES = ("/authorize", "/clients")
_POSTS = ("/token", "/revoke", "/register")


class DoorApp:
    """An ASGI application that serves the front door's paths.

    Args:
        beside: The application that serves all other paths.
        parts: The shared parts of the front door.
        tokens: Issues, replaces and revokes tokens.
        consent: Shows requests to people.
        assertions: Verifies signed statements.
        machines: Issues tokens for programs.
        hosts: The allowed values of the `Host` header; see `Guard`.
        counts: The number of requests by endpoint and outcome.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self,
        beside: AsgiApp,
        parts: DoorParts,
        *,
        tokens: TokenIssuer,
        consent: Consent,
        assertions: Assertions,
        machines: Machines,
        hosts: Sequence[str] | None,
        counts: Counter[tuple[str, str]],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._beside = beside
        self._clients = parts.clients
        self._gateway = parts.gateway
        self._resources = parts.gateway.resources
        self._tokens = tokens
        self._consent = consent
        self._assertions = assertions
        self._machines = machines
        self._counts = counts
        self._clock = clock
        self._limits = {path: SharedLimit(each) for path, each in RATES.items()}
        # Not `PageGuard`: browsers come to /authorize from other sites, which it would refuse.
        self._page_guard = Guard(hosts, (), ())
        self._guard = Guard(hosts, (), ("*",))
        self._posts: dict[str, Callable[[HttpRequest], Awaitable[JsonObject | None]]] = {
            "/token": self._token,
            "/revoke": self._revoke,
            "/register": self._register,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        is_metadata = path == WELL_KNOWN or path.startswith(f"{WELL_KNOWN}/")
        is_http = scope["type"] == "http" and self._gateway.has_door
        if not is_http or not (
            is_metadata or path in _POSTS or (path in _PAGES and scope["method"] == "GET")
        ):
            await self._beside(scope, receive, send)
            return
        request = HttpRequest(scope, receive, send)
        try:
            if path == "/authorize":
                self._page_guard.check(request)
                await self._authorize(request)
                return
            if path == "/clients":
                self._page_guard.check(request)
                page = own_page(self._logins("/clients"))
                await reply(request.send, 200, page, headers_for(OWN_SCRIPT), kind=HTML)
                return
            self._guard.check(request)
            await self._answer(request, path, is_metadata=is_metadata)
        except HttpRefusal as refusal:
            await refuse(send, refusal, request.extra)
        except ClientGone:
            return

    # For clients

    async def _answer(self, request: HttpRequest, path: str, *, is_metadata: bool) -> None:
        method = request.scope["method"]
        if method == "OPTIONS":
            headers = self._guard.preflight(request)
            await reply_empty(request.send, 204, headers or request.extra)
        elif is_metadata:
            await self._send_metadata(request, path.removeprefix(WELL_KNOWN))
        elif method != "POST":
            error = OAuthError("invalid_request", f"{path} takes POST", 405)
            await self._send_error(request, error)
        else:
            await self._post(request, path)

    async def _send_metadata(self, request: HttpRequest, rest: str) -> None:
        resources = self._resources()
        try:
            resources.view_of(f"{resources.issuer}{rest}")
        except OAuthError:
            raise HttpRefusal(404, "nothing is served at this path") from None
        document = metadata(
            resources.issuer,
            registers=self._gateway.own.registration,
            takes_id_jag=any("id-jag" in each.accepts for each in self._gateway.issuers()),
        )
        await reply(request.send, 200, encode(document), request.extra)

    async def _post(self, request: HttpRequest, path: str) -> None:
        try:
            self._spend(path, request)
            answer = await self._posts[path](request)
        except OAuthError as error:
            self._count(path, error.error)
            if error.error in _RECORDED:
                credential = RefusedCredential(error.error, request.address or "")
                self._gateway.recorder.credential_refused(credential)
            await self._send_error(request, error)
            return
        except HttpRefusal as refusal:  # clients cannot read an error of JSON-RPC here
            self._count(path, "invalid_request")
            refused = OAuthError("invalid_request", str(refusal), refusal.status)
            await self._send_error(request, refused)
            return
        except (StoreError, AuthUnavailable):
            self._count(path, "unavailable")
            text = "the database does not answer; try again later"
            await self._send_error(request, OAuthError("temporarily_unavailable", text, 503))
            return
        self._count(path, "ok")
        status = 201 if path == "/register" else 200
        headers = (*_NO_STORE, *request.extra)
        if answer is None:
            await reply_empty(request.send, 200, headers)
        else:
            await reply(request.send, status, encode(answer), headers)

    async def _send_error(self, request: HttpRequest, error: OAuthError) -> None:
        headers = [*_NO_STORE, *_retry_after(error), *request.extra]
        if error.status == 401:
            headers.append((b"www-authenticate", b'Basic realm="interlock"'))
        body = encode({"error": error.error, "error_description": _plain(error.text)})
        await reply(request.send, error.status, body, headers)

    async def _register(self, request: HttpRequest) -> JsonObject:
        if not self._gateway.own.registration:
            text = "clients cannot register themselves here; the operator creates them"
            raise OAuthError("invalid_request", text, 403)
        request.check_media()
        body = await request.read_body(MAX_BODY)
        try:
            check_bounds(body)
            told = msgspec.json.decode(body, type=Metadata)
        except (msgspec.DecodeError, ParseError, RecursionError) as error:
            raise OAuthError("invalid_client_metadata", f"the body is not valid: {error}") from None
        return self._clients.registrations.register(told)

    async def _token(self, request: HttpRequest) -> JsonObject:
        form = await self._read_form(request)
        grant = form.get("grant_type", "")
        if grant == "client_credentials":
            return await self._machines.by_key(form)
        names_client = "client_id" in form or "client_assertion" in form
        if grant == BY_JWT and not names_client:
            return await self._machines.by_workload(form)
        if grant not in GRANTS:
            error = "unsupported_grant_type" if grant else "invalid_request"
            raise OAuthError(error, f"grant_type must be one of {', '.join(GRANTS)}")
        proven = await self._client(form, request)
        match grant:
            case "authorization_code":
                return await self._tokens.redeem(form, proven)
            case "refresh_token":
                return await self._tokens.refresh(form, proven)
            case _:
                return await self._machines.by_statement(form, proven)

    async def _revoke(self, request: HttpRequest) -> None:
        form = await self._read_form(request)
        await self._tokens.revoke(form.get("token", ""), await self._client(form, request))

    async def _client(self, form: Mapping[str, str], request: HttpRequest) -> ProvenClient:
        check = self._assertions.check_client
        return await authenticated(form, self._clients, check, request.address)

    async def _read_form(self, request: HttpRequest) -> dict[str, str]:
        media = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        if media.encode() != FORM:
            raise OAuthError("invalid_request", f"Content-Type must be {FORM.decode()}")
        form = _form(await request.read_body(MAX_BODY))
        return with_basic(form, request.header(b"authorization"))

    # For people

    async def _authorize(self, request: HttpRequest) -> None:
        raw = (request.scope.get("query_string") or b"").decode("latin-1")
        try:
            self._spend("/authorize", request)
            query, client, uri = await self._consent.opened(raw, request.address)
        except OAuthError as error:
            self._count("/authorize", error.error)
            status = 400 if error.status == 401 else error.status
            headers = [*headers_for(), *_retry_after(error)]
            await reply(request.send, status, refused_page(error.text), headers, kind=HTML)
            return
        resources = self._resources()
        try:
            check_request(query, uri, resources)
        except OAuthError as error:
            self._count("/authorize", error.error)
            told = {"error": error.error, "error_description": _plain(error.text)}
            url = answer_url(uri, resources.issuer, query.get("state", ""), **told)
            headers = [*headers_for(), (b"location", url.encode("latin-1", "replace"))]
            await reply(request.send, 302, b"", headers, kind=HTML)
            return
        self._count("/authorize", "ok")
        page = consent_page(described(client, uri), self._logins(f"/authorize?{raw}"))
        await reply(request.send, 200, page, headers_for(SCRIPT), kind=HTML)

    def _spend(self, path: str, request: HttpRequest) -> None:
        if not self._limits[path].spend(request.address, self._clock()):
            raise OAuthError("temporarily_unavailable", "too many requests; wait 1 s", 429)

    def _count(self, path: str, outcome: str) -> None:
        self._counts[path[1:], outcome] += 1

    def _logins(self, here: str) -> dict[str, str]:
        """Return where a login that comes back here begins, by the issuer."""
        to = quote(here, safe="")
        return {
            each.issuer: f"/login/begin?issuer={quote(each.issuer, safe='')}&to={to}"
            for each in self._gateway.issuers()
            if each.client_id
        }


def _retry_after(error: OAuthError) -> list[Header]:
    return [(b"retry-after", b"1")] if error.status in (429, 503) else []


def _form(body: bytes) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError:
        raise OAuthError("invalid_request", "the body is not a form in UTF-8") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("invalid_request", "the form repeats a parameter")
    return {name: value for name, value in form.items() if value}


def _plain(text: str) -> str:
    """Return a text of the characters that an error description may have (RFC 6749, 5.2)."""
    return "".join(
        each if " " <= each <= "~" and each not in '"\\' else ("'" if each == '"' else "?")
        for each in text
    )
