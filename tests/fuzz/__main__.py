"""Fuzzing: `python -m tests.fuzz [--seconds N] [--keep] [TARGET ...]`; `make fuzz` is the same.

Each target runs for some seconds, guided by what it reaches in our code. It begins with what is
in `corpus/TARGET` and what earlier runs have left in `build/fuzz/TARGET`. An input that breaks
something is put into the corpus, where the tests try it from then on. `--keep` runs nothing, and
puts the smallest of the inputs there that reach all that was ever reached.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import keeping
from tests.fuzz.table import CORPUS, FOUND, load, names

MAX_BYTES = 4096  # of an input, unless a target says otherwise
MAX_MEMORY = 256  # MiB
HANG = 10  # seconds after which an input is given up


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--keep", action="store_true", help="keep the best inputs; run nothing")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names())}")
    told = parser.parse_args(arguments)
    unknown = set(told.targets) - set(names())
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    crashes = 0
    for name in told.targets or names():
        if told.keep:
            print(keep(name), flush=True)
        else:
            line, crashed = run(name, told.seconds)
            crashes += crashed
            print(line, flush=True)
    return 1 if crashes else 0


def run(name: str, seconds: int) -> tuple[str, bool]:
    """Run one target; give a line about it, and whether something was found."""
    with tempfile.TemporaryDirectory() as scratch:
        done = fuzzer(name, Path(scratch), f"-max_total_time={seconds}", f"-timeout={HANG}")
        crashes = [keep_crash(name, found) for found in sorted(Path(scratch).glob("*-*"))]
    told = dict(re.findall(r"stat::(\w+):\s+(\d+)", done.stderr))
    slowest = re.findall(r"^slowest ([\d.]+)$", done.stdout, re.MULTILINE)
    line = (
        f"{name:<12}{told.get('number_of_executed_units', '?'):>10} inputs "
        f"{told.get('average_exec_per_sec', '?'):>7}/s "
        f"{told.get('new_units_added', '?'):>6} new "
        f"{float(slowest[-1]) * 1000 if slowest else 0:7.1f} ms at most "
        f"{told.get('peak_rss_mb', '?'):>4} MiB "
        f"{len(crashes):>3} crashes"
    )
    if done.returncode or crashes:
        paths = (str(path.relative_to(Path.cwd())) for path in crashes)
        line = "\n".join([line, *(f"    {each}" for each in (*reasons(done), *paths))])
    return line, bool(done.returncode or crashes)


def reasons(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Say what broke, from all that libFuzzer says."""
    traceback = done.stdout.partition(" === ")[2].splitlines()
    problems = re.findall(r"^==\d+== ERROR: (.*)$", done.stderr, re.MULTILINE)
    return [*traceback[-20:], *problems] or done.stderr.splitlines()[-20:]


def keep(name: str) -> str:
    """Choose the inputs that are worth keeping, of all that were ever found."""
    (FOUND / name).mkdir(parents=True, exist_ok=True)
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    found = [path.read_bytes() for folder in (FOUND, CORPUS) for path in (folder / name).iterdir()]
    chosen = keeping.choose(load(name).target, found)
    keeping.replace(CORPUS / name, chosen)
    return f"{name:<12}{len(chosen):>10} kept of {len(set(found))}"


def keep_crash(name: str, found: Path) -> Path:
    """Put an input that broke something into the corpus."""
    data = found.read_bytes()
    path = CORPUS / name / f"{found.name.partition('-')[0]}-{keeping.name_of(data)}"
    path.write_bytes(data)
    return path


def fuzzer(name: str, scratch: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run libFuzzer. What breaks something comes into `scratch`, what is new is `FOUND`."""
    found, kept = FOUND / name, CORPUS / name
    found.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    module = load(name)
    words = scratch / "words"
    words.write_text("".join(f"{word}\n" for word in dictionary(module.TOKENS)))
    command = [
        *(sys.executable, "-m", f"{__package__}.child", name, *options),
        *("-print_final_stats=1", f"-rss_limit_mb={MAX_MEMORY}", f"-dict={words}"),
        *(f"-max_len={getattr(module, 'MAX_BYTES', MAX_BYTES)}", "-report_slow_units=1000"),
        f"-artifact_prefix={scratch}/",
        *map(str, [found, kept]),
    ]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def dictionary(words: Sequence[bytes]) -> Iterator[str]:
    """Write words as libFuzzer reads them."""
    for word in filter(None, words):
        yield '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


if __name__ == "__main__":
    sys.exit(main())
