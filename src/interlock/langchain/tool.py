"""Adapts a toolbox's tool to LangChain's `BaseTool`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import copy_context
from fnmatch import fnmatchcase
from functools import cache
from time import monotonic
from typing import Any, NoReturn

import msgspec
from langchain_core.callbacks import AsyncCallbackManager, Callbacks
from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException
from msgspec.structs import replace
from pydantic import PrivateAttr

from interlock import aio
from interlock.agent import ToolProgress
from interlock.calls import Around, Call, Caller, Entry
from interlock.calls.call import new_call_id
from interlock.errors import InterlockError, InvalidArguments
from interlock.langchain.messages import MAX_IMAGE, Finished, failed, finished, message
from interlock.layers.kept_results import TOOL as READER
from interlock.messages import SEARCH_TOOLS
from interlock.protocol import Progress, ProgressHandler
from interlock.schema.portable import portable
from interlock.text.surrogates import repair_value
from interlock.tool_loading import with_parameters
from interlock.toolbox import Toolbox, Tools
from interlock.toolbox.search_tool import loads_of
from interlock.types import JsonObject

LANGCHAIN = Caller(surface="langchain")
_log = logging.getLogger("interlock.langchain")
_BUG = "error: the call failed because of a bug in the client program"

_Made = dict[str, tuple[bytes, "LangChainTool"]]


class LangChainTool(BaseTool):
    """A toolbox's tool for LangChain. The function `tools` creates such objects.

    It keeps the tool's address, not a connection, so it still works after the server restarts. All
    errors are returned to the model as a `ToolMessage` with the status "error".
    """

    _toolbox: Tools = PrivateAttr()
    _address: str = PrivateAttr()
    _caller: Caller = PrivateAttr()
    _images: int = PrivateAttr()
    _entry: Entry = PrivateAttr()
    _renamed: LangChainTool | None = PrivateAttr(None)

    def __init__(
        self,
        toolbox: Tools,
        entry: Entry,
        *,
        caller: Caller = LANGCHAIN,
        images: int = 0,
        server_info: str = "",
        renamed: bool = False,
        description: str | None = None,
    ) -> None:
        schema = portable(entry.input_schema)
        text, offered = _shown(entry, schema.encoded, description)
        own_text, own = text, offered
        if not renamed:
            own_text, own = _shown(entry, schema.with_server_names, description)
        claude = {"name": entry.wire_name, "description": text, "input_schema": offered}
        super().__init__(
            name=entry.wire_name,
            description=own_text,
            args_schema=own,
            # `ChatAnthropic` sends this instead, as its API refuses some names of arguments.
            extras={"provider_tool_definition": claude} if schema.renames is not None else None,
            tags=["mcp", f"server:{entry.server}"],
            metadata={"interlock": _metadata(entry, server_info)},
        )
        self._toolbox = toolbox
        self._address = entry.address
        self._caller = caller
        self._images = images
        self._entry = entry

    @property
    def input_schema_of_server(self) -> bytes:
        """The server's encoded JSON Schema of the arguments."""
        return self._entry.input_schema

    def renamed(self) -> LangChainTool:
        """Return this tool with names of arguments that every provider accepts."""
        if self.extras is None:
            return self
        if self._renamed is None:
            info = (self.metadata or {})["interlock"]["server"]
            self._renamed = LangChainTool(
                self._toolbox,
                self._entry,
                caller=self._caller,
                images=self._images,
                server_info=info,
                renamed=True,
            )
        return self._renamed

    # LangChain passes arguments on as keywords, and drops those named `config`, `run_manager` or
    # `runtime`. One positional object arrives unchanged.
    def _to_args_and_kwargs(
        self, tool_input: Any, tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (tool_input, tool_call_id), {}

    async def arun(
        self,
        tool_input: Any,
        verbose: bool | None = None,
        start_color: str | None = "green",
        color: str | None = "green",
        callbacks: Callbacks = None,
        *,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        tool_call_id: str | None = None,
        **more: Any,
    ) -> Any:
        """Call the tool; see `BaseTool`. Without callbacks, skip LangChain's work for them.

        That work takes two thirds of the time of a call.
        """
        says = self.verbose or bool(verbose)
        manager = AsyncCallbackManager.configure(callbacks, self.callbacks, says)
        if manager.handlers or self.handle_tool_error:
            return await super().arun(
                tool_input,
                verbose,
                start_color,
                color,
                callbacks,
                tags=tags,
                metadata=metadata,
                tool_call_id=tool_call_id,
                **more,
            )
        return await self._arun(tool_input, tool_call_id)

    async def _arun(self, arguments: Any, id: str | None) -> ToolMessage | str:
        toolbox = self._toolbox
        return await aio.run_in(toolbox.loop, self._work(arguments, id))

    def _run(self, arguments: Any, id: str | None) -> ToolMessage | str:
        return aio.block_on(self._toolbox.loop, self._work(arguments, id))

    def _work(
        self, arguments: Any, id: str | None
    ) -> Callable[[], Coroutine[Any, Any, ToolMessage | str]]:
        report = progress_writer(
            id
        )  # made here: the writer needs the context of this task, not of `loop`
        return lambda: self._call(arguments, id, report)

    async def _call(
        self, arguments: Any, id: str | None, progress: ProgressHandler | None
    ) -> ToolMessage | str:
        started = monotonic()
        done = await run(
            self._toolbox,
            self._address,
            arguments,
            caller=self._caller,
            progress=progress,
            images=self._images,
            tool_call_id=id or "",
        )
        if id is None:
            if done.is_error:
                raise ToolException(done.text)
            return done.text
        facts = {"address": self._address, "seconds": round(monotonic() - started, 6)}
        return message(done, {"name": self.name, "id": id}, facts)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._address} cannot be pickled or copied: it calls an open toolbox. If "
            "ProviderToolSearchMiddleware defers it, use `tool_search` of ToolboxMiddleware instead"
        )

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:
        self.__reduce__()


def _shown(entry: Entry, encoded: bytes, description: str | None) -> tuple[str, JsonObject]:
    """Return a tool's description and schema; LangChain would drop the schema's description."""
    schema: JsonObject = msgspec.json.decode(encoded)
    text = description or entry.tool.description or entry.tool.title or entry.tool.name
    note = schema.pop("description", "")
    return f"{text}\n\n{note}" if note else text, schema


# For each call LangChain evaluates the annotations and the signature, which takes a fifth of it.
_method: Any
for _method in (LangChainTool._arun, LangChainTool._run):
    _method.__signature__ = inspect.signature(_method)
    _method.__annotations__ = {}


_BUG = "error: the call failed because of a bug in the client program"


async def run(
    toolbox: Tools,
    name: str,
    arguments: Any,
    *,
    caller: Caller = LANGCHAIN,
    progress: ProgressHandler | None = None,
    images: int = 0,
    id: str | None = None,
    tool_call_id: str = "",
    around: Around | None = None,
    offered: Callable[[], Sequence[Entry]] | None = None,
    explains: bool = False,
) -> Finished:
    """Call a tool. Raise nothing but `CancelledError`.

    Args:
        toolbox, name: The toolbox, and the tool's address or wire name.
        arguments: Arguments by parameter name.
        caller: The caller on whose behalf the tool is called.
        progress: Called with each `Progress`.
        images: The largest image; see `finished`.
        id: The call's id in the audit trail; None for a new one.
        tool_call_id: The model's id of the call; "" if no model made it.
        around: A layer outside of the toolbox's layers.
        offered: Returns the tools that a search may find; None for all tools of the toolbox.
        explains: Whether an error about the arguments has the tool's parameters.
    """
    handle = toolbox.handle if around is None else around(toolbox.handle)
    try:
        entry = toolbox.find(name, caller)
        given = _to_server(entry, arguments)
        call = Call(entry, given, caller, progress=progress, id=id or new_call_id())
        call.tool_call_id = tool_call_id
        call.offered = offered or (lambda: toolbox.tools)
        result = (await handle(call)).result
        done = finished(result, images)
        return replace(done, loads=loads_of(result)) if entry.wire_name == SEARCH_TOOLS else done
    except InvalidArguments as error:
        done = failed(error)
        return replace(done, content=with_parameters(done.text, entry)) if explains else done
    except InterlockError as error:
        return failed(error)
    except Exception:
        _log.exception("calling %s failed", name)
        return Finished(_BUG, True, "failed")


def _to_server(entry: Entry, arguments: Any) -> JsonObject:
    """Return arguments with the server's names.

    Raises:
        InvalidArguments: The arguments are not an object.
    """
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise InvalidArguments(f"{entry.address}: arguments must be an object, not {kind}")
    return portable(entry.input_schema).to_server(repair_value(dict(arguments)))


def tools(
    toolbox: Tools,
    select: str | Sequence[str] | None = None,
    *,
    images: bool = False,
    max_image_bytes: int = MAX_IMAGE,
    reader: bool = True,
    caller: Caller = LANGCHAIN,
) -> list[LangChainTool]:
    """Return the current tools of a toolbox.

    Args:
        toolbox: An open toolbox, or other `Tools`.
        select: Patterns of addresses, such as "kb:*"; None for all tools.
        images: Whether to pass images on to the model; otherwise it gets a line of text for each.
        max_image_bytes: The largest image that is passed on.
        reader: Whether to add the tool that reads large results, no matter what is selected.
        caller: The caller on whose behalf the tools are called.
    """
    most = max_image_bytes if images else 0
    found = selected(toolbox, select)
    if reader:
        found += toolbox.own.entries_for(caller)

    @cache
    def server_infos() -> dict[str, str]:
        status = toolbox.status if isinstance(toolbox, Toolbox) else {}
        return {name: each.server_info for name, each in status.items()}

    def make(entry: Entry) -> LangChainTool:
        info = server_infos().get(entry.server, "")  # "" for a tool of interlock itself
        return LangChainTool(toolbox, entry, caller=caller, images=most, server_info=info)

    if caller != LANGCHAIN or not isinstance(toolbox, Toolbox):
        return list(map(make, found))
    made: _Made = toolbox.adapted.setdefault((LangChainTool, images, most), {})
    every = [*toolbox.tools, *toolbox.own.entries]
    for address in made.keys() - {each.address for each in every}:
        del made[address]
    for entry in found:
        known = made.get(entry.address)
        if known is None or known[0] != entry.definition:
            made[entry.address] = entry.definition, make(entry)
    return [made[each.address][1] for each in found]


def selected(toolbox: Tools, select: str | Sequence[str] | None) -> list[Entry]:
    """Return the tools of a toolbox whose addresses match patterns; None selects all."""
    patterns = (select,) if isinstance(select, str) else select
    return [each for each in toolbox.tools if patterns is None or _fits(each.address, patterns)]


def need_reader(messages: Iterable[AnyMessage]) -> bool:
    """Return whether messages hold an excerpt of a large result."""
    return any(isinstance(each, ToolMessage) and READER in str(each.content) for each in messages)


def _fits(address: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(address, each) for each in patterns)


def _metadata(entry: Entry, server_info: str) -> dict[str, Any]:
    hints = entry.tool.annotations
    return {
        "address": entry.address,
        "server": server_info,
        "annotations": {}
        if hints is None
        else {
            "readOnlyHint": hints.read_only_hint,
            "destructiveHint": hints.destructive_hint,
            "idempotentHint": hints.idempotent_hint,
            "openWorldHint": hints.open_world_hint,
        },
    }


def progress_writer(id: str | None) -> ProgressHandler | None:
    """Return a handler that writes to LangGraph's custom stream; None outside of a graph."""
    # If this module is not loaded, the program uses no graph.
    config = sys.modules.get("langgraph.config")
    if config is None or id is None:
        return None
    try:
        write = config.get_stream_writer()
    except (RuntimeError, KeyError, LookupError):  # not in a graph
        return None
    return reporter(id, write)


def reporter(id: str, write: Callable[[Any], None]) -> ProgressHandler:
    """Return a handler that writes the progress of a call as events.

    Args:
        id: The model's id of the call.
        write: LangGraph's writer of the custom stream. It needs the context and the event loop of
            the running task; messages of the server arrive in other tasks.
    """
    context = copy_context()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no running loop: `graph.invoke` in a thread
        loop = None

    def report(progress: Progress) -> None:
        event = ToolProgress(id, progress.progress, progress.total, progress.message or "")
        if loop is None or loop is asyncio.get_running_loop():
            context.run(write, event)
        else:
            loop.call_soon_threadsafe(write, event, context=context)

    return report
