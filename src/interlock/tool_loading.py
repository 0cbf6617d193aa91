"""Chooses the tool definitions of a request, if a model searches for tools.

A request then has interlock's own tools, the tools that are always listed, and those that results
of the search have loaded. Rules:

1. The messages are the state. What was loaded follows from `ToolMessage.loads`, so a conversation
   can be continued, copied or shortened, and its model changed.
2. A definition is neither moved nor removed during a conversation, because that would invalidate
   the provider's prompt cache. If the API cannot defer definitions, each newly loaded one does so.
3. Once a result has loaded tools, the conversation stays with the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from interlock.calls import Caller, Entry
from interlock.config import ToolSearch
from interlock.messages import SEARCH_TOOLS, AssistantMessage, Message, ToolMessage
from interlock.models import ToolDefinition
from interlock.toolbox import Tools

MOST_TOOLS = 100  # with so many tools, a model searches for them
BYTES_PER_TOKEN = 4
MOST_LOADED = 64  # loaded tools in a request to an API that cannot defer them
FREE_ROUNDS = 5  # searching rounds of one answer that do not count as rounds of tool calls
_OVERHEAD = 50  # bytes of a definition besides its name, description and schema


def is_on(search: ToolSearch, entries: Sequence[Entry], *, has_loaded: bool) -> bool:
    """Return whether a model that is offered these tools searches for them.

    Args:
        search: The settings.
        entries: The tools.
        has_loaded: Whether a result in the conversation has loaded tools.
    """
    if not (entries or has_loaded):
        return False
    if search.mode != "auto":
        return search.mode == "on"
    if has_loaded or len(entries) >= MOST_TOOLS:
        return True
    return sum(map(_size, entries)) >= search.threshold * BYTES_PER_TOKEN


def notice(
    search: ToolSearch,
    messages: Iterable[Message],
    definitions: Iterable[ToolDefinition],
    tools: Tools,
) -> str:
    """Return a line for a user whose new conversation searches unasked; "" if there is none."""
    is_new = not any(isinstance(each, AssistantMessage) for each in messages)
    if search.mode == "auto" and is_new and any(each.name == SEARCH_TOOLS for each in definitions):
        return (
            f"the model gets no list of your {len(tools.tools)} tools: it searches them for what "
            'it needs; to send the whole list, set the tool search to "off"'
        )
    return ""


class ToolUse(Struct, frozen=True):
    """A message that loads tools, or that calls tools, by their wire names."""

    names: tuple[str, ...]
    loads: bool


def uses(messages: Iterable[Message]) -> list[ToolUse]:
    """Return what messages load and call, in their order."""
    found = []
    for message in messages:
        if isinstance(message, ToolMessage) and message.loads:
            found.append(ToolUse(message.loads, True))
        elif isinstance(message, AssistantMessage) and message.tool_calls:
            found.append(ToolUse(tuple(call.name for call in message.tool_calls), False))
    return found


def loaded(used: Iterable[ToolUse]) -> dict[str, None]:
    """Return the names of loaded tools in the order in which they were first loaded."""
    return dict.fromkeys(name for each in used if each.loads for name in each.names)


class ListedTool(Struct, frozen=True):
    """A tool of a request. `description` is the one for the model."""

    entry: Entry
    description: str
    deferred: bool = False


def listed(
    tools: Tools,
    entries: Sequence[Entry],
    caller: Caller,
    used: Sequence[ToolUse],
    search: ToolSearch,
    *,
    defers: bool,
) -> list[ListedTool]:
    """Return the tools of a request of a model that searches, in their order.

    Args:
        tools: The toolbox.
        entries: The tools that the model is offered.
        caller: The caller on whose behalf the model calls tools.
        used: The tools that the conversation has loaded and called.
        search: The settings.
        defers: Whether the model accepts deferred definitions.
    """
    own = tools.own
    found = [ListedTool(each, own.described(each, entries)) for each in own.for_search(caller)]
    always = [each for each in entries if _is_always_listed(each, search)]
    found += [ListedTool(each, each.tool.description) for each in always]
    taken = {each.wire_name for each in always}
    by_name = {each.wire_name: each for each in entries if each.wire_name not in taken}
    names = [each for each in loaded(used) if each in by_name]
    # The first deferred definition of a conversation can invalidate the prompt cache, so the first
    # request has one already.
    first = list(by_name)[:1]
    names = list(dict.fromkeys([*first, *names])) if defers else _latest(names, used)
    found += [ListedTool(by_name[each], by_name[each].tool.description, defers) for each in names]
    return found


def fitted(
    definitions: Sequence[ToolDefinition], messages: Sequence[Message], sent: Sequence[Message]
) -> Sequence[ToolDefinition]:
    """Return definitions for a conversation of which a shorter one is sent.

    A tool is no longer deferred if the result that has loaded it is left out.
    """
    if not any(each.deferred for each in definitions):
        return definitions
    lost = loaded(uses(messages)).keys() - loaded(uses(sent)).keys()
    return [replace(each, deferred=False) if each.name in lost else each for each in definitions]


def only_searches(message: AssistantMessage) -> bool:
    """Return whether an answer's only calls are searches for tools."""
    calls = message.tool_calls
    return bool(calls) and all(call.name == SEARCH_TOOLS for call in calls)


def explained(
    text: str, entry: Entry, definitions: Iterable[ToolDefinition], messages: Iterable[Message]
) -> str:
    """Return an error about a call's arguments, with the parameters if the model lacks them."""
    name = entry.wire_name
    if any(each.name == name and not each.deferred for each in definitions):
        return text
    if name in loaded(uses(messages)):
        return text
    return with_parameters(text, entry)


def with_parameters(text: str, entry: Entry) -> str:
    """Return an error about a call's arguments with the tool's parameters."""
    return f"{text}; the parameters of {entry.wire_name} are {entry.input_schema.decode()}"


def _is_always_listed(entry: Entry, search: ToolSearch) -> bool:
    address = entry.address
    return entry.is_always_listed or any(fnmatchcase(address, each) for each in search.always)


def _latest(names: list[str], used: Sequence[ToolUse]) -> list[str]:
    """Return at most `MOST_LOADED` names, without those that were unused for the longest time."""
    if len(names) <= MOST_LOADED:
        return names
    last = {name: place for place, each in enumerate(used) for name in each.names}
    kept = set(sorted(names, key=lambda each: -last[each])[:MOST_LOADED])
    return [each for each in names if each in kept]


def _size(entry: Entry) -> int:
    """Return about the number of bytes of a definition in a request."""
    description = entry.tool.description
    size = len(description) if description.isascii() else len(description.encode(errors="replace"))
    return size + len(entry.wire_name) + len(entry.input_schema) + _OVERHEAD
