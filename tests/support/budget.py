"""Measure the CPU seconds of each case, its children included, and compare them with a budget.

pytest --budget prints the sum of each folder at the end of a run, and the cases that take more
than half a second without a mark that gives a reason. What `support.forked` runs is not counted.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

# CPU seconds of each folder of tests; those without a number of their own share the rest.
BUDGET = {"models": 50, "faults": 40, "gateway": 45, "cli": 40, "store": 30, "web": 20}
TOTAL = 400  # `make test` has two cores for 6 minutes, for collection and for waiting, too
LONGEST = 0.5  # seconds of a case without a mark
MARKS = {"slow", "program", "product"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", action="store_true", help="print the CPU seconds of each folder")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--budget"):
        config.pluginmanager.register(_Measure(), "measure")
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(_Summary(), "summary")


class _Measure:
    """Adds `cpu` and `own_cpu` to each report: all, and without what other cases share."""

    def __init__(self) -> None:
        self._shared = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        before, shared = _cpu(), self._shared
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared = shared + _cpu() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        self._last, self._shared = _cpu(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: Any, nextitem: Any) -> Generator[None, Any, Any]:
        before = _cpu()
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                self._shared += _cpu() - before  # servers of the whole module are ended here

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        now = _cpu()
        report.cpu, report.own_cpu = now - self._last, now - self._last - self._shared
        report.is_marked = any(mark.name in MARKS for mark in item.iter_markers())
        self._last, self._shared = now, 0.0
        return report


class _Summary:
    def __init__(self) -> None:
        self._folders: Counter[str] = Counter()
        self._cases: Counter[str] = Counter()
        self._own: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        folder = report.nodeid.partition("::")[0].removeprefix("tests/").partition("/")
        name = folder[0] if folder[1] else "tests"
        self._folders[name] += report.cpu
        self._cases[name] += report.when == "call"
        if not report.is_marked:
            self._own[report.nodeid] += report.own_cpu

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        for name, seconds in self._folders.most_common():
            budget = f"of {BUDGET[name]}" if name in BUDGET else ""
            over = "OVER" if seconds > BUDGET.get(name, TOTAL) else ""
            write(f"{name:14} {seconds:6.1f} {budget:6} {self._cases[name]:5} cases {over}")
        total = self._folders.total()
        over = "OVER" if total > TOTAL else ""
        write(f"{'all':14} {total:6.1f} of {TOTAL} {self._cases.total():5} cases {over}")
        for nodeid, seconds in self._own.most_common():
            if seconds > LONGEST:
                write(f"over {LONGEST:g} s without a mark: {seconds:.1f} s {nodeid}")


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
