"""The protocol revisions, and tables of the features of each revision.

A legacy connection begins with `initialize`; a modern request has its own metadata. Compare
revisions with `at_least`, by their positions in the list, and never as strings.
"""

from __future__ import annotations

from msgspec import Struct

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
ALL = LEGACY + MODERN

NEWEST_LEGACY = LEGACY[-1]
NEWEST = MODERN[-1]
BATCHES = frozenset({"2025-03-26"})  # revisions in which peers must accept JSON-RPC batches

# `_meta` keys of the modern era
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

# Extensions of the modern era
LEGACY_TASKS = "2025-11-25"  # the only revision that itself defines tasks
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"

# Error codes
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
RESOURCE_NOT_FOUND = -32002  # legacy only


class Method(Struct, frozen=True):
    """A request method: the revisions that have the method, and the capability it requires.

    `capability` is a path in the peer's capabilities; "" if the method requires no capability.
    """

    first: str
    last: str
    capability: str = ""
    may_ask: bool = False  # whether the result may be "input_required"


_OLDEST = LEGACY[0]

CLIENT_METHODS: dict[str, Method] = {
    "initialize": Method(_OLDEST, NEWEST_LEGACY),
    "ping": Method(_OLDEST, NEWEST_LEGACY),
    "server/discover": Method(NEWEST, NEWEST),
    "tools/list": Method(_OLDEST, NEWEST, "tools"),
    "tools/call": Method(_OLDEST, NEWEST, "tools", may_ask=True),
    "resources/list": Method(_OLDEST, NEWEST, "resources"),
    "resources/templates/list": Method(_OLDEST, NEWEST, "resources"),
    "resources/read": Method(_OLDEST, NEWEST, "resources", may_ask=True),
    "resources/subscribe": Method(_OLDEST, NEWEST_LEGACY, "resources.subscribe"),
    "resources/unsubscribe": Method(_OLDEST, NEWEST_LEGACY, "resources.subscribe"),
    "prompts/list": Method(_OLDEST, NEWEST, "prompts"),
    "prompts/get": Method(_OLDEST, NEWEST, "prompts", may_ask=True),
    "completion/complete": Method(_OLDEST, NEWEST, "completions"),
    "logging/setLevel": Method(_OLDEST, NEWEST_LEGACY, "logging"),
    "subscriptions/listen": Method(NEWEST, NEWEST),
}

SERVER_METHODS: dict[str, Method] = {
    "ping": Method(_OLDEST, NEWEST_LEGACY),
    "roots/list": Method(_OLDEST, NEWEST, "roots"),
    "sampling/createMessage": Method(_OLDEST, NEWEST, "sampling"),
    "elicitation/create": Method("2025-06-18", NEWEST, "elicitation"),
}

# The revisions that introduced features which a client omits with older servers.
ELICITATION = "2025-06-18"
URL_ELICITATION = "2025-11-25"
COMPLETION_CONTEXT = "2025-06-18"


def at_least(revision: str, first: str) -> bool:
    """Return whether `revision` is `first` or newer. Unknown revisions are treated as older."""
    return revision in ALL and ALL.index(revision) >= ALL.index(first)


def is_modern(revision: str) -> bool:
    """Return whether each request of this revision has its own metadata."""
    return revision in MODERN


def has_method(methods: dict[str, Method], name: str, revision: str) -> bool:
    """Return whether `revision` has the method `name`. The tables have no extension methods."""
    method = methods.get(name)
    return (
        method is not None
        and at_least(revision, method.first)
        and not (at_least(revision, method.last) and revision != method.last)
    )


class Features(Struct, frozen=True):
    """The features that a revision's clients have, computed once so that calls need not compare."""

    is_modern: bool
    methods: frozenset[str]  # names from CLIENT_METHODS
    tool_annotations: bool  # and audio content, and messages of progress
    links: bool  # resource links; metadata and modification time of content
    structured: bool  # structured content, and titles and `_meta` of items and results
    icons: bool  # icons, and descriptions of implementations


def _features(revision: str) -> Features:
    return Features(
        is_modern=is_modern(revision),
        methods=frozenset(
            name for name in CLIENT_METHODS if has_method(CLIENT_METHODS, name, revision)
        ),
        tool_annotations=at_least(revision, "2025-03-26"),
        links=at_least(revision, "2025-06-18"),
        structured=at_least(revision, "2025-06-18"),
        icons=at_least(revision, "2025-11-25"),
    )


FEATURES = {revision: _features(revision) for revision in ALL}
