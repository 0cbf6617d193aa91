"""A program whose processes use one database at once. It forks after the slow imports.

`start PLACE PROCESSES`: all open the database at once, and each creates a conversation.
`append PLACE ID PROCESSES TIMES`: all append pairs of messages to one conversation.
`kill PLACE ID TIMES SEED`: a child appends pairs until it is killed at a random moment, TIMES
times; the texts of the acknowledged pairs are printed.
`audit PLACE PROCESSES TIMES`: all append audit records, each from 4 tasks.
`kill-audit PLACE TIMES SEED`: as `kill`, with audit records; the ids of their calls are printed.
`kill-results PLACE TIMES SEED`: as `kill`, with kept results; their ids are printed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from random import Random
from select import select
from signal import SIGKILL

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Results
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage
from interlock.store import AuditRecord, AuditWriter, ConversationStore
from interlock.store.kept_results import KeptResultStore

OWNER = ("default", "user:anna")
SECRET = GatewayKey(bytes(range(32)))


def pair(text: str) -> list[Message]:
    call = ToolCall(text, "count", {"text": text})
    return [AssistantMessage("x" * 1000, (call,)), ToolMessage(text, text, "count")]


async def start(place: str) -> None:
    async with ConversationStore.open(place) as store:
        await store.create()


async def append(place: str, id: str, writer: int, times: int) -> None:
    async with ConversationStore.open(place) as store:
        for index in range(times):
            await store.append(id, *pair(f"{writer}-{index}"))


async def append_for_ever(place: str, id: str, acknowledged: int) -> None:
    async with ConversationStore.open(place) as store:
        for index in count():
            text = f"{os.getpid()}-{index}"
            await store.append(id, *pair(text))
            os.write(acknowledged, f"{text}\n".encode())


async def audit(place: str, times: int) -> None:
    async def append(writer: AuditWriter) -> None:
        for number in range(times):
            await writer.append(AuditRecord("intent", call=str(number)))

    async with AuditWriter.open(place, key=SECRET) as writer:
        await asyncio.gather(*(append(writer) for _ in range(4)))


async def audit_for_ever(place: str, acknowledged: int) -> None:
    async def append(writer: AuditWriter, task: int) -> None:
        for index in count():
            call = f"{os.getpid()}-{task}-{index}"
            await writer.append(AuditRecord("intent", call=call))
            os.write(acknowledged, f"{call}\n".encode())

    async with AuditWriter.open(place, key=SECRET) as writer:
        await asyncio.gather(*(append(writer, task) for task in range(4)))


async def keep_for_ever(place: str, acknowledged: int) -> None:
    content = bytes(range(256)) * 1_024

    async def keep(store: KeptResultStore) -> None:
        for _ in count():
            kept = await store.keep(OWNER, "c", content)
            os.write(acknowledged, f"{kept.id}\n".encode())

    settings = Results(per_user=2**40)
    async with KeptResultStore.beside(place, SECRET, lambda: settings) as store:
        await asyncio.gather(*(keep(store) for _ in range(4)))


def fork(work: Coroutine[None, None, None], gate: tuple[int, int] | None = None) -> int:
    """Run the work in a child process once the parent closes the gate, a pipe."""
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
    """Run each work in its own process, all at once; return how many failed."""
    gate = os.pipe()
    children = [fork(work, gate) for work in works]
    os.close(gate[1])
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def killed(work: Callable[[int], Coroutine[None, None, None]], dice: Random) -> str:
    """Kill a child in the middle of its work; return the acknowledged lines."""
    # Each child has its own pipe, so that its output cannot mix with another's.
    output, input = os.pipe()
    child = fork(work(input))
    os.close(input)
    acknowledged = b""
    for _ in range(dice.randrange(5)):
        acknowledged += os.read(output, 1000)
    select([], [], [], dice.random() * 0.004)
    os.kill(child, SIGKILL)  # not yet waited for, so the process id is still its own
    os.waitpid(child, 0)
    while more := os.read(output, 1000):
        acknowledged += more
    os.close(output)
    return acknowledged.decode()


def main(task: str, place: str, *arguments: str) -> int:
    match task, arguments:
        case "start", (processes,):
            return at_once([start(place) for _ in range(int(processes))])
        case "append", (id, processes, times):
            writers = range(int(processes))
            return at_once([append(place, id, writer, int(times)) for writer in writers])
        case "kill", (id, times, seed):
            dice = Random(int(seed))
            for _ in range(int(times)):
                print(killed(partial(append_for_ever, place, id), dice), end="")
            return 0
        case "audit", (processes, times):
            return at_once([audit(place, int(times)) for _ in range(int(processes))])
        case "kill-audit", (times, seed):
            dice = Random(int(seed))
            for _ in range(int(times)):
                print(killed(partial(audit_for_ever, place), dice), end="")
            return 0
        case "kill-results", (times, seed):
            dice = Random(int(seed))
            for _ in range(int(times)):
                print(killed(partial(keep_for_ever, place), dice), end="")
            return 0
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
