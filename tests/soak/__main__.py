"""Calls, connects, starts and faults for some minutes; nothing may hang, lie or grow.

    python -m tests.soak MINUTES [--seed N] [--every SECONDS] [--quiet]

Ends with exit code 1 when something did. Of less than five minutes memory says little; it
takes three for there to be anything to say.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import sys
from collections import Counter
from time import monotonic, strftime

from interlock.transports.reaper import marked, own_mark
from tests.soak import gauges
from tests.soak.faults import break_things
from tests.soak.ground import Ground, belongings

BAD = ("HUNG", "WRONG ANSWER", "UNEXPECTED")
RESTS = 10  # in a run
REST = 8.5  # seconds, until unused connections are closed


async def soak(minutes: float, seed: int, every: float, quiet: bool) -> bool:
    """Run, and tell; True when all is well."""
    before = belongings()
    ground = Ground(minutes, random.Random(seed))
    await ground.open()
    looked_at = gauges.of_this_process()
    looked_at += gauges.of_server("HTTP server", ground.processes["http"].pid)
    looked_at.append(gauges.Gauge("HTTP server: tasks", lambda: ground.server_tasks))

    async def look() -> None:
        while monotonic() < ground.end:
            for gauge in looked_at:
                gauge.add(ground.calls, at_rest=False)
            ground.check_hung()
            await asyncio.sleep(1)

    async def look_at_rest() -> None:
        while monotonic() < ground.end:
            await asyncio.sleep(minutes * 60 / RESTS - REST)
            async with ground.at_rest():
                await asyncio.sleep(REST)
                await ground.ask_for_tasks()
                if monotonic() < ground.end:  # after it, those who work have gone
                    for gauge in looked_at:
                        gauge.add(ground.calls, at_rest=True)

    def tell(what: str) -> None:
        if not quiet:
            print(f"{strftime('%H:%M:%S')} {ground.calls:9,} calls; {what}", flush=True)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(look())
            group.create_task(look_at_rest())
            faults = group.create_task(break_things(ground, every, tell))
            group.create_task(ground.work())
    finally:
        await ground.close()
    await asyncio.sleep(0)
    gc.collect()
    after = {**belongings(), "marked": marked(own_mark())}
    left = {key: each for key, each in after.items() if each != before.get(key, [])}

    print(report(ground, faults.result()))
    for gauge in looked_at:
        print(gauge.line())
    for each in ground.unexpected[:10]:
        print(each)
    if left:
        print(f"left behind: {left}; there was {before}")
    return (
        not left
        and not any(outcome in BAD for _, outcome in ground.outcomes)
        and all(gauge.growth < gauge.limit for gauge in looked_at)
    )


def report(ground: Ground, faults: int) -> str:
    """Tell how often what ended how."""
    lines = [f"{ground.calls:,} calls, connects and starts; {faults} faults"]
    for what in sorted({what for what, _ in ground.outcomes}):
        ends = Counter({end: n for (each, end), n in ground.outcomes.items() if each == what})
        lines.append(f"  {what:22} " + ", ".join(f"{n:,} {end}" for end, n in ends.most_common()))
    return "\n".join(lines)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--every", type=float, default=10, help="seconds between two faults")
    parser.add_argument("--quiet", action="store_true", help="do not tell of each fault")
    options = parser.parse_args()
    logging.getLogger("interlock").addHandler(logging.NullHandler())
    logging.getLogger("interlock").propagate = False
    print(f"{options.minutes:g} minutes, seed {options.seed}", flush=True)
    well = asyncio.run(soak(options.minutes, options.seed, options.every, options.quiet))
    print("all is well" if well else "NOT well")
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
