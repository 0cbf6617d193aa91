"""Claude Code as an agent: our servers, one decision for each call, its events and answers."""

from __future__ import annotations

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
