"""Logging out: tokens are revoked where they came from, and forgotten here.

RFC 7009 (revocation).
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from interlock.errors import InterlockError, StoreCorrupt, StoreTooNew
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, server_metadata
from interlock.oauth.documents import refusal
from interlock.oauth.fetcher import Fetcher, check_url, shown
from interlock.oauth.identity import authenticate_client, identity_of
from interlock.oauth.storage import Tokens, TokenStore

PATIENCE = 15.0  # seconds for the authorization server: others wait at the store's lock meanwhile


class Ended(Struct, frozen=True):
    """How a login ended.

    Attributes:
        was_kept: Whether there was one.
        problem: Why its tokens are not revoked, in one line; "" when they are.
    """

    was_kept: bool
    problem: str = ""


async def logout(
    server_url: str, store: TokenStore, *, client: ClientIdentity | None = None
) -> Ended:
    """Forget the login of a server, whatever its authorization server says to that.

    Args:
        server_url: The MCP endpoint, as the login was kept for it.
        store: Where it is kept.
        client: To whom it was given, if the operator has registered it.

    Raises:
        StoreError: The store cannot be read or written.
    """
    async with store.lock(server_url):
        try:
            tokens = await store.load_tokens(server_url)
        except (StoreCorrupt, StoreTooNew) as error:
            await store.delete(server_url)
            return Ended(True, str(error))
        problem = ""
        if tokens is not None:
            try:
                async with asyncio.timeout(PATIENCE):
                    await _revoke(tokens, server_url, store, client, Fetcher(server_url))
            except InterlockError as error:
                problem = str(error)
            except TimeoutError:
                problem = f"{shown(tokens.issuer)} has not answered within {PATIENCE:g} s"
        await store.delete_login(server_url)
    return Ended(tokens is not None, problem)


async def _revoke(
    tokens: Tokens,
    server_url: str,
    store: TokenStore,
    registered: ClientIdentity | None,
    fetcher: Fetcher,
) -> None:
    issuer = shown(tokens.issuer)
    server = await server_metadata(fetcher, tokens.issuer)
    if not server.revocation_endpoint:
        raise InterlockError(f"{issuer} revokes no tokens")
    check_url(server.revocation_endpoint, f"the revocation_endpoint of {issuer}")
    found = Discovery(tokens.resource, None, server)
    client = await identity_of(
        tokens,
        found,
        server_url=server_url,
        client=registered,
        store=store,
    )
    if client is None:
        raise InterlockError(f"the client that {issuer} gave them to is not known any more")
    # With the refresh token go the access tokens that came of it (section 2.1).
    kind = "refresh_token" if tokens.refresh_token else "access_token"
    form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
    headers = {"Accept": "application/json"}
    authenticate_client(client, found, form, headers)
    reply = await fetcher.post(server.revocation_endpoint, form=form, headers=headers)
    if reply.status != 200:
        raise InterlockError(f"{issuer} did not revoke it: {refusal(reply).text}")
