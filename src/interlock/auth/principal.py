"""A caller whose identity has been proven."""

from __future__ import annotations

from msgspec import Struct

from interlock.types import JsonObject


class Principal(Struct, frozen=True):
    """Who asks, as far as that was proven. `id` is unique among all principals."""

    id: str
    scopes: frozenset[str] = frozenset()
    claims: JsonObject = {}
