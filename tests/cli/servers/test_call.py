"""`interlock call`: its arguments, its result and its errors."""

import json
import shlex
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.servers.call import typed, unknown_parameters
from tests.cli.conftest import ECHO
from tests.support.rows import each_row

BROKEN = {"command": "no-such-program"}


def test_call_prints_the_result(interlock, servers):
    servers()

    assert interlock("call", "e:say", "text=hello world") == (0, "hello world\n", "")


def test_control_characters_are_escaped_in_a_pipe_unless_raw_is_asked_for(interlock, servers):
    servers()
    text = "a\x1b[2J\u202eb\tc"

    assert interlock("call", "e:say", f"text={text}").out == "a\\x1b[2J\\u202eb\tc\n"
    assert interlock("call", "e:say", f"text={text}", "--raw").out == f"{text}\n"
    assert "\x1b" not in interlock("call", "e:say", f"text={text}", "--json").out
    assert interlock("tools", "e:say", "--raw").out == interlock("tools", "e:say").out


def test_values_are_converted_to_the_types_of_the_schema(interlock, servers):
    servers()
    given = [
        "text=5",
        "count=5",
        "ratio=0.5",
        "sure=true",
        'words=["a"]',
        'place={"x": 1}',
        "maybe=null",
        "either=5",
        "colour=red",
        "anything=[1]",
    ]
    ran = interlock("call", "e:echo", *given)

    assert ran.json == {
        "text": "5",
        "count": 5,
        "ratio": 0.5,
        "sure": True,
        "words": ["a"],
        "place": {"x": 1},
        "maybe": None,
        "either": "5",
        "colour": "red",
        "anything": [1],
    }


def test_a_value_with_equals_signs_and_newlines_is_sent_unchanged(interlock, servers):
    servers()

    assert interlock("call", "e:say", "text=a=b\n--json é").out == "a=b\n--json é\n"


def test_json_arguments_and_key_value_arguments_are_merged(interlock, servers):
    servers()
    ran = interlock("call", "e:echo", "count=1", "--arguments", r'{"text": "half \ud83d"}')

    assert ran.json == {"count": 1, "text": "half \ufffd"}


@each_row(
    ("arguments", "message"),
    [
        (["say"], "'say' is not a tool's address; write SERVER:TOOL"),
        (["e:say", "text"], "'text' is not KEY=VALUE"),
        (["e:say", "=x"], "'=x' is not KEY=VALUE"),
        (["e:say", '{"text": "a=b"}'], "write --arguments before a JSON object"),
        (["e:say", "a=1", "a=2"], "a is given twice"),
        (["e:say", "a=1", "--arguments", '{"a": 2}'], "a: both as KEY=VALUE and in --arguments"),
        (["e:say", "--arguments", "[1]"], "--arguments is not a JSON object"),
        (["e:say", "--arguments", "{"], "--arguments is not JSON"),
        (["e:say", "--timeout", "0"], "--timeout"),
    ],
)
def test_invalid_arguments_are_wrong_usage(interlock, arguments: list[str], message: str):
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@each_row(
    ("arguments", "message"),
    [
        (["e:echo", "count=x"], "count='x' is not valid: the tool takes integer here"),
        (["e:echo", "count=1.5"], "count"),
        (["e:sya"], "no tool 'e:sya'; did you mean e:say"),
        (["f:say"], "no server 'f'"),
        (["off:say"], "server 'off' is not available: disabled in the configuration"),
        (["broken:say"], "server 'broken' is not available: cannot start 'no-such-program'"),
        (["e:exit"], "exited with code 3"),
        (
            ["e:wait", "--timeout", "0.05"],
            "may have run; --timeout SECONDS gives it more time",
        ),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(
    interlock, servers, arguments: list[str], message: str
):
    servers(broken=BROKEN, off={**BROKEN, "enabled": False})
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow("starts a program")
def test_an_error_result_is_printed_with_exit_code_1(interlock, servers):
    servers()

    assert interlock("call", "e:fail", "text=no such city") == (1, "no such city\n", "")


FAILING = """
import os, sys
from interlock import Server

server = Server("s")
print("secret at the start", file=sys.stderr)

@server.tool
def divide(by: int) -> float:
    print(f"  dividing by {by}", file=sys.stderr)
    return 1 / by

@server.tool
def leave() -> None:
    print("fatal: the disk is gone", file=sys.stderr)
    os._exit(3)

server.run()
"""


@pytest.mark.slow("starts a program")
@each_row(
    ("call", "code", "told"),
    [
        (("s:divide", "by=0"), 1, ["  dividing by 0", "ZeroDivisionError: division by zero"]),
        (("s:leave",), 1, ["fatal: the disk is gone"]),
        (("s:divide", "by=1"), 0, []),
    ],
)
def test_what_a_program_writes_to_stderr_is_printed_only_if_the_call_fails(
    interlock, servers, call: tuple[str, ...], code: int, told: list[str]
):
    servers(s={"command": sys.executable, "args": ["-c", FAILING]})
    ran = interlock("call", *call)

    assert ran.code == code
    assert ("server 's' wrote to stderr:" in ran.err) is bool(told)
    assert all(f"  {line}\n" in ran.err for line in told)
    assert "secret at the start" not in ran.err


@pytest.mark.slow("starts a program")
def test_json_option_prints_the_whole_result(interlock, servers):
    servers()
    ran = interlock("call", "e:picture", "text=x", "--json")

    assert ran.json["content"] == [
        {"type": "text", "text": "x"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
    ]


@pytest.mark.slow("starts a program")
def test_non_text_content_becomes_a_description(interlock, servers):
    servers()

    assert interlock("call", "e:picture").out == "[image/png, 3 bytes: see --json]\n"


@pytest.mark.slow("starts a program")
def test_a_long_result_is_printed_in_full(interlock, servers):
    servers()
    text = "x" * 100_000  # near Linux's limit of an argument, and over the limit for models
    ran = interlock("call", "e:echo", "--arguments", json.dumps({"text": text}))

    assert ran.json == {"text": text}


@pytest.mark.slow("starts a program")
def test_call_starts_only_the_server_of_the_tool(interlock, servers, home):
    servers(other={"command": "sh", "args": ["-c", "touch started"]})
    interlock("call", "e:say")

    assert not (home / "started").exists()


@pytest.mark.slow("starts a program")
@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("context_servers", {"source": "custom", "settings": {}}),
        ("servers", {"type": "stdio", "dev": {"watch": "*"}, "version": "1"}),
        ("mcpServers", {"trust": True, "description": "d", "transportType": "stdio"}),
    ],
)
def test_file_of_another_program_is_used_unchanged(
    interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, more: dict[str, Any]
):
    program = tmp_path / "server"
    echo = shlex.join([sys.executable, *ECHO])
    program.write_text(f'#!/bin/sh\ntest "$FROM_FILE" = 1 && exec {echo}\n')
    program.chmod(0o700)
    (tmp_path / "x.env").write_text("FROM_FILE=1\n")
    entry = {"command": "${workspaceFolder}${/}server", "envFile": "${userHome}/x.env", **more}
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"theme": "dark", key: {"e": entry}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    ran = interlock("call", "e:say", "text=hi", "--config", path)

    assert ran == (0, "hi\n", "")


def test_a_server_with_a_namespace_is_found_by_it(interlock, servers):
    entry = json.loads(servers().read_text())["mcpServers"]["e"]
    servers(e={**entry, "namespace": "n"})

    assert interlock("call", "n:say", "text=x").out == "x\n"
    assert "no tool 'e:say'; did you mean n:say?" in interlock("call", "e:say").err


# Arguments that the schema does not name


def test_an_argument_that_the_tool_does_not_name_is_sent_with_a_warning(interlock, servers):
    servers()
    ran = interlock("call", "e:echo", "txet=x")

    assert (ran.code, ran.json) == (0, {"txet": "x"})
    assert ran.err == "warning: tool e:echo has no parameter 'txet'; did you mean 'text'?\n"


@each_row(
    ("schema", "problems"),
    [
        ({}, ["has no parameter 'tz'; did you mean 'timezone'?"]),
        ({"properties": {"text": {}}}, ["has no parameter 'tz'"]),
        ({"properties": {}}, ["has no parameter 'tz'"]),
        ({"additionalProperties": True}, ["has no parameter 'tz'; did you mean 'timezone'?"]),
        ({"properties": {"text": {}}, "additionalProperties": {"type": "string"}}, []),
        ({"additionalProperties": False}, []),
        ({"unevaluatedProperties": False}, []),
        ({"allOf": [{"properties": {"tz": {}}}]}, []),
        ({"patternProperties": {"^t": {}}}, []),
        ({"properties": {"tz": {}}}, []),
        ({"properties": "rubbish"}, []),
    ],
)
def test_unknown_parameters_are_accepted_if_the_schema_permits_further_members(
    schema: dict[str, object], problems: list[str]
):
    whole = {"type": "object", "properties": {"timezone": {}}} | schema

    assert list(unknown_parameters({"tz": "UTC"}, whole)) == problems


def test_a_named_parameter_that_is_given_is_not_suggested():
    schema = {"properties": {"text": {}}}

    assert list(unknown_parameters({"text": 1, "txt": 1}, schema)) == ["has no parameter 'txt'"]


@each_row(
    ("arguments", "message"),
    [
        (["e:say", "text=a\udce9"], "text=… is not UTF-8"),
        (["e:say", "\udce9=a"], "[KEY=VALUE]... number 1 is not UTF-8"),
        (["e:\udce9"], "[SERVER:]TOOL is not UTF-8"),
        (["e:say", "--arguments", '{"text": "\udce9"}'], "--arguments is not UTF-8"),
    ],
)
def test_arguments_that_are_not_utf8_are_wrong_usage(interlock, arguments, message: str):
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {message}: see `interlock call --help`\n"


# Types


@each_row(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "1", "1"),
        ({"allOf": [{"$ref": "#/$defs/n"}]}, "7", 7),
        ({"const": "a"}, "a", "a"),
        ({"enum": [1, 2]}, "1", 1),
        ({}, "true", True),
        ({}, "free text", "free text"),
        (True, "1", 1),
        ({"$ref": "#/$defs/loop"}, "1", 1),
        ({"$ref": "#/$defs/none"}, "1", 1),
    ],
)
def test_typed_converts_a_text_to_a_type_of_its_schema(schema: object, text: str, value: object):
    whole = {
        "properties": {"key": schema},
        "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }

    assert typed({"key": text}, whole) == {"key": value}


def test_typed_follows_a_reference_at_the_root():
    args = {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}
    schema = {"type": "object", "$ref": "#/$defs/A", "$defs": {"A": args}}

    assert typed({"a": "5", "n": "5"}, schema) == {"a": "5", "n": 5}


def test_typed_keeps_a_key_that_the_schema_does_not_name():
    assert typed({"other": "x"}, {"properties": {}}) == {"other": "x"}
    assert typed({"other": "x"}, {"properties": "rubbish"}) == {"other": "x"}


@pytest.mark.slow("fills a database")
def test_gateway_policy_applies_to_calls_from_the_command_line(interlock, servers):
    path = servers()
    rules = [{"id": "asks", "effect": "ask", "who": ["*"], "tools": ["e:say"]}]
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"gateway": {"policy": {"rules": rules}}})
    )
    denied = interlock("call", "e:echo")
    asked = interlock("call", "e:say", "text=hi")
    approved = interlock("call", "e:say", "text=hi", "--yes")

    assert (denied.code, denied.err) == (1, "error: e:echo is denied (no_rule)\n")
    assert "e:say needs approval by you: a_" in asked.err
    assert (approved.code, approved.out) == (0, "hi\n")


@pytest.mark.slow("fills a database")
def test_calls_of_a_file_with_a_gateway_are_in_its_audit_trail(
    interlock, servers, script, home: Path
):
    path = servers()

    def allow(*rules: object) -> None:
        gateway = {"database": str(home / "gateway.db"), "policy": {"rules": rules}}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"gateway": gateway}))

    allow()
    interlock("call", "e:say", "text=hi")
    allow({"id": "all", "effect": "allow", "who": ["user:local"], "tools": ["*:*"]})
    interlock("call", "e:say", "text=hi")
    interlock("chat", "go", "--model", script({"fail": {"text": "no"}}, "Done."))
    interlock("chat", "go", "--model", script({"say": {"text": 5}}, "Done."))

    with closing(sqlite3.connect(home / "gateway.db")) as database:
        records = database.execute(
            "SELECT kind, user, tool, status FROM audit WHERE tool != '' ORDER BY at, seq"
        ).fetchall()
    assert records == [
        ("refused", "user:local", "e:say", ""),
        ("intent", "user:local", "e:say", ""),
        ("outcome", "user:local", "e:say", "ok"),
        ("intent", "user:local", "e:fail", ""),
        ("outcome", "user:local", "e:fail", "tool_error"),
        ("refused", "user:local", "e:say", ""),  # its arguments are not valid
    ]
