"""A caller whose identity has been verified."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from interlock.types import JsonObject

Identity: TypeAlias = tuple[str, str, str, str]  # tenant, id, key and view


class Principal(Struct, frozen=True, dict=True):
    """A verified caller.

    Attributes:
        id: Unique within the tenant.
        scopes: The scopes that the credential grants.
        claims: All claims of the token; {} for other credentials.
        key_id: The id of the API key that was used; "" for none.
        groups: The groups that the caller belongs to.
        tenant: The tenant that the caller belongs to; "" without tenants.
        view: The part of the catalogue that the caller sees; "" for all of it.
    """

    id: str
    scopes: frozenset[str] = frozenset()
    claims: JsonObject = {}
    key_id: str = ""
    groups: frozenset[str] = frozenset()
    tenant: str = ""
    view: str = ""

    @cached_property
    def owner(self) -> str:
        """The key of a caller's property and limits: the same for all of the caller's API keys."""
        return f"{quote(self.tenant, safe='')}/{self.id}"

    @property
    def identity(self) -> Identity:
        """The key of things that belong to one credential only, such as a session."""
        return self.tenant, self.id, self.key_id, self.view


def principal_id(user: str) -> str:
    """Return the id of a user named "anna", "user:anna" or "ISSUER#SUBJECT"."""
    return user if "#" in user or user.startswith("user:") else f"user:{user}"
