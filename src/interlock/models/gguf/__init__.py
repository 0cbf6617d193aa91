"""Runs models from GGUF files; see `gguf_model`."""

from __future__ import annotations

from interlock.models.gguf.gguf_model import GgufModel

__all__ = ["GgufModel"]
