"""The embedded model, which needs no API key; see `embedded`."""

from __future__ import annotations

from interlock.models.local.embedded import NAMES, RULES, LocalModel

__all__ = ["NAMES", "RULES", "LocalModel"]
