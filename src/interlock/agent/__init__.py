"""Ask, act, repeat: a model and tools, over a plain list of messages."""

from interlock.agent.agent import Agent
from interlock.agent.events import (
    AgentEvent,
    ApprovalAsked,
    Compacted,
    Done,
    QuestionAsked,
    Stopped,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from interlock.agent.tool_results import text_of

__all__ = [
    "Agent",
    "AgentEvent",
    "ApprovalAsked",
    "Compacted",
    "Done",
    "QuestionAsked",
    "Stopped",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "text_of",
]
