"""Values that a file asks its user for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock import config
from interlock.config import StdioServer
from interlock.config.inputs import Input
from interlock.errors import ConfigError


def read(*inputs: Any) -> config.Config:
    return config.loads(msgspec.json.encode({"inputs": inputs, "servers": {}}))


def test_inputs_of_vs_code_are_read() -> None:
    found = read(
        {"type": "promptString", "id": "key", "description": "The key", "password": True},
        {"type": "pickString", "id": "zone", "options": ["a", {"label": "B", "value": "b"}]},
        {"type": "promptString", "id": "host", "default": "localhost"},
    ).inputs

    assert found == {
        "key": Input("key", "The key", is_secret=True),
        "zone": Input("zone", options=("a", "b")),
        "host": Input("host", default="localhost"),
    }


def test_an_input_of_a_command_is_asked_for_with_a_warning() -> None:
    found = read({"type": "command", "id": "key", "command": "x.y"})

    assert list(found.inputs) == ["key"]
    assert "runs a command of an editor" in found.warnings[0]


def test_an_input_without_an_id_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'line 1: inputs\[0\] needs "id"'):
        read({"type": "promptString"})


def test_an_answer_is_filled_in_once_and_shown_nowhere() -> None:
    server = StdioServer(
        command="x", args=("--key=${input:a b}",), known={"input:a b": "${HOME} canary-9f2"}
    )

    assert config.resolve(server, {}).args == ("--key=${HOME} canary-9f2",)
    assert "canary" not in repr(server)


def test_a_variable_of_the_environment_answers_an_input() -> None:
    server = StdioServer(command="x", args=("${input:api-key}",))

    assert config.resolve(server, {"INTERLOCK_INPUT_API_KEY": "k"}).args == ("k",)
