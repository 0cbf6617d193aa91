"""The authorization request that a user approves in a browser, and the response to it.

Rules:

1. Any web page can send a response. No text in it is shown until `state` proves that the response
   belongs to our request, and `iss` proves that it comes from the right issuer.
2. `iss` is compared character by character: an additional "/" makes it a different issuer.

RFC 6749 section 4.1, RFC 7636 (PKCE), RFC 8707 (resource), RFC 9207 (iss).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from interlock.errors import AuthError
from interlock.oauth import addresses
from interlock.oauth.discovery import CONFIGURE_ISSUER, Discovery, is_issuer
from interlock.oauth.documents import reason
from interlock.oauth.fetcher import check_url
from interlock.text.quoting import echo
from interlock.text.redaction import Redacted
from interlock.text.urls import display, is_loopback, split

_PLAIN = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&()*+,;=%-]+")  # RFC 3986, without "#" and "'"

# Parameters of OAuth and OpenID Connect that this program does not set itself. They are removed
# from the endpoint's query, where they could change the requested access or where the response
# goes.
_RESERVED = frozenset(
    {
        "authorization_details",
        "claims",
        "dpop_jkt",
        "id_token_hint",
        "nonce",
        "prompt",
        "registration",
        "request",
        "request_uri",
        "resource",
        "response_mode",
        "scope",
    }
)


class AuthorizationRequest(Redacted, frozen=True, kw_only=True):
    """An authorization request that a user must approve. Show `host` before you open `url`.

    Attributes:
        url: The URL to open in a browser: https, or http on loopback.
        server_url: The MCP server for which the user logs in.
        issuer: The authorization server.
        scopes: The requested scopes; () if the authorization server chooses.
        redirect_uri: The URL to which the browser is redirected at the end. `ask` returns the query
            that arrives there.
        state: A secret that the query must repeat; ignore queries with a different `state`.
    """

    public = ("host", "issuer", "scopes")

    url: str
    server_url: str
    issuer: str
    scopes: tuple[str, ...]
    redirect_uri: str
    state: str

    @property
    def host(self) -> str:
        """The host at which the user logs in, with its port if the URL contains a port."""
        return urlsplit(self.url).netloc


class Pending(Redacted, frozen=True, kw_only=True):
    """An authorization request, with the values needed to check the response."""

    public = ("request",)

    request: AuthorizationRequest
    verifier: str
    requires_iss: bool

    def code(self, answer: Mapping[str, str]) -> str:
        """Return the authorization code from the redirect's query.

        Raises:
            AuthError: The query belongs to a different request or issuer, or refuses access.
        """
        issuer, state = display(self.request.issuer), self.request.state
        if not is_same(answer.get("state", ""), state):
            raise AuthError(f"the answer from the browser is not for the login at {issuer}")
        iss = answer.get("iss")
        if iss is None and self.requires_iss:
            raise AuthError(f"the answer from the browser does not name its issuer {issuer}")
        if iss is not None and iss != self.request.issuer:
            other = self._shown(iss, answer)
            raise AuthError(
                f"the answer from the browser comes from {other}, not from {issuer}; "
                f"if you trust {other}, {CONFIGURE_ISSUER}"
            )
        if "error" in answer:
            why = reason(answer["error"], answer.get("error_description"), self._secrets(answer))
            raise why.error(f"{issuer} denied the login", 403)
        if not answer.get("code"):
            raise AuthError(f"the answer from the browser has no code from {issuer}")
        return answer["code"]

    def _secrets(self, answer: Mapping[str, str]) -> tuple[str, ...]:
        return self.request.state, self.verifier, answer.get("code", "")

    def _shown(self, iss: str, answer: Mapping[str, str]) -> str:
        has_secret = any(each and each in unquote(iss) for each in self._secrets(answer))
        return echo(iss) if is_issuer(iss) and not has_secret else "another issuer"


def is_same(value: str, secret: str) -> bool:
    """Compare a value with a secret in constant time, and return whether they are equal."""
    return secrets.compare_digest(value.encode(), secret.encode())


def begin(
    found: Discovery,
    *,
    server_url: str,
    client_id: str,
    redirect_uri: str,
    scopes: Sequence[str],
    key_thumbprint: str = "",
    nonce: str = "",
) -> Pending:
    """Return an authorization request for the user to approve.

    Args:
        found: The authorization server.
        server_url: The MCP server for which the user logs in.
        client_id: The client's id at the authorization server.
        redirect_uri: The URL to which the browser is redirected at the end.
        scopes: The scopes to request; () omits the parameter `scope`.
        key_thumbprint: The thumbprint of the key to bind tokens to; "" for bearer tokens.
        nonce: The value that the ID token must repeat; "" for a login without ID token. It binds
            the code to this request, so the server need not declare PKCE, which is still used.

    Raises:
        AuthError: The authorization server lacks a feature that a safe login requires.
    """
    endpoint = _check_endpoints(found, needs_pkce=not nonce)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        **_optional(found.resource, scopes, key_thumbprint, nonce),
    }
    request = AuthorizationRequest(
        url=_with_query(endpoint, query),
        server_url=server_url,
        issuer=found.issuer,
        scopes=tuple(scopes),
        redirect_uri=redirect_uri,
        state=state,
    )
    return Pending(
        request=request,
        verifier=verifier,
        requires_iss=bool(found.server.authorization_response_iss_parameter_supported),
    )


def _optional(
    resource: str, scopes: Sequence[str], key_thumbprint: str, nonce: str
) -> dict[str, str]:
    query = {
        "dpop_jkt": key_thumbprint,  # binds the code to the key, too (RFC 9449 section 10)
        "nonce": nonce,
        "resource": resource,
        "scope": " ".join(scopes),
        # OpenID Connect requires this prompt to issue a refresh token (Core 1.0 section 11).
        "prompt": "consent" if "offline_access" in scopes else "",
    }
    return {name: value for name, value in query.items() if value}


def _check_endpoints(found: Discovery, *, needs_pkce: bool) -> str:
    """Return the authorization endpoint, after checking everything that needs no user."""
    server, issuer = found.server, display(found.issuer)
    if needs_pkce and "S256" not in (server.code_challenge_methods_supported or ()):
        raise AuthError(f"{issuer} does not declare support for PKCE with S256, which is required")
    if not server.authorization_endpoint or not server.token_endpoint:
        raise AuthError(f"{issuer} has no authorization endpoint or no token endpoint")
    check_url(server.token_endpoint, f"the token_endpoint of {issuer}")
    check_browsable(server.authorization_endpoint, f"the authorization_endpoint of {issuer}")
    kind = _network_kind(server.authorization_endpoint)
    if kind not in ("public", _network_kind(found.issuer)):
        where = "this machine" if kind == "loopback" else "a private network"
        raise AuthError(f"{issuer} sends the browser to {where}, but is not there itself")
    return server.authorization_endpoint


def _with_query(endpoint: str, query: Mapping[str, str]) -> str:
    """Add parameters to an endpoint's URL, and remove reserved parameters from its own query."""
    parts = urlsplit(endpoint)
    own = parse_qsl(parts.query)
    kept = [(name, value) for name, value in own if name not in _RESERVED | query.keys()]
    return urlunsplit(parts._replace(query=urlencode([*kept, *query.items()])))


def check_browsable(url: str, what: str = "the URL of the login") -> str:
    """Return a URL unchanged if it is safe to open in a browser: https, or http on loopback.

    Raises:
        AuthError: The URL is of another kind, such as a file, a script or a command-line option, or
            it contains characters that programs interpret in different ways.
    """
    try:
        parts = split(url)
        host = parts.hostname or ""
        addresses.literal(host)
    except ValueError:
        host = ""
    if not host or not _PLAIN.fullmatch(url) or "@" in parts.netloc:
        raise AuthError(f"{what} is not a valid URL for a browser: {display(url)}")
    if not (url.startswith("https://") or (url.startswith("http://") and is_loopback(host))):
        raise AuthError(f"{what} is neither https nor on this machine: {display(url)}")
    return url


def _network_kind(url: str) -> addresses.Kind:
    return addresses.written_kind(urlsplit(url).hostname or "")
