"""The running gateway, as the admin API's handlers use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from interlock.auth import Principal
from interlock.auth.key_ring import principal_of
from interlock.auth.principal import principal_id
from interlock.auth.stored_key import StoredKey
from interlock.calls import Caller
from interlock.config import Config
from interlock.errors import UnknownKey
from interlock.gateway.assembly import Assembly
from interlock.gateway.parts import Parts
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, not_found
from interlock.store.audit.reading import AuditReader
from interlock.store.audit.writer import open_tables
from interlock.store.database.claims import Claim
from interlock.store.database.recorded import Record
from interlock.store.keys import KeyStore
from interlock.types import JsonObject

MAX_PAGE = 500  # items on a page of a list
BASE = "/admin/api/v1"

Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
T = TypeVar("T")


class PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The requested page of a list: at most `limit` items after the item `after`."""

    limit: Limit = 50
    after: str = ""


class EmptyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The empty body of a request whose parameters are all in the path."""


class Operations:
    """The running gateway, with helpers for the admin API's handlers.

    Args:
        assembly: The gateway.

    Attributes:
        assembly: The running gateway.
        services: The gateway's open resources.
        server: Answers the clients' requests.
        keys: The stored API keys.
        verifying: A lock that is held while the whole audit trail is verified.
    """

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.services = assembly.services
        self.server = assembly.server
        self.keys = KeyStore(assembly.services.database)
        self.verifying = asyncio.Lock()
        self._started = monotonic()

    @property
    def parts(self) -> Parts:
        """The current configuration."""
        return self.assembly.parts

    @property
    def uptime(self) -> float:
        return monotonic() - self._started

    @property
    def configuration_hash(self) -> str:
        """The hash of the current configuration; see `hash_of`."""
        return self.hash_of(self.parts.written)

    def hash_of(self, config: Config) -> str:
        """Return a keyed hash of a configuration; comments and whitespace do not change it."""
        return self.assembly.hash_of(config)

    async def record(
        self, request: ApiRequest, body: JsonObject, claim: Claim | None = None
    ) -> None:
        """Record a change in the audit trail.

        Args:
            request: The request, which identifies the operator and the client's address.
            body: The change, with the values before and after.
            claim: Makes the change in the same transaction as the record; None if the change is
                made later.

        Raises:
            AuditUnavailable: The record could not be written, so the change must not be made.
        """
        if self.services.trail is not None:
            about = _described(request, body)
            await self.services.trail.record("admin", about, request.principal, claim=claim)

    def record_soon(self, request: ApiRequest, body: JsonObject) -> None:
        """Record the outcome of a change without delaying the response; see `record`."""
        if self.services.trail is not None:
            about = _described(request, body)
            self.services.trail.record_soon("admin", about, request.principal)

    def recording(self, request: ApiRequest, describe: Callable[..., JsonObject]) -> Record | None:
        """Return a function that writes a change and its audit record; None without a trail.

        Args:
            request: The request, which identifies the operator and the client's address.
            describe: Returns the values before and after the change, from the store's arguments.
        """

        async def record(claim: Claim, *about: Any) -> None:
            await self.record(request, describe(*about), claim)

        return None if self.services.trail is None else record

    @asynccontextmanager
    async def reading_audit(self) -> AsyncGenerator[AuditReader, None]:
        """Open the audit trail on a separate connection, so that reading delays no calls."""
        location = self.assembly.started.database or None
        async with AuditReader.at(open_tables(location)) as reader:
            yield reader

    async def caller(
        self, key: str = "", user: str = "", view: str = ""
    ) -> tuple[Caller, StoredKey | None]:
        """Return the owner of a key, and the key; or a user with all scopes, and None.

        Raises:
            Problem: Not exactly one of `key` and `user` is given, or the key or view is unknown.
        """
        if bool(key) == bool(user):
            raise Problem(400, "bad_request", "name either a key or a user")
        if view and view not in self.parts.settings.views:
            raise not_found("no view has this name")
        if user:
            return Caller(Principal(principal_id(user), frozenset({"mcp:*"}), view=view)), None
        try:
            stored = await self.keys.get(key)
        except UnknownKey:
            raise not_found("no key has this id") from None
        principal = principal_of(stored)
        if view and principal.view not in ("", view):
            raise Problem(409, "not_in_view", "the key is bound to another view")
        return Caller(replace(principal, view=view) if view else principal), stored


def _described(request: ApiRequest, body: JsonObject) -> JsonObject:
    address = {"address": request.http.address} if request.http.address else {}
    return {"surface": "api"} | body | address


def page_of(
    items: Sequence[T], page: PageQuery, request: ApiRequest, key: Any = lambda each: each["id"]
) -> JsonReply:
    """Return a page of a list, with the URL of the next page in the `Link` header.

    Args:
        items: The whole list.
        page: Selects the page to return.
        request: The request for the page.
        key: Returns an item's identifier, which is the cursor after this item.
    """
    begin = 0
    if page.after:
        positions = [index for index, each in enumerate(items) if key(each) == page.after]
        if not positions:
            raise Problem(
                400,
                "bad_request",
                "query: after is not a cursor of this list; take it from the Link header",
            )
        begin = positions[0] + 1
    part = items[begin : begin + page.limit]
    more = begin + page.limit < len(items)
    return listed(part, request, key(part[-1]) if more else "")


def listed(items: Sequence[object], request: ApiRequest, following: str = "") -> JsonReply:
    """Return list items; `following` is the cursor of the next page, or "" on the last page."""
    if not following:
        return JsonReply(items)
    given: Mapping[str, object] = msgspec.structs.asdict(request.query)
    query = {name: value for name, value in given.items() if value not in ("", None)}
    query["after"] = following
    path: str = request.http.scope["path"]
    link = f'<{path}?{urlencode(query)}>; rel="next"'
    return JsonReply(items, headers=((b"link", link.encode("latin-1", "replace")),))
