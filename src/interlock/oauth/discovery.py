"""Where a server's tokens come from: its metadata, then its authorization server's.

Rules:

1. Nobody is asked for anything before the metadata has been found to speak of this server.
2. What a document says is compared and sent on as it is written: no URL is put in order.
3. An address that is missing (4xx, a redirect, a page for people) is passed over. One that fails
   (5xx, no connection) ends the discovery: a server in trouble must not bring us to another
   authorization server.

RFC 9728, RFC 8414, OpenID Connect Discovery. Spec 2026-07-28: basic/authorization, "Discovery".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from interlock.errors import AuthError, HttpError, RedirectRefused
from interlock.oauth.challenges import Dpop
from interlock.oauth.documents import ResourceMetadata, ServerMetadata
from interlock.oauth.fetcher import Fetcher, Reply, check_url, shown
from interlock.quoting import echo

OTHER_WAY = (
    "a token or a key goes into a header, as with interlock servers add --auth bearer or --header "
    "'Authorization: Bearer …'"
)

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_JSON = {"Accept": "application/json"}
_ORIGIN = re.compile(r"[a-z]+://[^/?#@]+")
_ISSUER = re.compile(
    r"[a-z]+://(?:[A-Za-z0-9._~-]+|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?(?:/[^\s?#\\]*)?"
)


class Discovery(Struct, frozen=True):
    """What is known of a server and of the one that gives its tokens.

    Attributes:
        resource: Value of `resource` in requests; "" for a server of 2025-03-26, without one.
        scopes_supported: What the protected server names; None when it does not.
        server: The authorization server. Its `issuer` is spelt as in its own document.
        is_guessed: Nobody says that there is an authorization server. The endpoints are those that
            servers of 2025-03-26 have without saying so.
        dpop: Whether the protected server accepts tokens that are bound to a key.
    """

    resource: str
    scopes_supported: tuple[str, ...] | None
    server: ServerMetadata
    is_guessed: bool = False
    dpop: Dpop = Dpop.UNKNOWN

    @property
    def issuer(self) -> str:
        """Who gives the tokens."""
        return self.server.issuer

    def explained(self, error: AuthError | HttpError) -> AuthError | HttpError:
        """Give the error of an endpoint; of one that was guessed, with what can be done instead."""
        if not self.is_guessed:
            return error
        explained = AuthError(
            f"{shown(self.issuer)} publishes no way to log in ({error}): {OTHER_WAY}", error.status
        )
        for note in getattr(error, "__notes__", ()):
            explained.add_note(note)
        return explained


async def discover(
    fetcher: Fetcher, server_url: str, advertised: str = "", issuer: str = ""
) -> Discovery:
    """Find out where to get tokens for a server.

    Args:
        fetcher: Gets the documents.
        server_url: The MCP endpoint.
        advertised: `resource_metadata` of the server's challenge; "" if it named none.
        issuer: The one to take when the server names several, it among them.

    Raises:
        InterlockError: A document is missing or wrong, speaks of somebody else, or its address
            is not asked or does not answer; what an `AuthError` is, and what `Fetcher.get` raises.
    """
    metadata = await resource_metadata(fetcher, server_url, advertised)
    if metadata is None:
        home = origin(server_url)  # of 2025-03-26: its own authorization server
        own = await _document(fetcher, home + _SERVER)
        if isinstance(own, Reply):
            return Discovery("", None, _checked(own, home))
        return Discovery("", None, _usual(home), is_guessed=True)
    issuers = metadata.authorization_servers or []
    if not issuers:
        raise AuthError(f"{origin(server_url)} needs tokens, but names no authorization server")
    chosen = next((each for each in issuers if same_issuer(each, issuer)), issuers[0])
    scopes = metadata.scopes_supported
    return Discovery(
        metadata.resource,
        None if scopes is None else tuple(scopes),
        await server_metadata(fetcher, chosen),
        dpop=_dpop(metadata),
    )


# The protected server


def _dpop(metadata: ResourceMetadata) -> Dpop:
    if metadata.dpop_bound_access_tokens_required:
        return Dpop.REQUIRED
    return Dpop.OFFERED if metadata.dpop_signing_alg_values_supported else Dpop.UNKNOWN


async def resource_metadata(
    fetcher: Fetcher, server_url: str, advertised: str = ""
) -> ResourceMetadata | None:
    """Fetch what the protected server says of itself; None when it says nothing.

    When it names an address that is no URL, the usual ones are asked.

    Raises:
        InterlockError: As in `discover`.
    """
    if not advertised:
        return await _usual_metadata(fetcher, server_url)
    try:
        check_url(advertised, f"the resource_metadata that {origin(server_url)} names")
    except AuthError:
        if found := await _usual_metadata(fetcher, server_url):
            return found
        raise
    reply = await fetcher.get(advertised, _JSON)
    if reply.status != 200:
        raise AuthError(
            f"{origin(server_url)} refers to {shown(advertised)}, which answers {reply.status}"
        )
    return _about(reply, server_url)


async def _usual_metadata(fetcher: Fetcher, server_url: str) -> ResourceMetadata | None:
    for url in _resource_urls(server_url):
        found = await _document(fetcher, url)
        if isinstance(found, Reply):
            return _about(found, server_url)
    return None


def _about(reply: Reply, server_url: str) -> ResourceMetadata:
    metadata = reply.json(ResourceMetadata)
    if not covers(metadata.resource, server_url):
        raise AuthError(
            f"{shown(reply.url)} is about another resource than {shown(server_url)}: "
            f"{echo(metadata.resource)}"
        )
    return metadata


def covers(resource: str, server_url: str) -> bool:
    """Whether a resource is the server or a folder above it, with the same origin."""
    if resource == server_url:
        return True
    try:
        ours, theirs = urlsplit(server_url), urlsplit(resource)
        if _place(ours) != _place(theirs) or theirs.query or theirs.fragment:
            return False
    except ValueError:
        return False
    folder = theirs.path.rstrip("/").split("/")
    return ours.path.split("/")[: len(folder)] == folder


def _resource_urls(server_url: str) -> Iterator[str]:
    path = urlsplit(server_url).path.rstrip("/")
    if path:
        yield f"{origin(server_url)}{_RESOURCE}{path}"
    yield f"{origin(server_url)}{_RESOURCE}"


# The authorization server


async def server_metadata(fetcher: Fetcher, issuer: str) -> ServerMetadata:
    """Fetch what an authorization server says of itself.

    Raises:
        InterlockError: As in `discover`.
    """
    if not _ISSUER.fullmatch(issuer):
        raise AuthError(
            f"{shown(issuer)} is no issuer: it must be a URL without user, query and fragment"
        )
    tried = []
    for url in _server_urls(issuer):
        found = await _document(fetcher, url)
        if isinstance(found, Reply):
            return _checked(found, issuer)
        tried.append(found)
    raise AuthError(f"{shown(issuer)} has no metadata of an authorization server ({tried[0]})")


def _usual(home: str) -> ServerMetadata:
    return ServerMetadata(
        issuer=home,
        authorization_endpoint=f"{home}/authorize",
        token_endpoint=f"{home}/token",
        registration_endpoint=f"{home}/register",
        code_challenge_methods_supported=["S256"],
    )


def _checked(reply: Reply, issuer: str) -> ServerMetadata:
    metadata = reply.json(ServerMetadata)
    if not same_issuer(metadata.issuer, issuer):
        raise AuthError(
            f"the metadata at {shown(reply.url)} is of another issuer: {echo(metadata.issuer)}"
        )
    return metadata


def same_issuer(one: str, other: str) -> bool:
    """Compare two issuers, exactly but for a "/" that ends one of two mere origins.

    Many servers publish `https://as.example` in one document and `https://as.example/` in the
    other. It is one issuer: no other can have either address.
    """
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return long == f"{short}/" and _ORIGIN.fullmatch(short) is not None


def _server_urls(issuer: str) -> Iterator[str]:
    home, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    yield f"{home}{_SERVER}{path}"
    yield f"{home}{_OPENID}{path}"
    if path:
        yield f"{home}{path}{_OPENID}"


# Replies and addresses


async def _document(fetcher: Fetcher, url: str) -> Reply | str:
    """Fetch a document, or say why there is none.

    Many sites answer any address with a page of theirs, or send whoever comes to one.
    """
    try:
        reply = await fetcher.get(url, _JSON)
    except RedirectRefused as error:
        return str(error)
    if reply.status == 429 or reply.status >= 500:
        raise AuthError(f"{shown(url)} answers {reply.status}", reply.status)
    if reply.status != 200:
        return f"{shown(url)}: {reply.status}"
    return reply if reply.body.lstrip()[:1] == b"{" else f"{shown(url)}: no JSON"


def origin(url: str) -> str:
    """Give scheme, host and port of a URL, as they are written; without a user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _place(url: SplitResult) -> tuple[str, str | None, int | None]:
    usual = {"https": 443, "http": 80}
    return url.scheme, url.hostname, url.port or usual.get(url.scheme)
