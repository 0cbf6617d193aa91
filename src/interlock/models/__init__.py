"""Language models of several providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader
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

if TYPE_CHECKING:
    from interlock.models.choosing import choose
    from interlock.models.scripted import ScriptedModel

__all__ = [
    "Model",
    "ModelEvent",
    "Notice",
    "ReasoningDelta",
    "Reply",
    "ScriptedModel",
    "TextDelta",
    "ToolDefinition",
    "Usage",
    "choose",
    "complete",
]

# Loaded on first use, because `models.choosing` imports the modules of all vendors.
__getattr__ = loader(__name__, {"ScriptedModel": "models.scripted", "choose": "models.choosing"})
