"""Discovery of the metadata of a protected server and of its authorization server.

Rules:

1. Before a login starts or a client is registered, the metadata is checked to describe this server.
2. Strings in documents are compared and sent exactly as they are: URLs are not normalized.
3. A document may be at several URLs. The first usable one is used; one that is missing (4xx, a
   redirect, a web page), broken (5xx) or about something else is skipped. If none is usable, the
   first failure is reported, so that a failing server never leads to a guess.
4. An issuer that the operator has configured is used whatever the documents say. Its metadata comes
   from the issuer itself, so no other server can claim to be it.

RFC 9728, RFC 8414, OpenID Connect Discovery. Spec 2026-07-28: basic/authorization, "Discovery".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    RedirectRefused,
    RemoteProtocolError,
    StreamEnded,
    Unreachable,
)
from interlock.oauth.challenges import Dpop
from interlock.oauth.documents import ResourceMetadata, ServerMetadata, read
from interlock.oauth.fetcher import FetchedResponse, Fetcher, check_url
from interlock.text.quoting import echo
from interlock.text.urls import display, origin, split

CONFIGURE_ISSUER = "set oauth.issuer in the server's configuration"
OTHER_WAY = (
    "a token or a key goes into a header, as with interlock servers add --auth bearer or --header "
    "'Authorization: Bearer …'"
)

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_JSON = {"Accept": "application/json"}
_T = TypeVar("_T")
_HOME = re.compile(r"https?://[^/?#@]+", re.IGNORECASE)
_ISSUER = re.compile(
    r"[a-z]+://(?:[A-Za-z0-9._~-]+|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?(?:/[^\s?#\\]*)?"
)


class Discovery(Struct, frozen=True):
    """The metadata of a protected server and of its authorization server.

    Attributes:
        resource: The value for `resource` in requests; "" for a server of 2025-03-26 without
            metadata.
        scopes_supported: The scopes that the protected server lists; None if it lists none.
        server: The authorization server's metadata. Its `issuer` is spelled as in that document.
        is_guessed: Whether no document names an authorization server, so that the default endpoints
            of revision 2025-03-26 are used.
        dpop: Whether the protected server accepts tokens that are bound to a key, or requires them.
    """

    resource: str
    scopes_supported: tuple[str, ...] | None
    server: ServerMetadata
    is_guessed: bool = False
    dpop: Dpop = Dpop.UNKNOWN

    @property
    def issuer(self) -> str:
        return self.server.issuer

    def explained(self, error: AuthError | HttpError) -> AuthError | HttpError:
        """Return an endpoint's error; if the endpoint was guessed, it names an alternative."""
        if not self.is_guessed:
            return error
        explained = AuthError(
            f"{display(self.issuer)} publishes no way to log in ({error}): {OTHER_WAY}",
            error.status,
        )
        for note in getattr(error, "__notes__", ()):
            explained.add_note(note)
        return explained


async def discover(
    fetcher: Fetcher,
    server_url: str,
    advertised: str = "",
    issuer: str = "",
    configured: str = "",
) -> Discovery:
    """Find the authorization server that issues tokens for a server.

    Args:
        fetcher: Fetches the documents.
        server_url: The MCP endpoint.
        advertised: The `resource_metadata` in the server's challenge; "" if the challenge has none.
        issuer: The issuer to prefer if the server names several; "" for no preference.
        configured: The issuer to use instead of those that the server names; "" for one of these.

    Raises:
        InterlockError: A document is missing, malformed or describes a different server, or its URL
            is not allowed or cannot be fetched: `AuthError`, and the errors of `Fetcher.get`.
    """
    metadata = await resource_metadata(fetcher, server_url, advertised)
    if configured:
        server = await _configured_metadata(fetcher, configured)
    elif metadata is None:
        home = origin(server_url)  # as in revision 2025-03-26: the server authorizes clients itself
        own = await _document(fetcher, home + _SERVER)
        if isinstance(own, str):
            return Discovery("", None, _default_metadata(home), is_guessed=True)
        server = _checked(own, home)
    else:
        server = await _named_metadata(fetcher, server_url, metadata, issuer)
    if metadata is None:
        return Discovery("", None, server)
    scopes = metadata.scopes_supported
    return Discovery(
        metadata.resource,
        None if scopes is None else tuple(scopes),
        server,
        dpop=_dpop(metadata),
    )


async def _named_metadata(
    fetcher: Fetcher, server_url: str, metadata: ResourceMetadata, issuer: str
) -> ServerMetadata:
    """Return the metadata of one of the authorization servers that the server names."""
    issuers = metadata.authorization_servers or []
    if not issuers:
        raise AuthError(
            f"{origin(server_url)} requires tokens, but names no authorization server; if you "
            f"know it, {CONFIGURE_ISSUER}"
        )
    chosen = next((each for each in issuers if same_issuer(each, issuer)), issuers[0])
    try:
        return await server_metadata(fetcher, chosen)
    except (AuthError, HttpError, Unreachable) as error:
        if CONFIGURE_ISSUER not in str(error):
            error.args = (f"{error}; if that is not the right issuer, {CONFIGURE_ISSUER}",)
        raise


# The protected server


def _dpop(metadata: ResourceMetadata) -> Dpop:
    if metadata.dpop_bound_access_tokens_required:
        return Dpop.REQUIRED
    return Dpop.OFFERED if metadata.dpop_signing_alg_values_supported else Dpop.UNKNOWN


async def resource_metadata(
    fetcher: Fetcher, server_url: str, advertised: str = ""
) -> ResourceMetadata | None:
    """Return the protected server's metadata; None if the server publishes no metadata.

    If the document at `advertised` cannot be used, the well-known URLs of the server's own origin
    are tried: proxies often make the server advertise a wrong host or path.

    Raises:
        InterlockError: The errors of `discover`.
    """
    if not advertised:
        return await _well_known_metadata(fetcher, server_url)
    try:
        check_url(advertised, f"the resource_metadata that {origin(server_url)} names")
        reply = await fetcher.get(advertised, _JSON, may_move=True)
        if reply.status != 200:
            raise AuthError(
                f"{origin(server_url)} refers to {display(advertised)}, "
                f"which returned status {reply.status}"
            )
        return _about(reply, server_url)
    except InterlockError as error:
        with suppress(AuthError, HttpError):
            if found := await _well_known_metadata(fetcher, server_url):
                return found
        raise error


async def _well_known_metadata(fetcher: Fetcher, server_url: str) -> ResourceMetadata | None:
    def checked(reply: FetchedResponse) -> ResourceMetadata:
        return _about(reply, server_url)

    found = await _first_usable(fetcher, _resource_urls(server_url), checked)
    return None if isinstance(found, str) else found


def _about(reply: FetchedResponse, server_url: str) -> ResourceMetadata:
    metadata = read(reply, ResourceMetadata)
    if not covers(metadata.resource, server_url):
        raise AuthError(
            f"{display(reply.url)} is about another resource than {display(server_url)}: "
            f"{echo(metadata.resource)}; if the server is there, configure that URL"
        )
    return metadata


def covers(resource: str, server_url: str) -> bool:
    """Return whether a resource is the server's URL, or a parent path with the same origin."""
    if resource == server_url:
        return True
    try:
        server, other = urlsplit(server_url), urlsplit(resource)
        if origin(server_url) != origin(resource) or other.query or other.fragment:
            return False
    except ValueError:
        return False
    folder = other.path.rstrip("/").split("/")
    return server.path.split("/")[: len(folder)] == folder


def _resource_urls(server_url: str) -> Iterator[str]:
    path = urlsplit(server_url).path.rstrip("/")
    if path:
        yield f"{origin(server_url)}{_RESOURCE}{path}"
    yield f"{origin(server_url)}{_RESOURCE}"


# The authorization server


async def server_metadata(fetcher: Fetcher, issuer: str) -> ServerMetadata:
    """Return the metadata of an authorization server.

    Raises:
        InterlockError: The errors of `discover`.
    """
    if not is_issuer(issuer):
        raise AuthError(
            f"{display(issuer)} is not a valid issuer: it must be a URL without user, query and "
            "fragment"
        )

    def checked(reply: FetchedResponse) -> ServerMetadata:
        return _checked(reply, issuer)

    found = await _first_usable(fetcher, _server_urls(issuer), checked)
    if isinstance(found, str):
        raise AuthError(f"{display(issuer)} has no metadata of an authorization server ({found})")
    return found


async def _configured_metadata(fetcher: Fetcher, issuer: str) -> ServerMetadata:
    try:
        return await server_metadata(fetcher, issuer)
    except InterlockError as error:
        raise AuthError(
            f"the issuer {display(issuer)}, which is configured as oauth.issuer, cannot be used: "
            f"{error}"
        ) from None


def is_issuer(text: str) -> bool:
    """Return whether a text has the form of an issuer."""
    try:
        split(text)
    except ValueError:
        return False
    return _ISSUER.fullmatch(text) is not None


def _default_metadata(home: str) -> ServerMetadata:
    return ServerMetadata(
        issuer=home,
        authorization_endpoint=f"{home}/authorize",
        token_endpoint=f"{home}/token",
        registration_endpoint=f"{home}/register",
        code_challenge_methods_supported=["S256"],
    )


def _checked(reply: FetchedResponse, issuer: str) -> ServerMetadata:
    metadata = read(reply, ServerMetadata)
    if not same_issuer(metadata.issuer, issuer):
        raise AuthError(
            f"the metadata at {display(reply.url)} names another issuer: {echo(metadata.issuer)}, "
            f"not {echo(issuer)}; if you trust the issuer that it names, {CONFIGURE_ISSUER}"
        )
    return metadata


def same_issuer(one: str, other: str) -> bool:
    """Return whether two issuers are equal, ignoring a final "/" after an issuer without path.

    Many servers publish `https://as.example` in one document and `https://as.example/` in another,
    or `https://AS.example:443`. It is safe to treat them as equal, because all these URLs belong to
    the same server.
    """
    return one == other or _plain_issuer(one) == _plain_issuer(other)


def _plain_issuer(issuer: str) -> str:
    found = _HOME.match(issuer)
    if found is None:
        return issuer
    try:
        home = origin(found[0])
    except ValueError:
        return issuer
    path = issuer[found.end() :]
    return home if path == "/" else home + path


def _server_urls(issuer: str) -> Iterator[str]:
    home, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    yield f"{home}{_SERVER}{path}"
    yield f"{home}{_OPENID}{path}"
    if path:
        yield f"{home}{path}{_OPENID}"
        yield f"{home}{_SERVER}"  # some servers publish it only there, though it names the path


# Documents that may be at several URLs


async def _first_usable(
    fetcher: Fetcher, urls: Iterable[str], checked: Callable[[FetchedResponse], _T]
) -> _T | str:
    """Return the first document that passes a check; if all are missing, return the reason.

    Raises:
        InterlockError: No document is usable, and at least one is broken or about something else.
    """
    missing = ""
    broken: InterlockError | None = None
    for url in urls:
        try:
            found = await _document(fetcher, url)
            if not isinstance(found, str):
                return checked(found)
            missing = missing or found
        except (AuthError, HttpError, RemoteProtocolError, StreamEnded) as error:
            broken = broken or error
    if broken is not None:
        raise broken
    return missing


async def _document(fetcher: Fetcher, url: str) -> FetchedResponse | str:
    """Fetch a document; if it is missing, return the reason instead.

    A redirect to another origin or a web page means "missing", because many sites send these for
    any URL. Some servers redirect within their origin:
    https://github.com/open-legal-products/mike/pull/344
    """
    try:
        reply = await fetcher.get(url, _JSON, may_move=True)
    except RedirectRefused as error:
        return str(error)
    if reply.status == 429 or reply.status >= 500:
        raise AuthError(f"{display(url)} answers {reply.status}", reply.status)
    if reply.status != 200:
        return f"{display(url)}: {reply.status}"
    return reply if reply.is_json_object else f"{display(url)}: not JSON"
