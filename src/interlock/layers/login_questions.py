"""The layer of calls that need a credential of their user; it asks the user to connect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Protocol

import msgspec
from msgspec import Raw

from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.context import ASK_TIMEOUT, url_elicitation
from interlock.errors import AuthError, InterlockError, LoginNeeded, LoginRequired
from interlock.protocol.envelope import encode
from interlock.protocol.questions import lacking
from interlock.revisions import MODERN, at_least
from interlock.schema.elicitation import for_legacy
from interlock.types import ElicitParams, ElicitResult

LOGIN_TIMEOUT = 120.0  # seconds that a call waits for a user who has opened the page
_URLS = "2025-11-25"  # the first revision that can ask a user to open a page


class CheckedLogins(Protocol):
    """The credentials of users, as the layer checks them. Owners are `Principal.owner`."""

    def is_needed(self, server: str) -> bool:
        """Return whether a server needs a credential of each user."""
        ...

    async def check(self, call: Call) -> None:
        """Check that the user of a call has the credential that its server needs.

        Raises:
            LoginRequired: The credential is missing.
        """
        ...

    async def refused(self, owner: str, server: str) -> None:
        """Stop using the present login of a user, which the server has refused."""
        ...

    def connect_url(self, owner: str, server: str) -> str:
        """Return the URL at which a user connects to a server; "" if there is none."""
        ...

    def next_change(self, owner: str, server: str) -> asyncio.Event:
        """Return an event that is set when a credential of a user next changes."""
        ...


class LoginQuestions:
    """Asks users to connect to servers.

    Args:
        logins: The credentials of users.
    """

    def __init__(self, logins: CheckedLogins) -> None:
        self._logins = logins

    def around(self, servers: Collection[str]) -> Around:
        """Return a layer that makes calls whose user has the credential that the server needs.

        Args:
            servers: Names of the servers that may need one. Calls of other servers pass at once.
        """

        def wrap(handle: CallHandler) -> CallHandler:
            def call_or_check(call: Call) -> Awaitable[Outcome]:
                if call.entry.server not in servers:
                    return handle(call)
                return self._checked(call, handle)

            return call_or_check

        return wrap

    async def _checked(self, call: Call, handle: CallHandler) -> Outcome:
        if not call.caller.owner or not self._logins.is_needed(call.entry.server):
            return await handle(call)
        try:
            await self._logins.check(call)
        except LoginRequired as error:
            await self._connect(call, error)
            await self._check_again(call)
        try:
            return await handle(call)
        except AuthError as error:
            if error.status != 401:
                raise
            raise await self._refused(call, error) from None

    async def _check_again(self, call: Call) -> None:
        try:
            await self._logins.check(call)
        except LoginRequired as error:
            raise self._needed(call, error) from None

    async def _refused(self, call: Call, error: AuthError) -> LoginRequired:
        """Return the error of a call whose credential its server has refused."""
        await self._logins.refused(call.caller.owner, call.entry.server)
        needed = self._needed(call, error)
        return LoginRequired(str(needed), url=needed.url)

    def _needed(self, call: Call, error: InterlockError) -> LoginNeeded:
        server = call.entry.server
        url = self._logins.connect_url(call.caller.owner, server)
        way = f"open {url} and call again" if url else "ask the operator of the gateway for it"
        return LoginNeeded(f"{error}; {way}", url)

    async def _connect(self, call: Call, error: LoginRequired) -> None:
        """Ask the user to connect, and wait for that.

        Raises:
            LoginNeeded: The client cannot be asked, or the user did not connect.
        """
        needed = self._needed(call, error)
        owner, server = call.caller.owner, call.entry.server
        params = self._question(call, needed.url)
        if params is None or call.back is None:
            raise needed
        change = self._logins.next_change(owner, server)
        try:
            raw = await call.back.ask("elicitation/create", encode(params), timeout=ASK_TIMEOUT)
            if msgspec.json.decode(raw, type=ElicitResult).action != "accept":
                raise needed
            async with asyncio.timeout(LOGIN_TIMEOUT):
                await change.wait()
        except (InterlockError, msgspec.DecodeError, TimeoutError):
            raise needed from None
        if params.elicitation_id is not None:
            done = encode({"elicitationId": params.elicitation_id})
            call.back.notify("notifications/elicitation/complete", done)

    @staticmethod
    def _question(call: Call, url: str) -> ElicitParams | None:
        """Return the question for the client; None if it cannot be asked."""
        revision, can = call.caller.revision, call.capabilities
        if not url or can is None or not revision or not at_least(revision, _URLS):
            return None
        message = f"Connect your account to {call.entry.server!r} to continue."
        params = url_elicitation(message, url).params
        if not isinstance(params, ElicitParams):
            return None
        if lacking(can, "elicitation/create", Raw(encode(params))):
            return None
        return params if revision in MODERN else for_legacy(params, revision)


__all__ = ["LoginQuestions"]
