"""The tools that call another tool by its name, for clients that search for tools.

An executor is an alias: it looks the name up as `tools/call` does, and hands over to the tool
itself. So every check, limit and record of the call is that of a direct call. There is one executor
for each risk, because clients approve calls by the name and the annotations of a tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, to_builtins

from interlock.calls import Caller, Entry, Item
from interlock.calls.call import new_call_id
from interlock.config.gateway import OWN, Risk
from interlock.context import Context
from interlock.errors import CallRefused, InterlockError, InvalidArguments, UnknownTool
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.refusals import reason_of, refusal
from interlock.gateway.forwarding.tool import (
    ForwardedTool,
    LoadingTool,
    StartingTool,
    UnusableTool,
)
from interlock.protocol.envelope import encode
from interlock.server.catalogue import EncodedDefinition
from interlock.toolbox.names import wire_name
from interlock.types import JsonObject, Tool, ToolAnnotations

MAX_NAME = 256  # characters of a tool's name
_MEMBERS = ("name", "arguments")


def _definition(name: str, title: str, what: str, annotations: ToolAnnotations) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=f"Call a tool that {what}, by the name that interlock__search_tools gave.",
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": MAX_NAME, "description": "The tool's name"},
                "arguments": {"type": "object", "description": "The arguments of that tool"},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        annotations=annotations,
    )


DEFINITIONS: dict[Risk, Tool] = {
    "read": _definition(
        "call_read_tool",
        "Call a tool that reads",
        "only reads",
        ToolAnnotations(read_only_hint=True, destructive_hint=False),
    ),
    "write": _definition(
        "call_write_tool",
        "Call a tool that writes",
        "may change something",
        ToolAnnotations(read_only_hint=False, destructive_hint=True),
    ),
}
NAMES: dict[Risk, str] = {risk: wire_name(OWN, each.name) for risk, each in DEFINITIONS.items()}

AnyTool: TypeAlias = "ForwardedTool | UnusableTool | StartingTool | LoadingTool | Executor"


class Executor:
    """Calls another tool by its name.

    Args:
        risk: The highest risk of a tool that may be called.
        find: Returns the tool with a name if the caller may use it, else None.
        unknown: Records a call of an unknown tool, and returns the error for it.
        forwarder: The forwarder of all tools, which has the policy and the observer.

    Attributes:
        name: The executor's name for clients.
        listed: The definition that clients see.
    """

    def __init__(
        self,
        risk: Risk,
        find: Callable[[str, Context], AnyTool | None],
        unknown: Callable[[str, Caller], UnknownTool],
        forwarder: Forwarder,
    ) -> None:
        self.risk: Risk = risk
        self.name = NAMES[risk]
        tool: JsonObject = to_builtins(DEFINITIONS[risk])
        self.listed = EncodedDefinition(encode(tool | {"name": self.name}))
        self._item = Item("tools", OWN, DEFINITIONS[risk].name)
        self._find = find
        self._unknown = unknown
        self._forwarder = forwarder

    @property
    def definition(self) -> JsonObject:
        """The definition that clients see in lists."""
        return self.listed.fields

    async def call(self, arguments: Raw | None, context: Context) -> Any:
        """Call the named tool; see `ForwardedTool.call`.

        Raises:
            UnknownTool: The caller may use no tool with this name.
            InterlockError: See `ForwardedTool.call`.
        """
        try:
            name, inner = _decoded(arguments)
        except InvalidArguments as error:
            return self._refuse(self._item, error, context)
        tool = self._find(name, context)
        if isinstance(tool, StartingTool):
            tool = await tool.started(context)
        elif isinstance(tool, LoadingTool):
            tool = await tool.loaded()
        if tool is None:
            raise self._unknown(name, caller_of(context))
        item = self._item if isinstance(tool, Executor) else tool.item
        if item.server == OWN:
            text = f"{name} is a tool of interlock itself; call it directly"
            return self._refuse(item, CallRefused(text, "wrong_executor"), context)
        if isinstance(tool, ForwardedTool) and self.risk == "read":
            policy = self._forwarder.in_force.policy
            if policy.risk(tool.entry) == "write":
                is_listed = policy.lists(caller_of(context), tool.entry)
                way = "call it directly" if is_listed else f"call it with {NAMES['write']}"
                text = f"{name} may change something; {way}"
                return self._refuse(item, CallRefused(text, "wrong_executor"), context)
        context.tool = tool  # whose output schema decides about the form of the result
        return await tool.call(inner, context)

    def _refuse(self, item: Entry | Item, error: InterlockError, context: Context) -> Raw:
        id = new_call_id()
        note, context.error_type = self._forwarder.observer.unavailable, reason_of(error)
        context.called = item.address
        note(caller_of(context), context.error_type, item, "", id)
        return refusal(item, error, id)


def _decoded(arguments: Raw | None) -> tuple[str, Raw | None]:
    """Return the name of the tool to call, and its encoded arguments.

    Raises:
        InvalidArguments: The name is missing, or a member is unknown.
    """
    try:
        members = msgspec.json.decode(arguments or b"{}", type=dict[str, Raw])
        name = msgspec.json.decode(members.get("name", b"null"))
        inner = members.get("arguments")
        if inner is not None and bytes(inner).startswith(b'"'):  # models write objects as text
            inner = Raw(msgspec.json.decode(inner, type=str).encode("utf-8") or b"{}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidArguments(f"arguments: {error}") from None
    unknown = [each for each in members if each not in _MEMBERS]
    if unknown:
        raise InvalidArguments(
            f"unknown argument {unknown[0]!r}; put the arguments of the tool into the object "
            '"arguments"'
        )
    if not isinstance(name, str) or not name or len(name) > MAX_NAME:
        raise InvalidArguments(f'"name" must be the name of a tool (limit {MAX_NAME} characters)')
    return name, inner
