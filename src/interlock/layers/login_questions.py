"""The layer for calls that need a user's credential; it asks the user to connect.

It also refuses calls whose caller lacks a claim or a header that the server needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Protocol

import msgspec
from msgspec import Raw

from interlock import observing
from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.context import ASK_TIMEOUT, OwnQuestion, url_elicitation
from interlock.errors import AuthError, InterlockError, LoginNeeded, LoginRequired
from interlock.protocol.envelope import encode
from interlock.protocol.questions import lacking
from interlock.revisions import MODERN, at_least
from interlock.schema.elicitation import for_legacy
from interlock.types import ElicitParams, ElicitResult

LOGIN_TIMEOUT = 120.0  # seconds that a call waits after its user has opened the page
_URLS = "2025-11-25"  # the first revision in which servers can ask users to open a page


class CheckedLogins(Protocol):
    """The users' credentials, as this layer needs them. Each `owner` is a `Principal.owner`."""

    def is_needed(self, server: str) -> bool:
        """Return whether each user needs a credential for a server."""
        ...

    async def check(self, call: Call) -> None:
        """Check that the calling user has the credential that the server needs.

        Raises:
            LoginRequired: The user has no such credential.
        """
        ...

    def check_caller(self, call: Call) -> None:
        """Check that the caller has the claims and headers that the server needs.

        Raises:
            CallRefused: One is missing, or cannot be sent.
        """
        ...

    async def refused(self, owner: str, server: str) -> None:
        """Stop using a user's current login, which the server has rejected."""
        ...

    def connect_url(self, owner: str, server: str) -> str:
        """Return the URL where a user connects to a server; "" if no page is served."""
        ...

    def next_change(self, owner: str, server: str) -> asyncio.Event:
        """Return an event that is set when a user's credential for a server next changes."""
        ...


class LoginQuestions:
    """Asks users to connect to servers that need their credentials.

    Args:
        logins: The users' credentials.
    """

    def __init__(self, logins: CheckedLogins) -> None:
        self._logins = logins

    def around(self, servers: Collection[str]) -> Around:
        """Return a layer that runs a call once its user has the credential that the server needs.

        Args:
            servers: The names of servers that may need a credential. Other servers' calls are
                unaffected.
        """

        def wrap(handle: CallHandler) -> CallHandler:
            def call_or_check(call: Call) -> Awaitable[Outcome]:
                if call.entry.server not in servers:
                    return handle(call)
                return self._checked(call, handle)

            return call_or_check

        return wrap

    async def _checked(self, call: Call, handle: CallHandler) -> Outcome:
        self._logins.check_caller(call)
        if not call.caller.owner or not self._logins.is_needed(call.entry.server):
            return await handle(call)
        try:
            await self._logins.check(call)
        except LoginRequired as error:
            with observing.waiting("login"):
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
        """Return the error for a call whose credential the server has rejected."""
        await self._logins.refused(call.caller.owner, call.entry.server)
        needed = self._needed(call, error)
        return LoginRequired(str(needed), url=needed.url)

    def _needed(self, call: Call, error: InterlockError) -> LoginNeeded:
        server = call.entry.server
        url = self._logins.connect_url(call.caller.owner, server)
        way = f"open {url} and call again" if url else "ask the operator of the gateway for it"
        return LoginNeeded(f"{error}; {way}", url)

    async def _connect(self, call: Call, error: LoginRequired) -> None:
        """Ask the user to connect, and wait until the user has connected.

        Raises:
            LoginNeeded: The client cannot be asked, or the user did not connect in time.
        """
        needed = self._needed(call, error)
        owner, server = call.caller.owner, call.entry.server
        params = self._question(call, needed.url)
        if params is None or call.back is None:
            raise needed
        change = self._logins.next_change(owner, server)
        try:
            raw = await call.back.ask(
                "elicitation/create", OwnQuestion(encode(params)), timeout=ASK_TIMEOUT
            )
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
        """Return the question for the client; None if the client cannot be asked."""
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
