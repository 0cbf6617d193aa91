"""OpenAPI documents as tools, beside FastMCP's converter and the bare decoding of the document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.harness import BARE, ROOT, US, Effort, Row, Taken
from benchmarks.peers.openapi_tools import chosen

TITLE = "OpenAPI documents"
FOLDER = ROOT / "build" / "openapi"
STYLES = FOLDER / "examples" / "3.0" / "json" / "parameters-style.json"


def rows(effort: Effort) -> Iterator[Row]:
    for name, file, goal in (
        ("GitHub, 13 MB of JSON", "github.json", 0.4),
        ("Airflow, 0.5 MB of YAML", "airflow.yaml", 0.1),
    ):
        keys = json.dumps(chosen((FOLDER / file).read_bytes()))
        figures = {each: partial(ask, each, "tools", FOLDER / file, keys) for each in ALL}
        taken = measured(figures, effort, "seconds", "megabytes", "largest")
        # Beside the decoder: of the same file for JSON, PyYAML's fastest one for YAML.
        yield Row(f"{name}, to 30 tools", "s", taken["seconds"], {US: goal, BARE: 0.4})
        yield Row(f"{name}, peak of memory", "MB", taken["megabytes"], {US: 80})
        largest = {key: value for key, value in taken["largest"].items() if key != BARE}
        yield Row(f"{name}, largest of 30 tools", "KB", largest, {US: 16})
    making = {each: partial(ask, each, "plan", FOLDER / "github.json") for each in PEERS}
    yield Row("one request, made", "s", measured(making, effort, "seconds")["seconds"], {US: 1e-4})
    calls = measured(
        {each: partial(call, each, effort.seconds) for each in WAYS}, effort, "seconds", "growth"
    )
    yield Row("a call, the API's answer included", "s", calls["seconds"])
    pairs = zip(calls["seconds"][US], calls["seconds"][BARE], strict=True)
    own = [ours - bare for ours, bare in pairs]
    yield Row("a call, beyond the bare request", "s", {US: own}, {US: 0.25e-3})
    yield Row("growth over a second of calls", "MB", {US: calls["growth"][US]}, {US: 1})
    wrong = {each: partial(ask, each, "styles", STYLES) for each in PEERS}
    yield Row(
        "parameter styles that arrive wrong, of 25", "",
        measured(wrong, Effort(rounds=1), "wrong")["wrong"], {US: 0},
    )  # fmt: skip


PEERS = (US, "fastmcp")
ALL = (*PEERS, BARE)
WAYS = (US, "toolbox", BARE)


def call(way: str, seconds: float) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.peers.api_call", "interlock" if way == US else way]
    seconds = max(seconds, 0.5)
    answer = subprocess.run([*argv, str(seconds)], cwd=ROOT, check=True, capture_output=True)
    figures: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return figures


def ask(name: str, task: str, file: Path, told: str = "") -> dict[str, float]:
    argv = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers.openapi_tools", name, task]
    answer = subprocess.run(
        [*argv, str(file)], cwd=ROOT, check=True, capture_output=True, input=told.encode()
    )
    figures: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return figures


def measured(programs: dict, effort: Effort, *names: str) -> dict[str, Taken]:
    """Run each program in every round; give the figures of each name by contestant."""
    kept: dict[str, list[dict[str, float]]] = {each: [] for each in programs}
    for _ in range(effort.rounds):
        for each, program in programs.items():
            kept[each].append(program())
    return {
        name: {each: [one[name] for one in figures] for each, figures in kept.items()}
        for name in names
    }
