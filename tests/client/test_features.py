"""What a server may ask of a client: answered by a handler, within limits, or refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from interlock.client import Client, features
from interlock.client.features import ASKS_WINDOW, MAX_ASKS, ClientFeatures, answer_all
from interlock.errors import CapabilityError, LocalProtocolError, RemoteProtocolError, SchemaError
from interlock.protocol.core import MAX_RUNNING
from interlock.revisions import ALL, LEGACY, NEWEST
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    InputRequest,
    Result,
    TextContent,
)
from tests.support.clock import SetClock
from tests.support.rows import each_row
from tests.support.scripted_server import Json, ScriptedServer

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "default": 30},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "blue"},
    },
    "required": ["name"],
}


def run(coroutine: Any) -> Any:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits")


def answer(
    asked: ClientFeatures, method: str, params: object = None, revision: str = NEWEST
) -> Any:
    raw = Raw(json.dumps({} if params is None else params).encode())
    return json.loads(run(asked.answer(method, raw, revision)))


def person(action: str, content: Json | None = None, seen: list[ElicitParams] | None = None) -> Any:
    """Make a person who always answers the same."""

    async def elicit(question: ElicitParams) -> ElicitResult:
        if seen is not None:
            seen.append(question)
        return ElicitResult(action=action, content=content)

    return elicit


async def sample(params: CreateMessageParams) -> CreateMessageResult:
    assert isinstance(params.messages[0].content, TextContent)
    text = params.messages[0].content.text.upper()
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="m")


def form(schema: Json | None = None, **fields: Any) -> Json:
    return {"message": "Who?", "requestedSchema": FORM if schema is None else schema, **fields}


# What is declared


@each_row(
    ("revision", "roots", "elicitation"),
    [
        ("2024-11-05", {"listChanged": True}, None),
        ("2025-03-26", {"listChanged": True}, None),
        ("2025-06-18", {"listChanged": True}, {}),
        ("2025-11-25", {"listChanged": True}, {"form": {}, "url": {}}),
        ("2026-07-28", {}, {"form": {}, "url": {}}),
    ],
)
def test_capabilities_are_declared_in_the_form_of_the_revision(
    revision: str, roots: Json, elicitation: Json | None
):
    declared = ClientFeatures([], sample, person("accept")).capabilities(revision)

    assert (declared.roots, declared.sampling, declared.elicitation) == (roots, {}, elicitation)


@each_row("revision", ALL)
def test_client_without_handlers_declares_nothing_and_refuses_questions(revision: str):
    none = ClientFeatures(None, None, None)
    declared = none.capabilities(revision)

    assert (declared.roots, declared.sampling, declared.elicitation) == (None, None, None)
    for method in ("roots/list", SAMPLE, ELICIT, "no/such"):
        with pytest.raises(CapabilityError, match=method):
            answer(none, method, revision=revision)


@each_row("revision", ALL)
def test_tasks_are_declared_to_modern_servers_only_and_other_extensions_to_all(revision: str):
    others = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}
    extensions = {"io.modelcontextprotocol/tasks": {}, **others}
    declared = ClientFeatures(None, None, None, extensions).capabilities(revision).extensions

    assert declared == (extensions if revision == "2026-07-28" else others)


@each_row("revision", ["2024-11-05", "2025-03-26"])
def test_elicitation_is_refused_in_revisions_without_it(revision: str):
    with pytest.raises(CapabilityError, match="unknown method"):
        answer(ClientFeatures(None, None, person("accept")), ELICIT, form(), revision)


# Roots


def test_paths_given_as_roots_become_file_uris(tmp_path: Path):
    roots = answer(ClientFeatures(["file:///a%20b", str(tmp_path)], None, None), "roots/list")

    assert roots == {
        "roots": [{"uri": "file:///a%20b"}, {"uri": tmp_path.as_uri(), "name": tmp_path.name}]
    }


@each_row("root", ["https://example.org/", "ssh://host/x", "FILE://x"])
def test_root_with_another_scheme_is_refused(root: str):
    with pytest.raises(LocalProtocolError, match="neither a path nor a file:// URI"):
        ClientFeatures([root], None, None)


def test_roots_can_be_replaced_only_if_declared():
    asked = ClientFeatures([], None, None)
    asked.set_roots(["file:///new"])
    assert answer(asked, "roots/list") == {"roots": [{"uri": "file:///new"}]}

    with pytest.raises(LocalProtocolError, match="created without roots"):
        ClientFeatures(None, None, None).set_roots([])


# Sampling


def test_sampling_is_answered_by_the_handler():
    params = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}],
        "maxTokens": 10,
        "future": True,
    }

    assert answer(ClientFeatures(None, sample, None), SAMPLE, params) == {
        "role": "assistant",
        "content": {"type": "text", "text": "HELLO"},
        "model": "m",
    }


@each_row("params", [{}, [], {"messages": []}, {"messages": [{"role": "system"}], "maxTokens": 1}])
def test_malformed_question_reaches_no_handler(params: object):
    seen: list[ElicitParams] = []
    asked = ClientFeatures(None, sample, person("accept", seen=seen))

    for method in (SAMPLE, ELICIT):
        with pytest.raises(RemoteProtocolError, match=f"malformed {method}"):
            answer(asked, method, params)
    assert seen == []


# Elicitation


def test_form_defaults_fill_missing_fields():
    asked = ClientFeatures(None, None, person("accept", {"name": "Ada", "age": 36}))

    assert answer(asked, ELICIT, form()) == {
        "action": "accept",
        "content": {"name": "Ada", "age": 36, "colour": "blue"},
    }


def test_default_that_does_not_fit_is_neither_shown_nor_sent():
    seen: list[ElicitParams] = []
    colour = {"type": "string", "enum": ["red"], "default": "green"}
    age = {"type": "integer", "default": "30"}
    schema = {"type": "object", "properties": {"colour": colour, "age": age}, "required": ["age"]}

    asked = ClientFeatures(None, None, person("accept", {"age": 36}, seen))
    assert answer(asked, ELICIT, form(schema))["content"] == {"age": 36}
    assert "default" not in json.dumps(seen[0].requested_schema)

    asked = ClientFeatures(None, None, person("accept", {}))
    with pytest.raises(LocalProtocolError, match="is not valid for the form"):
        answer(asked, ELICIT, form(schema))  # a required field has no default to fall back to


@each_row("action", ["decline", "cancel"])
def test_form_that_is_not_accepted_has_no_content(action: str):
    assert answer(ClientFeatures(None, None, person(action)), ELICIT, form()) == {"action": action}


@each_row("content", [None, {}, {"name": ""}, {"name": 1}, {"name": "x", "age": "y"}])
def test_answer_that_violates_the_form_is_not_sent(content: Json | None):
    with pytest.raises(LocalProtocolError, match=r"is not valid for the form: (name|age|missing)"):
        answer(ClientFeatures(None, None, person("accept", content)), ELICIT, form())


@each_row("schema", [{"$ref": "https://example.org/x"}, {"type": "nonsense"}])
def test_form_with_an_unusable_schema_is_not_shown(schema: Json):
    seen: list[ElicitParams] = []
    with pytest.raises(SchemaError):
        answer(ClientFeatures(None, None, person("accept", {}, seen)), ELICIT, form(schema))
    assert seen == []


def test_url_elicitation_passes_the_url_unchanged():
    seen: list[ElicitParams] = []
    params = {
        "mode": "url",
        "message": "Sign in",
        "url": "https://example.org",
        "elicitationId": "1",
    }

    assert answer(ClientFeatures(None, None, person("accept", None, seen)), ELICIT, params) == {
        "action": "accept"
    }
    assert (seen[0].mode, seen[0].url) == ("url", "https://example.org")


# Limits


def test_too_many_questions_are_refused_until_the_window_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    clock = SetClock()
    monkeypatch.setattr(features, "monotonic", clock)
    asked = ClientFeatures([], None, None)
    for _ in range(MAX_ASKS):
        answer(asked, "roots/list")
        clock.now += 1.0

    with pytest.raises(RemoteProtocolError, match=f"limit {MAX_ASKS} questions in 60 s"):
        answer(asked, "roots/list")
    clock.now = 1_000.0 + ASKS_WINDOW
    answer(asked, "roots/list")
    with pytest.raises(RemoteProtocolError):
        answer(asked, "roots/list")


# All questions of a result


def question(name: str) -> InputRequest:
    params = {"message": name, "requestedSchema": {"type": "object"}}
    return InputRequest(method=ELICIT, params=Raw(json.dumps(params).encode()))


async def test_questions_of_one_result_are_asked_concurrently():
    shown: list[str] = []
    all_shown = asyncio.Event()

    async def elicit(asked: ElicitParams) -> ElicitResult:
        shown.append(asked.message)
        if len(shown) == 3:
            all_shown.set()
        await all_shown.wait()
        return ElicitResult(action="decline")

    result = Result(input_requests={name: question(name) for name in "abc"})
    answers = await answer_all(ClientFeatures(None, None, elicit), result, NEWEST)

    assert list(answers) == ["a", "b", "c"]
    assert {bytes(each) for each in answers.values()} == {b'{"action":"decline"}'}


async def test_unanswerable_question_cancels_the_others():
    withdrawn: list[str] = []

    async def elicit(asked: ElicitParams) -> ElicitResult:
        try:
            return await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            withdrawn.append(asked.message)
            raise

    questions = {"a": question("a"), "r": InputRequest(method="roots/list"), "b": question("b")}
    with pytest.raises(CapabilityError):
        await answer_all(
            ClientFeatures(None, None, elicit), Result(input_requests=questions), NEWEST
        )
    await asyncio.sleep(0)

    assert withdrawn == ["a", "b"]


async def test_too_many_questions_at_once_are_refused_before_any_is_asked():
    shown: list[str] = []

    async def elicit(asked: ElicitParams) -> ElicitResult:
        shown.append(asked.message)
        return ElicitResult(action="decline")

    result = Result(input_requests={str(n): question(str(n)) for n in range(MAX_ASKS + 1)})
    with pytest.raises(RemoteProtocolError, match="too many questions at once"):
        await answer_all(ClientFeatures(None, None, elicit), result, NEWEST)

    assert shown == []


# As requests of an older server


@each_row("revision", LEGACY)
async def test_legacy_server_sends_questions_as_requests(revision: str):
    server = ScriptedServer(revision)
    client = Client(
        server.connect,
        revision=revision,
        roots=["file:///r"],
        elicitation=person("accept", {"name": "Ada"}),
    )
    async with client:
        assert (await server.ask("ping"))["result"] == {}
        assert (await server.ask("roots/list"))["result"] == {"roots": [{"uri": "file:///r"}]}
        elicited = await server.ask(ELICIT, form())
        if revision >= "2025-06-18":
            assert elicited["result"]["content"]["name"] == "Ada"
        else:
            assert elicited["error"]["code"] == -32601


@each_row(
    ("method", "params", "code"),
    [
        (SAMPLE, {}, -32601),
        ("tasks/get", {}, -32601),
        (ELICIT, {"message": 1}, -32602),
        (ELICIT, form({"type": "nonsense"}), -32603),
        (ELICIT, form({"type": "object", "required": ["x"]}), -32603),
    ],
)
async def test_unanswerable_question_becomes_an_error_response(
    method: str, params: Json, code: int
):
    server = ScriptedServer()
    async with Client(server.connect, revision="legacy", elicitation=person("accept", {})):
        response = await server.ask(method, params)

    assert response["error"]["code"] == code


async def test_failing_handler_reveals_nothing_to_the_server(caplog: pytest.LogCaptureFixture):
    async def fail(_: ElicitParams) -> ElicitResult:
        raise KeyError("a secret")

    server = ScriptedServer()
    async with Client(server.connect, revision="legacy", elicitation=fail):
        response = await server.ask(ELICIT, form())

    assert response["error"] == {"code": -32603, "message": "internal error"}
    assert "answering elicitation/create failed" in caplog.text


async def test_question_cancelled_by_the_server_is_cancelled():
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def elicit(_: ElicitParams) -> ElicitResult:
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            withdrawn.set()

    server = ScriptedServer()
    async with Client(server.connect, revision="legacy", elicitation=elicit):
        asking = asyncio.create_task(server.ask(ELICIT, form()))
        await asked.wait()
        server.notify("notifications/cancelled", requestId=1)
        await withdrawn.wait()
        await server.ask("ping")
        assert not asking.done()
        asking.cancel()


async def test_changed_roots_notify_legacy_servers_only():
    for revision, told in (("2025-11-25", 1), (NEWEST, 0)):
        server = ScriptedServer(revision, {"tools/list": {"tools": []}})
        async with Client(server.connect, revision=revision, roots=[]) as client:
            client.set_roots(["file:///new"])
            await client.list_tools()
        assert len(server.sent("notifications/roots/list_changed")) == told


async def test_handler_may_use_its_own_client():
    async def elicit(_: ElicitParams) -> ElicitResult:
        tools = await client.list_tools()
        return ElicitResult(action="accept", content={"name": tools[0].name})

    server = ScriptedServer(answers={"tools/list": {"tools": [{"name": "a", "inputSchema": {}}]}})
    client = Client(server.connect, revision="legacy", elicitation=elicit)
    async with client:
        assert (await server.ask(ELICIT, form()))["result"]["content"]["name"] == "a"


async def test_requests_of_a_modern_server_are_ignored():
    server = ScriptedServer(NEWEST, {"tools/list": {"tools": []}})
    async with Client(server.connect, revision=NEWEST, roots=[]) as client:
        for number in range(MAX_RUNNING + 1):
            server.send({"jsonrpc": "2.0", "id": number, "method": "roots/list"})
            await asyncio.sleep(0)
        await client.list_tools()

    assert all("method" in each for each in server.received)
