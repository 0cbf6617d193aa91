"""Claude Code's line protocol, without IO: lines and time in, events and lines out.

Rules:

1. The protocol opens nothing, awaits nothing and reads no clock: `now` is an argument, in seconds.
2. Each of our control requests ends exactly once: as `ControlResponse` or as `Failed`.
3. Each control request from Claude Code is delivered once and answered at most once, and never
   after Claude Code has withdrawn it.
4. Only valid JSON is sent, one object per line, because an invalid byte on stdin ends Claude Code.
5. A line that cannot be decoded is counted in `dropped`. Unknown kinds of lines are delivered as
   `Message`, so that newer programs work.
6. A lone surrogate, which JavaScript permits in strings, becomes U+FFFD in every delivered line.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from interlock.errors import InterlockError, RemoteError, RequestTimeout
from interlock.protocol.envelope import encode, encode_lossy
from interlock.text.surrogates import repair_json
from interlock.types import JsonObject, RequestId

CONTROL_TIMEOUT = 10.0  # seconds for the answer to a control request
MAX_REMEMBERED = 4_096  # ids of Claude Code's requests, to ignore repeated requests
UNSUPPORTED = -32601

# Requests from Claude Code


class McpMessage(Struct, frozen=True, gc=False):
    """A JSON-RPC message to a server in this program.

    `rpc_id` is UNSET for a notification. The answer is matched by `id`, the id of the control
    request, because Claude Code reuses JSON-RPC ids after each handshake.
    """

    id: str
    server: str
    method: str
    params: Raw
    rpc_id: RequestId | UnsetType


class Withdrawn(Struct, frozen=True, gc=False):
    """Claude Code no longer waits for the answer to its control request `id`."""

    id: str


class ControlRequest(Struct, frozen=True, gc=False):
    """A control request of any other kind; `line` is the whole line."""

    id: str
    subtype: str
    line: bytes


# Other lines


class ControlResponse(Struct, frozen=True, gc=False):
    """Our control request `id` succeeded. `value` is an encoded object."""

    id: str
    value: Raw


class Failed(Struct, frozen=True):
    """Our control request `id` failed."""

    id: str
    error: InterlockError


class Message(Struct, frozen=True, gc=False):
    """A line that belongs to the conversation, or has an unknown kind."""

    kind: str
    line: bytes


Event = McpMessage | Withdrawn | ControlRequest | ControlResponse | Failed | Message


class _Rpc(Struct, gc=False):
    method: str = ""
    id: RequestId | UnsetType = UNSET
    params: Raw = Raw(b"{}")


class _Asked(Struct, gc=False):
    subtype: str = ""
    server_name: str = ""
    message: _Rpc | UnsetType = UNSET


class _Answered(Struct, gc=False):
    subtype: str = ""
    request_id: str = ""
    response: Raw = Raw(b"{}")
    error: str = ""


class _Line(Struct, gc=False):
    type: str = ""
    request_id: str = ""
    request: _Asked | UnsetType = UNSET
    response: _Answered | UnsetType = UNSET


class _Head(Struct, gc=False):
    """The few members of a line that are decoded if its other members have unexpected types."""

    type: str = ""
    request_id: str = ""


class _Subtype(Struct, gc=False):
    subtype: str


class _OddRequest(Struct, gc=False):
    request: _Subtype


_decode = msgspec.json.Decoder(_Line).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_odd_request = msgspec.json.Decoder(_OddRequest).decode
_decode_any = msgspec.json.Decoder().decode
_BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ControlProtocol:
    """Encodes and decodes the lines of one running program.

    Attributes:
        dropped: How many lines were ignored, by reason.
    """

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._last_id = 0
        self._waiting: dict[str, tuple[str, float]] = {}  # our id -> subtype, deadline
        self._seen: dict[str, bool] = {}  # Claude Code's ids -> whether we still owe an answer
        self._outbox: list[bytes] = []

    # Receiving

    def receive(self, line: bytes) -> Event | None:
        """Decode one line; return None if the line causes no event."""
        line = repair_json(line)
        try:
            decoded = _decode(line)
        except _BAD_JSON:
            return self._receive_odd(line)
        kind = decoded.type
        if kind == "control_request":
            return self._asked(decoded.request_id, decoded.request, line)
        if kind == "control_response":
            return None if decoded.response is UNSET else self._answered(decoded.response)
        if kind == "control_cancel_request":
            if self._seen.get(decoded.request_id):
                self._seen[decoded.request_id] = False
                return Withdrawn(decoded.request_id)
            return None
        return Message(kind, line)

    def _asked(self, id: str, asked: _Asked | UnsetType, line: bytes) -> Event | None:
        if not id or id in self._seen:
            self.dropped["repeated request" if id else "request without id"] += 1
            return None
        if len(self._seen) >= MAX_REMEMBERED:
            seen = [*self._seen.items()]  # dropping many at once is faster
            owed = {id: True for id, is_owed in seen if is_owed}
            self._seen = owed | dict(seen[MAX_REMEMBERED // 2 :])
        self._seen[id] = True
        if asked is UNSET:
            self.refuse(id, "malformed request")
            return None
        if asked.subtype == "mcp_message":
            message = asked.message
            if message is UNSET:
                self.refuse(id, "malformed request")
                return None
            return McpMessage(id, asked.server_name, message.method, message.params, message.id)
        return ControlRequest(id, asked.subtype, line)

    def _answered(self, answered: _Answered) -> Event | None:
        waiting = self._waiting.pop(answered.request_id, None)
        if waiting is None:
            self.dropped["late response"] += 1
            return None
        if answered.subtype == "error":
            said = f"Claude Code refused {waiting[0]!r}: {answered.error}"
            return Failed(answered.request_id, RemoteError(UNSUPPORTED, said))
        return ControlResponse(answered.request_id, answered.response)

    def _receive_odd(self, line: bytes) -> Event | None:
        try:
            head = _decode_head(line)
            _decode_any(line)
        except _BAD_JSON:
            self.dropped["not JSON"] += 1
            return None
        if head.type == "control_request":
            # `message` is an object only in "mcp_message"; in "elicitation" it is a string.
            with suppress(*_BAD_JSON):
                subtype = _decode_odd_request(line).request.subtype
                return self._asked(head.request_id, _Asked(subtype), line)
            return self._asked(head.request_id, UNSET, line)
        if head.type == "control_response":
            self.dropped["malformed response"] += 1
            return None
        return Message(head.type, line)

    # Sending

    def request(
        self, subtype: str, fields: JsonObject, *, now: float, timeout: float = CONTROL_TIMEOUT
    ) -> str:
        """Queue a control request and return its id.

        Args:
            subtype: The kind of request, such as "interrupt".
            fields: The request's other members.
            now: The time of a monotonic clock, in seconds.
            timeout: Seconds until `expire` fails the request; old programs ignore unknown requests.
        """
        self._last_id += 1
        id = str(self._last_id)
        body = encode_lossy({"subtype": subtype, **fields})
        self._waiting[id] = subtype, now + timeout
        self._outbox.append(
            b'{"type":"control_request","request_id":"%b","request":%b}' % (id.encode(), body)
        )
        return id

    def answer(self, id: str, response: bytes) -> None:
        """Queue the answer to a control request; `response` is an encoded JSON object."""
        if self._owes(id):
            self._outbox.append(
                b'{"type":"control_response","response":'
                b'{"subtype":"success","request_id":%b,"response":%b}}' % (encode(id), response)
            )

    def refuse(self, id: str, reason: str) -> None:
        """Queue an error as the answer to a control request."""
        if self._owes(id):
            fields = {"subtype": "error", "request_id": id, "error": reason}
            body = encode_lossy({"type": "control_response", "response": fields})
            self._outbox.append(body)

    def prompt(self, content: object, uuid: str, *, verbatim: bool = False) -> None:
        """Queue a prompt: text, or a list of content blocks.

        Args:
            content: The prompt.
            uuid: The prompt's id.
            verbatim: Whether Claude Code must not interpret the prompt; see `ClaudeCode`.
        """
        message: JsonObject = {
            "type": "user",
            "message": {"role": "user", "content": content},
            "parent_tool_use_id": None,
            "session_id": "",
            "uuid": uuid,
        }
        if verbatim:
            message["client_composed"] = True
        self._outbox.append(encode_lossy(message))

    @property
    def has_lines(self) -> bool:
        return bool(self._outbox)

    def lines_to_send(self) -> list[bytes]:
        """Return the queued lines, without newlines, and empty the queue."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def _owes(self, id: str) -> bool:
        if not self._seen.get(id):
            return False
        self._seen[id] = False
        return True

    # Time

    @property
    def next_deadline(self) -> float | None:
        """The time at which to call `expire`; None if no request is open."""
        return min((deadline for _, deadline in self._waiting.values()), default=None)

    def expire(self, *, now: float) -> list[Failed]:
        late = [id for id, (_, deadline) in self._waiting.items() if deadline <= now]
        return [self._expired(id) for id in late]

    def _expired(self, id: str) -> Failed:
        subtype, _ = self._waiting.pop(id)
        error = RequestTimeout(f"Claude Code did not answer the control request {subtype!r}")
        return Failed(id, error)

    def close(self, error: InterlockError) -> list[Failed]:
        """Fail all our control requests: Claude Code has ended."""
        waiting, self._waiting = self._waiting, {}
        return [Failed(id, error) for id in waiting]
