"""Logout: a login's tokens are revoked at the authorization server and deleted here.

RFC 7009 (revocation).
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from interlock.errors import InterlockError, StoreCorrupt, StoreTooNew
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, server_metadata
from interlock.oauth.documents import refusal
from interlock.oauth.fetcher import Fetcher, check_url
from interlock.oauth.identity import authenticate_client, check_issuer, identity_of
from interlock.oauth.storage import Tokens, TokenStore
from interlock.text.urls import display

REVOCATION_TIMEOUT = 15.0  # seconds; short, because other programs wait for the store's lock


class LoggedOut(Struct, frozen=True):
    """The result of a logout.

    Attributes:
        was_stored: Whether the store contained a login.
        problem: Why the tokens could not be revoked, in one line; "" if they were revoked.
    """

    was_stored: bool
    problem: str = ""


async def logout(
    server_url: str, store: TokenStore, *, client: ClientIdentity | None = None
) -> LoggedOut:
    """Delete a server's login, even if the authorization server does not revoke its tokens.

    Args:
        server_url: The URL of the MCP endpoint, as it was passed for the login.
        store: The store that contains the login.
        client: The login's client, if the operator has registered it.

    Raises:
        StoreError: The store cannot be read or written.
    """
    async with store.lock(server_url):
        try:
            tokens = await store.load_tokens(server_url)
        except (StoreCorrupt, StoreTooNew) as error:
            await store.delete(server_url)
            return LoggedOut(True, str(error))
        problem = ""
        if tokens is not None:
            try:
                async with asyncio.timeout(REVOCATION_TIMEOUT):
                    await _revoke(tokens, server_url, store, client, Fetcher(server_url))
            except InterlockError as error:
                problem = str(error)
            except TimeoutError:
                issuer = display(tokens.issuer)
                problem = f"{issuer} has not answered within {REVOCATION_TIMEOUT:g} s"
        await store.delete_login(server_url)
    return LoggedOut(tokens is not None, problem)


async def _revoke(
    tokens: Tokens,
    server_url: str,
    store: TokenStore,
    registered: ClientIdentity | None,
    fetcher: Fetcher,
) -> None:
    issuer = display(tokens.issuer)
    server = await server_metadata(fetcher, tokens.issuer)
    if not server.revocation_endpoint:
        raise InterlockError(f"{issuer} has no revocation endpoint")
    check_url(server.revocation_endpoint, f"the revocation_endpoint of {issuer}")
    found = Discovery(tokens.resource, None, server)
    if registered is None:
        client = await identity_of(tokens, found, server_url=server_url, store=store)
    elif registered.id == tokens.client_id:
        client = await check_issuer(registered, found, server_url, store)
    else:
        client = None
    if client is None:
        raise InterlockError(f"the client to which {issuer} issued the tokens is unknown")
    # Revoking a refresh token also revokes the access tokens obtained with it (section 2.1).
    kind = "refresh_token" if tokens.refresh_token else "access_token"
    form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
    headers = {"Accept": "application/json"}
    authenticate_client(client, found, form, headers)
    reply = await fetcher.post(server.revocation_endpoint, form=form, headers=headers)
    if reply.status != 200:
        raise InterlockError(f"{issuer} did not revoke the token: {refusal(reply).text}")
