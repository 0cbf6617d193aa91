"""A server's tool, as the gateway offers it to clients."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Raw

from interlock.calls import Entry, Item
from interlock.calls.call import new_call_id
from interlock.context import Context
from interlock.errors import (
    CallRefused,
    InputRequired,
    InterlockError,
    InvalidArguments,
    LoginNeeded,
    MalformedAnswer,
    MissingCapability,
    RemoteError,
    UnknownTool,
)
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.refusals import reason_of, refusal
from interlock.protocol.envelope import encode_large
from interlock.revisions import MISSING_CAPABILITY
from interlock.schema.portable import Renames, portable
from interlock.server.catalogue import EncodedDefinition
from interlock.server.tasks import TaskBegun
from interlock.text.canonical_json import canonical_json
from interlock.toolbox.upstream import Upstream
from interlock.types import JsonObject

STATE_KEY = "interlock/state"
# Claude Code's names are "mcp__SERVER__TOOL", and its API accepts 64 characters.
MAX_SHORT_NAME = 40
CLAUDE_CODE = "claude-code"  # the client name that Claude Code reports
_FOR_THE_CLIENT = (InputRequired, MalformedAnswer, TaskBegun)


class ForwardedTool:
    """A tool that forwards its calls to the server.

    Args:
        entry: The tool.
        name: The tool's name for clients.
        state: A stable code for why the server cannot be called now; "" if it can be called.
        forwarder: Sends the calls.
        is_original: Whether clients see the server's input schema, rather than one that all models'
            providers accept.
    """

    def __init__(
        self,
        entry: Entry,
        name: str,
        state: str,
        forwarder: Forwarder,
        *,
        is_original: bool = False,
    ) -> None:
        self.entry = entry
        self.name = name
        self.state = state
        self._is_original = is_original
        self._forwarder = forwarder

    @cached_property
    def listed(self) -> EncodedDefinition:
        """The definition that clients see, encoded."""
        schema = self.entry.input_schema
        if not self._is_original:
            schema = portable(schema).encoded
        return _listed(self.entry, self.name, self.state, schema)

    @cached_property
    def fingerprint(self) -> int:
        """A number that changes when the definition that clients see changes."""
        return hash((self.name, self.state, self.entry.definition))

    def is_encoded(self, *, is_short: bool) -> bool:
        """Return whether the definition with the tool's name, or its short one, has been made."""
        return ("listed_shortly" if is_short else "listed") in self.__dict__

    @cached_property
    def _renames(self) -> Renames | None:
        return None if self._is_original else portable(self.entry.input_schema).renames

    @property
    def item(self) -> Entry:
        """The tool itself."""
        return self.entry

    def name_for(self, client: str) -> str:
        """Return the tool's name for a client program, given its name."""
        return self.short_name if client == CLAUDE_CODE else self.name

    @cached_property
    def _canonical(self) -> bytes:
        return canonical_json(self.definition)

    @property
    def digest(self) -> str:
        """ "sha256:" and the hash of the canonical JSON of the definition that clients see."""
        return f"sha256:{hashlib.sha256(self._canonical).hexdigest()}"

    @property
    def size(self) -> int:
        """The number of bytes of that JSON."""
        return len(self._canonical)

    @cached_property
    def short_name(self) -> str:
        """The tool's name for clients that put a prefix before it."""
        if len(self.name) <= MAX_SHORT_NAME:
            return self.name
        digest = hashlib.sha256(self.name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
        return f"{self.name[: MAX_SHORT_NAME - 11]}_{digest}"

    @cached_property
    def listed_shortly(self) -> EncodedDefinition:
        """The definition with the tool's short name."""
        if self.short_name == self.name:
            return self.listed
        return EncodedDefinition(encode_large(self.listed.fields | {"name": self.short_name}))

    @cached_property
    def definition(self) -> JsonObject:
        """The definition that clients see in lists."""
        return self.listed.fields

    async def call(self, arguments: Raw | None, context: Context) -> Raw:
        """Forward a call; return the server's result unchanged.

        If the call is refused, the returned result is an error; see `refusals`.

        Raises:
            CallRefused, AuditUnavailable: The request as a whole is refused.
            InputRequired: The server asks a modern client a question.
            TaskBegun: The server runs the call as a task.
            MalformedAnswer: The answers to questions, or the state sent with them, are not valid.
        """
        id, context.called = new_call_id(), self.entry.address
        try:
            given = {} if arguments is None else msgspec.json.decode(arguments)
            if given is None:  # some clients write null for missing arguments
                given = {}
        except msgspec.DecodeError as error:  # for example, a number is too large for a float
            return self._refuse(f"arguments: {error}", context, id)
        if not isinstance(given, dict):
            return self._refuse("the arguments must be an object", context, id)
        if self._renames is not None:
            given = self._renames.to_server(given)
        try:
            return await self._forwarder.forward(self.entry, given, context, id)
        except InterlockError as error:
            if isinstance(error, _FOR_THE_CLIENT) or _is_undeclared(error, context):
                raise
            context.error_type = reason_of(error)
            return refusal(self.entry, error, id)

    def _refuse(self, text: str, context: Context, id: str) -> Raw:
        """Return the refusal for arguments that cannot be decoded."""
        error = InvalidArguments(text)
        note, context.error_type = self._forwarder.observer.unavailable, reason_of(error)
        note(caller_of(context), context.error_type, self.entry, "", id)
        return refusal(self.entry, error, id)


def _listed(entry: Entry, name: str, state: str, schema: bytes) -> EncodedDefinition:
    if name == entry.wire_name and not state and schema == entry.input_schema:
        return EncodedDefinition(entry.definition)
    definition = msgspec.json.decode(entry.definition) | {"name": name, "inputSchema": Raw(schema)}
    if state:
        definition["_meta"] = (definition.get("_meta") or {}) | {STATE_KEY: state}
    return EncodedDefinition(encode_large(definition))


def _is_undeclared(error: InterlockError, context: Context) -> bool:
    """Return whether a modern client did not declare a capability that the server needs."""
    if not context.is_modern:
        return False
    required: object = None
    if isinstance(error, MissingCapability):
        required = error.required
    elif isinstance(error, RemoteError) and error.code == MISSING_CAPABILITY:
        required = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    names = required if isinstance(required, dict) else {}
    return any(getattr(context.client_capabilities, str(each), None) is None for each in names)


class StartingTool:
    """A tool whose server is still starting: a call waits for the start, and then looks it up.

    Args:
        refused: Refuses the call if the start takes too long.
        upstream: The server.
        find: Looks the tool up again.
    """

    def __init__(
        self, refused: UnusableTool, upstream: Upstream, find: Callable[[Context], Any]
    ) -> None:
        self.definition = refused.definition
        self._refused = refused
        self._upstream = upstream
        self._find = find

    async def call(self, arguments: Raw | None, context: Context) -> Any:
        """Call the tool when its server has started.

        Raises:
            UnknownTool: See `started`.
            InterlockError: See `ForwardedTool.call`.
        """
        return await (await self.started(context)).call(arguments, context)

    async def started(self, context: Context) -> ForwardedTool | UnusableTool:
        """Wait for the server, at most for the timeout of its requests; return the tool.

        Raises:
            UnknownTool: The server has no such tool, or the caller may not use it.
        """
        await self._upstream.wait_for_start()
        found = self._find(context)
        if found is None:
            raise UnknownTool(f"unknown tool {self.definition['name']!r}")
        tool: ForwardedTool | UnusableTool = found
        return self._refused if isinstance(found, StartingTool) else tool


class LoadingTool:
    """A tool of interlock itself, whose caller's rights to many tools must be decided first.

    Args:
        name: The tool's name for clients.
        load: Returns the tool, after the rights are decided.
    """

    def __init__(self, name: str, load: Callable[[], Awaitable[Any]]) -> None:
        self.definition: JsonObject = {"name": name, "inputSchema": {"type": "object"}}
        self._load = load

    async def call(self, arguments: Raw | None, context: Context) -> Any:
        """Call the tool.

        Raises:
            UnknownTool: The caller has no such tool.
            InterlockError: See `ForwardedTool.call`.
        """
        context.tool = tool = await self.loaded()
        return await tool.call(arguments, context)

    async def loaded(self) -> Any:
        """Return the tool itself, when the rights are decided.

        Raises:
            UnknownTool: The caller has no such tool.
        """
        return await self._load()


class UnusableTool:
    """A tool that the caller may see but that cannot be called now.

    Args:
        name: The tool's name for clients.
        item: The tool; an `Item` if only the tool's name is known.
        reason: A stable code for why the tool cannot be called.
        detail: The reason, as a sentence for people.
        forwarder: Reports refused calls.
        url: The URL where the caller can connect to the server; "" if that would not help.
        next_try: Seconds until the server may be started again; None if no start is planned.
        is_known: Whether the server is known to have this tool. Otherwise the caller may have made
            up the name.
    """

    def __init__(
        self,
        name: str,
        item: Entry | Item,
        reason: str,
        detail: str,
        forwarder: Forwarder,
        *,
        url: str = "",
        next_try: float | None = None,
        is_known: bool = True,
    ) -> None:
        self.item = item
        self.reason = reason
        self.detail = detail
        self.url = url
        self.next_try = next_try
        self.definition: JsonObject = {"name": name, "inputSchema": {"type": "object"}}
        self._forwarder = forwarder
        self.is_known = is_known

    async def call(self, arguments: Raw | None, context: Context) -> Raw:  # noqa: ARG002
        context.called = self.item.address if self.is_known else ""
        context.error_type = self.reason
        text, id = f"{self.item.address} cannot be called: {self.detail}", new_call_id()
        error = CallRefused(text, self.reason, self.next_try)
        if self.url:
            error = LoginNeeded(f"{text}; open {self.url} and call again", self.url)
        entry = self.item if self.is_known else None
        name = "" if self.is_known else self.item.address
        self._forwarder.observer.unavailable(caller_of(context), error.reason, entry, name, id)
        return refusal(self.item, error, id)
