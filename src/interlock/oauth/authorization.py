"""Asking a person: the authorization request, and what comes back from the browser.

Rules:

1. What comes back is somebody's until `state` has shown that it answers our request, and another
   issuer's until `iss` has been checked. Before that, none of its words are shown.
2. `iss` is compared as it is written: an issuer with one "/" more is another issuer.

RFC 6749 section 4.1, RFC 7636 (PKCE), RFC 8707 (resource), RFC 9207 (iss).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from interlock.errors import AuthError
from interlock.oauth import addresses
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import reason
from interlock.oauth.fetcher import check_url, shown
from interlock.redaction import Redacted

_PLAIN = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&()*+,;=%-]+")  # of RFC 3986; no "#", no "'"


# What a request may have besides, in OAuth and OpenID Connect. What an endpoint's own query says
# of these would decide for the person what is asked, and where the answer goes.
_OTHERS = frozenset(
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
    """What a person is asked to allow. Show `host` before anything is opened.

    Attributes:
        url: To be opened in a browser: https, or http on loopback.
        server_url: The MCP server that the login is for.
        issuer: The authorization server that asks for it.
        scopes: What is asked for; () leaves it to the authorization server.
        redirect_uri: Where the browser is sent in the end, with the query that is handed back.
        state: A secret that the query brings back: one with another `state` is no answer to this.
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
        """The host, with its port if it names one, where the person will log in."""
        return urlsplit(self.url).netloc


class Pending(Redacted, frozen=True, kw_only=True):
    """An authorization request that was sent, with what is needed to judge its answer."""

    public = ("request",)

    request: AuthorizationRequest
    verifier: str
    iss_promised: bool

    def code(self, answer: Mapping[str, str]) -> str:
        """Take the code out of the query that the browser brought.

        Raises:
            AuthError: It answers another request, is another issuer's, or is a refusal.
        """
        issuer, state = shown(self.request.issuer), self.request.state
        if not is_same(answer.get("state", ""), state):
            raise AuthError(f"the answer from the browser is to no request of ours to {issuer}")
        told = answer.get("iss")
        if told is None and self.iss_promised:
            raise AuthError(f"the answer from the browser does not say that it is from {issuer}")
        if told is not None and told != self.request.issuer:
            raise AuthError(f"the answer from the browser is not from {issuer}")
        if "error" in answer:
            why = reason(
                answer["error"],
                answer.get("error_description"),
                (state, self.verifier, answer.get("code", "")),
            )
            raise why.error(f"{issuer} did not allow it", 403)
        if not answer.get("code"):
            raise AuthError(f"the answer from the browser has no code of {issuer}")
        return answer["code"]


def is_same(told: str, secret: str) -> bool:
    """Compare what somebody says with a secret, in a time that tells nothing of it."""
    return secrets.compare_digest(told.encode(), secret.encode())


def begin(
    found: Discovery,
    *,
    server_url: str,
    client_id: str,
    redirect_uri: str,
    scopes: Sequence[str],
    key_thumbprint: str = "",
) -> Pending:
    """Make the request that a person is to allow.

    Raises:
        AuthError: The authorization server cannot do what is needed for it to be safe.
    """
    server, issuer = found.server, shown(found.issuer)
    if "S256" not in (server.code_challenge_methods_supported or ()):
        raise AuthError(f"{issuer} does not say that it supports PKCE with S256, which is needed")
    if not server.authorization_endpoint or not server.token_endpoint:
        raise AuthError(f"{issuer} names no endpoint for authorization, or none for tokens")
    check_url(server.token_endpoint, f"the token_endpoint of {issuer}")  # before anybody is asked
    check_browsable(server.authorization_endpoint, f"the authorization_endpoint of {issuer}")
    nearness = _nearness(server.authorization_endpoint)
    if nearness not in ("public", _nearness(found.issuer)):
        where = "this machine" if nearness == "loopback" else "a private network"
        raise AuthError(f"{issuer} sends the browser to {where}, where it is not")
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    if key_thumbprint:
        query["dpop_jkt"] = key_thumbprint  # binds the code, too (RFC 9449 section 10)
    if found.resource:
        query["resource"] = found.resource
    if scopes:
        query["scope"] = " ".join(scopes)
    if "offline_access" in scopes:
        query["prompt"] = "consent"  # without it, OpenID Connect gives no refresh token
    request = AuthorizationRequest(
        url=_with_query(server.authorization_endpoint, query),
        server_url=server_url,
        issuer=found.issuer,
        scopes=tuple(scopes),
        redirect_uri=redirect_uri,
        state=state,
    )
    return Pending(
        request=request,
        verifier=verifier,
        iss_promised=bool(server.authorization_response_iss_parameter_supported),
    )


def _with_query(endpoint: str, query: Mapping[str, str]) -> str:
    """Add to what the endpoint has already, which must not decide what we ask."""
    parts = urlsplit(endpoint)
    given = parse_qsl(parts.query)
    theirs = [(name, value) for name, value in given if name not in _OTHERS | query.keys()]
    return urlunsplit(parts._replace(query=urlencode([*theirs, *query.items()])))


def check_browsable(url: str, what: str = "the address of the login") -> str:
    """Give a URL back if a browser may be sent there: https, or http on loopback.

    Raises:
        AuthError: It is something else, such as a file, a script or a program's option, or has
            characters that not all programs read alike.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a port that is none raises
        addresses.literal(host or "")  # so does an address in another spelling
    except ValueError:
        host = None
    if not host or not _PLAIN.fullmatch(url) or "@" in parts.netloc:
        raise AuthError(f"{what} is no URL for a browser: {shown(url)}")
    if not (
        url.startswith("https://") or (url.startswith("http://") and addresses.is_loopback(host))
    ):
        raise AuthError(f"{what} is neither https nor here: {shown(url)}")
    return url


def _nearness(url: str) -> addresses.Kind:
    return addresses.written_kind(urlsplit(url).hostname or "")
