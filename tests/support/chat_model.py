"""A chat model of LangChain with scripted answers, which it streams."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

Reply = AIMessage | str | list[dict[str, Any]] | Exception | Callable[[Sequence[BaseMessage]], Any]


def calls(*named: tuple[str, dict[str, Any]], text: str = "", start: int = 1) -> AIMessage:
    """Return a message with tool calls: (name, arguments) each, with ids call_1, call_2, …"""
    return AIMessage(
        text,
        tool_calls=[
            {"name": name, "args": arguments, "id": f"call_{number}", "type": "tool_call"}
            for number, (name, arguments) in enumerate(named, start)
        ],
    )


class ScriptedChatModel(BaseChatModel):
    """Answers with one entry of its script after another; words are streamed.

    Attributes:
        requests: The messages of each request.
        offered: The names of the tools of each request.
        bound: The definitions of the tools, each time that they were bound.
    """

    script: list[Any]
    requests: list[list[BaseMessage]]
    offered: list[list[str]]
    bound: list[list[dict[str, Any]]]

    def __init__(self, *script: Reply) -> None:
        super().__init__(script=list(script), requests=[], offered=[], bound=[])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        converted = [convert_to_openai_tool(each) for each in tools]
        self.bound.append(converted)
        names = [each["function"]["name"] for each in converted]
        return self.bind(tool_names=names, **options)

    def _next(self, messages: list[BaseMessage], names: list[str]) -> AIMessage:
        self.requests.append(list(messages))
        self.offered.append(names)
        entry = self.script[len(self.requests) - 1]
        if callable(entry):
            entry = entry(messages)
        if isinstance(entry, Exception):
            raise entry
        return AIMessage(entry) if isinstance(entry, str) else entry.model_copy()

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **given: Any
    ) -> ChatResult:
        message = self._next(messages, given.get("tool_names", []))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **given: Any
    ) -> Iterator[ChatGenerationChunk]:
        message = self._next(messages, given.get("tool_names", []))
        text = message.content if isinstance(message.content, str) else ""
        for word in re.findall(r"\s*\S+", text):
            chunk = ChatGenerationChunk(message=AIMessageChunk(word))
            if run_manager:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
        last = AIMessageChunk(
            message.content if isinstance(message.content, list) else "",
            id=message.id,
            tool_call_chunks=[
                {"name": each["name"], "args": _json(each["args"]), "id": each["id"], "index": at}
                for at, each in enumerate([*message.tool_calls, *message.invalid_tool_calls])
            ],
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
            chunk_position="last",
        )
        yield ChatGenerationChunk(message=last)

    async def _astream(self, *args: Any, **given: Any) -> AsyncIterator[ChatGenerationChunk]:
        given.pop("run_manager", None)
        for chunk in self._stream(*args, **given):
            yield chunk


def _json(arguments: Any) -> str:
    import json

    return arguments if isinstance(arguments, str) else json.dumps(arguments)
