"""Searches the tools of a toolbox, with an index that follows the toolbox's changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain, zip_longest

from interlock import aio
from interlock.calls import Entry
from interlock.toolbox.tool_index import FoundTool, IndexedTool, ToolIndex, name_terms, query_terms

MAX_WAIT = 0.5  # seconds for which a search waits for the index


class ToolFinder:
    """Searches the tools of a toolbox. The first search builds the index.

    Args:
        tools: Returns the tools in the order of the configuration.
        version: Returns a number that changes when a tool changes.
        keep: Receives each task that updates the index, to cancel it when the toolbox closes.
    """

    def __init__(
        self,
        tools: Callable[[], Sequence[Entry]],
        version: Callable[[], int],
        keep: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.index = ToolIndex()
        self._tools = tools
        self._version = version
        self._keep = keep
        self._indexed = -1  # the version that is indexed, or that `_updating` indexes
        self._updating: asyncio.Task[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all tools are indexed."""
        return self.index.is_complete and self._indexed == self._version()

    async def search(
        self, queries: Sequence[str], limit: int = 5, mask: Container[str] | None = None
    ) -> list[FoundTool]:
        """Return the tools that match the queries best; see `ToolIndex.search`.

        The results of several queries alternate. Wait at most `MAX_WAIT` seconds for the index.
        After that, the tools that are indexed so far are searched, and `is_complete` is False.
        """
        await self.update()
        ranked = []
        for query in queries:
            ranked.append(self.index.search(query, limit, mask))
            await asyncio.sleep(0)  # lets other tasks run
        found: dict[str, FoundTool] = {}
        for each in chain.from_iterable(zip_longest(*ranked)):
            if each is not None:
                found.setdefault(each.address, each)
        return [*found.values()][:limit]

    def named(self, queries: Iterable[str], addresses: Iterable[str]) -> list[str]:
        """Return the tools, which need not be indexed, whose names match a query.

        A name matches if it has all words of the query, or the query has all words of the name.
        """
        wanted = [words for each in queries if (words := query_terms(each).keys())]
        found = []
        for address in addresses:
            server, _, name = address.partition(":")
            names = name_terms(name)
            if any(names <= words or words <= names | name_terms(server) for words in wanted):
                found.append(address)
        return found

    async def update(self) -> None:
        """Index the tools that have changed; wait for it at most `MAX_WAIT` seconds."""
        version = self._version()
        if version != self._indexed:
            if self._updating is not None:
                self._updating.cancel()
            self._indexed = version
            self._updating = aio.start_detached(self._update())
            self._keep(self._updating)
        if self._updating is not None and not self._updating.done():
            await asyncio.wait((self._updating,), timeout=MAX_WAIT)

    async def finish(self) -> None:
        """Index the tools that have changed, and wait until all are indexed."""
        await self.update()
        if self._updating is not None:
            await self._updating

    async def _update(self) -> None:
        for _ in self.index.update([_indexed(each) for each in self._tools()]):
            await asyncio.sleep(0)  # lets other tasks run


def _indexed(entry: Entry) -> IndexedTool:
    tool = entry.tool
    title = tool.title or (tool.annotations.title if tool.annotations else None) or ""
    return IndexedTool(
        entry.address, entry.server, tool.name, title, tool.description, tool.input_schema
    )
