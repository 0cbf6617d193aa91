"""The client's identity at an authorization server, and how the client authenticates there.

The first of these that is available is used: the client that the operator has registered; an https
URL at which the client's metadata is published (CIMD); a registration that this program makes (RFC
7591) and stores. Rules:

1. An identity belongs to one issuer. The id and the secret are never sent to another issuer.
2. A registration is used only for the redirect URI and the scopes with which it was made, because
   some authorization servers refuse any others.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from time import time
from urllib.parse import quote_plus, urlsplit

from msgspec.structs import replace

from interlock.errors import AuthError, HttpError, StoreCorrupt, StoreError, StoreTooNew
from interlock.oauth.client_identity import METHODS, ClientIdentity
from interlock.oauth.discovery import CONFIGURE_ISSUER, Discovery, same_issuer
from interlock.oauth.documents import error_of, read_registration, refusal
from interlock.oauth.fetcher import Fetcher, check_url
from interlock.oauth.storage import Registration, Tokens, TokenStore
from interlock.text.quoting import echo
from interlock.text.urls import display, is_loopback

_log = logging.getLogger("interlock.oauth")
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


# Choosing an identity


async def identify(
    found: Discovery,
    *,
    server_url: str,
    client_metadata_url: str,
    client_name: str,
    redirect_uri: str,
    fixed_redirect_uri: str,
    scopes: Sequence[str],
    retired: str,
    store: TokenStore,
    fetcher: Fetcher,
) -> ClientIdentity:
    """Return this client's identity at an authorization server; register the client if necessary.

    The caller must hold the store's lock for the server. `retired` is the id of a client that no
    longer works, and `fixed_redirect_uri` is the redirect URI of clients that the user registers.

    Raises:
        AuthError: The authorization server registers no clients, or refused the registration.
    """
    if client_metadata_url and found.server.client_id_metadata_document_supported:
        return ClientIdentity(id=client_metadata_url, issuer=found.issuer)
    registration = await stored_registration(found.issuer, server_url, store)
    if (
        registration is None
        or registration.client_id == retired
        or not _is_for(registration, redirect_uri, scopes)
    ):
        try:
            registration = await _register(found, client_name, redirect_uri, scopes, fetcher)
        except (AuthError, HttpError) as error:
            if not found.is_guessed:
                _add_way_out(error, fixed_redirect_uri)
            raise
        try:
            await store.save_registration(server_url, registration)
        except StoreError as error:
            _log.warning("%s", error)
    return _identity(registration)


async def check_issuer(
    client: ClientIdentity, found: Discovery, key: str, store: TokenStore
) -> ClientIdentity:
    """Return the operator's client with its issuer, after checking that the issuer was found.

    A client without issuer belongs to the first issuer with which it is used. The caller must hold
    the store's lock for `key`.

    Args:
        client: The client, as the operator configured it.
        found: The authorization server that the protected server names at present.
        key: The key of the login in the store.
        store: The store that remembers the first issuer.

    Raises:
        AuthError: The client belongs to a different issuer.
    """
    issuer = client.issuer or await _first_issuer(client, found, key, store)
    if not same_issuer(issuer, found.issuer):
        raise AuthError(
            f"client {echo(client.id)} is registered at {display(issuer)} and is not used at "
            f"{display(found.issuer)}, which the server names now: if both are right, "
            f"{CONFIGURE_ISSUER}"
        )
    return replace(client, issuer=issuer)


async def _first_issuer(
    client: ClientIdentity, found: Discovery, key: str, store: TokenStore
) -> str:
    with suppress(StoreCorrupt, StoreTooNew):
        if known := await store.load_issuer(key, client.id):
            return known
    try:
        await store.save_issuer(key, client.id, found.issuer)
    except StoreError as error:
        _log.warning("%s", error)
    return found.issuer


async def stored_registration(
    issuer: str, server_url: str, store: TokenStore
) -> Registration | None:
    """Return the stored registration; None if it is missing, damaged or expired."""
    try:
        registration = await store.load_registration(server_url, issuer)
    except (StoreCorrupt, StoreTooNew):
        return None
    return None if registration is None or registration.expired() else registration


async def retire(issuer: str, server_url: str, store: TokenStore) -> None:
    """Make new logins ignore the stored registration; its tokens can still be refreshed.

    The caller must hold the store's lock for the server.
    """
    with suppress(StoreError):  # harmless: the next login fails once, and then retires it again
        registration = await stored_registration(issuer, server_url, store)
        if registration is not None:
            await store.save_registration(server_url, replace(registration, redirect_uris=()))


async def identity_of(
    tokens: Tokens, found: Discovery, *, server_url: str, store: TokenStore
) -> ClientIdentity | None:
    """Return the dynamic client that received the tokens; None if its secret is lost."""
    registration = await stored_registration(found.issuer, server_url, store)
    if registration is not None and registration.client_id == tokens.client_id:
        return _identity(registration)
    if tokens.auth_method == "none":  # the client needs no secret
        return ClientIdentity(id=tokens.client_id, issuer=found.issuer)
    return None


def _is_for(registration: Registration, redirect_uri: str, scopes: Sequence[str]) -> bool:
    allowed = registration.scope.split()  # [] means that the registration allows all scopes
    is_allowed = not allowed or set(scopes) <= set(allowed)
    return redirect_uri in registration.redirect_uris and is_allowed


def _identity(registration: Registration) -> ClientIdentity:
    return ClientIdentity(
        id=registration.client_id,
        secret=registration.client_secret,
        issuer=registration.issuer,
        auth_method=registration.token_endpoint_auth_method,
    )


# Dynamic registration


async def _register(
    found: Discovery, client_name: str, redirect_uri: str, scopes: Sequence[str], fetcher: Fetcher
) -> Registration:
    endpoint, issuer = found.server.registration_endpoint, found.issuer
    if not endpoint:
        raise AuthError(f"{display(issuer)} does not register clients")
    check_url(endpoint, f"the registration_endpoint of {display(issuer)}")
    is_native = is_loopback(urlsplit(redirect_uri).hostname or "")
    metadata: dict[str, object] = {
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _registered_method(found),
        "application_type": "native" if is_native else "web",
    }
    if scopes:
        metadata["scope"] = " ".join(scopes)
    reply = await fetcher.post(endpoint, json=metadata, headers={"Accept": "application/json"})
    what = f"the registration at {display(issuer)}"
    # Some servers refuse with status 200.
    if reply.status // 100 != 2 or error_of(reply) is not None:
        raise refusal(reply).error(f"{what} was refused", reply.status)
    answer = read_registration(reply)
    if not answer.client_id:
        raise AuthError(f"{what} returned no client_id")
    secret = answer.client_secret or ""
    method = answer.token_endpoint_auth_method or ("" if secret else "none")
    if method and method not in METHODS[:2] + METHODS[3:]:
        raise AuthError(f"{what} requires {echo(method)}, which is not supported")
    if not secret:  # some servers repeat a method that needs one
        method = "none"
    return Registration(
        issuer=issuer,
        client_id=answer.client_id,
        client_secret=secret,
        client_secret_expires_at=answer.secret_expires_at,
        token_endpoint_auth_method=method,
        redirect_uris=(redirect_uri,),
        scope=" ".join(scopes),
    )


def _add_way_out(error: Exception, redirect_uri: str) -> None:
    """Add to an error of a registration what the user can do instead."""
    error.args = (
        f"{error}; register a client there with the redirect URL {redirect_uri} and give its id "
        "with --client-id or as clientId in the configuration",
    )


def _registered_method(found: Discovery) -> str:
    """Return the authentication method to register: "none" if supported, as secrets add nothing."""
    offered = found.server.token_endpoint_auth_methods_supported or ()
    return next((each for each in ("none", *METHODS[:2]) if each in offered), "none")


# Client authentication


def authenticate_client(
    client: ClientIdentity, found: Discovery, form: dict[str, str], headers: dict[str, str]
) -> str:
    """Add the client's id and credentials to a token request's form or headers.

    Returns:
        The method that was used, which is one of `METHODS`.

    Raises:
        AuthError: The authorization server supports none of the client's authentication methods.
        MissingExtra: The client has a private key, but the library for signatures is missing.
    """
    method = auth_method(client, found)
    match method:
        case "client_secret_basic":
            # RFC 6749 section 2.3.1 requires that both are form-encoded before they are joined.
            pair = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        case "client_secret_post":
            form |= {"client_id": client.id, "client_secret": client.secret}
        case "private_key_jwt":
            from interlock.oauth.assertion import sign

            form |= {
                "client_id": client.id,
                "client_assertion_type": _ASSERTION,
                "client_assertion": sign(client, found.issuer, now=time()),
            }
        case _:
            form["client_id"] = client.id
    return method


def auth_method(client: ClientIdentity, found: Discovery) -> str:
    """Return the client's authentication method at an authorization server.

    Raises:
        AuthError: The authorization server supports none of the client's methods.
    """
    if client.auth_method:
        return client.auth_method
    offered = found.server.token_endpoint_auth_methods_supported
    if client.private_key:
        able: tuple[str, ...] = ("private_key_jwt",)
    elif client.secret:
        able = (*METHODS[:2], "none")  # some servers issue a secret, but require none
    else:
        return "none"
    for method in able:
        if offered is None or method in offered:
            return method
    raise AuthError(
        f"client {echo(client.id)} can authenticate by {' or '.join(able)}, but "
        f"{display(found.issuer)} supports only {', '.join(map(echo, offered or ()))}"
    )
