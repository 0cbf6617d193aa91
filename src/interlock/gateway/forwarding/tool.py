"""A tool of an upstream server, as the gateway offers it to one caller."""

from __future__ import annotations

from functools import cached_property

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
)
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.refusals import reason_of, refusal
from interlock.protocol.envelope import encode_large
from interlock.revisions import MISSING_CAPABILITY
from interlock.server.catalogue import EncodedDefinition
from interlock.server.tasks import TaskBegun
from interlock.types import JsonObject

STATE_KEY = "interlock/state"
_FOR_THE_CLIENT = (InputRequired, MalformedAnswer, TaskBegun)


class ForwardedTool:
    """Passes calls on to the server of the tool.

    Args:
        entry: The tool.
        name: What clients call it.
        state: Why its server cannot be called now, as a stable word; "" if it can.
        forwarder: Sends the calls.
    """

    def __init__(self, entry: Entry, name: str, state: str, forwarder: Forwarder) -> None:
        self.entry = entry
        self.name = name
        self.state = state
        self.fingerprint = hash((name, state, entry.definition))
        self.listed = _listed(entry, name, state)
        self._forwarder = forwarder

    @cached_property
    def definition(self) -> JsonObject:
        """What clients list."""
        return self.listed.fields

    async def call(self, arguments: Raw | None, context: Context) -> Raw:
        """Pass a call on, and return the server's result as it is.

        A refusal is a result, too: see `refusals`.

        Raises:
            CallRefused, AuditUnavailable: The request is refused, whatever its tool.
            InputRequired: The server asks a modern client.
            TaskBegun: The server answers with a task.
            MalformedAnswer: The answers or the state of a round are not valid.
        """
        id = new_call_id()
        try:
            given = {} if arguments is None else msgspec.json.decode(arguments)
        except msgspec.DecodeError as error:  # a number that no float can hold
            return self._refuse(f"arguments: {error}", context, id)
        if not isinstance(given, dict):
            return self._refuse("the arguments must be an object", context, id)
        try:
            return await self._forwarder.forward(self.entry, given, context, id)
        except InterlockError as error:
            if isinstance(error, _FOR_THE_CLIENT) or _is_undeclared(error, context):
                raise
            return refusal(self.entry, error, id)

    def _refuse(self, text: str, context: Context, id: str) -> Raw:
        """Refuse arguments that no layer of a call could read."""
        error = InvalidArguments(text)
        note = self._forwarder.observer.unavailable
        note(caller_of(context), reason_of(error), self.entry, "", id)
        return refusal(self.entry, error, id)


def _listed(entry: Entry, name: str, state: str) -> EncodedDefinition:
    if name == entry.wire_name and not state:
        return EncodedDefinition(entry.definition)
    definition = msgspec.json.decode(entry.definition) | {"name": name}
    if state:
        definition["_meta"] = (definition.get("_meta") or {}) | {STATE_KEY: state}
    return EncodedDefinition(encode_large(definition))


def _is_undeclared(error: InterlockError, context: Context) -> bool:
    """Return whether a modern client did not declare what a server needs, so that it can."""
    if not context.is_modern:
        return False
    required: object = None
    if isinstance(error, MissingCapability):
        required = error.required
    elif isinstance(error, RemoteError) and error.code == MISSING_CAPABILITY:
        required = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    names = required if isinstance(required, dict) else {}
    return any(getattr(context.client_capabilities, str(each), None) is None for each in names)


class UnusableTool:
    """A tool that the caller may see, but that cannot be called now.

    Args:
        name: What clients call it.
        item: The tool; an `Item` if no more than its name is known.
        reason: Why, as a stable word.
        detail: The same for people.
        forwarder: Reports refused calls.
        url: Where the caller connects to the server, if that would help; "" otherwise.
        next_try: Seconds until its server may be started again; None if that is not planned.
        is_known: The server has such a tool; otherwise the caller may have made up its name.
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
        self._is_known = is_known

    async def call(self, arguments: Raw | None, context: Context) -> Raw:  # noqa: ARG002
        """Return why the tool cannot be called."""
        text, id = f"{self.item.address} cannot be called: {self.detail}", new_call_id()
        error = CallRefused(text, self.reason, self.next_try)
        if self.url:
            error = LoginNeeded(f"{text}; open {self.url} and call again", self.url)
        entry = self.item if self._is_known else None
        name = "" if self._is_known else self.item.address
        self._forwarder.observer.unavailable(caller_of(context), error.reason, entry, name, id)
        return refusal(self.item, error, id)
