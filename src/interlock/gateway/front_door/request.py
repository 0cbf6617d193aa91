"""Authorization requests: the query of `/authorize`, read and checked without any IO.

1. Until the client and its redirect URI are known to belong together, an error is shown to the
   person, and nothing is sent to the redirect URI.
2. After that, an error goes to the redirect URI, with the request's `state` and our `iss`.

RFC 6749, section 4.1; RFC 7636 (PKCE); RFC 8707 (`resource`); RFC 9207 (`iss`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from interlock.auth.scopes import intersection
from interlock.errors import InterlockError
from interlock.text.quoting import echo

MAX_QUERY = 8_192  # bytes
OFFERED = ("mcp:*", "mcp:read")  # the scopes that clients may request
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # base64url of a SHA-256
_PARAMETERS = (
    *("client_id", "redirect_uri", "response_type", "response_mode", "state", "scope"),
    *("resource", "code_challenge", "code_challenge_method", "prompt", "request", "request_uri"),
)


class OAuthError(InterlockError):
    """An error of OAuth.

    Args:
        error: The code for the client, such as "invalid_request".
        text: One line for people, without secrets.
        status: The HTTP status, where the error is sent as JSON.
    """

    def __init__(self, error: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.error = error
        self.text = text
        self.status = status


class AuthorizationAsked(Struct, frozen=True, kw_only=True):
    """The content of a checked authorization request.

    Attributes:
        redirect_uri: The URI that gets the answer.
        state: The client's own value, which the answer repeats.
        challenge: The PKCE challenge, of the method S256.
        view: The view of the resource; "" for the endpoint of all views.
        scopes: The requested scopes that are ours; () for all that the person may have.
    """

    redirect_uri: str
    state: str
    challenge: str
    view: str
    scopes: tuple[str, ...]


def read_query(raw: str) -> dict[str, str]:
    """Return the parameters of an authorization request that have a value, by name.

    Raises:
        OAuthError: The query is too long, is not UTF-8, or repeats a parameter of OAuth.
    """
    if len(raw) > MAX_QUERY:
        text = f"the request has {len(raw):,} bytes; the limit is {MAX_QUERY:,}"
        raise OAuthError("invalid_request", text)
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise OAuthError("invalid_request", "the request is not valid UTF-8") from None
    names = [name for name, _ in pairs]
    for name in _PARAMETERS:
        if names.count(name) > 1:
            raise OAuthError("invalid_request", f"the request repeats the parameter {name!r}")
    return {name: value for name, value in pairs if value}


def check_request(
    given: Mapping[str, str], redirect_uri: str, resources: Resources
) -> AuthorizationAsked:
    """Return what a request asks for, once its client and its redirect URI are known.

    Raises:
        OAuthError: The request cannot be granted; this error goes to the redirect URI.
    """
    if given.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", 'response_type must be "code"')
    if given.get("response_mode", "query") != "query":
        raise OAuthError("invalid_request", 'response_mode must be "query"')
    for name, error in (
        ("request", "request_not_supported"),
        ("request_uri", "request_uri_not_supported"),
    ):
        if name in given:
            raise OAuthError(error, f"the parameter {name!r} is not supported")
    if given.get("prompt") == "none":
        raise OAuthError("login_required", "a person must decide each time: leave out prompt=none")
    challenge = given.get("code_challenge", "")
    if given.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise OAuthError("invalid_request", "PKCE is required: send a code_challenge of S256")
    return AuthorizationAsked(
        redirect_uri=redirect_uri,
        state=given.get("state", ""),
        challenge=challenge,
        view=resources.view_of(given.get("resource", "")),
        scopes=scopes_in(given),
    )


def scopes_in(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the scopes of tools that a request names, in its order.

    Clients also request scopes such as `openid` or `offline_access`, which change nothing here.
    """
    return tuple(
        dict.fromkeys(each for each in given.get("scope", "").split() if each.startswith("mcp:"))
    )


def granted(asked: Collection[str], allowed: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that a token gets: what was asked for, within what the person may have.

    Scopes of operators are never granted to a client.

    Args:
        asked: The requested scopes of tools; empty for all.
        allowed: The person's scopes.
    """
    of_tools = {each for each in allowed if each.startswith("mcp:")}
    if not asked:
        return tuple(sorted(of_tools))
    return tuple(sorted(intersection(asked, of_tools)))


class Resources:
    """The resources that clients can get tokens for: `/mcp`, and each view below it.

    Args:
        public_url: The URL of the endpoint, such as "https://tools.example.com/mcp".
        views: The names of the views.
    """

    def __init__(self, public_url: str, views: Collection[str]) -> None:
        self._url = public_url
        self._views = views
        parts = urlsplit(public_url)
        self.issuer = f"{parts.scheme}://{parts.netloc}"

    def url_of(self, view: str) -> str:
        """Return the URL of a view; that of the endpoint of all views for ""."""
        return f"{self._url}/{view}" if view else self._url

    def view_of(self, resource: str) -> str:
        """Return the view that a client names as the resource; "" for the endpoint of all views.

        Scheme and host have no case, a slash at the end means nothing, and the origin and the
        address of the old transport mean the endpoint. Without a resource it is the endpoint.

        Raises:
            OAuthError: This gateway does not serve the resource.
        """
        if not resource:
            return ""
        refusal = OAuthError(
            "invalid_target", f"resource {echo(resource)} is not served here; use {self._url}"
        )
        try:
            parts = urlsplit(resource)
        except ValueError:
            raise refusal from None
        spelled = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
        path = parts.path.rstrip("/")
        known = urlsplit(self._url)
        is_here = spelled == self.issuer.lower() and not parts.query and not parts.fragment
        if is_here and path in ("", "/sse", known.path):
            return ""
        view = path.removeprefix(f"{known.path}/")
        if is_here and view != path and view in self._views:
            return view
        raise refusal


def answer_url(redirect_uri: str, issuer: str, state: str, **members: str) -> str:
    """Return the URL with which the browser takes an answer to a client.

    Args:
        redirect_uri: The client's redirect URI; its own query is kept.
        issuer: Our issuer, which the answer states as `iss`.
        state: The request's state; "" if it had none.
        members: The answer: a `code`, or an `error` with its description.
    """
    answer = {**members, **({"state": state} if state else {}), "iss": issuer}
    separator = "&" if "?" in redirect_uri else "?"
    return f"{redirect_uri}{separator}{urlencode(answer)}"
