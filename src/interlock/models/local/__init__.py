"""The embedded model; see `embedded`."""

from __future__ import annotations

from interlock.models.local.embedded import LocalModel

__all__ = ["LocalModel"]
