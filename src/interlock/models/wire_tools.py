"""The tools of one request as a provider accepts them, and the way back from its answer.

Conversations keep the servers' names of arguments. Only requests and answers have other names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from interlock.messages import AssistantMessage, Message, ToolCall
from interlock.models.model import Reply, ToolDefinition
from interlock.schema.gemini import narrowed
from interlock.schema.portable import PortableSchema, portable


class WireTools:
    """The tools of one request.

    Args:
        tools: The tools, with the servers' schemas.
        model: The name of the model, as for `--model`. Gemini accepts less than other models, on
            every server, and Google's server accepts less for every model.

    Attributes:
        definitions: The tools to send, with schemas that providers accept; deferred ones last.
    """

    def __init__(self, tools: Sequence[ToolDefinition], model: str = "") -> None:
        schemas = [portable(each.input_schema) for each in tools]
        is_gemini = re.search(r"gemini|googleapis\.com/", model.lower())
        self.definitions = [
            replace(tool, input_schema=narrowed(schema.encoded) if is_gemini else schema.encoded)
            for tool, schema in zip(tools, schemas, strict=True)
        ]
        self.definitions.sort(key=lambda tool: tool.deferred)
        self._renamed: dict[str, PortableSchema] = {
            tool.name: schema
            for tool, schema in zip(tools, schemas, strict=True)
            if schema.renames is not None
        }

    def sent(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a conversation whose calls have the names that the model knows."""
        if not self._renamed:
            return messages
        return [
            replace(each, tool_calls=tuple(map(self._sent, each.tool_calls)))
            if isinstance(each, AssistantMessage)
            else each
            for each in messages
        ]

    def received(self, reply: Reply) -> Reply:
        """Return an answer whose calls have the servers' names."""
        if not self._renamed or not reply.message.tool_calls:
            return reply
        calls = tuple(map(self._received, reply.message.tool_calls))
        return replace(reply, message=replace(reply.message, tool_calls=calls))

    def _sent(self, call: ToolCall) -> ToolCall:
        schema = self._renamed.get(call.name)
        return call if schema is None else replace(call, input=schema.to_model(call.input))

    def _received(self, call: ToolCall) -> ToolCall:
        schema = self._renamed.get(call.name)
        return call if schema is None else replace(call, input=schema.to_server(call.input))
