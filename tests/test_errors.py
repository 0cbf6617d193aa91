"""The tree of errors: whose fault, which builtin, which words, which code on the wire."""

from __future__ import annotations

import copy
import pickle
import re

from interlock import errors
from interlock.errors import (
    ApprovalMissing,
    AskRefused,
    CallRefused,
    CapabilityError,
    ClientRefused,
    ConfigError,
    ConnectionClosed,
    DecisionRefused,
    HttpError,
    InsufficientScope,
    InterlockError,
    InvalidArguments,
    LimitExceeded,
    LocalProtocolError,
    MessageTooLarge,
    MissingExtra,
    ParseError,
    RedirectRefused,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    SchemaError,
    ServerExited,
    ServerUnavailable,
    SpawnError,
    StepLimit,
    ToolError,
    ToolFailed,
    UnknownConversation,
    UnknownTool,
    to_wire,
)
from interlock.extras import install_command
from tests.support.rows import each_row

ALL = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, InterlockError)
]
SPECIAL: dict[type, InterlockError] = {
    ParseError: ParseError("bad", -32600),
    RemoteError: RemoteError(-32602, "no", {"uri": "x"}),
    ClientRefused: ClientRefused("sampling/createMessage", RemoteError(-1, "no\nthanks")),
    ServerExited: ServerExited("ended", 3, "last words"),
    HttpError: HttpError("no answer", 502, 1.5),
    RedirectRefused: RedirectRefused("elsewhere", 302),
    ServerUnavailable: ServerUnavailable("time", "down"),
    AskRefused: AskRefused("the client declares no elicitation", "cannot_ask"),
    ApprovalMissing: ApprovalMissing("one line", "approval_pending", "rule"),
    DecisionRefused: DecisionRefused("one line", "not_permitted"),
    CallRefused: CallRefused("no rule allows crm:refund", "no_rule"),
    LimitExceeded: LimitExceeded("too many calls", "rate_limited", 1.5),
    ToolFailed: ToolFailed("crm:refund", "no such\norder", {"code": 404}),
    StepLimit: StepLimit(10),
    MissingExtra: MissingExtra("chat", "chat"),
}


def make(kind: type[InterlockError]) -> InterlockError:
    return SPECIAL.get(kind) or kind("one line")


@each_row("kind", ALL)
def test_tree_in_the_docstring_equals_the_class_tree(kind: type[InterlockError]):
    tree = errors.__doc__ or ""
    line = next(line for line in tree.splitlines() if re.search(rf"\b{kind.__name__}\b", line))
    indent = len(re.match(r"[ │├└─]*", line)[0])
    above = tree[: tree.index(line)].splitlines()
    parents = [
        re.search(r"[A-Za-z]\w+", each)[0]
        for each in reversed(above)
        if each.startswith("    ") and len(re.match(r"[ │├└─]*", each)[0]) < indent
    ]

    assert kind.__doc__
    assert kind is InterlockError or parents[0] in [base.__name__ for base in kind.__bases__]


@each_row(
    ("kind", "builtin"),
    [
        (RequestTimeout, TimeoutError),
        (ConnectionClosed, ConnectionError),
        (ServerExited, ConnectionError),
        (SpawnError, OSError),
        (ConfigError, ValueError),
        (SchemaError, ValueError),
        (InvalidArguments, ValueError),
        (UnknownTool, LookupError),
        (UnknownConversation, LookupError),
        (MissingExtra, ImportError),
    ],
)
def test_errors_are_subclasses_of_the_matching_builtin_exceptions(
    kind: type[InterlockError], builtin: type[Exception]
):
    assert issubclass(kind, builtin)


def test_every_error_is_one_line():
    texts = {kind.__name__: str(make(kind)) for kind in ALL}

    assert {name: text for name, text in texts.items() if not text or "\n" in text} == {}


def test_every_error_survives_being_copied_and_sent_to_another_process():
    for error in map(make, ALL):
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert type(other) is type(error)
            assert (str(other), vars(other)) == (str(error), vars(error)), type(error)


def test_errors_have_their_details_as_attributes():
    assert str(RemoteError(-32602, "no such tool")) == "no such tool (-32602)"
    assert (
        str(ServerUnavailable("time", "it is off")) == "server 'time' is not available: it is off"
    )
    assert str(StepLimit(10)) == "the model was still calling tools after 10 rounds"
    command = install_command("chat")
    assert str(MissingExtra("the chat", "chat")) == f"the chat needs the extra chat: {command}"
    assert str(SpawnError("no program 'x'")) == "no program 'x'"
    assert str(SpawnError()) == ""


def test_remote_error_text_is_one_line_and_its_message_is_unchanged():
    words = "no\r\n\x1b[2J tool\u2028" + "x" * 5_000
    error = RemoteError(1, words)

    assert str(error).startswith("no \ufffd[2J tool xxx")
    assert str(error).isprintable()
    assert len(str(error)) < 1_020
    assert error.message == words


# To the wire


@each_row(
    ("error", "wire"),
    [
        (RemoteError(-32002, "no", {"uri": "x"}), (-32002, "no", {"uri": "x"})),
        (ParseError("bad", -32700), (-32700, "bad", None)),
        (ParseError("bad", -32600), (-32600, "bad", None)),
        (InvalidArguments("a is missing"), (-32602, "a is missing", None)),
        (UnknownTool("no tool 'x'"), (-32602, "no tool 'x'", None)),
        (RemoteProtocolError("malformed"), (-32602, "malformed", None)),
        (MessageTooLarge("too large"), (-32602, "too large", None)),
        (CapabilityError("no roots here"), (-32601, "no roots here", None)),
        (ToolError("no"), (-32603, "no", None)),
        (LocalProtocolError("does not fit"), (-32603, "does not fit", None)),
        (RequestTimeout("too slow"), (-32603, "too slow", None)),
    ],
)
def test_to_wire_maps_our_errors_to_codes(error: InterlockError, wire: object):
    assert to_wire(error) == wire


@each_row("error", [KeyError("secret"), ValueError("secret"), SystemExit("secret"), MemoryError()])
def test_to_wire_hides_other_exceptions(error: BaseException):
    assert to_wire(error) == (-32603, "internal error", None)


@each_row(
    ("scopes", "text"),
    [
        (("a", "b"), "a b"),
        (("a" * 299, "b", "c"), "a" * 299 + " and 2 more"),
        (("a" * 300,), "a" * 300),
        (("a" * 301, "b"), "and 2 more"),
        (("ab",) * 5_000, " ".join(["ab"] * 100) + " and 4900 more"),
    ],
)
def test_insufficient_scope_shortens_a_long_list(scopes: tuple[str, ...], text: str):
    error = InsufficientScope(scopes)

    noun = "scope" if len(scopes) == 1 else "scopes"
    assert str(error) == f"the key or token needs the {noun} {text}"
    assert error.scopes == scopes
