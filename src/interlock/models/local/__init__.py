"""The embedded model; `local.model` says how it answers."""

from __future__ import annotations

from interlock.models.local.embedded import LocalModel

__all__ = ["LocalModel"]
