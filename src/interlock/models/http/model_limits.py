"""The limits of a model's API, from the table of providers and from the API's refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2s
from typing import Any

from msgspec import Struct

from interlock import __version__
from interlock.messages import Message, ToolMessage, UserMessage
from interlock.models import learned
from interlock.models.learned import Lesson
from interlock.models.model import ToolDefinition
from interlock.models.vendors import kind_of, without_files

OUTPUTS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_OWN = "interlock__"  # the beginning of the names of interlock's own tools
_OVERHEAD = 80  # bytes around a tool in a request
_MOST_NAMES = 8  # tools that a notice names


class OfferedTools(Struct, frozen=True):
    """The tools of a request, and a line for the user about those that are left out."""

    tools: list[ToolDefinition]
    notice: str = ""


class ModelLimits:
    """The limits of one model's API. Lessons are stored for later processes.

    Args:
        model: The model's name, as for `--model`.
        refused: Members of a request that the provider is known to refuse.
    """

    def __init__(self, model: str, refused: frozenset[str] = frozenset()) -> None:
        self._model = model
        self._refused = refused
        self._passing: dict[tuple[str, str], Lesson] = {}  # forgotten with the process

    async def learn(self, lessons: Sequence[Lesson]) -> None:
        """Add lessons. Those that are not passing are stored."""
        self._passing |= {(each.kind, each.what): each for each in lessons}
        if stored := [each for each in lessons if each.kind not in learned.PASSING]:
            await asyncio.to_thread(learned.note, self._model, *stored)

    def lesson(self, kind: str, what: str = "") -> Lesson | None:
        """Return the lesson of a kind about something; None if there is none."""
        if found := self._passing.get((kind, what)):
            return found
        stored = learned.lessons(self._model)
        return next((each for each in stored if (each.kind, each.what) == (kind, what)), None)

    def refuses(self, member: str) -> bool:
        """Return whether the API refuses a member of a request."""
        return member in self._refused or self.lesson("member", member) is not None

    def may_defer(self, tools: Sequence[ToolDefinition]) -> bool:
        """Return whether any of the tools is deferred, and the API has not refused that."""
        return any(each.deferred for each in tools) and self.lesson("lists_tools") is None

    # Requests

    def fitted(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request without refused members, and with the API's limits and names."""
        output = self.lesson("output")
        every = [*learned.lessons(self._model), *self._passing.values()]
        members = {each.what: each.name for each in every if each.kind == "member"}
        fitted: dict[str, Any] = {}
        for name, value in request.items():
            if output is not None and name in OUTPUTS and isinstance(value, int):
                value = min(value, output.limit)
            if name == "stream" and name in members:
                fitted[name] = False
            elif members.get(name):
                fitted[members[name]] = value
            elif name not in members and name not in self._refused:
                fitted[name] = value
        if not fitted.get("stream"):
            fitted.pop("stream_options", None)
        for tool in fitted.get("tools", ()) if members else ():
            for name in members.keys() & tool.keys():
                del tool[name]
        return fitted

    def read(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with a line in place of each file that the model cannot read."""
        kinds = frozenset(
            file.media_type
            for message in messages
            if isinstance(message, UserMessage | ToolMessage)
            for file in message.attachments
        )
        return without_files(messages, self.readable(kinds)) if kinds else list(messages)

    def readable(self, types: frozenset[str]) -> frozenset[str]:
        """Return the media types among `types` that the model has not refused."""
        return frozenset(
            each
            for each in types
            if not self.lesson("unread", kind_of(each)) and not self.lesson("unread", each)
        )

    # Tools

    def offered(self, tools: Sequence[ToolDefinition]) -> OfferedTools:
        """Return the tools that the model takes, and what to tell the user about the others.

        Args:
            tools: The tools, the most important first. interlock's own tools stay if a limit leaves
                others out.
        """
        if tools and (refused := self.lesson("no_tools")):
            notice = f"{self._model} cannot use tools; it answers without them: {refused.reason}"
            return OfferedTools([], notice)
        notices: list[str] = []
        kept = self._accepted(tools, notices)
        if most := self.lesson("tools"):
            why = f"takes at most {most.limit} tools"
            kept = self._within(kept, most.limit, lambda _: 1, why, notices)
        if most := self.lesson("tool_bytes"):
            why = "has no room in its context for more tools"
            kept = self._within(kept, most.limit, lambda tool: size_of((tool,)), why, notices)
        return OfferedTools(kept, "; ".join(notices))

    def _accepted(
        self, tools: Sequence[ToolDefinition], notices: list[str]
    ) -> list[ToolDefinition]:
        """Return the tools that the provider has not refused by name."""
        every = [*learned.lessons(self._model), *self._passing.values()]
        refused = {each.what: each for each in every if each.kind == "tool"}
        if not refused:
            return list(tools)
        left = [tool for tool in tools if digest(tool) in refused]
        if left:
            reason = refused[digest(left[0])].reason.rstrip(".")
            notices.append(
                f"{self._model} refuses {_named(left)}, which {_is(left)} left out: {reason}; "
                f"correct the schema, or hide it with {_deny(left)}"
            )
        return [tool for tool in tools if tool not in left]

    def _within(
        self,
        tools: Sequence[ToolDefinition],
        limit: int,
        size: Callable[[ToolDefinition], int],
        why: str,
        notices: list[str],
    ) -> list[ToolDefinition]:
        """Return the first tools within a limit, interlock's own tools, and deferred tools."""
        room = limit - sum(size(each) for each in tools if each.name.startswith(_OWN))
        kept: list[ToolDefinition] = []
        left: list[ToolDefinition] = []
        for tool in tools:
            if tool.name.startswith(_OWN) or tool.deferred:
                kept.append(tool)
                continue
            room -= size(tool)
            (kept if room >= 0 else left).append(tool)
        if left:
            notices.append(
                f"{self._model} {why}, so {_named(left)} {_is(left)} left out; hide tools that you "
                f"do not need with {_deny(left)}"
            )
        return kept


def digest(tool: ToolDefinition) -> str:
    """Return a hash of a tool's definition, and of the program that writes it into requests."""
    parts = (__version__, tool.name, tool.description)
    hashed = blake2s("\0".join(parts).encode(errors="replace"), digest_size=12)
    hashed.update(tool.input_schema)
    return hashed.hexdigest()


def size_of(tools: Iterable[ToolDefinition]) -> int:
    """Return about how many bytes tools need in a request."""
    return sum(
        len(each.name) + len(each.description) + len(each.input_schema) + _OVERHEAD
        for each in tools
    )


def shown(tool: ToolDefinition) -> str:
    """Return a tool's address, or its name for models in the form of an address."""
    return tool.address or tool.name.replace("__", ":", 1)


def _named(tools: Sequence[ToolDefinition]) -> str:
    names = ", ".join(shown(each) for each in tools[:_MOST_NAMES])
    if len(tools) == 1:
        return f"the tool {names}"
    more = len(tools) - _MOST_NAMES
    return f"{len(tools)} tools ({names}{f' and {more} more' if more > 0 else ''})"


def _is(tools: Sequence[ToolDefinition]) -> str:
    return "is" if len(tools) == 1 else "are"


def _deny(tools: Sequence[ToolDefinition]) -> str:
    name = shown(tools[0]).partition(":")[2] or tools[0].name
    return f'"tools": {{"deny": ["{name}"]}} of its server'
