"""Claude Code as an agent: our servers, one decision for each call, its events and answers."""

from __future__ import annotations

from interlock.claude.claude_code import ClaudeCode
from interlock.claude.decisions import Allow, Decide, Deny, Request
from interlock.claude.events import Answer, ClaudeEvent, Done, Notice, Retrying, ToolProgress
from interlock.claude.names import split
from interlock.claude.program import find, version

__all__ = [
    "Allow",
    "Answer",
    "ClaudeCode",
    "ClaudeEvent",
    "Decide",
    "Deny",
    "Done",
    "Notice",
    "Request",
    "Retrying",
    "ToolProgress",
    "find",
    "split",
    "version",
]
