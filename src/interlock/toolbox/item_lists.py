"""The resources and prompts that one server behind a gateway has last listed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from interlock import aio
from interlock.client import Client
from interlock.client.listing import PROMPTS, RESOURCES, TEMPLATES, Kind, Listing
from interlock.errors import InterlockError, RemoteError
from interlock.revisions import METHOD_NOT_FOUND
from interlock.store.pin import PROMPT_KINDS
from interlock.toolbox.pins import CheckedLists, offered_prompts
from interlock.toolbox.pool import PooledClient, owner_of
from interlock.toolbox.user_lists import UserLists
from interlock.types import Prompt

ItemKind = Literal["resources", "resourceTemplates", "prompts"]
# The lists to refresh after a change notification, keyed by its subject, which is also the name
# of a capability.
_ITEMS_OF: dict[str, tuple[ItemKind, ...]] = {
    "resources": ("resources", "resourceTemplates"),
    "prompts": ("prompts",),
}
_ITEM_LISTS: dict[ItemKind, tuple[str, Callable[[Client], Awaitable[Listing[Any]]]]] = {
    "resources": ("resources", Client.list_resources),
    "resourceTemplates": ("resources", Client.list_resource_templates),
    "prompts": ("prompts", Client.list_prompts),
}

_KINDS: dict[ItemKind, Kind[Any]] = {
    "resources": RESOURCES,
    "resourceTemplates": TEMPLATES,
    "prompts": PROMPTS,
}

_log = logging.getLogger("interlock.toolbox")


class ItemLists:
    """One server's lists of resources, templates and prompts. A failed refresh keeps the old list.

    Args:
        server: The server's name in the toolbox.
        checked: The accepted definitions.
        users: Each user's own lists, if each user has a connection.

    Attributes:
        found: The lists by kind.
        unlisted: The kinds whose items have changed but have not been listed again yet.
        waiting: Why prompts are not offered, keyed by the prompt's name.
    """

    def __init__(self, server: str, checked: CheckedLists, users: UserLists) -> None:
        self.found: dict[ItemKind, Listing[Any]] = {kind: Listing() for kind in _ITEM_LISTS}
        self.unlisted: set[ItemKind] = set()
        self.waiting: dict[str, str] = {}
        self._prompts: Listing[Prompt] = Listing()  # all listed prompts, accepted or not
        self._server = server
        self._checked = checked
        self._users = users

    def note_change(self, what: str) -> None:
        """Mark "resources" or "prompts" to be listed again."""
        self.unlisted.update(_ITEMS_OF.get(what, ()))

    def note_all(self) -> None:
        """Mark all kinds of items to be listed again."""
        self.unlisted.update(_ITEM_LISTS)

    async def list_changed(self, pooled: PooledClient, *, is_personal: bool) -> bool:
        """List the marked kinds of items again; return whether a list was replaced.

        Args:
            pooled: A connection to the server.
            is_personal: Whether it is the connection of one user.
        """
        kinds, self.unlisted = self.unlisted, set()
        try:
            return any(
                await asyncio.gather(*(self._list(kind, pooled, is_personal) for kind in kinds))
            )
        except asyncio.CancelledError:
            self.unlisted |= kinds
            raise

    async def _list(self, kind: ItemKind, pooled: PooledClient, is_personal: bool) -> bool:
        needed, list_all = _ITEM_LISTS[kind]
        try:
            has_it = getattr(pooled.client.capabilities, needed) is not None
            found = await list_all(pooled.client) if has_it else Listing()
        except InterlockError as error:
            if not (isinstance(error, RemoteError) and error.code == METHOD_NOT_FOUND):
                reason = pooled.redactor.redact(str(error))
                _log.warning("server %r: %s not listed: %s", self._server, kind, reason)
                return False
            found = Listing()  # many servers do not implement the request for templates
        if is_personal:
            found = self._users.merge(_KINDS[kind], owner_of(pooled.key), found)
        if kind == "prompts":
            return await self._check_prompts(found)
        if found.definitions == self.found[kind].definitions:
            return False
        self.found[kind] = found
        return True

    async def _check_prompts(self, found: Listing[Prompt]) -> bool:
        """Compare the prompts with the pins; return whether the list was replaced."""
        offered = offered_prompts(found.definitions)
        for count, each in enumerate(offered, 1):
            _ = each.hash, each.source  # computed now, as they are cached
            if count % aio.SLICE == 0:
                await asyncio.sleep(0)
        async with self._checked.lock:
            await self._checked.check(offered, PROMPT_KINDS)
            self._prompts = found
            return self.install_prompts()

    def install_prompts(self) -> bool:
        """Offer the accepted prompts; return whether the list was replaced."""
        accepted: Listing[Prompt] = Listing()
        waiting: dict[str, str] = {}
        for prompt, definition in zip(self._prompts, self._prompts.definitions, strict=True):
            if obstacle := self._checked.obstacle("prompt", prompt.name):
                waiting[prompt.name] = obstacle
            else:
                accepted.append(prompt)
                accepted.definitions.append(definition)
        offered = self.found["prompts"].definitions, self.waiting
        if (accepted.definitions, waiting) == offered:
            return False
        self.found["prompts"], self.waiting = accepted, waiting
        return True
