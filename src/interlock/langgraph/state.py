"""The context in which a chat graph runs, and the state that it stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from langchain_core.language_models import BaseChatModel
from langgraph.channels import UntrackedValue
from langgraph.graph import MessagesState

from interlock.calls import Around, Caller, Entry
from interlock.errors import InvalidArguments
from interlock.langchain.tool import LANGCHAIN
from interlock.toolbox import Tools
from interlock.types import JsonObject


class InvalidInput(InvalidArguments):
    """The last message is not a user's message, is empty, or is too long."""


@dataclass(frozen=True)
class ChatContext:
    """The context of one run: objects that are never stored, such as tokens.

    Attributes:
        user: The user who is chatting; "" for the local user.
        caller: The caller on whose behalf tools are called.
        streams: Whether each piece of an answer is written to the custom stream.
        begins_at: The number of messages before the answer, if the program itself has checked the
            last message, which may then be empty, or not from the user. None if the graph must
            check the last message.
        resumed: Ids of LangGraph tasks that an interrupt ended. Their local tools run again,
            because LangGraph resumes a task from its beginning.
        data: Data for your functions that get the context.
        around: A layer around each call to the toolbox.
    """

    user: str = ""
    caller: Caller = LANGCHAIN
    streams: bool = False
    begins_at: int | None = None
    resumed: frozenset[str] = frozenset()
    data: Any = field(default=None, repr=False)
    around: Around | None = field(default=None, repr=False)


class ChatState(MessagesState):
    """The state of a conversation.

    `live` maps the refused calls of the last answer to the reasons. It is never stored, so it is
    missing in a run that continues from a checkpoint.
    """

    conversation_id: str
    user_id: str
    live: Annotated[dict[str, str], UntrackedValue]


ModelSource: TypeAlias = BaseChatModel | str | Callable[[ChatContext], BaseChatModel]
ToolSource: TypeAlias = Tools | Callable[[ChatContext], Tools | None] | None
Approve: TypeAlias = Callable[[ChatContext, Entry, JsonObject], str | None]
