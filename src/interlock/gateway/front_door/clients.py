"""Clients of the front door, by their `client_id`. Every endpoint finds them here.

1. A `client_id` that is an https URL names a document with the client's metadata; see `documents`.
2. A registration is its own `client_id`: the metadata and a keyed hash of them. So nothing is
   stored, nothing is lost, and a flood of registrations costs nothing.
3. Clients that an operator created are in the database, as are blocked and allowed ones.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Sequence
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_format import digest
from interlock.gateway.front_door import redirects
from interlock.gateway.front_door.request import OAuthError
from interlock.text.quoting import INVISIBLE, echo
from interlock.types import JsonObject

PREFIX = "ilc_"
MAX_ID = 1_000  # characters of a registration's id
MAX_NAME = 80  # characters
NO_NAME = "a program without a name"
_MAC_BYTES = 16
_REFUSED_IN_NAMES = re.compile(rf"[\x00-\x1f\x7f-\x9f{INVISIBLE}]+")

AuthMethod = Literal["none", "private_key_jwt", "client_secret_basic", "client_secret_post"]
METHODS: tuple[AuthMethod, ...] = get_args(AuthMethod)


class FrontClient(Struct, frozen=True, kw_only=True):
    """A client that may ask people for access.

    Attributes:
        id: The `client_id`.
        name: How the client calls itself; it proves nothing.
        redirects: The registered redirect URIs.
        verified: The host of the client's document, which proves who it is; "" for none.
        secret_hash: SHA-256 of its secret; b"" if it has none.
        jwks: The client's public keys as a JWKS document, or its URL; None if it cannot sign.
        must_sign: Whether the client must sign its requests to the token endpoint.
    """

    id: str
    name: str
    redirects: tuple[str, ...]
    verified: str = ""
    secret_hash: bytes = b""
    jwks: bytes | str | None = None
    must_sign: bool = False

    def check_redirect(self, asked: str) -> str:
        """Return the redirect URI of a request.

        Raises:
            OAuthError: It is not one of the client's; nothing may be sent there.
        """
        if not asked and len(self.redirects) == 1:
            return self.redirects[0]
        if not asked:
            text = f"the request names no redirect_uri, and {self.label} has several"
            raise OAuthError("invalid_request", text)
        if not redirects.matches(self.redirects, asked):
            count = len(self.redirects)
            raise OAuthError(
                "invalid_request",
                f"This client's redirect URI {echo(asked)} is not among those of {self.label}"
                f" ({count} listed). Nothing was sent there.",
            )
        return asked

    @property
    def label(self) -> str:
        """How errors and lists name the client: the host that proves it, or its own name."""
        return self.verified or f'"{self.name}"'


class Metadata(Struct, kw_only=True):
    """The metadata of a client (RFC 7591), as far as they are read; all other members are ignored.

    Attributes:
        client_id: Only in a document: its own URL.
        token_endpoint_auth_methods_supported: Only in documents: further methods it can use.
    """

    redirect_uris: list[str] = []
    client_id: str | None = None
    client_name: Any = ""
    token_endpoint_auth_method: str | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    jwks_uri: str | None = None
    jwks: JsonObject | None = None
    client_secret: Any = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None


class _Registered(Struct, array_like=True):
    """The body of a registration's id."""

    name: str
    redirects: list[str]
    method: AuthMethod


class Registrations:
    """Registers clients, and finds them again by their id alone.

    Args:
        secret: The gateway's key, which makes the ids.
    """

    def __init__(self, secret: GatewayKey) -> None:
        self._key = secret.derive("client registration")

    def register(self, metadata: Metadata) -> JsonObject:
        """Return the answer to a registration (RFC 7591, section 3.2.1). No member is null.

        Raises:
            OAuthError: The metadata cannot be used.
        """
        uris = checked_redirects(metadata.redirect_uris)
        method = metadata.token_endpoint_auth_method or "client_secret_basic"
        if method == "private_key_jwt":
            text = "a client that signs needs a document, or is created by the operator"
            raise OAuthError("invalid_client_metadata", text)
        if method not in METHODS:
            text = f"token_endpoint_auth_method {echo(method)} must be one of {', '.join(METHODS)}"
            raise OAuthError("invalid_client_metadata", text)
        _check_kinds(metadata)
        name = clean_name(metadata.client_name)
        id = self._id(msgspec.json.encode(_Registered(name, list(uris), method)))
        if len(id) > MAX_ID:
            text = f"name and redirect URIs are too long ({len(id):,} characters, limit {MAX_ID:,})"
            raise OAuthError("invalid_client_metadata", text)
        answer: JsonObject = {
            "client_id": id,
            "client_name": name,
            "redirect_uris": list(uris),
            "token_endpoint_auth_method": method,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
        if method != "none":
            answer |= {"client_secret": self._secret_of(id), "client_secret_expires_at": 0}
        return answer

    def find(self, id: str) -> FrontClient | None:
        """Return the client of a registration; None if this gateway's key has not made the id."""
        encoded = id.removeprefix(PREFIX)
        if len(id) > MAX_ID or encoded == id:
            return None
        try:
            raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (Base64Error, ValueError):
            return None
        body = raw[:-_MAC_BYTES]
        if not hmac.compare_digest(self._id(body), id):
            return None
        told = msgspec.json.decode(body, type=_Registered)
        return FrontClient(
            id=id,
            name=told.name,
            redirects=tuple(told.redirects),
            secret_hash=b"" if told.method == "none" else digest(self._secret_of(id)),
        )

    def _id(self, body: bytes) -> str:
        mac = hmac.digest(self._key, b"id" + body, "sha256")[:_MAC_BYTES]
        return PREFIX + urlsafe_b64encode(body + mac).decode().rstrip("=")

    def _secret_of(self, id: str) -> str:
        mac = hmac.digest(self._key, b"secret" + id.encode(), "sha256")
        return urlsafe_b64encode(mac).decode().rstrip("=")


def client_of_document(url: str, metadata: Metadata) -> FrontClient:
    """Return the client that a document describes.

    Raises:
        OAuthError: The document belongs to another URL, or cannot be used.
    """
    host = urlsplit(url).hostname or ""
    if metadata.client_id != url:
        text = f"the document of {host} names another client_id than its own URL"
        raise OAuthError("invalid_client_metadata", text)
    if metadata.client_secret is not None:
        text = f"the document of {host} contains a client_secret, which everybody can read"
        raise OAuthError("invalid_client_metadata", text)
    _check_kinds(metadata)
    uris = checked_redirects(metadata.redirect_uris)
    methods = [metadata.token_endpoint_auth_method or "none"]
    methods += metadata.token_endpoint_auth_methods_supported or []
    jwks: bytes | str | None = None
    if "private_key_jwt" in methods:
        # Not as objects, which need many times the memory of the document.
        jwks = msgspec.json.encode(metadata.jwks) if metadata.jwks else metadata.jwks_uri
    if jwks is None and "none" not in methods:
        text = (
            f'the document of {host} must allow the method "none", or "private_key_jwt" with keys'
        )
        raise OAuthError("invalid_client_metadata", text)
    return FrontClient(
        id=url,
        name=clean_name(metadata.client_name),
        redirects=uris,
        verified=host,
        jwks=jwks,
        must_sign="none" not in methods,
    )


def checked_redirects(uris: Sequence[str]) -> tuple[str, ...]:
    """Return the redirect URIs of a client.

    Raises:
        OAuthError: There are none or too many, or one may not be registered.
    """
    if not 0 < len(uris) <= redirects.MAX_URIS:
        text = f"redirect_uris has {len(uris)} URIs; give 1 to {redirects.MAX_URIS}"
        raise OAuthError("invalid_redirect_uri", text)
    for uri in uris:
        if problem := redirects.problem_of(uri):
            raise OAuthError("invalid_redirect_uri", f"redirect URI {echo(uri)}: {problem}")
    return tuple(dict.fromkeys(uris))


def _check_kinds(metadata: Metadata) -> None:
    """Refuse a client that only uses what this server does not offer."""
    for name, told, ours in (
        ("grant_types", metadata.grant_types, "authorization_code"),
        ("response_types", metadata.response_types, "code"),
    ):
        if told and ours not in told:
            text = f"{name} must contain {ours!r}, which is all that this server offers to people"
            raise OAuthError("invalid_client_metadata", text)


def clean_name(told: object) -> str:
    """Return a client's name in one line of at most 80 printable characters."""
    if not isinstance(told, str):
        return NO_NAME
    text = unicodedata.normalize("NFC", _REFUSED_IN_NAMES.sub(" ", told))
    return " ".join(text.split())[:MAX_NAME].strip() or NO_NAME


def places_of(client: FrontClient) -> frozenset[str]:
    """Return all places that belong to a client, as operators list them in `auth.oauth.clients`."""
    found = {redirects.place_of(each) for each in client.redirects}
    return frozenset(found | ({client.verified} if client.verified else set()))


def is_listed(client: FrontClient, allowed: Collection[str] | None) -> bool:
    """Return whether all places of a client are among those that an operator allows."""
    return allowed is None or places_of(client) <= {each.lower() for each in allowed}
