"""What a program may set of a client, and what is used otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from interlock.client.features import Elicit, Sample
from interlock.errors import InterlockError, LocalProtocolError
from interlock.transports.trace import Trace
from interlock.types import JsonObject, LogMessage

# Defaults, in seconds.
CALL_TIMEOUT = 120.0  # without progress
HARD_TIMEOUT = 600.0  # in all
LIST_TIMEOUT = 30.0  # with all its pages
CONNECT_TIMEOUT = 10.0
START_TIMEOUT = 30.0  # instead, for a program: it may have to be fetched, or wait for a processor


class ClientOptions(TypedDict, total=False):
    """Options of every constructor of `Client`. Times are in seconds."""

    revision: str  # "auto", "legacy", or one of `revisions.ALL`
    timeout: float  # a request without progress
    hard_timeout: float  # a request in all
    connect_timeout: float
    roots: Sequence[str]  # file:// URIs or paths to declare
    sampling: Sample | None
    elicitation: Elicit | None
    extensions: Mapping[str, JsonObject]  # that the program uses by `request`, with their settings
    on_log: Callable[[LogMessage], None] | None
    on_list_changed: Callable[[str], None] | None  # "tools", "resources" or "prompts"
    on_resource_updated: Callable[[str], None] | None  # the URI
    on_loss: Callable[[InterlockError], None] | None  # the connection ended by itself
    trace: Trace | None  # is told of each message, of stderr and of HTTP headers


def check_options(options: Mapping[str, object]) -> None:
    """Check the names of options.

    Raises:
        LocalProtocolError: No client has an option of this name.
    """
    for name in options:
        if name not in ClientOptions.__annotations__:
            known = ", ".join(ClientOptions.__annotations__)
            text = f"unknown option {name!r}; the options of a client are {known}"
            raise LocalProtocolError(text)
