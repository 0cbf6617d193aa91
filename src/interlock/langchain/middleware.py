"""Middleware that adds a toolbox's current tools to an agent made by `create_agent`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from interlock import aio
from interlock.calls import Caller, Entry
from interlock.config import ToolSearch
from interlock.config.gateway import OWN
from interlock.errors import ConfigError, InterlockError, UnknownTool
from interlock.langchain.history import fitted
from interlock.langchain.messages import MAX_IMAGE, Finished, failed, message
from interlock.langchain.tool import LANGCHAIN, need_reader, run, selected, tools
from interlock.langchain.tool_search import as_tools, searched
from interlock.langchain.user_images import with_user_images
from interlock.messages import SEARCH_TOOLS
from interlock.toolbox import Tools
from interlock.toolbox.search_tool import SEARCH

_log = logging.getLogger("interlock.langchain")


class ToolboxMiddleware(AgentMiddleware[Any, Any, Any]):
    """Look up the tools of a toolbox before each request to the model, and run their calls.

    A tool of the agent itself hides a tool of the toolbox with the same name.

    Args:
        toolbox: An open toolbox, or other `Tools`.
        select: Patterns of addresses, such as "kb:*"; None for all tools.
        images: Whether to pass images on to the model.
        max_image_bytes: The largest image that is passed on, in bytes.
        caller: The caller on whose behalf the tools are called.
        tool_search: Whether the model searches for tools instead of reading all definitions; see
            `Agent`. It excludes LangChain's `ProviderToolSearchMiddleware`.
    """

    def __init__(
        self,
        toolbox: Tools,
        select: str | list[str] | None = None,
        *,
        images: bool = False,
        max_image_bytes: int = MAX_IMAGE,
        caller: Caller = LANGCHAIN,
        tool_search: ToolSearch | str = "auto",
    ) -> None:
        super().__init__()
        self._search = ToolSearch.of(tool_search)
        self._toolbox = toolbox
        self._select = select
        self._images = max_image_bytes if images else 0
        self._caller = caller
        self._warned: set[str] = set()

    def _entries(self) -> list[Entry]:
        return selected(self._toolbox, self._select)

    def _requested(self, request: ModelRequest[Any]) -> list[Any]:
        """Return the tools of a request.

        Raises:
            ConfigError: The provider searches for tools, too.
        """
        messages = request.messages
        found = searched(self._toolbox, self._entries(), self._caller, messages, self._search)
        if found is None:
            return self._tools(need_reader(messages))
        for each in request.tools:
            if isinstance(each, dict) and str(each.get("type")).startswith("tool_search"):
                raise ConfigError(
                    "ToolboxMiddleware and ProviderToolSearchMiddleware both search for tools; "
                    'remove one of them, or give ToolboxMiddleware tool_search="off"'
                )
        return as_tools(self._toolbox, found, self._caller, self._images)

    def _tools(self, reader: bool) -> list[Any]:
        found = tools(
            self._toolbox,
            self._select,
            images=self._images > 0,
            max_image_bytes=self._images,
            reader=reader,
            caller=self._caller,
        )
        return [each.renamed() for each in found]

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Add the current tools to a request, and fit its history to them."""
        await self._toolbox.refresh()
        own = {each.name for each in request.tools if isinstance(each, BaseTool)}
        found = self._requested(request)
        for name in own.intersection(each.name for each in found) - self._warned:
            self._warned.add(name)
            _log.warning("tool %r of the agent hides the one of the toolbox", name)
        offered = [*request.tools, *(each for each in found if each.name not in own)]
        messages = with_user_images(request.model, fitted(request.messages))
        return await handler(request.override(tools=offered, messages=messages))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Look up the toolbox's tool for a call, and pass it on."""
        if request.tool is not None:
            return await handler(request)
        call = request.tool_call
        if call["name"] == SEARCH_TOOLS:
            done = await aio.run_in(self._toolbox.loop, lambda: self._search_for(call["args"]))
            return message(done, dict(call), {"address": f"{OWN}:{SEARCH.name}"})
        offered = {each.name: each for each in self._tools(reader=True)}
        try:
            name = self._toolbox.find(call["name"], self._caller).wire_name
            if name not in offered:
                raise UnknownTool(f"no tool {name!r} among those of this agent")
        except InterlockError as error:
            return message(failed(error), dict(call), {"address": call["name"], "seconds": 0.0})
        return await handler(request.override(tool=offered[name]))

    async def _search_for(self, arguments: Any) -> Finished:
        return await run(
            self._toolbox, SEARCH_TOOLS, arguments, caller=self._caller, offered=self._entries
        )
