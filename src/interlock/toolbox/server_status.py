"""The state of a server, and the reason for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

State = Literal["starting", "ok", "down", "failed", "disabled", "needs login", "expired", "refused"]


class ServerStatus(Struct, frozen=True):
    """The state of one server, and the reason for it.

    Attributes:
        name: In the toolbox.
        state: See `State`.
        reason: Why it is in this state; "" when all is well.
        tools: How many tools it offers.
        missing: One line for each tool of the server that the toolbox does not offer.
        flagged: One line for each tool whose results break the protocol.
        dropped: How many of its messages were useless, by reason, over all its connections.
        revision: The protocol revision spoken with it; "" while it is not connected.
        server_info: Its name and version, as it states them.
        start_seconds: How long its last start took.
        connections: How many connections to it are open.
        starts: How many connections were opened or tried so far.
        retry_in: Seconds until it may be started again; 0 for at once.
    """

    name: str
    state: State
    reason: str = ""
    tools: int = 0
    missing: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    dropped: Mapping[str, int] = {}
    revision: str = ""
    server_info: str = ""
    start_seconds: float = 0.0
    connections: int = 0
    starts: int = 0
    retry_in: float = 0.0
