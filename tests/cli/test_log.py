"""The log of a command: its file, and escaped control characters."""

import json
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


def test_a_log_on_a_full_disk_costs_one_warning_and_no_call(interlock, servers, monkeypatch):
    servers()
    monkeypatch.setenv("INTERLOCK_LOG", "/dev/full")
    ran = interlock("call", "e:say", "text=hello")
    logging.getLogger("interlock.x").warning("again")

    assert (ran.code, ran.out.strip()) == (0, "hello")
    assert ran.err == (
        "warning: INTERLOCK_LOG: /dev/full cannot be written: No space left on device; lines are"
        " lost until it can\n"
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


def test_json_log_has_one_object_a_line_for_calls_messages_and_tracebacks(
    interlock, servers, home: Path, monkeypatch: pytest.MonkeyPatch
):
    servers()
    monkeypatch.setenv("INTERLOCK_LOG_FORMAT", "json")
    monkeypatch.setenv("INTERLOCK_LOG", str(home / "log"))
    interlock("call", "e:say", "text=a secret")
    open_log()
    try:
        raise ValueError("two\nlines \udcff")
    except ValueError:
        logging.getLogger("interlock.x").exception("failed")
    lines = [*map(json.loads, (home / "log").read_text().splitlines())]
    (call,) = [each for each in lines if each["message"].startswith("tool e:say: ok in ")]

    assert {each: call[each] for each in ("level", "logger", "server", "tool", "outcome")} == {
        "level": "info",
        "logger": "interlock.toolbox",
        "server": "e",
        "tool": "e:say",
        "outcome": "ok",
    }
    assert call["call_id"].startswith("c_")
    assert call["ms"] > 0
    assert call["ts"].endswith("Z")
    assert "secret" not in str(lines)
    assert "two\nlines" in lines[-1]["exception"]


def test_json_log_on_stderr_includes_the_messages_of_the_command(
    interlock, servers, monkeypatch: pytest.MonkeyPatch
):
    servers()
    monkeypatch.setenv("INTERLOCK_LOG_FORMAT", "json")
    monkeypatch.setenv("INTERLOCK_LOG", "-")
    lines = interlock("call", "e:absent").err.splitlines()
    assert json.loads(lines[-1]).items() >= {"level": "error", "logger": "interlock"}.items()
    assert all(json.loads(each)["message"] for each in lines)

    monkeypatch.setenv("INTERLOCK_LOG_FORMAT", "xml")
    assert interlock("tools").err.startswith("error: INTERLOCK_LOG_FORMAT: unknown format 'xml'")
