"""`interlock tools`: the list of tools, and the reasons for missing ones."""

import json
import sys
from pathlib import Path

import pytest

from interlock.cli import server_status
from interlock.cli.servers import tools as tools_module
from interlock.config import trust
from interlock.types import Tool
from tests.support.rows import each_row

BROKEN = {"command": "no-such-program"}


def listed_addresses(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()]


@pytest.mark.slow("starts a program")
def test_tools_prints_address_state_and_description_of_each_tool(interlock, servers):
    servers()
    ran = interlock("tools")

    assert ran.code == 0
    assert "e:echo     ok  Give the arguments back.\n" in ran.out
    assert listed_addresses(ran.out) == [
        "e:echo",
        "e:say",
        "e:fail",
        "e:picture",
        "e:wait",
        "e:exit",
    ]
    assert ran.err == ""


@pytest.mark.slow("starts a program")
def test_a_broken_server_is_reported_and_the_others_are_listed(interlock, servers):
    servers(broken=BROKEN)
    ran = interlock("tools")

    assert ran.code == 0
    assert "e:say" in ran.out
    assert "broken" not in ran.out
    assert ran.err.startswith("warning: server 'broken' failed: cannot start 'no-such-program'")


@pytest.mark.slow("starts a program")
def test_a_mute_server_does_not_delay_the_list_of_the_others(interlock, servers, monkeypatch):
    monkeypatch.setattr(server_status, "IDLE_TIMEOUT", 1.5)
    servers(mute={"command": "sh", "args": ["-c", "cat > /dev/null"], "connectTimeout": 60})
    ran = interlock("tools")

    assert ran.code == 0
    assert "e:say" in ran.out
    assert ran.err == "still starting: server 'mute'; wait for it with: interlock tools mute\n"


@pytest.mark.slow("starts a program")
def test_a_mute_server_fails_after_its_own_timeout(interlock, servers):
    servers(mute={"command": "sh", "args": ["-c", "cat > /dev/null"], "timeout": 0.3})
    ran = interlock("tools")

    assert ran.code == 0
    assert "e:say" in ran.out
    assert "warning: server 'mute' failed: no answer from the server within 0.3 s" in ran.err


def test_tools_exits_with_1_if_every_server_fails(interlock, servers):
    servers(e=BROKEN, off={**BROKEN, "enabled": False})

    assert interlock("tools").code == 1


@pytest.mark.slow("starts a program")
def test_a_denied_tool_is_listed_as_missing_with_the_reason(interlock, servers):
    path = servers()
    entry = json.loads(path.read_text())["mcpServers"]["e"]
    servers(e={**entry, "tools": {"deny": ["exit"]}})
    ran = interlock("tools")

    assert "e:exit" not in listed_addresses(ran.out)
    assert ran.err == "missing: server 'e': tool 'exit': not allowed by the configuration\n"


def test_tools_without_a_configuration_exits_with_0(interlock):
    assert interlock("tools") == (
        0,
        "",
        "no servers; add one with `interlock servers add NAME COMMAND`\n",
    )


@pytest.mark.slow("starts a program")
def test_json_option_prints_servers_with_reasons_and_tools_with_schemas(interlock, servers):
    servers(broken=BROKEN)
    ran = interlock("tools", "--json")
    echo, broken = ran.json["servers"]
    say = ran.json["tools"][1]

    assert (echo["state"], echo["revision"], echo["tools"]) == ("ok", "2026-07-28", 6)
    assert broken["state"] == "failed"
    assert "no-such-program" in broken["reason"]
    assert (say["address"], say["wire_name"]) == ("e:say", "e__say")
    assert say["inputSchema"]["properties"] == {"text": {"type": "string"}}


@pytest.mark.slow("starts a program")
def test_an_unknown_key_in_the_file_is_a_warning(interlock, servers):
    path = servers()
    path.write_text(path.read_text().replace('"command"', '"colour": 1, "command"'))

    assert "colour" in interlock("tools").err


def test_an_invalid_file_is_an_error_with_the_line(interlock, servers):
    path = servers()
    path.write_text('{\n  "mcpServers": {"a": {"command": 5}}\n}')
    ran = interlock("tools")

    assert (ran.code, ran.out) == (1, "")
    assert f"{path}, line 2" in ran.err
    assert ran.err.count("\n") == 1


# The .mcp.json of the working folder


def write_project_file(home: Path, name: str = "p") -> Path:
    echo = Path(__file__).parents[2] / "servers" / "echo.py"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(echo)]}
    path = home / ".mcp.json"
    path.write_text(json.dumps({"mcpServers": {name: entry}}))
    return path


@pytest.mark.slow("starts a program")
def test_servers_of_a_project_file_are_ignored_until_trusted(interlock, home, servers):
    servers()
    path = write_project_file(home)
    before = interlock("tools")
    trust.grant(path, trust.fingerprint(path))
    after = interlock("tools")

    assert "p:say" not in before.out
    assert "ignored until you trust it: interlock servers trust" in before.err
    assert {"e:say", "p:say"} <= set(listed_addresses(after.out))
    assert after.err == ""


@pytest.mark.slow("starts a program")
def test_a_project_server_does_not_replace_a_server_of_the_user(interlock, home, servers):
    servers()
    path = write_project_file(home, "e")
    trust.grant(path, trust.fingerprint(path))
    ran = interlock("tools")

    assert len(listed_addresses(ran.out)) == 6
    assert "server 'e' of" in ran.err


@pytest.mark.slow("starts a program")
def test_a_project_file_is_ignored_when_config_is_given(interlock, home, servers):
    path = servers()
    write_project_file(home)

    assert interlock("tools", "--config", path).err == ""


@pytest.mark.slow("starts a program")
def test_tools_with_a_server_starts_only_that_server(interlock, servers):
    servers(broken=BROKEN)
    ran = interlock("tools", "e")

    assert listed_addresses(ran.out)[0] == "e:echo"
    assert ran.err == ""


@pytest.mark.slow("starts a program")
def test_tools_with_an_address_describes_the_tool(interlock, servers):
    servers(broken=BROKEN)

    text = "Say a text.\n\narguments:\n  text (string, optional)\n"
    assert interlock("tools", "e:say") == (0, text, "")
    assert interlock("tools", "e:say", "--json").json["address"] == "e:say"


@pytest.mark.slow("starts a program")
def test_an_unknown_server_or_tool_is_an_error_with_a_suggestion(interlock, servers):
    servers()

    assert "the servers are e; add it with `interlock servers add f" in interlock("tools", "f").err
    assert "no tool 'e:wit'; did you mean e:wait" in interlock("tools", "e:wit").err


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        pytest.param(True, "anything", id="true"),
        pytest.param({}, "anything", id="empty"),
        pytest.param({"type": "integer"}, "integer", id="type"),
        pytest.param({"type": ["string", "null"]}, "string | null", id="types"),
        pytest.param({"enum": ["a", 1, None]}, '"a" | 1 | null', id="enum"),
        pytest.param({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null", id="any"),
        pytest.param({"type": "array", "items": {"type": "number"}}, "array of number", id="array"),
        pytest.param({"$ref": "#/$defs/Unit"}, '"s" | "h"', id="ref"),
        pytest.param({"type": "array", "items": True}, "array", id="any array"),
    ],
)
def test_describe_prints_the_type_of_each_argument(schema: object, kind: str):
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"Unit": {"enum": ["s", "h"]}}}
    description = tools_module.describe(Tool("t", whole))

    assert description == f"t\n\narguments:\n  x ({kind}, optional)"


@each_row(
    "schema, shown",
    [
        ({"type": "integer", "minimum": 1, "maximum": 1000}, "integer, 1 to 1,000, optional"),
        ({"type": "integer", "minimum": 1, "default": 5}, "integer, at least 1, default 5"),
        ({"type": "string", "minLength": 3}, "string, at least 3 characters, optional"),
        ({"type": "array", "maxItems": 2}, "array, at most 2 items, optional"),
        ({"type": "string", "format": "date-time"}, "string, date-time, optional"),
        ({"enum": ["a", "é"], "default": "é"}, '"a" | "é", default "é"'),
        ({"type": ["string", "null"], "default": None}, "string | null, optional"),
    ],
)
def test_describe_prints_limits_formats_and_defaults(schema, shown):
    description = tools_module.describe(Tool("t", {"type": "object", "properties": {"x": schema}}))

    assert description.splitlines()[-1] == f"  x ({shown})"


def test_describe_prints_the_targets_of_references_and_the_alternatives():
    node = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "A\nname."},
            "next": {"$ref": "#/$defs/Node"},
        },
        "required": ["name"],
    }
    first, second = (
        {"properties": {"node": {"$ref": "#/$defs/Node"}}, "required": ["node"]},
        {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
    )
    schema = {
        "type": "object",
        "$ref": "#/$defs/Args",
        "$defs": {"Args": {"oneOf": [first, second]}, "Node": node},
    }

    assert tools_module.describe(Tool("t", schema)).splitlines()[2:] == [
        "arguments:",
        "  Use one of these sets: node; id.",
        "  node (object, optional)",
        "    name (string)",
        "        A",
        "        name.",
        "    next (object, optional)",
        "  id (integer, optional)",
    ]


def test_describe_of_a_tool_without_arguments_prints_no_arguments():
    description = tools_module.describe(Tool("t", {"type": "object"}, "Does it."))

    assert description == "Does it.\n\nno arguments"


@pytest.mark.slow("starts a program")
def test_search_prints_what_a_model_would_find_and_why(interlock, servers):
    servers()
    found = interlock("tools", "--search", "reply with a picture")
    as_json = json.loads(interlock("tools", "--search", "echo", "--json").out)
    nothing = interlock("tools", "--search", "zebra")
    unused = interlock("tools", "--key", "k")

    assert found.out.splitlines()[0].startswith("e:picture  picture: name")
    assert as_json["tools"][0]["address"] == "e:echo"
    assert (nothing.code, nothing.out) == (0, "")
    assert "no tool matches" in nothing.err
    assert "--key needs --search" in unused.err
