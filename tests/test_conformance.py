"""The judgement of the conformance suite's results: only what passed counts as passed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance import run_suite
from tests.conformance.run_suite import Ran, judge, why_failed

LEG = "client 2026-07-28"


@pytest.fixture(autouse=True)
def expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_suite, "SCENARIOS", {LEG: 1})


def leave(
    results: Path, scenario: str, *statuses: str, stdout: str = "done\n", stderr: str = ""
) -> None:
    """Write the results of a scenario as the suite does."""
    folder = results / f"{scenario}-2026-07-28T10-00-00-000Z"
    folder.mkdir(parents=True)
    checks = [{"id": "c", "status": each, "description": "A check"} for each in statuses]
    (folder / "checks.json").write_text(json.dumps(checks))
    (folder / "stdout.txt").write_text(stdout)
    (folder / "stderr.txt").write_text(stderr)


def test_a_scenario_with_a_success_and_no_failure_passes(tmp_path: Path):
    leave(tmp_path, "auth/basic", "INFO", "SUCCESS", "SKIPPED")
    leave(tmp_path, "auth/basic-more", "FAILURE")  # of another name

    assert judge(LEG, ["auth/basic"], tmp_path, "") == (LEG, 1, 1, 0, 0, [])


@pytest.mark.parametrize(
    ("statuses", "passed", "problem"),
    [
        (["SUCCESS", "FAILURE"], 0, "basic: FAILURE c: A check"),
        (["SUCCESS", "WARNING"], 1, "basic: WARNING c: A check"),
        (["INFO"], 0, "basic: nothing was checked"),
        ([], 0, "basic: nothing was checked"),
    ],
    ids=["failure", "warning", "info", "none"],
)
def test_a_scenario_without_a_plain_success_has_a_problem(
    tmp_path: Path, statuses: list[str], passed: int, problem: str
):
    leave(tmp_path, "server-basic", *statuses)
    leg = judge(LEG, ["basic"], tmp_path, "server-")

    assert (leg.passed, leg.problems) == (passed, [problem])


def test_a_scenario_without_checks_fails(tmp_path: Path):
    (tmp_path / "basic-2026-07-28T10-00-00-000Z").mkdir()

    assert judge(LEG, ["basic"], tmp_path, "").problems == ["basic: nothing was checked"]


def test_a_scenario_whose_client_failed_fails(tmp_path: Path):
    leave(tmp_path, "basic", "SUCCESS")
    leg = judge(LEG, ["basic"], tmp_path, "", {"basic": "it ended with 1"})

    assert (leg.passed, leg.problems) == (0, ["basic: it ended with 1"])


@pytest.mark.parametrize(
    ("wanted", "total"), [([], 0), (["skipped"], 0), (["a", "b"], 2)], ids=["0", "skipped", "2"]
)
def test_check_fails_if_the_suite_runs_an_unexpected_number_of_scenarios(
    tmp_path: Path, wanted: list[str], total: int
):
    leave(tmp_path, "skipped", "SKIPPED")
    leave(tmp_path, "a", "SUCCESS")
    leave(tmp_path, "b", "SUCCESS")

    assert judge(LEG, wanted, tmp_path, "").problems == [
        f"{total} scenarios instead of 1: see SCENARIOS"
    ]


def test_check_fails_if_the_suite_reports_a_failed_scenario(tmp_path: Path):
    leave(tmp_path, "basic", "SUCCESS")
    said = "Checks: ...\nTest Results:\nPassed: 1/1\n\nCLIENT EXITED WITH ERROR (code 1)\n"

    why = why_failed("basic", Ran(1, said), tmp_path)
    assert why == "the suite ended with 1: Passed: 1/1 CLIENT EXITED WITH ERROR (code 1)"


@pytest.mark.parametrize(
    ("stdout", "stderr", "is_well"),
    [
        ("done\n", "", True),
        ("", "a warning\nerror: no token\n", True),
        ("", "", False),
        ("", "Traceback (most recent call last):\nKeyError: 'a'\n", False),
        ("", "error: no token\nTraceback (most recent call last):\nKeyError: 'a'\n", False),
    ],
    ids=["done", "refused", "silent", "crashed", "crashed later"],
)
def test_a_client_that_neither_finished_nor_reported_an_error_was_cut_off(
    tmp_path: Path, stdout: str, stderr: str, is_well: bool
):
    leave(tmp_path, "basic", "SUCCESS", stdout=stdout, stderr=stderr)

    why = why_failed("basic", Ran(0, "fine"), tmp_path)
    assert why == ("" if is_well else f"the client was cut off: {stderr}")
