"""A client's options, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from interlock import revisions
from interlock.client.features import Elicit, Sample
from interlock.errors import InterlockError, LocalProtocolError
from interlock.transports.trace import Trace
from interlock.types import JsonObject, LogMessage

# Default time limits, in seconds.
CALL_TIMEOUT = 120.0  # for a request without progress
HARD_TIMEOUT = 600.0  # for a whole request
LIST_TIMEOUT = 30.0  # for a list with all its pages
CONNECT_TIMEOUT = 10.0
START_TIMEOUT = 30.0  # for connecting to a program, which may need a download first

OnAnswer = Callable[[str, str, float, BaseException | None], None]


class ClientOptions(TypedDict, total=False):
    """The options that every constructor of `Client` accepts. Times are in seconds."""

    revision: str  # "auto", "legacy", or one of `revisions.ALL`
    timeout: float  # limit for a request without progress
    hard_timeout: float  # limit for a whole request
    connect_timeout: float
    roots: Sequence[str]  # file:// URIs or paths to declare
    sampling: Sample | None
    elicitation: Elicit | None
    extensions: Mapping[str, JsonObject]  # extensions used by `request`, with their settings
    on_log: Callable[[LogMessage], None] | None
    on_list_changed: Callable[[str], None] | None  # called with "tools", "resources" or "prompts"
    on_resource_updated: Callable[[str], None] | None  # called with the URI
    # called after each request other than a call: method, revision, seconds, and the error
    on_answer: OnAnswer | None
    on_loss: Callable[[InterlockError], None] | None  # called if the connection ends by itself
    strict_output: bool  # whether a result that breaks its tool's output schema raises an error
    trace: Trace | None  # records messages, stderr and HTTP headers


def check_options(options: Mapping[str, object]) -> None:
    """Raise an error if the name of an option, or the revision, is unknown.

    Raises:
        LocalProtocolError: An option or the revision is unknown.
    """
    for name in options:
        if name not in ClientOptions.__annotations__:
            known = ", ".join(ClientOptions.__annotations__)
            text = f"unknown option {name!r}; the options of a client are {known}"
            raise LocalProtocolError(text)
    wanted = options.get("revision", "auto")
    if wanted not in ("auto", "legacy", *revisions.ALL):
        known = ", ".join(revisions.ALL)
        raise LocalProtocolError(f"unknown revision {wanted!r}; use auto, legacy or one of {known}")
