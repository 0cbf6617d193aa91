"""A toolbox's server as Claude Code sees it: an MCP server that is always ready.

Rules:

1. `initialize` and `tools/list` are answered at once from the toolbox's catalogue. A server that
   is still starting, or is down, has empty lists.
2. Each request gets one answer. A cancelled request gets an error.
3. Only running calls are looked up by JSON-RPC id, because Claude Code reuses ids after each
   handshake.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock import __version__, revisions
from interlock.calls import Call, Caller, Entry, Item
from interlock.claude import names, results
from interlock.claude.decisions import Allow, Deny, PermissionRequest
from interlock.config.gateway import OWN
from interlock.errors import InterlockError
from interlock.layers.kept_results import URI
from interlock.protocol import ProgressHandler
from interlock.protocol.envelope import encode, encode_lossy
from interlock.schema.portable import portable
from interlock.toolbox import Toolbox
from interlock.types import JsonObject

ALWAYS_LOADED = 40  # tools of all servers; with more, Claude Code's tool search loads them
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_FOUND = -32002  # the resource does not exist

_EMPTY: dict[str, bytes] = {
    "ping": b"{}",
    "logging/setLevel": b"{}",
    "prompts/list": b'{"prompts":[]}',
    "resources/templates/list": b'{"resourceTemplates":[]}',
}


class _Meta(Struct, frozen=True, gc=False):
    tool_use_id: str = field(name="claudecode/toolUseId", default="")


class _CallParams(Struct, gc=False):
    name: str
    arguments: JsonObject | UnsetType = UNSET
    meta: _Meta = field(name="_meta", default=_Meta())


class _InitializeParams(Struct, rename="camel"):
    protocol_version: str = ""


class _ReadParams(Struct):
    uri: str


_decode_call = msgspec.json.Decoder(_CallParams).decode
_decode_initialize = msgspec.json.Decoder(_InitializeParams).decode
_decode_read = msgspec.json.Decoder(_ReadParams).decode


class RpcError(Exception):
    """A request must be answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class FacadeHost(Struct):
    """The state and functions that all facades share.

    Attributes:
        max_result: The maximum bytes of a result; with 0 only the toolbox limits results.
        use: Decides about a call; None if all calls are allowed.
        progress: Returns the progress handler for a call, given the call's id and the tool's entry.
        always_load: Whether tools are in the model's prompt; None decides by their number.
        tool_count: Number of tools of all servers.
        timeout: Seconds after which a call without progress fails.
        caller: The caller on whose behalf the calls are made.
        origin: Returns where the call with this id came from, for the audit trail.
    """

    max_result: int
    use: Callable[[PermissionRequest], Awaitable[Allow | Deny]] | None
    progress: Callable[[str, Entry], ProgressHandler]
    always_load: bool | None
    tool_count: Callable[[], int]
    timeout: float
    caller: Caller
    origin: Callable[[str], JsonObject]


class Facade:
    """Answers Claude Code's MCP requests to one server of a toolbox.

    Args:
        name: The server's name in the toolbox.
        toolbox: The toolbox that has its tools.
        host: The state that all facades share.

    Attributes:
        name: The server's name in the toolbox.
        program_name: The server's name for Claude Code.
        toolbox: The toolbox that has its tools.
    """

    def __init__(self, name: str, toolbox: Toolbox, host: FacadeHost) -> None:
        self.name = name
        self.program_name = names.server_name(name)
        self.toolbox = toolbox
        self._host = host
        self._version = -1  # the toolbox's version when the members below were computed
        self._entries: dict[str, Entry] = {}  # by Claude Code's name for the tool
        self._tools: bytes | None = None  # the encoded list; None until it is needed
        self._sent: bytes | None = None  # the list that Claude Code received last

    # The catalogue

    @property
    def entries(self) -> dict[str, Entry]:
        """This server's tools, by Claude Code's name for each tool."""
        if self._version != self.toolbox.version:
            self._version = self.toolbox.version
            self._tools = None
            self._entries = {
                names.tool_name(self.program_name, each.tool.name): each for each in self._listed()
            }
        return self._entries

    def _listed(self) -> Iterable[Entry]:
        return (each for each in self.toolbox.tools if each.server == self.name)

    def tool_list(self) -> bytes:
        self._sent = self._encoded()
        return self._sent

    def _encoded(self) -> bytes:
        entries = self.entries
        if self._tools is None:
            definitions = [self._definition(name, each) for name, each in entries.items()]
            self._tools = encode_lossy({"tools": definitions})
        return self._tools

    @property
    def is_listed(self) -> bool:
        return self._sent is not None

    def forget_list(self) -> None:
        self._sent = None

    @property
    def is_current(self) -> bool:
        """Whether Claude Code has the current list of tools, or has not requested it yet."""
        return self._sent is None or self._sent == self._encoded()

    def _definition(self, name: str, entry: Entry) -> JsonObject:
        definition: JsonObject = msgspec.json.decode(entry.definition)
        # Facades return no structured content, and the toolbox itself runs tools as tasks.
        definition.pop("outputSchema", None)
        definition.pop("execution", None)
        meta: JsonObject = dict(definition.get("_meta") or {})
        always = self._host.always_load
        if always is None:
            always = entry.is_always_listed or self._host.tool_count() <= ALWAYS_LOADED
        meta.pop("anthropic/alwaysLoad", None)  # the operator decides, not the server
        if always:
            meta["anthropic/alwaysLoad"] = True
        if self._host.max_result:
            meta["anthropic/maxResultSizeChars"] = self._host.max_result + 2_000
        schema = Raw(portable(entry.input_schema).encoded)
        return {**definition, "name": name, "inputSchema": schema, "_meta": meta}

    # Answering

    async def answer(self, method: str, params: Raw) -> bytes:
        """Answer a request; return the encoded result.

        Raises:
            RpcError: The request must be answered with an error.
        """
        if method == "tools/call":
            return await self._call(params)
        if method == "tools/list":
            return self.tool_list()
        if method == "initialize":
            return self._initialize(params)
        if method == "resources/list":
            return encode_lossy({"resources": await self._resources()})
        if method == "resources/read":
            return await self._read(params)
        if method in _EMPTY:
            return _EMPTY[method]
        raise RpcError(METHOD_NOT_FOUND, f"unknown method {method!r}")

    def _initialize(self, params: Raw) -> bytes:
        wanted = _decode(_decode_initialize, params).protocol_version
        known = wanted in revisions.ALL and not revisions.is_modern(wanted)
        status = self.toolbox.status.get(self.name)
        result = {
            "protocolVersion": wanted if known else revisions.LEGACY_TASKS,
            "capabilities": {"tools": {"listChanged": True}, "resources": {}},
            "serverInfo": {
                "name": self.name,
                "version": (status.server_info.rpartition(" ")[2] if status else "") or __version__,
            },
        }
        if instructions := self._instructions():
            result["instructions"] = instructions
        return encode_lossy(result)

    def _instructions(self) -> str | None:
        return self.toolbox.upstream(self.name).instructions

    async def _resources(self) -> Sequence[JsonObject]:
        status = self.toolbox.status.get(self.name)
        if status is None or status.state != "ok":
            return ()
        try:
            return (await self.toolbox.upstream(self.name).list_resources()).definitions
        except InterlockError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from None

    # Calls

    async def _call(self, params: Raw) -> bytes:
        given = _decode(_decode_call, params)
        entry = self.entries.get(given.name)
        if entry is None:
            return results.error(self._why_missing(given.name))
        arguments: JsonObject = {} if given.arguments is UNSET else given.arguments
        arguments = portable(entry.input_schema).to_server(arguments)
        id = given.meta.tool_use_id
        if self._host.use is not None:
            verdict = await self._host.use(PermissionRequest(entry.address, arguments, id))
            if isinstance(verdict, Deny):
                return results.error(f"denied: {verdict.message}")
            arguments = verdict.arguments if verdict.arguments is not None else arguments
        call = Call(
            entry,
            arguments,
            self._host.caller,
            timeout=self._host.timeout,
            progress=self._host.progress(id, entry) if id else None,
            result_limit=self._host.max_result or None,
            origin=self._host.origin(id),
            tool_call_id=id,
        )
        try:
            return results.shape(await self.toolbox.handle(call))
        except InterlockError as error:
            return results.error(f"error: {error}")

    def _why_missing(self, name: str) -> str:
        status = self.toolbox.status.get(self.name)
        if status is not None and status.state != "ok":
            return f"error: server {self.name!r} is {status.state}: {status.reason or 'no reason'}"
        return f"error: server {self.name!r} has no tool {name!r}"

    # Resources

    async def _read(self, params: Raw) -> bytes:
        uri = _decode(_decode_read, params).uri
        server = OWN if uri.startswith(URI) else self.name
        call = Call(Item("resources", server, uri), {}, self._host.caller)
        try:
            outcome = await self.toolbox.handle(call)
        except InterlockError as error:
            raise RpcError(NOT_FOUND, str(error)) from None
        return results.one_line(bytes(outcome.raw))


class OwnFacade(Facade):
    """A server that offers interlock's own tools to Claude Code."""

    def _listed(self) -> Iterable[Entry]:
        return self.toolbox.own.entries_for(self._host.caller)

    def _instructions(self) -> str | None:
        return None

    async def _resources(self) -> Sequence[JsonObject]:
        return ()


def _decode(decode: Callable[[Raw], Any], params: Raw) -> Any:
    try:
        return decode(params)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RpcError(INVALID_PARAMS, f"malformed params: {error}") from None


def rpc_result(id: object, result: bytes) -> bytes:
    """Wrap a JSON-RPC result as the response to a control request."""
    return b'{"mcp_response":{"jsonrpc":"2.0","id":%b,"result":%b}}' % (encode(id), result)


def rpc_error(id: object, code: int, message: str) -> bytes:
    """Wrap a JSON-RPC error as the response to a control request."""
    error = encode_lossy({"code": code, "message": message})
    return b'{"mcp_response":{"jsonrpc":"2.0","id":%b,"error":%b}}' % (encode(id), error)
