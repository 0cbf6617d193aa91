"""Claude Code as an agent that uses our servers; our code decides about each of its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.agent import ToolFinished, ToolStarted
    from interlock.claude.claude_code import ClaudeCode
    from interlock.claude.decisions import Allow, Decide, Deny, PermissionRequest
    from interlock.claude.events import (
        ClaudeAnswer,
        ClaudeDone,
        ClaudeEvent,
        ClaudeNotice,
        ClaudeToolProgress,
        Retrying,
    )
    from interlock.claude.names import split
    from interlock.claude.program import find, version
    from interlock.models import ReasoningDelta, TextDelta

__all__ = [
    "Allow",
    "ClaudeAnswer",
    "ClaudeCode",
    "ClaudeDone",
    "ClaudeEvent",
    "ClaudeNotice",
    "ClaudeToolProgress",
    "Decide",
    "Deny",
    "PermissionRequest",
    "ReasoningDelta",
    "Retrying",
    "TextDelta",
    "ToolFinished",
    "ToolStarted",
    "find",
    "split",
    "version",
]

_HOMES = {
    "Allow": "claude.decisions",
    "ClaudeAnswer": "claude.events",
    "ClaudeCode": "claude.claude_code",
    "ClaudeEvent": "claude.events",
    "Decide": "claude.decisions",
    "Deny": "claude.decisions",
    "ClaudeDone": "claude.events",
    "ClaudeNotice": "claude.events",
    "ReasoningDelta": "models",
    "PermissionRequest": "claude.decisions",
    "Retrying": "claude.events",
    "TextDelta": "models",
    "ToolFinished": "agent",
    "ClaudeToolProgress": "claude.events",
    "ToolStarted": "agent",
    "find": "claude.program",
    "split": "claude.names",
    "version": "claude.program",
}

# Names are loaded on first use, because the hook starts often and does not need the agent.
__getattr__ = loader(__name__, _HOMES)
