"""Finding and reading configuration files, and replacing variables in them."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import config
from interlock.config import Config, HttpServer, OAuthClient, Pool, StdioServer, ToolFilter, reading
from interlock.config.inputs import Input
from interlock.errors import ConfigError
from tests.config.conftest import CLAUDE_DESKTOP, write
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("home")

VS_CODE = b"""{
  // Workspace servers
  "inputs": [{"type": "promptString", "id": "key", "password": true}],
  "servers": {
    "docs": {"type": "http", "url": "https://example.org/mcp",
             "headers": {"Authorization": "Bearer ${input:key}"}},
  },
}
"""


def one_server(**entry: Any) -> bytes:
    return json.dumps({"mcpServers": {"time": entry}}).encode()


# Finding


def test_missing_configuration_has_no_servers_and_no_warnings() -> None:
    assert config.find() is None
    assert config.load(None) == Config(None, {}, ())


def test_find_without_a_name_returns_the_users_own_file(home: Path) -> None:
    path = write(home / "config" / "interlock" / "mcp.json", CLAUDE_DESKTOP)

    assert config.find() == config.default_path() == path


def test_find_prefers_the_argument_then_the_variable_then_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "config" / "interlock" / "mcp.json", CLAUDE_DESKTOP)
    named = write(home / "named.json", CLAUDE_DESKTOP)
    monkeypatch.setenv(config.VARIABLE, "~/named.json")

    assert config.find() == named
    assert config.find(named.with_name("work")) == home / "work"

    monkeypatch.setenv(config.VARIABLE, "")
    assert config.find() == config.default_path()


def test_find_refuses_a_named_file_that_does_not_exist(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        config.find("/no/such.json")
    assert str(caught.value) == "the file named by --config does not exist: /no/such.json"

    monkeypatch.setenv(config.VARIABLE, "/no/such.json")
    with pytest.raises(ConfigError) as caught:
        config.find()
    assert str(caught.value) == (
        "the file named by INTERLOCK_MCP_CONFIG does not exist: /no/such.json"
    )


@each_row("path", ["~no-such-user/mcp.json", "a\0b"])
def test_find_refuses_a_path_that_cannot_exist(path: str) -> None:
    with pytest.raises(ConfigError, match="the file named by --config does not exist"):
        config.find(path)


# Reading


def test_a_claude_desktop_file_is_read_without_changes() -> None:
    assert config.loads(CLAUDE_DESKTOP) == Config(
        None,
        {
            "time": StdioServer(
                command="uvx",
                args=("mcp-server-time", "--local-timezone=UTC"),
                env={"API_KEY": "canary-7f3a"},
            )
        },
    )


def test_a_vs_code_file_is_read_with_its_inputs(home: Path) -> None:
    read = config.loads(VS_CODE, Path("mcp.json"))

    assert read.servers == {
        "docs": HttpServer(
            url="https://example.org/mcp", headers={"Authorization": "Bearer ${input:key}"}
        )
    }
    assert read.inputs == {"key": Input("key", is_secret=True)}
    assert read.warnings == ()


def test_programs_have_a_longer_default_connect_timeout_than_urls() -> None:
    program = config.loads(one_server(command="x")).servers["time"]
    url = config.loads(one_server(url="https://x.example")).servers["time"]

    assert (program.connect_timeout, url.connect_timeout) == (30.0, 10.0)
    assert StdioServer(command="x").connect_timeout == 30.0


def test_all_members_of_a_stdio_server_are_read() -> None:
    read = config.loads(
        one_server(
            command="x",
            cwd="sub",
            timeout=5,
            connectTimeout=1.5,
            concurrency=2,
            namespace="clock",
            tools={"allow": ["get_*"], "deny": ["*_all"]},
            sharing="per_user",
            enabled=False,
        )
    )
    assert read.warnings == ()
    assert read.servers["time"] == StdioServer(
        command="x",
        cwd="sub",
        timeout=5.0,
        connect_timeout=1.5,
        concurrency=2,
        namespace="clock",
        tools=ToolFilter(("get_*",), ("*_all",)),
        sharing="per_user",
        enabled=False,
    )


def test_all_members_of_an_http_server_are_read() -> None:
    read = config.loads(
        one_server(
            url="https://h/mcp",
            headers={"X-Key": "${KEY}"},
            auth="oauth",
            maxMessageBytes=1024,
            tools={"idempotent": ["get_*"], "alwaysLoad": ["get_a"]},
        )
    )
    assert read.warnings == ()
    assert read.servers["time"] == HttpServer(
        url="https://h/mcp",
        headers={"X-Key": "${KEY}"},
        auth="oauth",
        max_message_bytes=1024,
        tools=ToolFilter(idempotent=("get_*",), always_load=("get_a",)),
    )


def test_pool_members_are_read_with_their_units_and_defaults() -> None:
    pool = {"max": 8, "spare": 1, "idle": "5m", "life": 60, "calls": 500, "size": 1}
    read = config.loads(one_server(url="https://h", pool=pool))

    assert read.servers["time"].pool == Pool(max=8, spare=1, idle=300.0, life=60.0, calls=500)
    assert read.warnings == (
        "configuration, line 1: mcpServers.time.pool.size is unknown and ignored",
    )
    assert config.loads(one_server(command="x", pool={})).servers["time"].pool == Pool(
        max=16, spare=0, idle=600.0, life=86_400.0, calls=None
    )


@each_row("scopes", [["a", "b"], "a b"])
def test_a_registered_oauth_client_is_read(scopes: Any) -> None:
    client = {"clientId": "me", "clientSecret": "${S}", "callbackPort": 8765, "scopes": scopes}
    read = config.loads(one_server(url="https://h", oauth=client | {"issuer": "https://as"}))

    assert read.warnings == ()
    assert read.servers["time"] == HttpServer(
        url="https://h",
        oauth=OAuthClient(
            client_id="me",
            client_secret="${S}",
            issuer="https://as",
            callback_port=8765,
            scopes=("a", "b"),
        ),
    )


def test_an_oauth_client_with_a_metadata_document_is_read_and_written(home: Path) -> None:
    url = "https://me.example/client.json?v=1"
    oauth = {"clientMetadataUrl": url, "callbackPort": 8765}
    read = config.loads(one_server(url="https://h", oauth=oauth))

    assert read.warnings == ()
    server = read.servers["time"]
    client = OAuthClient(client_metadata_url=url, callback_port=8765)
    assert server == HttpServer(url="https://h", oauth=client)
    config.add_server(home / "mcp.json", "again", server)
    assert config.load(home / "mcp.json").servers == {"again": server}


def test_an_oauth_client_in_cursors_notation_is_read() -> None:
    client = {"CLIENT_ID": "me", "CLIENT_SECRET": "${env:S}", "scopes": ["a"]}
    read = config.loads(one_server(url="https://h", auth=client))

    assert read.warnings == ()
    assert read.servers["time"] == HttpServer(
        url="https://h",
        auth="oauth",
        oauth=OAuthClient(client_id="me", client_secret="${env:S}", scopes=("a",)),
    )


@each_row(
    ("type", "expected"),
    [("http", "http"), ("streamable-http", "http"), ("streamableHttp", "http"), ("sse", "sse")],
)
def test_every_name_of_an_http_transport_is_accepted(type: str, expected: str) -> None:
    server = config.loads(one_server(type=type, url="http://h/mcp")).servers["time"]

    assert isinstance(server, HttpServer)
    assert server.type == expected


def test_disabled_is_the_opposite_of_enabled() -> None:
    assert not config.loads(one_server(command="x", disabled=True)).servers["time"].enabled
    assert config.loads(one_server(command="x", disabled=False)).servers["time"].enabled


@each_row("key", ["mcpServers", "servers"])
@each_row("name", ["command", "url"])
def test_a_server_may_be_named_like_a_member(key: str, name: str) -> None:
    read = config.loads(json.dumps({key: {name: {"command": "x"}}}).encode())

    assert read.servers == {name: StdioServer(command="x")}


@each_row("text", [b"{}", b'{"mcpServers": {}}', b'{"servers": {}}'])
def test_a_file_may_have_no_servers(text: bytes) -> None:
    assert config.loads(text) == Config()


@each_row(
    ("entry", "problem"),
    [
        ({"args": []}, ' needs a "command" to run, a "url" to connect to, or an "openapi"'),
        ({"command": "x", "url": "https://h"}, ' has both "command" and "url"'),
        ({"type": "websocket", "url": "wss://h"}, " has the type 'websocket', not one of stdio"),
        (None, " must be an object, not null"),
        ("npx x", " must be an object, not a string"),
        ({"time": {"command": "x"}}, " has servers in it: move them one level up"),
    ],
)
def test_an_entry_that_cannot_be_used_costs_only_itself(
    entry: dict[str, Any], problem: str
) -> None:
    text = msgspec.json.encode({"mcpServers": {"a": entry, "b": {"command": "x"}}})
    read = config.loads(text, Path("f.json"))

    assert list(read.servers) == ["b"]
    (warning,) = read.warnings
    assert warning.startswith(f"f.json, line 1: mcpServers.a{problem}")
    assert warning == f"f.json, {read.ignored['a']}; this server is ignored"


def test_unknown_members_cause_warnings_unless_another_program_defines_them() -> None:
    text = b"""{
  "globalShortcut": "", "mcpServer": {}, "policy": {},
  "mcpServers": {
    "a": {"command": "x", "tiemout": 5,
          "tools": {"allowed": []}},
    "b": {"url": "https://h", "env": {}}
  }
}"""
    assert config.loads(text, Path("f.json")).warnings == (
        "f.json, line 2: mcpServer is unknown and ignored (did you mean 'mcpServers'?)",
        'f.json, line 2: policy is ignored here: move it into "gateway"',
        "f.json, line 4: mcpServers.a.tiemout is unknown and ignored (did you mean 'timeout'?)",
        "f.json, line 5: mcpServers.a.tools.allowed is unknown and ignored (did you mean 'allow'?)",
        "f.json, line 6: mcpServers.b.env is unknown and ignored",
    )


TIME = 'must be a number of seconds, or text such as "30s" or "1500ms"'
STDIO: dict[str, Any] = {"command": "x"}
HTTP: dict[str, Any] = {"url": "https://h"}


@each_row(
    ("entry", "problem"),
    [
        ([], " must be an object, not a list"),
        ({"command": 5}, '.command must be a string, not a number: put it in quotes ("…")'),
        (
            {"command": None},
            ' needs a "command" to run, a "url" to connect to, or an "openapi" doc',
        ),
        (
            {"comand": "x"},
            ' needs a "command" to run, a "url" to connect to, or an "openapi" document '
            "(did you mean 'command'?)",
        ),
        ({"command": " "}, ".command must not be empty"),
        (
            {"command": "a\0b"},
            ".command has a character that no program accepts",
        ),
        (
            {"command": "\ud800"},
            ".command has a character that no program accepts",
        ),
        (STDIO | {"args": "x"}, ".args must be a list of strings, not a string"),
        (STDIO | {"args": ["a", {}]}, ".args[1] must be a string, not an object"),
        (STDIO | {"args": [None]}, ".args[0] must be a string, not null"),
        (STDIO | {"env": ["A=b"]}, ".env must be an object, not a list"),
        (STDIO | {"env": {"PORT": None}}, ".env.PORT must be a string, not null"),
        (STDIO | {"env": {"ON": ["1"]}}, ".env.ON must be a string, not a list"),
        (
            STDIO | {"env": {"A=B": "x"}},
            ".env['A=B'] is not a valid variable name",
        ),
        (STDIO | {"cwd": ["x"]}, ".cwd must be a string, not a list"),
        (STDIO | {"type": "http"}, ".type must be stdio"),
        (
            HTTP | {"type": "stdio"},
            ".type must be one of http, sse",
        ),
        ({"url": ""}, ".url must not be empty"),
        ({"url": "ftp://h"}, ".url must start with https:// or http://"),
        ({"url": "javascript:alert(1)"}, ".url must start with https:// or http://"),
        (HTTP | {"headers": {"a b": "x"}}, ".headers['a b'] is not a valid HTTP header name"),
        (
            HTTP | {"headers": {"X-A": "a\r\nX-B: b"}},
            ".headers.X-A has a line break or another control character",
        ),
        (HTTP | {"auth": "basic"}, ".auth must be one of auto, oauth, bearer, none"),
        (
            HTTP | {"auth": "bearer", "headers": {"X-Key": "k"}},
            '.auth is "bearer", which needs a header Authorization: add it to "headers"',
        ),
        (
            HTTP | {"auth": "oauth", "headers": {"authorization": "Bearer t"}},
            '.auth is "oauth", beside a header Authorization: keep one of them',
        ),
        (
            HTTP | {"auth": "none", "headers": {"Authorization": "Bearer t"}},
            '.auth is "none", beside a header Authorization: keep one of them',
        ),
        (HTTP | {"oauth": "me"}, ".oauth must be an object, not a string"),
        (HTTP | {"oauth": {"clientId": ""}}, ".oauth.clientId must not be empty"),
        (
            HTTP | {"oauth": {"clientSecret": "s"}},
            '.oauth.clientSecret needs a "clientId" beside it',
        ),
        (
            HTTP | {"oauth": {"clientId": "a", "issuer": "as.example"}},
            ".oauth.issuer must start with https:// or http://",
        ),
        (
            HTTP | {"oauth": {"clientId": "a", "clientMetadataUrl": "https://h/c"}},
            '.oauth.clientMetadataUrl cannot be combined with "clientId": keep one of them',
        ),
        *(
            (
                HTTP | {"oauth": {"clientMetadataUrl": url}},
                ".oauth.clientMetadataUrl must be https://, with a path",
            )
            for url in (
                "http://h/c",
                "https://h",
                "https://h/",
                "https:///c",
                "h/c",
                "https://h/#c",
            )
        ),
        (
            HTTP | {"auth": {"CLIENT_SECRET": "s"}},
            '.auth.CLIENT_SECRET needs a "CLIENT_ID" beside it',
        ),
        (
            HTTP | {"auth": {"CLIENT_ID": "a"}, "headers": {"Authorization": "Bearer t"}},
            '.auth is "oauth", beside a header Authorization: keep one of them',
        ),
        (
            HTTP | {"oauth": {"callbackPort": 65_536}},
            ".oauth.callbackPort must be between 1 and 65,535",
        ),
        (HTTP | {"oauth": {"scopes": 5}}, ".oauth.scopes must be a list of strings, not a number"),
        (HTTP | {"maxMessageBytes": 0}, ".maxMessageBytes must be between 1 and 1,073,741,824"),
        (STDIO | {"timeout": "5"}, f".timeout {TIME}, not a string"),
        (STDIO | {"timeout": "5 d"}, f".timeout {TIME}, not a string"),
        (STDIO | {"timeout": True}, f".timeout {TIME}, not a boolean"),
        (STDIO | {"timeout": 0}, ".timeout must be more than 0 and at most 86,400 seconds"),
        (STDIO | {"timeout": "25h"}, ".timeout must be more than 0 and at most 86,400 seconds"),
        (
            STDIO | {"timeout": 1_000},
            '.timeout needs a unit, as some programs count ms: write "1000s" or "1000ms"',
        ),
        (
            STDIO | {"connectTimeout": 90_000},
            '.connectTimeout needs a unit, as some programs count ms: write "90000ms"',
        ),
        (STDIO | {"concurrency": 1.5}, ".concurrency must be a whole number"),
        (STDIO | {"concurrency": 0}, ".concurrency must be between 1 and 10,000"),
        (
            STDIO | {"namespace": "a:b"},
            ".namespace must be a name without colon, control characters and blanks around it",
        ),
        (STDIO | {"namespace": "interlock"}, ".namespace is reserved: use another one"),
        (STDIO | {"tools": "a"}, ".tools must be an object, not a string"),
        (
            STDIO | {"tools": {"allow": "a"}},
            ".tools.allow must be a list of strings, not a string",
        ),
        (
            STDIO | {"tools": {"idempotent": [True]}},
            '.tools.idempotent[0] must be a string, not a boolean: put it in quotes ("…")',
        ),
        (
            STDIO | {"pool": {"max": 2, "spare": 3}},
            '.pool.spare must be at most 2, the number of connections in "max"',
        ),
        (STDIO | {"pool": {"max": 0}}, ".pool.max must be between 1 and 10,000"),
        (STDIO | {"pool": {"spare": -1}}, ".pool.spare must be between 0 and 10,000"),
        (STDIO | {"pool": {"calls": 0}}, ".pool.calls must be between 1 and 1,000,000,000"),
        (
            STDIO | {"pool": {"life": "366d"}},
            ".pool.life must be more than 0 and at most 31,536,000 seconds",
        ),
        (
            STDIO | {"sharing": "all"},
            ".sharing must be one of shared, per_user, per_session, per_call",
        ),
        (STDIO | {"enabled": 1}, ".enabled must be true or false, not a number"),
        (STDIO | {"disabled": "no"}, ".disabled must be true or false, not a string"),
    ],
)
def test_a_wrong_member_of_a_server_costs_that_server(entry: Any, problem: str) -> None:
    text = b'{"mcpServers": {"good": {"command": "x"},\n"time": ' + json.dumps(entry).encode()

    read = config.loads(text + b"}}", Path("f.json"))

    assert list(read.servers) == ["good"]
    assert read.ignored["time"].startswith(f"line 2: mcpServers.time{problem}")


@each_row(
    ("text", "message"),
    [
        (b'{"mcpServers": {\n}', "f.json, line 2 column 2: Expecting ',' delimiter"),
        (b"[]", "f.json, line 1: the file must be an object, not a list"),
        (b'{\n"mcpServers": "x"}', "f.json, line 2: mcpServers must be an object, not a string"),
        (
            b'{"mcpServers": {"a": {"command": "x"},\n"a": {"command": "y"}}}',
            "f.json, line 2: mcpServers.a occurs twice",
        ),
        (
            b'{"mcpServers": {"a": {}},\n"servers": {"b": {}}}',
            'f.json, line 2: servers cannot be combined with "mcpServers": keep one of them',
        ),
        (
            b'{"mcp": {"command": "x"}}',
            'f.json, line 1: mcp is a server outside of "mcpServers": move it inside',
        ),
        (
            b'{"time": {"command": "x"}}',
            'f.json, line 1: time is a server outside of "mcpServers": move it inside',
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.loads(text, Path("f.json"))

    assert str(caught.value) == message


@each_row(
    ("name", "problem"),
    [
        ("", "[''] must be a name of 1 to 64 characters, not 0"),
        ("n" * 65, "must be a name of 1 to 64 characters, not 65"),
        ("interlock", '.interlock has a reserved name: rename it, or give it a "namespace"'),
        ("a\nb", r"['a\nb'] must be a name without colon, control characters and blanks around it"),
        ("a:b", "['a:b'] must be a name without colon"),
    ],
)
def test_a_wrong_name_costs_its_server(name: str, problem: str) -> None:
    text = json.dumps({"mcpServers": {name: STDIO, "n" * 64: STDIO}}).encode()

    read = config.loads(text)

    assert list(read.servers) == ["n" * 64]
    assert problem in read.ignored[name]


def test_a_toml_file_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"config.toml is not JSON: copy .* servers import"):
        config.load(Path("config.toml"))


def test_a_file_has_at_most_1000_servers() -> None:
    servers = {f"s{i}": STDIO for i in range(1_001)}
    with pytest.raises(ConfigError, match=r"has 1,001 servers, over the limit of 1,000"):
        config.loads(json.dumps({"mcpServers": servers}).encode())

    del servers["s0"]
    assert len(config.loads(json.dumps({"mcpServers": servers}).encode()).servers) == 1_000


@pytest.mark.slow("made-up input, and much of it")
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["mcpServers", "servers", *reading._STDIO_KEYS, *reading._HTTP_KEYS]
                )
                | st.text(),
                inner,
                max_size=5,
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_cause_a_config_or_a_one_line_config_error(text: bytes) -> None:
    try:
        config.loads(text)
    except ConfigError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


def test_two_servers_with_one_name_in_addresses_are_refused() -> None:
    text = b"""{"mcpServers": {
      "a": {"command": "x"},
      "b": {"command": "y", "namespace": "a"}
    }}"""

    with pytest.raises(ConfigError, match=r"mcpServers\.b .*is 'a' in addresses, as 'a' is"):
        config.loads(text)


def test_limit_of_message_size_can_be_set_for_each_server() -> None:
    loaded = config.loads(b'{"mcpServers": {"a": {"command": "x", "maxMessageBytes": 1048576}}}')

    server = loaded.servers["a"]

    assert isinstance(server, StdioServer)
    assert server.max_message_bytes == 1024 * 1024


# Secrets


def test_a_syntax_error_does_not_contain_the_text() -> None:
    broken = CLAUDE_DESKTOP.replace(b'"}', b'"')
    with pytest.raises(ConfigError) as caught:
        config.loads(broken)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "canary-7f3a" not in repr(chain.__dict__) + str(chain)
        chain = chain.__cause__


def test_loading_does_not_replace_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "canary")
    server = config.loads(one_server(command="${KEY}")).servers["time"]

    assert server == StdioServer(command="${KEY}")


@each_row(
    ("members", "expected"),
    [
        ("", 30.0),
        (', "timeout": 3', 3.0),
        (', "timeout": 300', 30.0),
        (', "timeout": "3s"', 3.0),
        (', "timeout": "1500ms"', 1.5),
        (', "timeout": "2m", "connectTimeout": "0.5m"', 30.0),
        (', "timeout": 3, "connectTimeout": 20', 20.0),
    ],
)
def test_connect_timeout_defaults_to_at_most_the_timeout(members: str, expected: float) -> None:
    text = f'{{"mcpServers": {{"a": {{"command": "x"{members}}}}}}}'

    server = config.loads(text.encode()).servers["a"]
    assert server.connect_timeout == expected
