"""How a client says who it is at the token endpoint: nothing, a secret, or a signature.

RFC 6749, section 2.3; RFC 7523, section 2.2.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote_plus

from msgspec import Struct

from interlock.auth.issuers import stated_subject
from interlock.auth.key_format import digest
from interlock.gateway.front_door.client_directory import ClientDirectory
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.request import OAuthError

BY_JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

CheckAssertion = Callable[[FrontClient, str], Awaitable[None]]
"""Checks a client's signed statement about itself; raises an `OAuthError` if it proves nothing."""


class ProvenClient(Struct, frozen=True):
    """A client that has authenticated, and whether it did so by a signature."""

    client: FrontClient
    signs: bool = False


def with_basic(form: Mapping[str, str], authorization: str | None) -> dict[str, str]:
    """Return the form with the id and the secret of an `Authorization: Basic` header.

    Raises:
        OAuthError: The header is malformed, or the form has a secret too.
    """
    if authorization is None:
        return dict(form)
    scheme, _, encoded = authorization.partition(" ")
    try:
        told = b64decode(encoded.strip(), validate=True).decode()
    except (Base64Error, ValueError):
        told = ""
    id, colon, secret = told.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise OAuthError("invalid_client", "the Authorization header must be Basic", 401)
    id, secret = unquote_plus(id), unquote_plus(secret)
    if "client_secret" in form or form.get("client_id", id) != id:
        text = "the client authenticates twice; use the Authorization header or the form"
        raise OAuthError("invalid_request", text)
    # Some clients without a secret send an empty one.
    return {**form, "client_id": id, **({"client_secret": secret} if secret else {})}


async def authenticated(
    form: Mapping[str, str],
    clients: ClientDirectory,
    check_assertion: CheckAssertion,
    caller: str,
) -> ProvenClient:
    """Return the client that sent a request to the token endpoint.

    Args:
        form: The form; see `with_basic`.
        clients: All clients.
        check_assertion: Checks what a client has signed.
        caller: The IP address of the caller.

    Raises:
        OAuthError: The client is unknown, or does not prove that it is this client.
    """
    assertion, secret = form.get("client_assertion", ""), form.get("client_secret", "")
    if assertion and secret:
        raise OAuthError("invalid_request", "the client authenticates twice")
    id = form.get("client_id") or stated_subject(assertion.encode(errors="replace"))
    if not id:
        raise OAuthError("invalid_client", "the request names no client_id", 401)
    client = await clients.find(id, caller=caller, is_known=True)
    if assertion:
        if form.get("client_assertion_type") != BY_JWT or client.jwks is None:
            text = f"{client.label} cannot authenticate by this assertion"
            raise OAuthError("invalid_client", text, 401)
        await check_assertion(client, assertion)
        return ProvenClient(client, signs=True)
    if client.secret_hash:
        if not hmac.compare_digest(digest(secret), client.secret_hash):
            raise OAuthError("invalid_client", f"the secret of {client.label} is not valid", 401)
    elif client.must_sign:
        raise OAuthError("invalid_client", f"{client.label} must sign its requests", 401)
    return ProvenClient(client)
