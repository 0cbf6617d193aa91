"""Who we are for an authorization server, and how we authenticate_client it.

In this order: what the operator has registered, an https address where our metadata can be read
(CIMD), a registration that we make ourselves (RFC 7591) and keep. Rules:

1. An identity belongs to one issuer and is never shown to another one: neither id nor secret.
2. A registration is used for the redirect URI and the scopes it was made for, and no others:
   some authorization servers refuse them.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from time import time
from urllib.parse import quote_plus, urlsplit

from msgspec.structs import replace

from interlock.errors import AuthError, StoreCorrupt, StoreError, StoreTooNew
from interlock.oauth.addresses import is_loopback
from interlock.oauth.client_identity import METHODS, ClientIdentity
from interlock.oauth.discovery import Discovery, same_issuer
from interlock.oauth.documents import RegistrationAnswer, refusal
from interlock.oauth.fetcher import Fetcher, check_url, shown
from interlock.oauth.storage import Registration, Tokens, TokenStore
from interlock.quoting import echo

_log = logging.getLogger("interlock.oauth")
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


# Which identity


async def identify(
    found: Discovery,
    *,
    server_url: str,
    client: ClientIdentity | None,
    client_metadata_url: str,
    client_name: str,
    redirect_uri: str,
    scopes: Sequence[str],
    store: TokenStore,
    fetcher: Fetcher,
) -> ClientIdentity:
    """Choose or make our identity for the authorization server that was found.

    Whoever calls it holds the store's lock of the server.

    Raises:
        AuthError: We are nobody there, or are somebody for another issuer.
    """
    if client is not None:
        return await check_issuer(client, found, server_url, store)
    if client_metadata_url and found.server.client_id_metadata_document_supported:
        return ClientIdentity(id=client_metadata_url, issuer=found.issuer)
    known = await kept(found.issuer, server_url, store)
    if known is not None and _is_for(known, redirect_uri, scopes):
        return _identity(known)
    made = await _register(found, client_name, redirect_uri, scopes, fetcher)
    try:
        await store.save_registration(server_url, made)
    except StoreError as error:
        _log.warning("%s", error)  # it is good for as long as this program runs
    return _identity(made)


async def check_issuer(
    client: ClientIdentity, found: Discovery, place: str, store: TokenStore
) -> ClientIdentity:
    """Give a registered identity if it belongs to the issuer that was found.

    One that names no issuer belongs to the first that it was used with. Whoever calls it holds
    the store's lock of the place.

    Args:
        client: As the operator wrote it.
        found: Whom the server names now.
        place: Of the login in the store.
        store: Knows the first one.

    Raises:
        AuthError: It belongs to another one.
    """
    issuer = client.issuer or await _first_issuer(client, found, place, store)
    if not same_issuer(issuer, found.issuer):
        raise AuthError(
            f"client {echo(client.id)} is registered at {shown(issuer)}, and is not shown to "
            f"{shown(found.issuer)}, which the server names now: if both are right, name the "
            "issuer together with the client's id"
        )
    return client


async def _first_issuer(
    client: ClientIdentity, found: Discovery, place: str, store: TokenStore
) -> str:
    with suppress(StoreCorrupt, StoreTooNew):
        if known := await store.load_issuer(place, client.id):
            return known
    try:
        await store.save_issuer(place, client.id, found.issuer)
    except StoreError as error:
        _log.warning("%s", error)  # it is known for as long as this program runs
    return found.issuer


async def kept(issuer: str, server_url: str, store: TokenStore) -> Registration | None:
    """Give the registration that was made before, if it can be read and is still good."""
    try:
        known = await store.load_registration(server_url, issuer)
    except (StoreCorrupt, StoreTooNew):
        return None
    return None if known is None or known.expired() else known


async def retire(issuer: str, server_url: str, store: TokenStore) -> None:
    """Make no more logins with the registration that is kept; its tokens can still be renewed.

    Whoever calls it holds the store's lock of the server.
    """
    with suppress(StoreError):  # it is tried once more, then
        known = await kept(issuer, server_url, store)
        if known is not None:
            await store.save_registration(server_url, replace(known, redirect_uris=()))


async def identity_of(
    tokens: Tokens,
    found: Discovery,
    *,
    server_url: str,
    client: ClientIdentity | None,
    store: TokenStore,
) -> ClientIdentity | None:
    """Give the identity that tokens were given to; None if nobody can prove it any more."""
    if client is not None:
        if client.id != tokens.client_id:
            return None
        return await check_issuer(client, found, server_url, store)
    known = await kept(found.issuer, server_url, store)
    if known is not None and known.client_id == tokens.client_id:
        return _identity(known)
    if tokens.auth_method == "none":  # its id is all that it needs
        return ClientIdentity(id=tokens.client_id, issuer=found.issuer)
    return None


def _is_for(known: Registration, redirect_uri: str, scopes: Sequence[str]) -> bool:
    allowed = known.scope.split()  # one that was made for none in particular has no limit
    return redirect_uri in known.redirect_uris and (not allowed or set(scopes) <= set(allowed))


def _identity(known: Registration) -> ClientIdentity:
    return ClientIdentity(
        id=known.client_id,
        secret=known.client_secret,
        issuer=known.issuer,
        auth_method=known.token_endpoint_auth_method,
    )


# Dynamic registration


async def _register(
    found: Discovery, client_name: str, redirect_uri: str, scopes: Sequence[str], fetcher: Fetcher
) -> Registration:
    endpoint, issuer = found.server.registration_endpoint, found.issuer
    if not endpoint:
        raise AuthError(
            f"{shown(issuer)} takes registered clients only: register one there for "
            f"{redirect_uri}, and give its id and secret"
        )
    check_url(endpoint, f"the registration_endpoint of {shown(issuer)}")
    local = is_loopback(urlsplit(redirect_uri).hostname or "")
    asked: dict[str, object] = {
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": _wanted_method(found),
        "application_type": "native" if local else "web",
    }
    if scopes:
        asked["scope"] = " ".join(scopes)
    reply = await fetcher.post(endpoint, json=asked, headers={"Accept": "application/json"})
    what = f"the registration at {shown(issuer)}"
    if reply.status not in (200, 201):
        raise refusal(reply).error(f"{what} was refused", reply.status)
    answer = reply.json(RegistrationAnswer)
    if not answer.client_id:
        raise AuthError(f"{what} gave no client id")
    secret = answer.client_secret or ""
    method = answer.token_endpoint_auth_method or ("" if secret else "none")
    if method and method not in METHODS[:2] + METHODS[3:]:
        raise AuthError(f"{what} wants {echo(method)}, which is not supported")
    return Registration(
        issuer=issuer,
        client_id=answer.client_id,
        client_secret=secret,
        client_secret_expires_at=answer.secret_expires_at,
        token_endpoint_auth_method=method,
        redirect_uris=(redirect_uri,),
        scope=" ".join(scopes),
    )


def _wanted_method(found: Discovery) -> str:
    """Choose how to prove who we are: not at all, where that will do, as a secret adds nothing."""
    offered = found.server.token_endpoint_auth_methods_supported or ()
    return next((each for each in ("none", *METHODS[:2]) if each in offered), "none")


# Proof


def authenticate_client(
    client: ClientIdentity, found: Discovery, form: dict[str, str], headers: dict[str, str]
) -> str:
    """Add to a token request who asks, in the way that both sides know.

    Returns:
        The way: one of `METHODS`.

    Raises:
        AuthError: There is no such way.
        MissingExtra: A private key, and no library to sign with.
    """
    method = _method(client, found)
    match method:
        case "client_secret_basic":
            # RFC 6749 section 2.3.1: both are encoded as in forms before they are put together.
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


def _method(client: ClientIdentity, found: Discovery) -> str:
    if client.auth_method:
        return client.auth_method
    offered = found.server.token_endpoint_auth_methods_supported
    if client.private_key:
        able: tuple[str, ...] = ("private_key_jwt",)
    elif client.secret:
        able = (*METHODS[:2], "none")  # some register a secret and then want none
    else:
        return "none"
    for method in able:
        if offered is None or method in offered:
            return method
    raise AuthError(
        f"client {echo(client.id)} can prove itself by {' or '.join(able)}, and "
        f"{shown(found.issuer)} takes only {', '.join(map(echo, offered or ()))}"
    )
