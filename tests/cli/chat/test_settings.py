"""`interlock settings`, and what the settings change in other commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models import wire_openai as wire
from tests.models.wire_http import WireServer


@pytest.fixture
def write(home: Path) -> Callable[[Any], Path]:
    """Write the settings file of the user."""

    def write(content: Any) -> Path:
        path = home / "config" / "interlock" / "settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        return path

    return write


def test_password_in_the_url_of_a_model_is_not_shown(
    interlock, write: Callable[[Any], Path], monkeypatch: pytest.MonkeyPatch
):
    name = "openai:m@http://user:canary-1@127.0.0.1:9/v1?key=canary-2"
    monkeypatch.setenv("INTERLOCK_MODEL", name)
    price = {"price": {"input": 1, "output": 2}}
    write({"model": name, "aliases": {"own": name}, "models": {name: price}})
    for ran in (interlock("settings"), interlock("settings", "--json")):
        assert "openai:m@http://127.0.0.1:9/v1" in ran.out
        assert "canary" not in ran.out + ran.err


def test_settings_are_shown_after_they_were_set(interlock, home: Path):
    assert "does not exist yet" in interlock("settings").err
    interlock("settings", "set", "model", "fast")
    interlock("settings", "set", "aliases.fast", "openai:gpt-6-luna")
    interlock("settings", "set", "options.temperature", "0.2")
    interlock("settings", "set", "options.stop", "END")
    shown = interlock("settings")

    assert [line.split() for line in shown.out.splitlines()] == [
        ["model", "fast"],
        ["toolSearch", "auto"],
        ["options.temperature", "0.2"],
        ["options.stop", "END"],
        ["aliases.fast", "openai:gpt-6-luna"],
    ]
    assert str(home / "config" / "interlock" / "settings.json") in shown.err
    interlock("settings", "unset", "model")
    assert interlock("settings", "--json").json["model"] == ""
    assert "alias of openai:gpt-6-luna" in interlock("models").out


def test_default_model_can_be_an_alias_and_has_the_lowest_precedence(
    interlock, write, script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = tmp_path / "other.json"
    other.write_text('[{"content": "Other."}]')
    write({"model": "mine", "aliases": {"mine": script("Mine."), "its": f"scripted:{other}"}})

    assert interlock("chat", "hi", "--no-tools").out == "Mine.\n"
    assert interlock("chat", "hi", "--no-tools", "--model", "its").out == "Other.\n"
    assert interlock("chat", "again", "-c", "--no-tools").out == "Other.\n"
    monkeypatch.setenv("INTERLOCK_MODEL", "its")
    assert interlock("chat", "hi", "--no-tools").out == "Other.\n"


def test_a_wrong_settings_file_ends_the_command_with_its_place(interlock, write, script):
    path = write({"aliases": {"a": 5}})
    ran = interlock("chat", "hi", "--model", script("Yes."))

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {path}, line 1: aliases.a must be a string")


def test_options_without_a_value_or_a_use_are_errors(interlock, script):
    assert interlock("chat", "hi", "-o", "temperature").code == 2
    assert "has no options" in interlock("chat", "hi", "-o", "a=1", "--model", script("Yes.")).err
    ran = interlock("chat", "hi", "-o", "stream=false", "--model", "openai:x")
    assert "error: option 'stream' cannot be set: interlock sets it itself" in ran.err
    ran = interlock("chat", "hi", "-o", "max_tokens=many", "--model", "openai:x")
    assert "error: option 'max_tokens' must be a whole number from 1" in ran.err


def test_command_line_options_override_options_in_the_file(interlock, write, served: WireServer):
    name = f"openai:m@{served.root}/v1"
    models = {name: {"options": {"top_p": 0.5, "seed": 1}}}
    write({"options": {"temperature": 0.9, "top_p": 0.1}, "models": models})
    served.script = [wire.says("Noon.")]
    ran = interlock(
        "chat", "hi", "--no-tools", "--model", name, "-o", "temperature=0", "-o", "stop=END"
    )

    assert ran.out == "Noon.\n"
    body = served.asked[0].body
    assert {key: body[key] for key in ("temperature", "top_p", "seed", "stop")} == {
        "temperature": 0,
        "top_p": 0.5,
        "seed": 1,
        "stop": "END",
    }
