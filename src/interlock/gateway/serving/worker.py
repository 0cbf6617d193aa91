"""The protocol between a supervisor and its workers."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

READY = b"r"  # sent by a worker that takes connections
KNOWN = b"k"  # sent with a connection whose caller is known
UNKNOWN = b"u"  # sent with a connection that was placed by its address
VARIABLE = "INTERLOCK_WORKER"  # set by the supervisor, for its workers only


class Worker(Struct, frozen=True):
    """A worker's number, and the resources that its supervisor passes on.

    Attributes:
        index: The worker's number, from 0.
        channel: The descriptor of the worker's end of the socket pair.
        host, port: The address that the supervisor listens on.
        folder: The folder in which the workers offer their metrics to each other.
        workers: The number of workers.
        announces: Whether it prints what is served; one worker does it for all.
    """

    index: int
    channel: int
    host: str
    port: int
    folder: str
    workers: int
    announces: bool = False

    def as_environment(self) -> dict[str, str]:
        return {VARIABLE: msgspec.json.encode(self).decode()}

    @classmethod
    def of_environment(cls) -> Worker | None:
        """Return what the supervisor of this process has told; None without a supervisor."""
        said = os.environ.pop(VARIABLE, "")
        return msgspec.json.decode(said, type=cls) if said else None
