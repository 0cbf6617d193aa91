import pytest

from interlock.cli.server_status import (
    is_broken,
    problem_of,
    say_dropped,
    say_missing,
    say_starting,
    status_rows,
    warn_of_broken,
)
from interlock.toolbox import ServerStatus

GOOD = ServerStatus("good", "ok", tools=2, revision="2026-07-28", start_seconds=0.125)
SLOW = ServerStatus("my slow", "starting")
BAD = ServerStatus("bad", "failed", "cannot start")
LOSSY = ServerStatus("lossy", "ok", missing=("tool 'x': denied\x1b",), dropped={"garbage": 2})


def test_failed_server_counts_as_broken_and_a_starting_server_does_not():
    assert [is_broken(each) for each in (GOOD, SLOW, BAD)] == [False, False, True]
    assert problem_of(BAD) == "server 'bad' failed: cannot start"


def test_status_rows_has_one_row_per_server():
    assert status_rows([GOOD, SLOW]) == [
        ("good", "ok", "2026-07-28", "0.12 s", "2 tools", ""),
        ("my slow", "starting", "-", "-", "0 tools", ""),
    ]


def test_each_kind_of_problem_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    servers = [GOOD, SLOW, BAD, LOSSY]
    for write in (warn_of_broken, say_starting, say_missing, say_dropped):
        write(servers)

    assert capsys.readouterr() == (
        "",
        "warning: server 'bad' failed: cannot start\n"
        "still starting: server 'my slow'; wait for it with: interlock tools 'my slow'\n"
        "missing: server 'lossy': tool 'x': denied\\x1b\n"
        "dropped messages of server 'lossy': 2 x garbage\n",
    )
