"""The operators' view of clients, and their decisions, for the commands and the admin API."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.key_format import digest
from interlock.auth.stored_authorization import StoredAuthorization
from interlock.errors import InvalidArguments, StoreError
from interlock.gateway.front_door.clients import checked_redirects, clean_name
from interlock.gateway.front_door.request import OAuthError
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.recorded import Record
from interlock.store.oauth_clients import ClientState, OAuthClientStore, StoredClient
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

RecordChange = Callable[[JsonObject], Record | None]
"""Returns a function that makes a change with its audit record, given the record's body."""


class CreatedClient(Struct, frozen=True):
    """A client that an operator has just created; its secret cannot be read again."""

    stored: StoredClient
    secret: str = ""

    def __repr__(self) -> str:
        return f"CreatedClient({self.stored.id!r})"


class ClientOperations:
    """Lists clients, and changes what they may do.

    Args:
        store: The authorizations.
        decisions: The operators' decisions.
        recording: Records a change in the audit trail.
        by: The operator.
    """

    def __init__(
        self,
        store: AuthorizationStore,
        decisions: OAuthClientStore,
        recording: RecordChange,
        by: str,
    ) -> None:
        self._store = store
        self._decisions = decisions
        self._recording = recording
        self._by = by

    async def list(self) -> Sequence[JsonObject]:
        """Return all clients that people have allowed or an operator has decided about."""
        now = now_micros()
        decided = {each.id: each for each in await self._decisions.list()}
        by_client: dict[str, list[StoredAuthorization]] = {}
        for each in await self._store.list():
            by_client.setdefault(each.client, []).append(each)
        shown = [self._summary(id, all, decided, now) for id, all in by_client.items()]
        without = [each for id, each in decided.items() if id not in by_client]
        return [*shown, *(each.as_json() for each in without)]

    def _summary(
        self,
        id: str,
        all: Sequence[StoredAuthorization],
        decided: dict[str, StoredClient],
        now: int,
    ) -> JsonObject:
        active = [each for each in all if each.state(now) == "active"]
        places = all[0].places
        states = [decided[each].state for each in (id, *places) if each in decided]
        is_blocked = "blocked" in (states[:1] if id in decided else states)
        return {
            "client": id,
            "name": all[0].name,
            "verified": all[0].verified or None,
            "places": list(places),
            "people": len({(each.tenant, each.user) for each in active}),
            "lastUsed": rfc3339(max(each.last_used for each in all)),
            "state": "blocked" if is_blocked else states[0] if states else "listed",
        }

    async def find(self, text: str) -> str:
        """Return the id of the only client with this name; the text itself if none has it.

        Ids and places come first. A name must not decide what is allowed, because a client chooses
        it.

        Raises:
            InvalidArguments: Several clients have this name.
        """
        all = await self._store.list()
        names = {each.client: each.name for each in all}
        names |= {each.id: each.name for each in await self._decisions.list() if each.name}
        if text in names or any(text in each.places for each in all):
            return text
        named = [id for id, name in names.items() if name == text]
        if len(named) > 1:
            raise InvalidArguments(
                f"{len(named)} clients are named {text!r}; use an id of `interlock clients list`"
            )
        return named[0] if named else text

    async def show(self, client: str) -> Sequence[JsonObject]:
        """Return the authorizations of a client, the newest first."""
        now = now_micros()
        return [each.as_json(now) for each in await self._store.list(client=client)]

    async def decide(self, client: str, state: ClientState) -> int:
        """Block or allow a client, or all clients of a place; return how many accesses ended.

        Args:
            client: A client's id, a host, "localhost", or "SCHEME:".
            state: "blocked" or "allowed".
        """
        before = {each.id: each for each in await self._decisions.list()}.get(client)
        stored = before or StoredClient(id=client, state=state)
        # A created client exists by this row, and so it keeps its redirect URIs.
        now_is: ClientState = "created" if stored.redirects and state == "allowed" else state
        stored = replace(stored, state=now_is, created_by=self._by, created=now_micros())
        action = "block" if state == "blocked" else "allow"
        record = self._recording({"action": action, "client": client})
        all = await self._store.list() if state == "blocked" else []
        await self._decisions.put(stored, record=record)
        if state == "blocked":
            with suppress(StoreError):  # the decision is stored, so those read before must end
                all = await self._store.list()  # again, so that none is missed that is new
        of_it = [each for each in all if client in (each.client, *each.places)]
        return len(await self.end(of_it, "blocked"))

    async def revoke(
        self, *, id: str = "", user: str = "", client: str = ""
    ) -> Sequence[StoredAuthorization]:
        """End an authorization, or all of a person or of a client; return those that ended.

        Raises:
            InvalidArguments: Not exactly one of them is given, or no authorization has this id.
        """
        if [bool(id), bool(user), bool(client)].count(True) != 1:
            raise InvalidArguments("name one: an authorization's id, a user, or a client")
        if not id:
            return await self.end(await self._store.list(user=user, client=client), "revoked")
        found = await self._store.get(id)
        if found is None:
            raise InvalidArguments(f"no authorization has the id {id!r}: see `interlock clients`")
        return await self.end([found], "revoked")

    async def end(
        self, all: Sequence[StoredAuthorization], reason: str
    ) -> Sequence[StoredAuthorization]:
        """End authorizations that have not ended yet; return them."""
        ended: list[StoredAuthorization] = []
        for each in all:
            if each.ended is None:
                body = {"action": "ended", "client": each.client, "authorization": each.id}
                record = self._recording({**body, "of": each.user, "why": reason})
                if await self._store.end(each, reason, now_micros(), record=record):
                    ended.append(each)
        return ended

    async def create(
        self, name: str, redirects: Sequence[str], *, has_secret: bool, jwks_url: str = ""
    ) -> CreatedClient:
        """Create a client, for a program that has no document and cannot register itself.

        Raises:
            InvalidArguments: A redirect URI or the combination is not valid.
        """
        if has_secret and jwks_url:
            raise InvalidArguments("a client has a secret or keys, not both")
        try:
            checked = checked_redirects(redirects)
        except OAuthError as error:
            raise InvalidArguments(error.text) from None
        secret = secrets.token_urlsafe(32) if has_secret else ""
        stored = StoredClient(
            id=f"client-{secrets.token_hex(8)}",
            name=clean_name(name),
            state="created",
            redirects=checked,
            secret_hash=digest(secret) if secret else b"",
            jwks_url=jwks_url,
            created_by=self._by,
            created=now_micros(),
        )
        body = {"action": "create", "client": stored.id, "name": stored.name}
        await self._decisions.put(stored, record=self._recording(body))
        return CreatedClient(stored, secret)
