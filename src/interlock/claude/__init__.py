"""Claude Code as an agent: our servers, one decision for each call, its events and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.agent import ToolFinished, ToolStarted
    from interlock.claude.claude_code import ClaudeCode
    from interlock.claude.decisions import Allow, Decide, Deny, Request
    from interlock.claude.events import Answer, ClaudeEvent, Done, Notice, Retrying, ToolProgress
    from interlock.claude.names import split
    from interlock.claude.program import find, version
    from interlock.models import ReasoningDelta, TextDelta

__all__ = [
    "Allow",
    "Answer",
    "ClaudeCode",
    "ClaudeEvent",
    "Decide",
    "Deny",
    "Done",
    "Notice",
    "ReasoningDelta",
    "Request",
    "Retrying",
    "TextDelta",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "find",
    "split",
    "version",
]

_HOMES = {
    "Allow": "claude.decisions",
    "Answer": "claude.events",
    "ClaudeCode": "claude.claude_code",
    "ClaudeEvent": "claude.events",
    "Decide": "claude.decisions",
    "Deny": "claude.decisions",
    "Done": "claude.events",
    "Notice": "claude.events",
    "ReasoningDelta": "models",
    "Request": "claude.decisions",
    "Retrying": "claude.events",
    "TextDelta": "models",
    "ToolFinished": "agent",
    "ToolProgress": "claude.events",
    "ToolStarted": "agent",
    "find": "claude.program",
    "split": "claude.names",
    "version": "claude.program",
}

# A hook needs no agent.
__getattr__ = loader(__name__, _HOMES)
