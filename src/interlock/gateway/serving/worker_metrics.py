"""The metrics of all workers of a gateway, each with the number of its worker.

Each worker offers its own metrics on a Unix socket in the folder of the supervisor, which only the
user of the gateway may open. The worker that answers `/metrics` reads those of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from interlock.gateway.serving.worker import Worker
from interlock.layers.exposition import Family, family, labelled

PATIENCE = 1.0  # seconds that another worker has for its metrics
LABEL = "worker"

Read = Callable[[], Awaitable[Sequence[Family]]]
_decode = msgspec.msgpack.Decoder(list[Family]).decode


class WorkerMetrics:
    """The metrics of this worker and of the others.

    Args:
        worker: This worker.
        read: Returns the metrics of this worker.
    """

    def __init__(self, worker: Worker, read: Read) -> None:
        self._worker = worker
        self._read = read

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None, None]:
        """Offer the metrics of this worker to the others within a block."""
        place = self._place(self._worker.index)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.unlink(missing_ok=True)  # of a worker that has died
        server = await asyncio.start_unix_server(self._answer, place)
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()
            place.unlink(missing_ok=True)
            with suppress(OSError):  # other workers still use it, or the supervisor removed it
                place.parent.rmdir()

    async def families(self) -> list[Family]:
        """Return the metrics of all workers; one that does not answer in time is not ready."""
        found = await asyncio.gather(*map(self._of, range(self._worker.workers)))
        return joined(found)

    async def _of(self, index: int) -> Sequence[Family]:
        if index == self._worker.index:
            return await self._read()
        with suppress(OSError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._place(index))
                try:
                    return _decode(await reader.read())
                finally:
                    writer.close()
        return [family("interlock_ready", "Whether calls can be made.", {(): 0.0})]

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(msgspec.msgpack.encode(await self._read()))
            with suppress(OSError):  # the other worker did not wait
                await writer.drain()
        finally:
            writer.close()

    def _place(self, index: int) -> Path:
        return Path(self._worker.folder, f"{index}.sock")


def joined(found: Iterable[Sequence[Family]]) -> list[Family]:
    """Return the metrics of workers, the first of which is number 0, as one list."""
    families: dict[str, Family] = {}
    for index, each in enumerate(found):
        for one in each:
            added = labelled(one, LABEL, str(index))
            before = families.get(one.name)
            families[one.name] = added if before is None else before.plus(added)
    return [*families.values()]
