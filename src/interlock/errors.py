"""Every error interlock raises on purpose, as one tree.

The class says whose fault it is. Where a builtin exception fits, it is that too::

    InterlockError
    ├── LocalProtocolError          our caller would break the specification
    ├── RemoteProtocolError         the peer broke the specification
    │   ├── ParseError              a message is not valid JSON-RPC
    │   └── MessageTooLarge         a message is over the size limit
    ├── RemoteError                 the peer answered with a JSON-RPC error
    │   └── ClientRefused           ... a client did so to a handler's question
    ├── RequestTimeout              no response in time              (TimeoutError)
    ├── OutOfMemory                 a message does not fit in memory (MemoryError)
    ├── ConnectionClosed            the connection ended             (ConnectionError)
    │   ├── ServerExited            ... because the process ended
    │   ├── Unreachable             ... or failed: DNS, network, TLS
    │   ├── StreamEnded             ... in the middle of a response
    │   └── SessionExpired          ... because the server does not know the session
    ├── HttpError                   an HTTP response without an MCP response
    │   └── RedirectRefused         a redirect to another origin
    ├── SpawnError                  a server program cannot be started (OSError)
    ├── RevisionError               no protocol revision in common
    │   └── ClaudeTooOld            Claude Code is too old
    ├── CapabilityError             the peer does not offer this feature
    │   ├── AskRefused              a server's question cannot be put to a client
    │   └── MissingCapability       ... and a handler needs it
    ├── InputRequired               a handler needs answers from the client first
    ├── AuthError                   an HTTP request was denied
    │   ├── AuthRequired            the bearer token is missing or invalid
    │   ├── InsufficientScope       the token lacks scopes
    │   ├── LoginRequired           the user must log in first
    │   │   └── LoginExpired        ... again
    │   └── AuthUnavailable         tokens cannot be verified now
    ├── ConfigError                 a configuration file is wrong    (ValueError)
    ├── SchemaError                 a JSON Schema cannot be used     (ValueError)
    ├── SignatureError              a function cannot be a tool      (TypeError)
    ├── InvalidArguments            arguments do not fit the tool    (ValueError)
    │   └── MalformedAnswer         ... or a client's answer is malformed
    ├── UnknownTool                 no tool has this name            (LookupError)
    ├── UnknownResource             no resource has this URI         (LookupError)
    ├── UnknownSession              Claude Code has no such session  (LookupError)
    ├── ServerUnavailable           the tool's server is down, disabled or unknown
    ├── CallRefused                 a layer refused a call, so it was not sent
    │   ├── LoginNeeded             ... until the user has connected to its server
    │   ├── ApprovalMissing         ... because it is not approved
    │   └── LimitExceeded           ... because of a rate, a quota, or too many calls at once
    ├── DecisionRefused             an approval cannot be decided so
    ├── ToolError                   a tool failed; the model gets the text
    ├── ToolFailed                  a tool that was called reported an error
    ├── WrongLoop                   a call from this event loop is not possible (RuntimeError)
    ├── StepLimit                   the model kept calling tools
    ├── ConversationBusy            another turn of the conversation is under way
    ├── ModelError                  a model cannot answer
    │   ├── ModelUnavailable        no such model, no key, no connection
    │   ├── ModelRefused            the provider refused the key or the request
    │   │   └── ContextTooLong      the conversation is longer than the model's context
    │   ├── ModelOverloaded         rate limit or overload
    │   └── ModelInterrupted        the response was cut off
    ├── AttachmentError             a file cannot be part of a message (ValueError)
    ├── MissingExtra                an optional dependency is not installed (ImportError)
    └── StoreError                  conversations or logins cannot be read or written
        ├── StoreLocked             another process locks them too long
        ├── StoreCorrupt            the file is damaged, or of another kind
        ├── StoreTooNew             written by a newer interlock
        ├── UnknownKey              no API key has this id           (LookupError)
        ├── KeyEnded                the API key is revoked, rotated or expired
        ├── AuditUnavailable        a call cannot be recorded, so it is not made
        │   └── AuditFailed         ... until this process is restarted
        ├── StoreFull               a quota or the disk has no room for more
        ├── NotKept                 a large result cannot be kept
        ├── DefinitionChanged       a definition is not the one that was shown
        ├── UnknownApproval         no approval has this id          (LookupError)
        └── UnknownConversation     no conversation has this id      (LookupError)
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ApprovalMissing",
    "AskRefused",
    "AttachmentError",
    "AuditFailed",
    "AuditUnavailable",
    "AuthError",
    "AuthRequired",
    "AuthUnavailable",
    "CallRefused",
    "CapabilityError",
    "ClaudeTooOld",
    "ClientRefused",
    "ConfigError",
    "ConnectionClosed",
    "ContextTooLong",
    "ConversationBusy",
    "DecisionRefused",
    "DefinitionChanged",
    "HttpError",
    "InputRequired",
    "InsufficientScope",
    "InterlockError",
    "InvalidArguments",
    "KeyEnded",
    "LimitExceeded",
    "LocalProtocolError",
    "LoginExpired",
    "LoginNeeded",
    "LoginRequired",
    "MalformedAnswer",
    "MessageTooLarge",
    "MissingCapability",
    "MissingExtra",
    "ModelError",
    "ModelInterrupted",
    "ModelOverloaded",
    "ModelRefused",
    "ModelUnavailable",
    "NotKept",
    "OutOfMemory",
    "ParseError",
    "RedirectRefused",
    "RemoteError",
    "RemoteProtocolError",
    "RequestTimeout",
    "RevisionError",
    "SchemaError",
    "ServerExited",
    "ServerUnavailable",
    "SessionExpired",
    "SignatureError",
    "SpawnError",
    "StepLimit",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreTooNew",
    "StreamEnded",
    "ToolError",
    "ToolFailed",
    "UnknownApproval",
    "UnknownConversation",
    "UnknownKey",
    "UnknownResource",
    "UnknownSession",
    "UnknownTool",
    "Unreachable",
    "WrongLoop",
]

MAX_WORDS = 300  # characters of a server's output in an error
MAX_MESSAGE = 1_000  # characters of a peer's message in an error


class InterlockError(Exception):
    """Base class of all errors that interlock raises. The text is one line for users."""

    # `args` differs from the arguments of `__init__`, so copying must not call `__init__` with it.
    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (type(self), self.args, vars(self))


def _copy(kind: type[InterlockError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def _in_one_line(words: str) -> str:
    line = " ".join(words[: MAX_MESSAGE + 1].split())
    if len(line) > MAX_MESSAGE:
        line = line[:MAX_MESSAGE] + "…"
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


# Protocol


class LocalProtocolError(InterlockError):
    """The calling code would break the specification. Nothing was sent."""


class RemoteProtocolError(InterlockError):
    """The peer broke the specification. Its other messages are not affected."""


class ParseError(RemoteProtocolError):
    """A message is not valid JSON-RPC. `code` is the JSON-RPC error code for it."""

    def __init__(self, message: str, code: int = -32700) -> None:
        super().__init__(message)
        self.code = code


class MessageTooLarge(RemoteProtocolError):
    """A message is over the size limit. Framing is lost, so the connection is closed."""


class RemoteError(InterlockError):
    """The peer answered a request with a JSON-RPC error.

    Attributes:
        code: JSON-RPC error code, such as -32602.
        message: The peer's message, of any length and with any characters. The error's text has
            only its beginning, on one line.
        data: Details from the peer, as any JSON value or None.
        status: HTTP status of the response; 0 if it was 200, or HTTP is not used.
    """

    def __init__(self, code: int, message: str, data: Any = None, status: int = 0) -> None:
        super().__init__(f"{_in_one_line(message)} ({code})")
        self.code = code
        self.message = message
        self.data = data
        self.status = status


class RequestTimeout(InterlockError, TimeoutError):
    """No response came in time, and the request was cancelled."""


class OutOfMemory(MemoryError, InterlockError):  # with the bases in the other order, copies fail
    """There is not enough memory for a message. Other messages are not affected."""


class ConnectionClosed(InterlockError, ConnectionError):
    """The connection ended before the response, or was never open."""


class ServerExited(ConnectionClosed):
    """The server's process ended.

    Attributes:
        code: The exit code, or the negative number of the signal that ended the process; None if
            unknown.
        stderr: The last lines that the process wrote to stderr.
    """

    def __init__(self, message: str, code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.stderr = stderr


class Unreachable(ConnectionClosed):
    """The server cannot be reached: DNS, network or TLS failed. Nothing was sent."""


class StreamEnded(ConnectionClosed):
    """An HTTP response was cut off or had no result. The call may have had its effect."""


class SessionExpired(ConnectionClosed):
    """A legacy server no longer has the session, so it refused the request."""


class HttpError(InterlockError):
    """An HTTP response has no MCP response: an error status, HTML, or an empty body.

    Attributes:
        status: The HTTP status.
        retry_after: Seconds after which the server allows a retry; None if it states none.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RedirectRefused(HttpError):
    """The server redirects to another origin, which must not get the credentials."""


class SpawnError(InterlockError, OSError):
    """A server program cannot be started. For example, it is missing or not executable."""

    # OSError.__str__ expects (errno, text), but this error has only a text.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class RevisionError(InterlockError):
    """The peer and interlock have no protocol revision in common."""


class ClaudeTooOld(RevisionError):
    """The installed Claude Code is older than the oldest one that works."""


class ClientRefused(RemoteError):
    """A client answered a handler's question with an error; code -1 means that the user declined.

    If a tool does not catch it, the call fails with this text, which the model reads.
    """

    def __init__(self, question: str, error: RemoteError) -> None:
        super().__init__(error.code, error.message, error.data, error.status)
        who = "user declined" if error.code == -1 else "client refused"
        self.args = (f"the {who} {question}: {error}",)


class CapabilityError(InterlockError):
    """The peer does not offer this feature, so the request was not sent."""


def to_wire(error: BaseException) -> tuple[int, str, Any]:
    """Convert a handler's exception to a JSON-RPC error: code, message, data.

    The peer gets no details of exceptions that are not `InterlockError`.
    """
    if isinstance(error, RemoteError):
        return error.code, error.message, error.data
    if isinstance(error, ParseError):
        return error.code, str(error), None
    if isinstance(error, InvalidArguments | UnknownTool | RemoteProtocolError):
        return -32602, str(error), None
    if isinstance(error, MissingCapability):
        return -32021, str(error), {"requiredCapabilities": error.required}
    if isinstance(error, CapabilityError):
        reason = {"reason": error.reason} if isinstance(error, AskRefused) else None
        return -32601, str(error), reason
    return -32603, str(error) if isinstance(error, InterlockError) else "internal error", None


class AskRefused(CapabilityError):
    """A server's question cannot be sent to the client that made the call.

    Attributes:
        reason: "cannot_ask", "ask_ambiguous" or "asks_exceeded".
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class MissingCapability(CapabilityError):
    """A handler needs a capability that the client did not declare.

    Attributes:
        capability: A path such as "elicitation.url".
    """

    def __init__(self, capability: str) -> None:
        super().__init__(f"the client did not declare the capability {capability!r}")
        self.capability = capability

    @property
    def required(self) -> dict[str, Any]:
        """Return the capability as an object: {"elicitation": {"url": {}}}."""
        name, _, detail = self.capability.partition(".")
        return {name: {detail: {}} if detail else {}}


class InputRequired(InterlockError):
    """A modern client must answer questions and repeat its request with the answers.

    Attributes:
        questions: Each question's method and encoded params, by key.
        state: A value that the handler's next run finds in `Context.round_state`.
    """

    def __init__(self, questions: dict[str, tuple[str, bytes]], state: str | None = None) -> None:
        super().__init__(f"the client must answer first: {', '.join(questions)}")
        self.questions = questions
        self.state = state


# Authorization


class AuthError(InterlockError):
    """An HTTP request is refused because of its credentials.

    Attributes:
        status: HTTP status of the response.
        challenge: The response's `WWW-Authenticate` header; "" if it has none.
        reason: A stable code for why the request is denied, such as "no_credential"; "" if
            unknown.
        token_used: The access token that was refused; set only in clients. It is a secret, so
            use it only for comparison.
    """

    def __init__(
        self, message: str, status: int = 401, challenge: str = "", *, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.challenge = challenge
        self.reason = reason
        self.token_used = ""


class AuthRequired(AuthError):
    """A credential is missing or not valid (401), or its header is malformed (400)."""


class InsufficientScope(AuthError):
    """The key or token is valid, but lacks scopes. `scopes` has all scopes that are needed."""

    def __init__(self, scopes: tuple[str, ...], challenge: str = "") -> None:
        noun = "scope" if len(scopes) == 1 else "scopes"
        text = f"the key or token needs the {noun} {_some(scopes)}"
        super().__init__(text, 403, challenge, reason="insufficient_scope")
        self.scopes = scopes


def _some(words: tuple[str, ...]) -> str:
    """Join words up to `MAX_WORDS` characters; add the number of words left out."""
    shown = " ".join(words)
    if len(shown) <= MAX_WORDS:
        return shown
    shown = shown[: MAX_WORDS + 1].rpartition(" ")[0]  # whole words only
    return f"{shown} and {len(words) - len(shown.split())} more".lstrip()


class LoginRequired(AuthError):
    """The user must log in: a token is missing, and this program cannot start a login.

    Attributes:
        url: The URL at which the user can log in; "" if unknown.
    """

    def __init__(self, message: str, status: int = 401, *, url: str = "") -> None:
        super().__init__(message, status)
        self.url = url


class LoginExpired(LoginRequired):
    """The token cannot be refreshed; the user must log in again."""


class AuthUnavailable(AuthError):
    """Credentials cannot be verified now, so the request is refused."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503, reason="auth_unavailable")


# Configuration and tools


class ConfigError(InterlockError, ValueError):
    """A configuration file or setting is invalid. The text names the file, place and remedy."""


class SchemaError(InterlockError, ValueError):
    """A JSON Schema is invalid, too large, or refers to another document."""


class SignatureError(InterlockError, TypeError):
    """A function cannot be a tool, because its signature has no JSON Schema."""


class InvalidArguments(InterlockError, ValueError):
    """Arguments violate the tool's input schema. The tool was not called."""


class MalformedAnswer(InvalidArguments):
    """A client's answer to a handler's question is malformed."""


class UnknownTool(InterlockError, LookupError):
    """No tool has this name."""


class UnknownResource(InterlockError, LookupError):
    """No resource has this URI. Raise it for a URI that matches a template but does not exist.

    Attributes:
        uri: The URI.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(f"no resource {uri[:200]!r}")
        self.uri = uri


class UnknownSession(InterlockError, LookupError):
    """Claude Code has no session with this id, so it cannot be resumed."""


class ServerUnavailable(InterlockError):
    """The tool's server is down, disabled or unknown.

    Attributes:
        server: The server's name in the toolbox.
        reason: The reason, in one line.
        code: A stable code for the reason: "server_down", "server_disabled", "queue_timeout", or
            "breaker_open" while a failed server is not restarted yet.
        retry_after: Seconds until a call may succeed; None if that is unknown.
    """

    def __init__(
        self,
        server: str,
        reason: str,
        code: str = "server_down",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"server {server!r} is not available: {reason}")
        self.server = server
        self.reason = reason
        self.code = code
        self.retry_after = retry_after


class CallRefused(InterlockError):
    """A layer around the servers refused a call, so it was not sent.

    Attributes:
        reason: A stable code for programs, such as "rate_limited".
        retry_after: Seconds until the same call may succeed; None if time alone does not help.
        is_recorded: Whether the audit trail has a record of the refusal.
    """

    is_recorded = False

    def __init__(self, message: str, reason: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after = retry_after


class LoginNeeded(CallRefused):
    """The server needs a credential of the calling user, and the user has no valid one.

    Attributes:
        url: The URL at which the user connects to the server; "" if there is none.
    """

    def __init__(self, message: str, url: str = "") -> None:
        super().__init__(message, "needs_login")
        self.url = url


class ApprovalMissing(CallRefused):
    """A call must be approved before it is made.

    Attributes:
        rule: Id of the rule that requires the approval.
        approval: Id of the approval; "" if none was requested.
        expires: When the approval expires, as "2026-11-22T10:00:00.000Z"; "" if none was
            requested.
    """

    def __init__(
        self, message: str, reason: str, rule: str, approval: str = "", expires: str = ""
    ) -> None:
        super().__init__(message, reason)
        self.rule = rule
        self.approval = approval
        self.expires = expires


class DecisionRefused(InterlockError):
    """An approval cannot be decided in this way.

    Attributes:
        reason: A stable code: "not_permitted", "approval_changed", "approval_void", or the state
            of the approval, such as "approval_used".
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LimitExceeded(CallRefused):
    """A rate, a quota or a number of concurrent calls was exceeded. `retry_after` is never None."""

    def __init__(self, message: str, reason: str, retry_after: float) -> None:
        super().__init__(message, reason, retry_after)


class ToolError(InterlockError):
    """A tool failed. The model gets the text, so write it for the model."""


class ToolFailed(InterlockError):
    """A tool that was called as a function reported an error.

    Attributes:
        address: The tool's address.
        result: The tool's whole result.
    """

    def __init__(self, address: str, text: str, result: Any) -> None:
        super().__init__(f"{address} failed: {_in_one_line(text)}")
        self.address = address
        self.result = result


class WrongLoop(InterlockError, RuntimeError):
    """A call would block its own event loop, or the event loop of the toolbox has ended."""


# Models and the agent


class StepLimit(InterlockError):
    """The model was still calling tools after the last round allowed."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the model was still calling tools after {rounds} rounds")
        self.rounds = rounds


class ConversationBusy(InterlockError):
    """Another turn of the conversation is under way. Stop it, or wait for its end."""

    def __init__(self, conversation: str) -> None:
        super().__init__(f"conversation {conversation[:64]!r} has a turn under way; stop it first")


class ModelError(InterlockError):
    """A model cannot answer. `__cause__` is the provider's refusal, if it sent one."""


class ModelUnavailable(ModelError):
    """The model does not exist, or lacks a key or a connection. The text states the remedy."""


class ModelRefused(ModelError):
    """The provider refused the key or the request. A retry will not help."""


class ContextTooLong(ModelRefused):
    """A conversation is longer than the model's context.

    Attributes:
        limit: The model's maximum number of tokens; 0 if the provider does not state it.
        used: The request's number of tokens; 0 if the provider does not state it.
    """

    def __init__(self, text: str, limit: int = 0, used: int = 0) -> None:
        super().__init__(text)
        self.limit = limit
        self.used = used


class ModelOverloaded(ModelError):
    """The provider is overloaded or limits the rate, even after two retries."""


class ModelInterrupted(ModelError):
    """The response was cut off. The received part is not added to the conversation."""


class AttachmentError(InterlockError, ValueError):
    """A file cannot be part of a message."""


class MissingExtra(InterlockError, ImportError):
    """An optional dependency is not installed.

    Attributes:
        extra: The name of the extra in pyproject.toml, or several names separated by commas.
    """

    def __init__(self, what: str, extra: str) -> None:
        from interlock.extras import install_command  # only this failure needs it

        super().__init__(f"{what} needs the extra {extra}: {install_command(extra)}")
        self.extra = extra


# Store


class StoreError(InterlockError):
    """Conversations or logins cannot be read or written. Nothing that was stored is lost."""


class StoreLocked(StoreError):
    """Another process locked the database, or a login, for too long."""


class StoreCorrupt(StoreError):
    """The file is damaged, or is not a database of interlock."""


class DefinitionChanged(StoreError):
    """A definition is not the one that was shown to the operator, so it was not accepted."""


class StoreTooNew(StoreError):
    """The database, or the login, was written by a newer version of interlock."""


class StoreFull(StoreError):
    """A quota or the disk has no room for more content, so nothing was stored."""


class NotKept(StoreError):
    """A large result cannot be kept, so only its beginning is available."""


class UnknownKey(StoreError, LookupError):
    """No API key has this id."""


class KeyEnded(StoreError):
    """The API key is revoked, rotated or expired, so it cannot be changed."""


class AuditUnavailable(StoreError):
    """An audit record could not be made durable in time, so its call must not be made."""


class AuditFailed(AuditUnavailable):
    """A sync of the audit records failed, so the disk may have lost some.

    Nothing more can be recorded: end the process. The next start reads the intact records.
    """


class UnknownApproval(StoreError, LookupError):
    """No approval has this id, or the caller may not see it."""


class UnknownConversation(StoreError, LookupError):
    """No conversation has this id."""
