"""Adapts our models to LangChain's interface for chat models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool
from langgraph.config import get_stream_writer
from pydantic import PrivateAttr

from interlock.agent import Compacted
from interlock.agent.model_requests import request_answer
from interlock.langchain.tool import LangChainTool
from interlock.langgraph.conversion import NO_FILES, OURS, Files, from_langchain
from interlock.models import Model, Notice, ReasoningDelta, Reply, TextDelta, ToolDefinition
from interlock.protocol.envelope import encode


class InterlockChatModel(BaseChatModel):
    """A LangChain chat model that sends requests to one of our models.

    The model's notices are written to the graph's custom stream.

    Args:
        files: Images and sounds of tool results, by call id.
    """

    _model: Model = PrivateAttr()
    _files: Files = PrivateAttr()

    def __init__(self, model: Model, files: Files = NO_FILES) -> None:
        super().__init__()
        self._model = model
        self._files = files

    @property
    def _llm_type(self) -> str:
        return "interlock"

    @property
    def defers_tools(self) -> bool:
        """Whether the model accepts deferred definitions; see `Model`."""
        return getattr(self._model, "defers_tools", False)

    @property
    def selects_tools(self) -> bool:
        """Whether the model needs every definition; see `Model`."""
        return getattr(self._model, "selects_tools", False)

    def bind_tools(self, tools: Sequence[Any], *, deferred: Collection[str] = (), **_: Any) -> Any:
        """Return a model that offers these tools, which must be `BaseTool` objects.

        `deferred` has the names of the tools whose definitions are deferred.
        """
        return self.bind(definitions=[_definition(each, each.name in deferred) for each in tools])

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError("this model only streams; use `astream`")

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: Any = None,  # noqa: ARG002
        run_manager: Any = None,  # noqa: ARG002
        *,
        definitions: Sequence[ToolDefinition] = (),
        **_: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = [from_langchain(each, self._files) for each in messages]  # type: ignore[arg-type]
        has_text = False
        async with aclosing(request_answer(self._model, request, definitions)) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        has_text = True
                        yield _chunk(event.text)
                    case ReasoningDelta():
                        yield _chunk(additional_kwargs={"reasoning_content": event.text})
                    case Notice() | Compacted():
                        get_stream_writer()(event)
                    case Reply():
                        yield _last(event, "" if has_text else event.message.content)


def _chunk(content: str = "", **members: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content=content, **members))


def _last(reply: Reply, content: str) -> ChatGenerationChunk:
    message, usage = reply.message, reply.usage
    calls = [
        tool_call_chunk(
            name=each.name,
            args=encode(each.input).decode() if each.malformed is None else each.malformed,
            id=each.id,
            index=place,
        )
        for place, each in enumerate(message.tool_calls)
    ]
    total = usage.input_tokens + usage.output_tokens
    return _chunk(
        content,
        tool_call_chunks=calls,
        additional_kwargs={OURS: message},
        response_metadata={"finish_reason": reply.stop_reason},
        usage_metadata={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": total,
        },
    )


def _definition(tool: BaseTool, deferred: bool) -> ToolDefinition:
    if isinstance(tool, LangChainTool):  # the model itself renames arguments
        schema = tool.input_schema_of_server
        return ToolDefinition(tool.name, tool.description, schema, deferred=deferred)
    return ToolDefinition(tool.name, tool.description, encode(tool.args_schema))
