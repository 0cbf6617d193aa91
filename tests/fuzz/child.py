"""One target under atheris: `python -m tests.fuzz.child TARGET [options and folders of libFuzzer]`.

Writes to stdout how long the slowest input so far took, in seconds, whenever that changes.
"""

from __future__ import annotations

import importlib
import logging
import sys

import atheris

from tests.fuzz.watch import LIMIT, Watch


def main() -> None:
    name, *arguments = sys.argv[1:]
    logging.disable()  # what fails on purpose would be all there is to see
    with atheris.instrument_imports(include=["interlock"]):
        module = importlib.import_module(f".targets.{name}", __package__)
    watch = Watch(module.target, getattr(module, "LIMIT", LIMIT))
    slowest = 0.0

    def once(data: bytes) -> None:
        nonlocal slowest
        try:
            watch(data)
        finally:
            if watch.slowest > slowest:
                slowest = watch.slowest
                print(f"slowest {slowest:.6f}", flush=True)

    atheris.Setup([name, *arguments], once)
    atheris.Fuzz()


main()
