"""Language models of several providers."""

from __future__ import annotations

from interlock.messages import Usage
from interlock.models.model import (
    Model,
    ModelEvent,
    Notice,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    complete,
)

__all__ = [
    "Model",
    "ModelEvent",
    "Notice",
    "ReasoningDelta",
    "Reply",
    "TextDelta",
    "ToolDefinition",
    "Usage",
    "complete",
]
