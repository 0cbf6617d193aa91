"""A call of a tool, resource or prompt, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from interlock.observing import TraceContext
from interlock.protocol import ProgressHandler
from interlock.protocol.back_channel import BackChannel
from interlock.protocol.decoding import ResultHead, ResultShape, decode, decode_call, decode_head
from interlock.protocol.envelope import encode, encode_large
from interlock.protocol.leniency import strict_form
from interlock.text.base32 import PAIRS
from interlock.text.base32 import encode as encode_base32
from interlock.text.redaction import NO_VALUES, HiddenValues
from interlock.types import CallToolResult, ClientCapabilities, JsonObject, LogLevel

Surface = Literal[
    "library", "agent", "chat", "cli", "mcp", "web", "claude", "langchain", "inspector", "app"
]
"""The part of interlock that received a call."""


class Caller(Struct, frozen=True):
    """The user and the client that a call is made for.

    Attributes:
        principal: The authenticated user; None for the local user of this process.
        session: The caller's session, within the principal; "" if there are no sessions.
        surface: The part of interlock that received the call.
        client: The client program's name, as the client reports it; "" if unknown.
        address: The client's network address; "" if unknown.
        revision: The protocol revision of the client's request.
        trace: The `traceparent` of the client's request; "" if the request had none.
        headers: The headers of the client's request that servers may get, keyed by the name in
            lower case.
        trace_context: The position in a distributed trace that servers get; None for none.
    """

    principal: Principal | None = None
    session: str = ""
    surface: Surface = "library"
    client: str = ""
    address: str = ""
    revision: str = ""
    trace: str = ""
    headers: HiddenValues = NO_VALUES
    trace_context: TraceContext | None = None

    @property
    def owner(self) -> str:
        """The key for fair sharing and limits: the principal's owner; "" for the local user."""
        return self.principal.owner if self.principal is not None else ""


LOCAL = Caller()
"""The caller for a program that calls tools of its own toolbox."""


class Slots:
    """The slots that a call occupies in limits on concurrent calls.

    A call releases its slots while it waits for its client, because people answer slowly.
    """

    def __init__(self) -> None:
        self._held: dict[int, Callable[[], None]] = {}

    def hold(self, release: Callable[[], None]) -> Callable[[], None]:
        """Occupy a slot; return a function that releases it.

        Args:
            release: Called once, when the slot is released by that function or by `give_back`.
        """
        number = len(self._held)
        self._held[number] = release

        def release_once() -> None:
            held = self._held.pop(number, None)
            if held is not None:
                held()

        return release_once

    def give_back(self) -> None:
        """Release all slots now; the call continues without slots."""
        while self._held:
            self._held.popitem()[1]()


class Timing(Struct, eq=False):
    """The measured time of a call, shared by all copies of the call.

    Attributes:
        at_server: The seconds that the server took; None if the call was not sent.
    """

    at_server: float | None = None


_METHODS = {"tools": "tools/call", "resources": "resources/read", "prompts": "prompts/get"}


def new_call_id() -> str:
    """Return a unique id for a call; ids sort by time, with a resolution of about 10 ms.

    Records of recent calls are then neighbours in an index, so a transaction changes fewer pages.
    """
    # Ids are public, so the ten times slower `secrets` is not needed. The digits are unrolled, and
    # the integers have at most 30 bits, because both are faster.
    at, pairs = time_ns() >> 23, PAIRS  # 40 bits until the year 2262
    early, late, first, second = at >> 20, at & 0xFFFFF, getrandbits(30), getrandbits(20)
    return (
        f"c_{pairs[early >> 10]}{pairs[early & 1023]}{pairs[late >> 10]}{pairs[late & 1023]}"
        f"{pairs[first >> 20]}{pairs[first >> 10 & 1023]}{pairs[first & 1023]}"
        f"{pairs[second >> 10]}{pairs[second & 1023]}"
    )


def call_id_of(own: bytes) -> str:
    """Return the id of a call that its client has named; equal names have equal ids."""
    return f"c_{encode_base32(int.from_bytes(sha256(own).digest()), 18)}"


class Call(Struct, eq=False):
    """A call of a tool, or a request for a resource or prompt.

    Layers read a call, and pass a changed copy on if necessary. Only these attributes are changed
    in place: `arguments` and `converted` by the validation, `decision` and `grant` by the layers
    that decide, `timing` by the metrics, `encoded` by the audit trail, and `revision` and
    `messages` by the server.

    Attributes:
        entry: The tool, resource or prompt.
        arguments: JSON values by parameter name. They are decoded only once and sent re-encoded, so
            a duplicate key cannot have two meanings.
        caller: The user and the client that the call is made for.
        back: The channel to the client, for the server's questions during the call; None to use the
            toolbox's handlers.
        capabilities: The client's capabilities, which modern servers receive; None for interlock's
            own.
        log_level: The lowest level of log messages that the client wants; None for no messages.
        returns_questions: Whether the caller gets "input_required" results, and calls again with
            `input_responses`. Otherwise `back` or the toolbox's handlers answer the questions.
        input_responses: The answers to an earlier round's questions, as an encoded object.
        request_state: The server's state from the earlier round.
        timeout: Seconds without progress until the call fails; None for the server's own timeout.
        progress: Called with each `Progress` that the server reports.
        meta: Further members of `_meta`, encoded without the braces.
        idempotent: Whether a repeated call has no further effect, so that a lost call may be
            retried.
        slots: The slots that the call occupies; None if the call never waits for its client.
        result_limit: The most bytes of a result that the caller can use; None if only the
            configuration limits the result.
        id: The call's id in the audit trail and in errors.
        decision: The policy's decision; None before the policy's layer, or without a policy.
        grant: The approval that the call uses; None if it uses no approval.
        revision: The protocol revision used with the server; "" before the call is sent.
        messages: The number of requests sent to the server for this call.
        continues: The id of the approved call that this call continues, after the server asked
            questions; "" otherwise.
        origin: The part of the client that made the call, for the audit trail; None if unknown.
        tool_call_id: The model's id of the call; "" if no model made it.
        timing: The measured time of the call; None if it is not measured.
        encoded: The arguments as recorded and sent; b"" before they are recorded.
        converted: The arguments that the validation has converted, each with "text" or "null" as
            in `schema.conversion`; None if all arguments are as given.
        headers: HTTP headers of this call only, for a server with a URL.
        offered: Returns the tools that the caller's model is offered, for interlock's own search;
            None if the caller has no model.
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
    tool_call_id: str = ""
    timing: Timing | None = None
    encoded: bytes = b""
    converted: dict[str, str] | None = None
    headers: HiddenValues = NO_VALUES
    offered: Callable[[], Sequence[Entry]] | None = None

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
        """The item's name at the server; for a resource, its URI."""
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
    """The result of a call, as the server encoded it. The content is decoded on first use.

    Args:
        raw: The encoded result.
        result: The decoded result, if it is already known.
        kept: The id of the kept result, if `raw` is only an excerpt of it; otherwise "".
        size: The bytes of the server's result, if `raw` is only an excerpt of it.
        is_error: Whether the server reported an error; None to read this from `raw`.
        head: The members of `raw` that decide how to handle it, if they are already decoded.

    Attributes:
        is_error: Whether the tool reported an error.
        result_type: The type that a modern server declares, such as "complete".

    Raises:
        RemoteProtocolError: The result is malformed.
        OutOfMemory: There is not enough memory to decode the result.
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
        head: ResultHead | ResultShape | None = None,
    ) -> None:
        self.raw = raw
        self.kept = kept
        self.size = len(raw) if size is None else size
        self._result = result
        if head is None:
            try:
                head = decode_head(raw)
            except (msgspec.DecodeError, RecursionError, MemoryError):
                head = decode(ResultHead, raw, "tools/call result")  # raises the error to report
                self.raw = Raw(strict_form(CallToolResult, raw))
        self.is_error = head.is_error if is_error is None else is_error
        self.result_type = "complete" if head.result_type is UNSET else head.result_type

    @property
    def result(self) -> CallToolResult:
        """The decoded result; its `result_type` is "input_required" if the server asks questions.

        Raises:
            RemoteProtocolError: The result is malformed.
            OutOfMemory: There is not enough memory to decode the result.
        """
        if self._result is None:
            self._result = decode_call(self.raw)
        return self._result

    @property
    def is_question(self) -> bool:
        """Whether the server asks questions instead of returning a result."""
        return self.result_type == "input_required"

    @property
    def is_task(self) -> bool:
        """Whether the server runs the call as a task, instead of returning its result now."""
        return self.result_type == "task"
