"""A call of a tool, resource or prompt, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from random import getrandbits
from time import time_ns
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from interlock.auth.principal import Principal
from interlock.calls.decision import Decision
from interlock.calls.entry import Entry, Item
from interlock.calls.grant import Grant
from interlock.protocol import ProgressHandler
from interlock.protocol.back_channel import BackChannel
from interlock.protocol.decoding import ResultHead, decode, decode_call, decode_head
from interlock.protocol.envelope import encode, encode_large
from interlock.text.base32 import PAIRS
from interlock.text.base32 import encode as encode_base32
from interlock.types import CallToolResult, ClientCapabilities, JsonObject, LogLevel

Surface = Literal[
    "library", "agent", "chat", "cli", "mcp", "web", "claude", "langchain", "inspector", "app"
]
"""The part of interlock that a call came through."""


class Caller(Struct, frozen=True):
    """The user and the client that a call is made for.

    Attributes:
        principal: The authenticated user; None for the local user of this process.
        session: The caller's session within that principal; "" for none.
        surface: The part of interlock that the call came through.
        client: Name of the client program, as it states it; "" if unknown.
        address: The network address of the client; "" if unknown.
        revision: Protocol revision of the client's request.
        trace: The `traceparent` of the client's request; "" for none.
    """

    principal: Principal | None = None
    session: str = ""
    surface: Surface = "library"
    client: str = ""
    address: str = ""
    revision: str = ""
    trace: str = ""

    @property
    def owner(self) -> str:
        """The key for fair sharing and limits: the principal's owner; "" for the local user."""
        return self.principal.owner if self.principal is not None else ""


LOCAL = Caller()
"""The caller of a program that calls its own toolbox."""


class Slots:
    """The slots that a call holds of limits on concurrent calls.

    A call that waits for its client releases all of them, because people take their time.
    """

    def __init__(self) -> None:
        self._held: dict[int, Callable[[], None]] = {}

    def hold(self, release: Callable[[], None]) -> Callable[[], None]:
        """Hold a slot; return the function that releases it, unless it was given back."""
        number = len(self._held)
        self._held[number] = release

        def release_once() -> None:
            held = self._held.pop(number, None)
            if held is not None:
                held()

        return release_once

    def give_back(self) -> None:
        """Release all slots now. The call continues without them."""
        while self._held:
            self._held.popitem()[1]()


class Timing(Struct, eq=False):
    """The timing of a call, shared by all copies of the call.

    Attributes:
        at_server: Seconds that the server took; None if the call was not sent.
    """

    at_server: float | None = None


_METHODS = {"tools": "tools/call", "resources": "resources/read", "prompts": "prompts/get"}


def new_call_id() -> str:
    """Return an id that no other call has, and that sorts by time, to 10 ms.

    Records with such ids are neighbours in an index, so a transaction changes fewer pages of it.
    """
    # Ids are public, and `secrets` takes ten times as long. A loop over the digits does as well,
    # and integers of more than 30 bits are slower.
    at, pairs = time_ns() >> 23, PAIRS  # 40 bits until the year 2262
    early, late, first, second = at >> 20, at & 0xFFFFF, getrandbits(30), getrandbits(20)
    return (
        f"c_{pairs[early >> 10]}{pairs[early & 1023]}{pairs[late >> 10]}{pairs[late & 1023]}"
        f"{pairs[first >> 20]}{pairs[first >> 10 & 1023]}{pairs[first & 1023]}"
        f"{pairs[second >> 10]}{pairs[second & 1023]}"
    )


def call_id_of(own: bytes) -> str:
    """Return the id of a call that its client names; the same name has the same id."""
    return f"c_{encode_base32(int.from_bytes(sha256(own).digest()), 18)}"


class Call(Struct, eq=False):
    """One call of a tool, or a request for a resource or prompt.

    Layers of the stack read it, and pass on a changed copy if need be. Only `decision` and
    `grant` are set in place, by the layers that decide, `timing` by the layer that counts calls,
    `encoded` by the audit trail, and `revision` and `messages` by the server.

    Attributes:
        entry: The tool, resource or prompt.
        arguments: JSON values by parameter name. They were decoded once: what a layer judges is
            what is encoded and sent, so a key given twice cannot mean two things.
        caller: The user and the client that the call is made for.
        back: The channel to the client, for the server's questions during the call; None for the
            handlers of the toolbox.
        capabilities: The client's capabilities, stated to modern servers; None states our own.
        log_level: The lowest level of log messages for the client; None for none.
        returns_questions: Return an "input_required" result to the caller, who will call again
            with `input_responses`; otherwise the questions are answered by `back` or our handlers.
        input_responses: Answers to the questions of an earlier round, an encoded object.
        request_state: The server's state of that round.
        timeout: Seconds without progress; None for the server's own limit.
        progress: Called with each `Progress`.
        meta: Further members of `_meta`, encoded without braces.
        idempotent: Calling twice has the effect of calling once, so a lost call may be repeated.
        slots: The slots that the call holds; None if it never waits for its client.
        result_limit: The most bytes of the result that the caller can use; None for no limit
            besides that of the configuration.
        id: Names the call in the audit trail and in errors.
        decision: The decision of the policy; None before its layer, or without a policy.
        grant: The approval that the call uses; None for none.
        revision: The protocol revision of the server that it was sent to; "" before that.
        messages: Number of requests that were sent to the server for it.
        continues: Id of the approved call that this one continues after questions of its server.
        origin: The part of the client that made the call, for the audit trail; None if unknown.
        timing: The measured times of the call; None measures nothing.
        encoded: The arguments as they were recorded and will be sent; b"" before that.
    """

    entry: Entry | Item
    arguments: JsonObject
    caller: Caller = LOCAL
    back: BackChannel | None = None
    capabilities: ClientCapabilities | None = None
    log_level: LogLevel | None = None
    returns_questions: bool = False
    input_responses: Raw | None = None
    request_state: str | None = None
    timeout: float | None = None
    progress: ProgressHandler | None = None
    meta: bytes = b""
    idempotent: bool = False
    slots: Slots | None = None
    result_limit: int | None = None
    id: str = msgspec.field(default_factory=new_call_id)
    decision: Decision | None = None
    grant: Grant | None = None
    continues: str = ""
    revision: str = ""
    messages: int = 0
    origin: JsonObject | None = None
    timing: Timing | None = None
    encoded: bytes = b""

    @property
    def kind(self) -> str:
        """ "tool", "resource" or "prompt"."""
        return "tool" if isinstance(self.entry, Entry) else self.entry.kind.removesuffix("s")

    @property
    def method(self) -> str:
        """The MCP method of the request."""
        return "tools/call" if isinstance(self.entry, Entry) else _METHODS[self.entry.kind]

    @property
    def name(self) -> str:
        """The name that the server uses; for a resource, the URI."""
        return self.entry.tool.name if isinstance(self.entry, Entry) else self.entry.name

    def params(self) -> bytes:
        entry = self.entry
        name = encode(entry.tool.name if isinstance(entry, Entry) else entry.name)
        if isinstance(entry, Item) and entry.kind == "resources":
            named = b'{"uri":%b' % name
        else:
            named = b'{"name":%b,"arguments":%b' % (
                name,
                self.encoded or encode_large(self.arguments),
            )
        if self.input_responses is not None:
            named = b'%b,"inputResponses":%b' % (named, bytes(self.input_responses))
        if self.request_state is not None:
            named = b'%b,"requestState":%b' % (named, encode(self.request_state))
        return named + b"}"


class Outcome:
    """The result of a call as its server encoded it. Its content is decoded on first use.

    Args:
        raw: The result.
        result: The same, decoded, if that is known.
        kept: Id of the kept result that this is an excerpt of; "" for none.
        size: Bytes of the server's result, if this is an excerpt.
        is_error: The server reported an error; None to read it from `raw`.

    Attributes:
        is_error: The tool reported an error.
        result_type: The type that a modern server states, such as "complete".

    Raises:
        RemoteProtocolError: The result is malformed.
        OutOfMemory: It does not fit into memory.
    """

    __slots__ = ("_result", "is_error", "kept", "raw", "result_type", "size")

    def __init__(
        self,
        raw: Raw,
        result: CallToolResult | None = None,
        *,
        kept: str = "",
        size: int | None = None,
        is_error: bool | None = None,
    ) -> None:
        self.raw = raw
        self.kept = kept
        self.size = len(raw) if size is None else size
        self._result = result
        try:
            head = decode_head(raw)
        except (msgspec.DecodeError, RecursionError, MemoryError):
            head = decode(ResultHead, raw, "tools/call result")  # raises the error to report
        self.is_error = head.is_error if is_error is None else is_error
        self.result_type = "complete" if head.result_type is UNSET else head.result_type

    @property
    def result(self) -> CallToolResult:
        """The decoded result. It has `result_type` "input_required" if the server has questions.

        Raises:
            RemoteProtocolError: The result is malformed.
            OutOfMemory: It does not fit into memory.
        """
        if self._result is None:
            self._result = decode_call(self.raw)
        return self._result

    @property
    def is_question(self) -> bool:
        """Whether the server has questions instead of a result."""
        return self.result_type == "input_required"

    @property
    def is_task(self) -> bool:
        """Whether the server continues the call as a task."""
        return self.result_type == "task"
