"""A tool of an upstream server, as the gateway offers it to one caller."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from interlock.calls import Entry
from interlock.context import Context
from interlock.errors import InputRequired, InterlockError, InvalidArguments, MalformedAnswer
from interlock.gateway.forwarding import Forwarder
from interlock.gateway.refusals import refusal
from interlock.types import JsonObject


class ForwardedTool:
    """Passes calls on to the server of the tool.

    Args:
        entry: The tool.
        name: What clients call it.
        forwarder: Sends the calls.
    """

    def __init__(self, entry: Entry, name: str, forwarder: Forwarder) -> None:
        self.entry = entry
        self.definition: JsonObject = msgspec.json.decode(entry.definition) | {"name": name}
        self._forwarder = forwarder

    async def call(self, arguments: Raw | None, context: Context) -> Raw:
        """Pass a call on, and return the server's result as it is.

        A refusal is a result, too: see `refusals`.

        Raises:
            CallRefused, AuditUnavailable: The request is refused, whatever its tool.
            InputRequired: The server asks a modern client.
            MalformedAnswer: The answers or the state of a round are not valid.
        """
        given = {} if arguments is None else msgspec.json.decode(arguments)
        if not isinstance(given, dict):
            raise InvalidArguments("the arguments must be an object")
        try:
            return await self._forwarder.forward(self.entry, given, context)
        except (InputRequired, MalformedAnswer):
            raise
        except InterlockError as error:
            return refusal(self.entry, error)
