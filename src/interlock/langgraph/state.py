"""The context of a run of a chat graph, and the state that it stores."""

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
    """Objects that a run needs and never stores, such as tokens.

    Attributes:
        user: The user who is chatting; "" for the local user.
        caller: The caller on whose behalf tools are called.
        streams: Whether to write a delta for each piece of an answer to the custom stream.
        begins_at: Number of messages before the answer, if the program has checked the last one,
            which may then be empty, or not the user's. None to let the graph check it.
        resumed: Ids of LangGraph's tasks that an interrupt ended. Their local tools run again,
            because LangGraph resumes them from their beginning.
        data: Data for your functions of the context.
        around: A layer around each call of the toolbox.
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

    `live` is never stored. It exists while the calls of the last answer have not been started;
    it has the refused calls with the reasons.
    """

    conversation_id: str
    user_id: str
    live: Annotated[dict[str, str], UntrackedValue]


ModelSource: TypeAlias = BaseChatModel | str | Callable[[ChatContext], BaseChatModel]
ToolSource: TypeAlias = Tools | Callable[[ChatContext], Tools | None] | None
Approve: TypeAlias = Callable[[ChatContext, Entry, JsonObject], str | None]
