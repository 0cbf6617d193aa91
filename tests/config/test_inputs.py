"""Values that a file asks its user for."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock import config
from interlock.config import StdioServer
from interlock.config.inputs import Input
from tests.support.rows import each_row


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


@each_row(
    ("inputs", "warnings"),
    [
        (None, []),
        ({}, ["inputs is ignored: it must be a list of objects, not an object"]),
        ([None], ["inputs[0] is ignored: it must be an object, not null"]),
        ([{"type": "promptString"}], ['inputs[0] needs "id"; this input is ignored']),
        ([{"id": "a", "type": "x"}], ["inputs[0].type must be one of"]),
        ([{"id": "a", "password": "yes"}], ["inputs[0].password must be true or false"]),
        ([{"id": "a", "default": None, "description": None}], []),
    ],
)
def test_a_wrong_input_is_ignored_with_a_warning(inputs: Any, warnings: list[str]) -> None:
    server = {"command": "x", "env": {"K": "${input:a}"}}
    text = msgspec.json.encode({"inputs": inputs, "servers": {"s": server, "t": {"command": "y"}}})
    found = config.loads(text)

    assert len(found.warnings) == len(warnings)
    assert all(w in each for w, each in zip(warnings, found.warnings, strict=True))
    assert list(found.servers) == ["s", "t"]


def test_an_answer_is_filled_in_once_and_shown_nowhere() -> None:
    server = StdioServer(
        command="x", args=("--key=${input:a b}",), known={"input:a b": "${HOME} canary-9f2"}
    )

    assert config.resolve(server, {}).args == ("--key=${HOME} canary-9f2",)
    assert "canary" not in repr(server)


def test_a_variable_of_the_environment_answers_an_input() -> None:
    server = StdioServer(command="x", args=("${input:api-key}",))

    assert config.resolve(server, {"INTERLOCK_INPUT_API_KEY": "k"}).args == ("k",)
