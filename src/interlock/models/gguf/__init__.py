"""GGUF files as models; `gguf.model` says how they run."""

from __future__ import annotations

from interlock.models.gguf.gguf_model import GgufModel

__all__ = ["GgufModel"]
