"""Interlock's own tools, which are called through the same layers as servers' tools.

In addresses their server is "interlock", a name that no configured server may have.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct, to_builtins

from interlock import schema
from interlock.calls import Call, Caller, Entry, Outcome
from interlock.calls.fitting import check_arguments
from interlock.config.gateway import OWN
from interlock.errors import UnknownResource
from interlock.layers.kept_results import TOOL, URI
from interlock.layers.results import READ_RESULT, ResultBudget
from interlock.messages import SEARCH_TOOLS
from interlock.protocol.envelope import encode
from interlock.schema.validator import Validator
from interlock.toolbox import names
from interlock.types import JsonObject, Tool


class OwnTool(Struct, frozen=True):
    """A tool that interlock itself answers.

    Attributes:
        tool: The tool's definition.
        answer: Answers a call whose arguments have been validated.
        is_for: Returns whether a caller may see the tool.
        is_offered: Returns whether to offer the tool to a model, given the texts of the results so
            far; a tool that the model does not need yet would only cost tokens.
        describe: Returns the description for a model that is offered some tools; None if the tool
            always has the description of its definition.
    """

    tool: Tool
    answer: Callable[[Call], Awaitable[Outcome]]
    is_for: Callable[[Caller], bool] = lambda _: True
    is_offered: Callable[[Sequence[str]], bool] = lambda _: False
    describe: Callable[[Sequence[Entry]], str] | None = None


class OwnServer:
    """Answers calls to interlock's own tools, and reads of kept results.

    Args:
        budget: Keeps large results.
        tools: Further tools besides the tool that reads kept results.

    Attributes:
        entries: The tools.
    """

    def __init__(self, budget: ResultBudget, tools: Iterable[OwnTool] = ()) -> None:
        self._budget = budget
        self._tools = {each.tool.name: each for each in (read_result(budget), *tools)}
        self.entries = tuple(_entry(each.tool) for each in self._tools.values())
        self._validators: dict[str, Validator] = {
            each.tool.name: schema.compile(each.input_schema) for each in self.entries
        }

    def entries_for(self, caller: Caller) -> list[Entry]:
        return [each for each in self.entries if self._tools[each.tool.name].is_for(caller)]

    def offered(self, caller: Caller, results: Sequence[str]) -> list[Entry]:
        """Return the tools to offer to a model, given the texts of the results so far."""
        return [
            each
            for each in self.entries_for(caller)
            if self._tools[each.tool.name].is_offered(results)
        ]

    def for_search(self, caller: Caller) -> list[Entry]:
        """Return the tools to offer to a model that searches: the search, and those for the caller.

        They are the same for the whole conversation, so that the prompt cache stays valid.
        """
        found = [each for each in self.entries if each.wire_name == SEARCH_TOOLS]
        return found + self.entries_for(caller)

    def described(self, entry: Entry, offered: Sequence[Entry]) -> str:
        """Return the description of a tool for a model that is offered some tools."""
        describe = self._tools[entry.tool.name].describe
        return entry.tool.description if describe is None else describe(offered)

    def validate(self, call: Call) -> None:
        """Raise an error if a call's arguments do not match the tool's schema.

        Arguments that match it after a conversion are converted; see `schema.conversion`.

        Raises:
            InvalidArguments: The arguments are not valid; the text names each invalid argument.
        """
        if isinstance(call.entry, Entry):
            validator = self._validators[call.name]
            if validator.errors(call.arguments):
                check_arguments(call, validator)

    async def send(self, call: Call) -> Outcome:
        """Answer a call.

        Raises:
            UnknownResource: The resource does not exist.
            InterlockError: The tool raised this error.
        """
        if isinstance(call.entry, Entry):
            return await self._tools[call.name].answer(call)
        if call.entry.kind == "resources" and call.name.startswith(URI):
            return await self._budget.answer(call)
        raise UnknownResource(call.name)


def read_result(budget: ResultBudget) -> OwnTool:
    """Return the tool that reads kept results."""
    return OwnTool(
        READ_RESULT,
        budget.answer,
        lambda _: budget.limits.is_on,
        lambda results: any(TOOL in text for text in results),
    )


def _entry(tool: Tool) -> Entry:
    wire_name = names.wire_name(OWN, tool.name)
    definition: JsonObject = {**to_builtins(tool), "name": wire_name}
    return Entry(
        server=OWN,
        tool=tool,
        address=names.address(OWN, tool.name),
        wire_name=wire_name,
        input_schema=encode(tool.input_schema),
        definition=encode(definition),
    )
