"""Real processes that use one database at once. A program: it forks after the slow imports.

`start PLACE PROCESSES`: all open the database at one instant, and each makes a conversation.
`append PLACE ID PROCESSES COUNT`: all append pairs of messages to one conversation.
`mortal PLACE ID`: for each line of input, fork a child that writes its process id, then appends
pairs for ever and writes the number of each one that is acknowledged, until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine

from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage
from interlock.store import Store


def pair(text: str) -> list[Message]:
    call = ToolCall(text, "count", {"text": text})
    return [AssistantMessage("x" * 1000, (call,)), ToolMessage(text, text, "count")]


async def start(place: str) -> None:
    async with Store.open(place) as store:
        await store.create()


async def append(place: str, id: str, writer: int, count: int) -> None:
    async with Store.open(place) as store:
        for index in range(count):
            await store.append(id, *pair(f"{writer}-{index}"))


async def append_forever(place: str, id: str) -> None:
    os.write(1, b"%d\n" % os.getpid())
    index = 0
    async with Store.open(place) as store:
        while True:
            await store.append(id, *pair(f"{os.getpid()}-{index}"))
            os.write(1, b"%d\n" % index)
            index += 1


def fork(work: Coroutine[None, None, None], gate: tuple[int, int] | None = None) -> int:
    """Run the work in a child, once the gate, a pipe, is closed in the parent."""
    if child := os.fork():
        work.close()
        return child
    try:
        if gate:
            os.close(gate[1])
            os.read(gate[0], 1)
        asyncio.run(work)
        os._exit(0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)


def at_once(works: list[Coroutine[None, None, None]]) -> int:
    """Run all the work, each in a process of its own; return how many failed."""
    gate = os.pipe()
    children = [fork(work, gate) for work in works]
    os.close(gate[1])
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def main(task: str, place: str, *arguments: str) -> int:
    match task, arguments:
        case "start", (processes,):
            return at_once([start(place) for _ in range(int(processes))])
        case "append", (id, processes, count):
            writers = range(int(processes))
            return at_once([append(place, id, writer, int(count)) for writer in writers])
        case "mortal", (id,):
            for _ in iter(sys.stdin.readline, ""):
                os.waitpid(fork(append_forever(place, id)), 0)
            return 0
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
