"""A caller whose identity has been verified."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from interlock.types import JsonObject

Identity: TypeAlias = tuple[str, str, str, str]  # tenant, id, key and view


class Principal(Struct, frozen=True, dict=True):
    """A verified caller.

    Attributes:
        id: The caller's id, unique within the tenant.
        scopes: The scopes that the credential grants.
        claims: All claims of the token; {} for other credentials.
        key_id: The id of the API key that the caller used; "" if the credential is not a key.
        groups: The groups that the caller belongs to.
        tenant: The tenant that the caller belongs to; "" without tenants.
        view: The only view that the caller may use; "" for all views.
        counts_as: The key of the caller's limits, if it is neither the API key nor the caller. For
            a token of the front door, it is the API key that signed in, or the person.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    claims: JsonObject = {}
    key_id: str = ""
    groups: frozenset[str] = frozenset()
    tenant: str = ""
    view: str = ""
    counts_as: str = ""

    @cached_property
    def counted(self) -> str:
        """The key for the caller's rates and quotas."""
        return self.counts_as or self.key_id or self.owner

    @cached_property
    def owner(self) -> str:
        """The key for a caller's stored data and limits, the same for all of their API keys."""
        return f"{quote(self.tenant, safe='')}/{self.id}"

    def ends_with(self, credentials: Collection[str]) -> bool:
        """Return whether the caller's credential is among these, or was made with one of them."""
        return self.key_id in credentials or self.counts_as in credentials

    @property
    def identity(self) -> Identity:
        """The key for data that belongs to a single credential, such as a session."""
        return self.tenant, self.id, self.key_id, self.view


def principal_id(user: str) -> str:
    """Return the id of a user named "anna", "user:anna" or "ISSUER#SUBJECT"."""
    return user if "#" in user or user.startswith("user:") else f"user:{user}"
