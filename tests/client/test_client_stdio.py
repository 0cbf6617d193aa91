"""The client and a server program: what passes between them, honest or not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from interlock.client import Client, listing
from interlock.errors import (
    CapabilityError,
    ConnectionClosed,
    RemoteError,
    RemoteProtocolError,
    ServerExited,
)
from interlock.revisions import ALL, NEWEST_LEGACY
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    LogMessage,
    TextContent,
)
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
SERVERS = Path(__file__).parent.parent / "servers"
OLD = f"revision={NEWEST_LEGACY}"


async def elicit(question: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


async def sample(question: CreateMessageParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="four"), model="m")


# Starting


async def surroundings(client: Client) -> dict[str, Any]:
    async with client:
        facts: dict[str, Any] = json.loads((await client.call_tool("surroundings")).text)
        return facts


async def test_program_arguments_are_passed_unchanged(evil: Evil, tmp_path: Path):
    """R-29: no shell reads them."""
    touched = tmp_path / "touched"
    arguments = [
        f"; touch {touched}",
        f"$(touch {touched})",
        f"`touch {touched}`",
        f"| touch {touched}",
        f"\n touch {touched}\n",
        "&& exit 1",
        "$HOME ${HOME} ~ * ? [a-z] {a,b}",
        "'single' \"double\" \\ back",
        "",
        "--exit=1",
        "ümlaut \U0001f600",
    ]
    facts = await surroundings(evil(*arguments))

    assert facts["arguments"] == arguments
    assert not touched.exists()


async def test_program_gets_allowed_and_declared_variables_only(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    """R-31."""
    monkeypatch.setenv("CANARY_TOKEN", "canary-3f1d")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_NUMERIC", "de_DE.UTF-8")
    monkeypatch.setenv("SSL_CERT_FILE", "/srv/ca.pem")
    environment = (await surroundings(evil(env={"DECLARED": "yes", "HOME": "/srv"})))["environment"]

    assert "canary" not in json.dumps(environment)
    assert environment.pop("DECLARED") == "yes"
    assert environment.pop("HOME") == "/srv"
    assert environment.pop("TZ") == "Asia/Tokyo"
    assert environment.pop("LC_NUMERIC") == "de_DE.UTF-8"
    assert environment.pop("SSL_CERT_FILE") == "/srv/ca.pem"
    assert set(environment) <= {
        *("LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"),
        *("SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
        "INTERLOCK_CHILD",  # our mark
    }


@pytest.mark.slow("starts a program")
async def test_program_runs_in_the_current_or_the_given_folder(evil: Evil, tmp_path: Path):
    assert (await surroundings(evil()))["folder"] == str(Path.cwd())
    assert (await surroundings(evil(cwd=str(tmp_path))))["folder"] == str(tmp_path)


@pytest.mark.slow("starts a program")
@each_row("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
def test_messages_are_utf_8_in_any_locale(locale: str):
    """R-11."""
    host = [sys.executable, SERVERS / "host.py", "echo"]
    server = [sys.executable, "-I", "-S", SERVERS / "evil.py"]
    odd = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [*host, *server], env={**os.environ, **odd}, stdout=subprocess.PIPE, check=True
    )

    assert json.loads(ran.stdout) == {"same": True}


# Results


async def say(client: Client, *lines: str) -> Any:
    return await client.call_tool("say", {"lines": list(lines)})


def result(text: str) -> str:
    return f'{{"jsonrpc":"2.0","id":$ID,"result":{text}}}'


@each_row(
    "wrong",
    [
        "null",
        "3",
        "[]",
        '"text"',
        '{"content":{}}',
        '{"content":[3]}',
        '{"content":[{"type":5}]}',
        '{"content":[],"isError":"no"}',
        '{"content":[],"resultType":1}',
        '{"content":[],"resultType":"surprise"}',
        '{"content":[],"resultType":"input_required"}',
        '{"resultType":"input_required","inputRequests":[1]}',
        '{"resultType":"input_required","inputRequests":{"a":{"method":1}}}',
        '{"resultType":"input_required","requestState":{}}',
    ],
)
async def test_wrong_result_fails_only_its_own_call(evil: Evil, wrong: str):
    async with evil() as client:
        waiting = asyncio.create_task(client.call_tool("hear", {"lines": []}))
        with pytest.raises(RemoteProtocolError):
            await say(client, result(wrong))
        client._connection.notify("notifications/anything")

        assert "notifications/anything" in (await waiting).text


# Lists


SAYS = """
import json, sys
def say(text): sys.stdout.write(text); sys.stdout.flush()
def answer(id, **members): return json.dumps({"jsonrpc": "2.0", "id": id, **members})
def note(): return json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
INFO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "p", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    id, method = asked.get("id"), asked["method"]
    if method == "server/discover":
        say(answer(None, error={"code": -32601, "message": "unknown"}) + "\\n")
    elif method == "initialize":
        say("Loading... " + answer(id, result=INFO) + "\\n")
    elif method == "tools/list":
        say(note() + answer(id, result=TOOLS) + "\\n")
    elif method == "tools/call" and asked["params"].get("arguments"):
        say(answer(None, error={"code": -32603, "message": "it broke"}) + "\\n")
    elif method == "tools/call":
        say(answer(id, result={"content": [{"type": "text", "text": "bye"}]})[:END])
        sys.exit(3)
"""


@pytest.mark.slow("starts programs")
async def test_messages_that_are_not_alone_on_a_line_are_read():
    """Sources: https://github.com/ooples/token-optimizer-mcp/pull/400 and the tests of the core."""
    for end, outcome in ((None, "bye"), (-9, ServerExited)):
        program = SAYS.replace("END", str(end))
        async with Client.stdio(sys.executable, "-c", program, timeout=8) as client:
            assert [each.name for each in await client.list_tools()] == ["t"]
            with pytest.raises(RemoteError, match="it broke"):
                await client.call_tool("t", {"a": 1})
            if isinstance(outcome, str):  # the last answer has no newline
                assert (await client.call_tool("t")).text == outcome
            else:  # half of an answer
                with pytest.raises(outcome, match="exited with code 3"):
                    await client.call_tool("t")


async def test_malformed_tool_is_skipped_and_named(evil: Evil):
    """R-38."""
    good = [{"name": f"t{each}", "inputSchema": {"type": "object"}} for each in range(9)]
    tools = [*good[:4], {"name": "bad", "inputSchema": 5}, *good[4:]]
    async with evil("tools/list=" + json.dumps({"tools": tools})) as client:
        listed = await client.list_tools()

        assert [tool.name for tool in listed] == [tool["name"] for tool in good]
        assert len(listed.skipped) == 1
        assert "tool 'bad' is malformed" in listed.skipped[0]


async def test_items_that_are_not_objects_or_repeated_are_skipped(evil: Evil):
    one = {"name": "one", "inputSchema": {}, "description": "first"}
    tools = [one, 3, None, [], {}, {"name": 7, "inputSchema": {}}, {**one, "description": "second"}]
    async with evil("tools/list=" + json.dumps({"tools": tools})) as client:
        listed = await client.list_tools()

        assert [(tool.name, tool.description) for tool in listed] == [("one", "first")]
        assert len(listed.skipped) == len(tools) - 1
        assert "'one' is listed twice" in listed.skipped[-1]


@each_row("wrong", ['{"items":[]}', '{"tools":"x"}', '{"tools":[],"nextCursor":[1]}'])
async def test_page_that_is_not_a_list_is_an_error(evil: Evil, wrong: str):
    async with evil("tools/list=" + wrong) as client:
        with pytest.raises(RemoteProtocolError, match="tools/list"):
            await client.list_tools()


async def test_endless_pages_are_truncated(evil: Evil):
    """R-39."""
    async with evil("pages=endless") as client:
        listed = await client.list_tools()

        assert len(listed) == listing.MAX_PAGES == 100
        assert listed.truncated == "tools/list: cut after 100 pages"


async def test_repeated_cursor_ends_the_list(evil: Evil):
    """R-39."""
    async with evil("pages=loop") as client:
        listed = await client.list_tools()

        assert [tool.name for tool in listed] == ["tool0", "tool1"]
        assert listed.truncated == "tools/list: the server returned cursor '1' twice"


async def test_list_is_truncated_at_the_item_limit(evil: Evil, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "MAX_ITEMS", 3)
    async with evil("pages=endless") as client:
        listed = await client.list_tools()

        assert len(listed) == 3
        assert listed.truncated == "tools/list: cut after 3 items"


LEAVES = {f"a{each}": {"anyOf": [{"$ref": f"#/$defs/a{each + 1}"}] * 2} for each in range(25)}


@each_row(
    "bomb",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"$ref": "#/$defs/a0", "$defs": {**LEAVES, "a25": {"type": "string"}}},
    ],
    ids=["regex", "remote", "file", "self", "2^25 ways"],
)
async def test_exponential_output_schema_does_not_slow_a_call(evil: Evil, bomb: dict[str, Any]):
    """R-37: the result is refused or passed unchecked, within the second."""
    tool = {"name": "say", "inputSchema": {"type": "object"}, "outputSchema": bomb}
    text = json.dumps({"content": [], "structuredContent": {"a": "a" * 40 + "!"}})
    async with evil("tools/list=" + json.dumps({"tools": [tool]})) as client:
        assert [tool.name for tool in await client.list_tools()] == ["say"]
        used = process_time()
        with contextlib.suppress(RemoteProtocolError):
            await say(client, result(text))

        assert process_time() - used < 1
        assert (await client.call_tool("echo", {"text": "fine"})).text == "fine"


# What older servers ask


def request(method: str, params: object = None) -> str:
    message = {"jsonrpc": "2.0", "id": "from-server", "method": method, "params": params or {}}
    return json.dumps(message)


async def heard(client: Client, *lines: str) -> Any:
    """Let the server write lines, and give the JSON of the next line that it gets."""
    return json.loads((await client.call_tool("hear", {"lines": list(lines)})).text)


FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
TURN = {"role": "user", "content": {"type": "text", "text": "2+2"}}


async def test_legacy_server_may_ask_questions_of_declared_kinds(evil: Evil, tmp_path: Path):
    options = {"roots": [str(tmp_path)], "sampling": sample, "elicitation": elicit}
    async with evil(OLD, **options) as client:
        ping = await heard(client, request("ping"))
        roots = await heard(client, request("roots/list"))
        model = await heard(
            client, request("sampling/createMessage", {"messages": [TURN], "maxTokens": 5})
        )
        person = await heard(
            client, request("elicitation/create", {"message": "Who?", "requestedSchema": FORM})
        )

    assert ping == {"jsonrpc": "2.0", "id": "from-server", "result": {}}
    assert roots["result"]["roots"][0]["uri"] == tmp_path.as_uri()
    assert model["result"]["content"]["text"] == "four"
    assert person["result"] == {"action": "accept", "content": {"name": "Ada"}}


async def test_undeclared_and_malformed_questions_are_refused(evil: Evil):
    async with evil(OLD, elicitation=elicit) as client:
        codes = [
            (await heard(client, request(method, params)))["error"]["code"]
            for method, params in [
                ("roots/list", None),
                ("sampling/createMessage", {"messages": [TURN], "maxTokens": 5}),
                ("elicitation/create", {"message": 5}),
                ("tools/call", {"name": "x"}),
                ("no/such/method", None),
            ]
        ]

    assert codes == [-32601, -32601, -32602, -32601, -32601]


async def test_batches_are_answered_in_revision_2025_03_26(evil: Evil):
    ask = [json.loads(request("ping")), json.loads(request("roots/list")) | {"id": 7}]
    batch = json.dumps([*ask, {"jsonrpc": "2.0", "method": "notifications/x"}, 5])
    async with evil("revision=2025-03-26", roots=["/srv"]) as client:
        answers = await heard(client, batch)
        answer = result('{"content":[{"type":"text","text":"in"}]}')
        inside = await say(client, f"[{answer}]")

    assert {answer["id"] for answer in answers} == {"from-server", 7}
    assert inside.text == "in"


# What modern servers ask


async def test_rounds_of_questions_return_the_servers_state(evil: Evil):
    question = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM},
    }
    async with evil(elicitation=elicit) as client:
        told = await client.call_tool("rounds", {"count": 3, "question": question})
        plain = await client.call_tool("rounds", {"count": 2})

        assert json.loads(told.text) == {"q": {"action": "accept", "content": {"name": "Ada"}}}
        assert json.loads(plain.text) is None
        with pytest.raises(RemoteProtocolError, match="still asks for input after 10 rounds"):
            await client.call_tool("rounds", {"count": 11})
        with pytest.raises(CapabilityError):
            await client.call_tool("rounds", {"count": 1, "question": {"method": "roots/list"}})


# What servers tell


@each_row("revision", ALL)
async def test_notifications_reach_their_handlers(evil: Evil, revision: str):
    logs: list[LogMessage] = []
    changed: list[str] = []
    updated: list[str] = []
    meta = '"_meta":{"io.modelcontextprotocol/subscriptionId":$LISTEN}'
    lines = [
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":[1]}}',
        f'{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}',
        '{"jsonrpc":"2.0","method":"notifications/resources/updated",'
        f'"params":{{"uri":"x:y",{meta}}}}}',
    ]
    options: dict[str, Any] = {
        "on_log": logs.append,
        "on_list_changed": changed.append,
        "on_resource_updated": updated.append,
    }
    async with evil(f"revision={revision}", **options) as client:
        await client.subscribe("x:y")
        await say(client, *lines, result('{"content":[]}'))
        await client.unsubscribe("x:y")

    assert [(log.level, log.data) for log in logs] == [("info", [1])]
    assert changed == ["tools"]
    assert updated == ["x:y"]


async def test_calls_under_way_fail_when_the_client_closes(evil: Evil):
    async with evil(on_list_changed=lambda _: None) as client:
        await client.subscribe("x:y")
        waiting = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
    with pytest.raises(ConnectionClosed):
        await waiting
