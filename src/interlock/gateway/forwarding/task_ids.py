"""The task ids that a gateway's clients see, which contain the server's own id, encrypted."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from interlock.auth.principal import Principal
from interlock.calls import Entry
from interlock.errors import InvalidArguments
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.server.sealing import EncryptingSeal, digest
from interlock.server.tasks import NO_SUCH_TASK, TaskBegun

TTL = 7 * 24 * 3600.0  # seconds; servers keep most tasks for a shorter time


class SealedTask(Struct, frozen=True):
    """The encrypted content of a task id."""

    tool: str  # the tool's wire name
    task: str  # the task's id at the server
    call: str  # the id of the call that began the task


class TaskIds:
    """Makes and reads task ids.

    Args:
        key: The key that encrypts the ids; None for a random key.
    """

    def __init__(self, key: bytes | None) -> None:
        self._seal = EncryptingSeal(key, TTL)

    def begun(self, entry: Entry, result: Raw, principal: Principal | None, call: str) -> TaskBegun:
        """Return the task that a server returned for a call, with an id for the client.

        Raises:
            RemoteProtocolError: The server's task has no id.
        """
        members = decode(dict[str, Raw], result, "task")
        id = decode(str, members.get("taskId", Raw(b"null")), "taskId of a task")
        sealed = encode(SealedTask(entry.wire_name, id, call))
        members["taskId"] = Raw(encode(self._seal.close(sealed, _owner(principal))))
        members.pop("resultType", None)
        members.pop("_meta", None)
        return TaskBegun(encode(members))

    def read(self, id: str, principal: Principal | None) -> SealedTask:
        """Return the decrypted content of a task id.

        Raises:
            InvalidArguments: The id is not from this gateway, or belongs to another user.
        """
        try:
            sealed = self._seal.open(id, _owner(principal))
        except InvalidArguments:
            raise InvalidArguments(NO_SUCH_TASK) from None
        return msgspec.json.decode(sealed, type=SealedTask)


def _owner(principal: Principal | None) -> bytes:
    return digest(b"task", b"" if principal is None else principal.owner.encode())
