"""The log of a command: its file, and escaped control characters."""

import logging
from pathlib import Path

import pytest

from interlock.cli.log import open_log


def test_the_log_goes_to_the_file_in_interlock_log(interlock, servers, home: Path, monkeypatch):
    servers()
    monkeypatch.setenv("INTERLOCK_LOG", str(home / "log"))
    interlock("call", "e:say", "text=a secret")
    text = (home / "log").read_text()

    assert "tool e:say: ok in " in text
    assert "secret" not in text
    assert (home / "log").stat().st_mode & 0o777 == 0o600


def test_a_log_file_that_cannot_be_written_is_an_error(interlock, monkeypatch):
    monkeypatch.setenv("INTERLOCK_LOG", "/nowhere/log")

    assert interlock("tools").err == (
        "error: INTERLOCK_LOG: /nowhere/log cannot be written: No such file or directory\n"
    )


def test_control_characters_in_a_logged_traceback_are_escaped(
    interlock, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INTERLOCK_LOG", str(home / "log"))
    open_log()
    try:
        raise ValueError("\x1b[2J\u202e")
    except ValueError:
        logging.getLogger("interlock.x").exception("failed")
    log = (home / "log").read_text()

    assert "Traceback" in log
    assert "\\x1b[2J\\u202e" in log
    assert not {"\x1b", "\u202e"} & set(log)
