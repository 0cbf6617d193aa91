"""Every error interlock raises on purpose, as one tree.

The class says whose fault it is, and where a builtin fits it is that builtin too::

    InterlockError
    ├── LocalProtocolError          our caller is about to break the specification
    ├── RemoteProtocolError         the peer broke the specification
    │   ├── ParseError              a message that is not acceptable JSON-RPC
    │   └── MessageTooLarge         a message over the size limit
    ├── RemoteError                 the peer answered with a JSON-RPC error
    │   └── ClientRefused           ... a client did so to a handler's question
    ├── RequestTimeout              no answer in time                (TimeoutError)
    ├── OutOfMemory                 a message does not fit           (MemoryError)
    ├── ConnectionClosed            the connection ended             (ConnectionError)
    │   ├── ServerExited            ... because the process ended
    │   ├── Unreachable             ... or never began: name, network, TLS
    │   ├── StreamEnded             ... in the middle of an answer
    │   └── SessionExpired          ... as the server has forgotten the session
    ├── HttpError                   an HTTP answer that is no answer of MCP
    │   └── RedirectRefused         it leads elsewhere
    ├── SpawnError                  a server program cannot be started (OSError)
    ├── RevisionError               no protocol revision in common
    ├── CapabilityError             the peer does not offer this feature
    │   └── MissingCapability       ... and a handler needs it
    ├── InputRequired               a handler needs answers of the client first
    ├── AuthError                   an HTTP request is not let in
    │   ├── AuthRequired            no bearer token, or not a good one
    │   ├── InsufficientScope       the token does not go far enough
    │   ├── LoginRequired           a person must log in first
    │   │   └── LoginExpired        ... again
    │   └── AuthUnavailable         tokens cannot be verified now
    ├── ConfigError                 a configuration file is wrong    (ValueError)
    ├── SchemaError                 a JSON Schema we refuse to use   (ValueError)
    ├── SignatureError              a function that cannot be a tool (TypeError)
    ├── InvalidArguments            arguments do not fit the tool    (ValueError)
    │   └── MalformedAnswer         ... or an answer does not fit the question
    ├── UnknownTool                 no tool has this name            (LookupError)
    ├── UnknownResource             nothing can be read at this URI  (LookupError)
    ├── ServerUnavailable           the tool's server is down, disabled or unknown
    ├── ToolError                   a tool says no, in words for the model
    ├── StepLimit                   the model kept calling tools
    ├── ModelError                  a model cannot answer
    │   ├── ModelUnavailable        no such model, no key, no connection
    │   ├── ModelRefused            the provider refused the key or the request
    │   ├── ModelOverloaded         rate limit or overload
    │   └── ModelInterrupted        the answer was cut off
    ├── MissingExtra                an optional dependency is not installed (ImportError)
    └── StoreError                  conversations or logins cannot be read or written
        ├── StoreLocked             another process holds them too long
        ├── StoreCorrupt            the file is damaged, or not what it should be
        ├── StoreTooNew             written by a newer interlock
        ├── AuditUnavailable        a call cannot be recorded, so it is not made
        │   └── AuditFailed         ... until this process is restarted
        └── UnknownConversation     no conversation has this id      (LookupError)
"""

from __future__ import annotations

from typing import Any

MAX_WORDS = 300  # characters of a server's words in a text
MAX_MESSAGE = 1_000  # characters of what a peer calls its error, in a text


class InterlockError(Exception):
    """Anything this package raises on purpose. Its text is one line, fit to be shown."""

    # What `__init__` was given is not what `args` holds, so copying must not call it again.
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
    """We were about to break the specification. Fix the calling code."""


class RemoteProtocolError(InterlockError):
    """The peer broke the specification. Its other messages are not affected."""


class ParseError(RemoteProtocolError):
    """A message that is not acceptable JSON-RPC. `code` is the JSON-RPC code it deserves."""

    def __init__(self, message: str, code: int = -32700) -> None:
        super().__init__(message)
        self.code = code


class MessageTooLarge(RemoteProtocolError):
    """A message over the size limit. Framing is lost, so the connection is closed."""


class RemoteError(InterlockError):
    """The peer answered a request with a JSON-RPC error.

    Attributes:
        code: JSON-RPC error code, such as -32602.
        message: The peer's words, which may be of any length and have anything in them. As
            text, the error has the first of them, in one line.
        data: The peer's details, any JSON value, or None.
        status: HTTP status that came with it; 0 where there is no HTTP, or it was 200.
    """

    def __init__(self, code: int, message: str, data: Any = None, status: int = 0) -> None:
        super().__init__(f"{_in_one_line(message)} ({code})")
        self.code = code
        self.message = message
        self.data = data
        self.status = status


class RequestTimeout(InterlockError, TimeoutError):
    """No answer within the time allowed. The peer has been told to stop."""


class OutOfMemory(MemoryError, InterlockError):  # in this order, as only then it can be copied
    """A message does not fit into the memory that we have. Other messages are not affected."""


class ConnectionClosed(InterlockError, ConnectionError):
    """The connection ended before the answer came, or was never open."""


class ServerExited(ConnectionClosed):
    """The server's process ended.

    Attributes:
        code: Exit code; negative is the signal that ended it; None when unknown.
        stderr: The last lines it wrote to stderr.
    """

    def __init__(self, message: str, code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.stderr = stderr


class Unreachable(ConnectionClosed):
    """The server cannot be reached: no such name, no connection, no TLS. Nothing was sent."""


class StreamEnded(ConnectionClosed):
    """An HTTP answer was cut off, or ended without the result. The call may have had its effect."""


class SessionExpired(ConnectionClosed):
    """A legacy server does not know the session any more, so it did not take the request."""


class HttpError(InterlockError):
    """An HTTP answer that is no answer of MCP: an error status, HTML, an empty body.

    Attributes:
        status: HTTP status.
        retry_after: Seconds after which the server wants to be asked again; None if not said.
    """

    def __init__(self, message: str, status: int, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RedirectRefused(HttpError):
    """The server sends the request elsewhere, and credentials do not go there."""


class SpawnError(InterlockError, OSError):
    """A server program cannot be started: not found, not executable, bad folder."""

    # OSError.__str__ wants (errno, text); ours is one sentence.
    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class RevisionError(InterlockError):
    """The peer speaks no protocol revision that we speak."""


class ClientRefused(RemoteError):
    """A client answered a handler's question with an error; code -1 means that the user declined.

    A tool that lets it through fails with this text, which the model reads.
    """

    def __init__(self, question: str, error: RemoteError) -> None:
        super().__init__(error.code, error.message, error.data, error.status)
        who = "user declined" if error.code == -1 else "client refused"
        self.args = (f"the {who} {question}: {error}",)


class CapabilityError(InterlockError):
    """The peer does not offer this feature, so the request was not sent."""


def to_wire(error: BaseException) -> tuple[int, str, Any]:
    """Turn what a handler raised into a JSON-RPC error: code, message, data.

    What was not raised on purpose tells the peer nothing but that it happened.
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
        return -32601, str(error), None
    return -32603, str(error) if isinstance(error, InterlockError) else "internal error", None


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
        """The capability as an object: {"elicitation": {"url": {}}}."""
        name, _, detail = self.capability.partition(".")
        return {name: {detail: {}} if detail else {}}


class InputRequired(InterlockError):
    """A modern client must answer questions, and send its request again with the answers.

    Attributes:
        questions: Method and encoded params of each, by key.
    """

    def __init__(self, questions: dict[str, tuple[str, bytes]]) -> None:
        super().__init__(f"the client must answer first: {', '.join(questions)}")
        self.questions = questions


# Authorization


class AuthError(InterlockError):
    """An HTTP request is refused because of its credentials.

    Attributes:
        status: HTTP status of the answer.
        challenge: Value of its `WWW-Authenticate` header; "" for none.
        reason: Why, in one word for programs, such as "no_credential"; "" if unknown.
        token_used: The access token that was refused, on the client's side. A secret: it is
            for comparing only.
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
    """The token is valid, but lacks scopes. `scopes` are all that are needed."""

    def __init__(self, scopes: tuple[str, ...], challenge: str = "") -> None:
        text = f"the token needs the scopes {_some(scopes)}"
        super().__init__(text, 403, challenge, reason="insufficient_scope")
        self.scopes = scopes


def _some(words: tuple[str, ...]) -> str:
    """Write as many words as fit into some `MAX_WORDS` characters, and how many more there are."""
    shown = " ".join(words)
    if len(shown) <= MAX_WORDS:
        return shown
    shown = shown[: MAX_WORDS + 1].rpartition(" ")[0]  # whole ones only
    return f"{shown} and {len(words) - len(shown.split())} more".lstrip()


class LoginRequired(AuthError):
    """A person must log in: there is no token, and nobody to ask."""


class LoginExpired(LoginRequired):
    """There was a token, and it cannot be renewed."""


class AuthUnavailable(AuthError):
    """Credentials cannot be verified now, so the request is refused."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503, reason="auth_unavailable")


# Configuration and tools


class ConfigError(InterlockError, ValueError):
    """A configuration file or setting is wrong. The text names file, place and way out."""


class SchemaError(InterlockError, ValueError):
    """A JSON Schema that is invalid, too large, or refers to the outside."""


class SignatureError(InterlockError, TypeError):
    """A function whose signature has no JSON Schema, so it cannot be offered."""


class InvalidArguments(InterlockError, ValueError):
    """Arguments do not fit the tool's input schema. The tool was not called."""


class MalformedAnswer(InvalidArguments):
    """What a client said to a handler's question is no answer to it."""


class UnknownTool(InterlockError, LookupError):
    """No tool has this name."""


class UnknownResource(InterlockError, LookupError):
    """Nothing can be read at this URI. Raise it where a template matches more than there is.

    Attributes:
        uri: What was to be read.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(f"no resource {uri[:200]!r}")
        self.uri = uri


class ServerUnavailable(InterlockError):
    """The tool's server is down, disabled or unknown.

    Attributes:
        server: Its name in the toolbox.
        reason: Why, in one line.
    """

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"server {server!r} is not available: {reason}")
        self.server = server
        self.reason = reason


class ToolError(InterlockError):
    """A tool says no. The text goes to the model, so write it for the model."""


# Models and the agent


class StepLimit(InterlockError):
    """The model was still calling tools after the last round allowed."""

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the model was still calling tools after {rounds} rounds")
        self.rounds = rounds


class ModelError(InterlockError):
    """A model cannot answer. `__cause__` is the vendor package's own error, if any."""


class ModelUnavailable(ModelError):
    """No such model, no key, or no connection. The text says what to set or start."""


class ModelRefused(ModelError):
    """The provider refused the key or the request. Asking again will not help."""


class ModelOverloaded(ModelError):
    """Rate limit or overload, after the vendor package's own retries."""


class ModelInterrupted(ModelError):
    """The answer was cut off. What had arrived is not part of the conversation."""


class MissingExtra(InterlockError, ImportError):
    """An optional dependency is not installed.

    Attributes:
        extra: Name for `pip install 'interlock[...]'`.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'interlock[{extra}]'")
        self.extra = extra


# Store


class StoreError(InterlockError):
    """Conversations or logins cannot be read or written. Nothing that was stored is lost."""


class StoreLocked(StoreError):
    """Another process holds the database, or a login, for longer than we wait."""


class StoreCorrupt(StoreError):
    """The file is damaged, or is not what it should be."""


class StoreTooNew(StoreError):
    """The database, or the login, was written by a newer version of interlock."""


class AuditUnavailable(StoreError):
    """An audit record could not be made durable in time. The call it announces must not be made."""


class AuditFailed(AuditUnavailable):
    """A sync of the audit records failed, so the disk may have lost some.

    Nothing more can be recorded: end the process. The next start reads what is intact.
    """


class UnknownConversation(StoreError, LookupError):
    """No conversation has this id."""
