"""`interlock call`: arguments as typed, the result as it came."""

import json

import pytest

from interlock.cli.call import typed, unknown_parameters

BROKEN = {"command": "no-such-program"}


def test_the_result_is_printed(interlock, servers):
    servers()

    assert interlock("call", "e:say", "text=hello world") == (0, "hello world\n", "")


def test_values_are_read_as_the_schema_wants_them(interlock, servers):
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


def test_a_value_may_hold_anything(interlock, servers):
    servers()

    assert interlock("call", "e:say", "text=a=b\n--json é").out == "a=b\n--json é\n"


def test_arguments_as_one_object_join_those_given_one_by_one(interlock, servers):
    servers()
    ran = interlock("call", "e:echo", "count=1", "--arguments", '{"text": "x"}')

    assert ran.json == {"count": 1, "text": "x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["say"], "'say' is not a tool's address: write SERVER:TOOL"),
        (["e:say", "text"], "'text' is not KEY=VALUE"),
        (["e:say", "=x"], "'=x' is not KEY=VALUE"),
        (["e:say", "a=1", "a=2"], "a is given twice"),
        (["e:say", "a=1", "--arguments", '{"a": 2}'], "a: both as KEY=VALUE and in --arguments"),
        (["e:say", "--arguments", "[1]"], "--arguments is not a JSON object"),
        (["e:say", "--arguments", "{"], "--arguments is not JSON"),
        (["e:say", "--timeout", "0"], "--timeout"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(interlock, arguments: list[str], message: str):
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["e:echo", "count=x"], "count='x' is not JSON, and the tool takes integer here"),
        (["e:echo", "count=1.5"], "count"),
        (["e:sya"], "no tool 'e:sya'; did you mean e:say"),
        (["f:say"], "no server 'f'"),
        (["off:say"], "server 'off' is not available: disabled in the configuration"),
        (["broken:say"], "server 'broken' is not available: cannot start 'no-such-program'"),
        (["e:exit"], "exited with code 3"),
        (["e:wait", "--timeout", "0.05"], "within 0.05 s; --timeout SECONDS gives it longer"),
    ],
)
def test_what_goes_wrong_is_one_line_and_code_1(
    interlock, servers, arguments: list[str], message: str
):
    servers(broken=BROKEN, off={**BROKEN, "enabled": False})
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_tools_error_is_its_result_and_code_1(interlock, servers):
    servers()

    assert interlock("call", "e:fail", "text=no such city") == (1, "no such city\n", "")


def test_json_has_the_whole_result(interlock, servers):
    servers()
    ran = interlock("call", "e:picture", "text=x", "--json")

    assert ran.json["content"] == [
        {"type": "text", "text": "x"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
    ]


def test_what_is_not_text_is_described(interlock, servers):
    servers()

    assert interlock("call", "e:picture").out == "[image/png, 3 bytes: --json has them]\n"


def test_a_long_result_is_printed_whole(interlock, servers):
    servers()
    text = "x" * 100_000  # as long as an argument can be on Linux, and over what models get
    ran = interlock("call", "e:echo", "--arguments", json.dumps({"text": text}))

    assert ran.json == {"text": text}


def test_only_the_tools_own_server_is_started(interlock, servers, home):
    servers(other={"command": "sh", "args": ["-c", "touch started"]})
    interlock("call", "e:say")

    assert not (home / "started").exists()


def test_a_namespace_stands_for_its_server(interlock, servers):
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


@pytest.mark.parametrize(
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
def test_unknown_parameters_are_those_the_schema_accepts_without_naming(
    schema: dict[str, object], problems: list[str]
):
    whole = {"type": "object", "properties": {"timezone": {}}} | schema

    assert list(unknown_parameters({"tz": "UTC"}, whole)) == problems


def test_a_named_parameter_that_is_given_is_not_suggested():
    schema = {"properties": {"text": {}}}

    assert list(unknown_parameters({"text": 1, "txt": 1}, schema)) == ["has no parameter 'txt'"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["e:say", "text=a\udce9"], "text=… is not UTF-8"),
        (["e:say", "\udce9=a"], "[KEY=VALUE]... number 1 is not UTF-8"),
        (["e:\udce9"], "SERVER:TOOL is not UTF-8"),
        (["e:say", "--arguments", '{"text": "\udce9"}'], "--arguments is not UTF-8"),
    ],
)
def test_arguments_that_are_not_utf8_are_wrong_usage(interlock, arguments, message: str):
    ran = interlock("call", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {message}: see `interlock call --help`\n"


# Types


@pytest.mark.parametrize(
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
def test_a_value_becomes_what_its_schema_takes(schema: object, text: str, value: object):
    whole = {
        "properties": {"key": schema},
        "$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
    }

    assert typed({"key": text}, whole) == {"key": value}


def test_a_key_that_the_schema_does_not_know_is_still_sent():
    assert typed({"other": "x"}, {"properties": {}}) == {"other": "x"}
    assert typed({"other": "x"}, {"properties": "rubbish"}) == {"other": "x"}
