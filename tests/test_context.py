"""Notifications and questions of a handler, in both eras."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from msgspec import Raw

from interlock import Client, Context, Depends, Server
from interlock.auth.principal import Principal
from interlock.context import LEVELS, Accepted, Refused, Session, elicitation, roots_list, sampling
from interlock.errors import (
    InputRequired,
    InterlockError,
    InvalidArguments,
    MissingCapability,
    RemoteError,
    to_wire,
)
from interlock.protocol import Request
from interlock.protocol.envelope import encode
from interlock.revisions import ALL, LEGACY
from interlock.server import ServedCall, ToolHandler, sealing
from interlock.types import (
    ClientCapabilities,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    LogMessage,
    SamplingMessage,
    TextContent,
    Tool,
)
from tests.support.rows import each_row

MODERN = ALL[-1]
BOTH = pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
EVERYTHING = ClientCapabilities(
    roots={}, sampling={"tools": {}}, elicitation={"form": {}, "url": {}}
)


class Recorder:
    """A back channel that keeps what is sent, and returns prepared answers."""

    def __init__(self, *answers: Any) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = list(answers)

    def notify(self, method: str, params: bytes) -> None:
        self.told.append((method, _decode(params)))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        self.asked.append((method, _decode(params)))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Raw(encode(answer))

    def close_stream(self, retry_ms: int) -> None:
        self.told.append(("close_stream", {"retry_ms": retry_ms}))


def _decode(params: bytes) -> Any:
    return json.loads(params)


@pytest.fixture
async def make() -> Callable[..., Context]:
    def make(revision: str = MODERN, link: Recorder | None = None, **more: Any) -> Context:
        session = None if revision == MODERN else Session(revision=revision)
        return Context(
            revision=revision,
            request_id=1,
            link=link or Recorder(),
            loop=asyncio.get_running_loop(),
            client_capabilities=more.pop("capabilities", EVERYTHING),
            session=session,
            **more,
        )

    return make


# Progress


@each_row("revision", ALL)
async def test_progress_has_a_message_since_2025_03_26(make, revision):
    link = Recorder()
    context = make(revision, link, progress_token="p")

    context.progress(1, 4, "begun")
    context.progress(2.5)

    message = {"message": "begun"} if revision != LEGACY[0] else {}
    assert link.told == [
        ("notifications/progress", {"progressToken": "p", "progress": 1, "total": 4, **message}),
        ("notifications/progress", {"progressToken": "p", "progress": 2.5}),
    ]


async def test_progress_without_a_token_is_not_sent(make):
    link = Recorder()
    make(link=link).progress(1)

    assert link.told == []


async def test_progress_that_does_not_grow_or_is_not_finite_is_not_sent(make):
    link = Recorder()
    context = make(link=link, progress_token=0)

    for value in (0, 1, 1, 0.5, math.nan, math.inf, -1, 2):
        context.progress(value, math.inf)

    assert [params for _, params in link.told] == [
        {"progressToken": 0, "progress": value} for value in (0, 1, 2)
    ]


async def test_notifications_after_the_answer_are_not_sent(make):
    link = Recorder()
    context = make(link=link, progress_token=0, log_level="debug")
    context.finished = True

    context.progress(1)
    context.log("error", "late")
    context.close_stream()
    await asyncio.sleep(0)

    assert link.told == []


async def test_close_stream_is_passed_to_the_back_channel(make):
    link = Recorder()
    make(link=link).close_stream(250)
    await asyncio.sleep(0)

    assert link.told == [("close_stream", {"retry_ms": 250})]


@BOTH
async def test_notifications_from_a_thread_keep_their_order(revision):
    server = Server("s")
    logged: list[LogMessage] = []
    seen = []

    @server.tool
    def work(context: Context) -> str:
        for step in range(50):
            context.progress(step)
            context.log("info", step)
        return "done"

    async with Client.memory(server, revision=revision, on_log=logged.append) as client:
        await client.set_log_level("info")
        result = await client.call_tool("work", progress=lambda each: seen.append(each.progress))

    assert result.text == "done"
    assert seen == list(range(50))
    assert [each.data for each in logged] == list(range(50))


# Log


@each_row("wanted", [None, *LEVELS])
async def test_messages_below_the_wanted_level_are_not_sent(make, wanted):
    link = Recorder()
    context = make(link=link, log_level=wanted)

    for level in LEVELS:
        context.log(level, {"at": level}, logger="here")

    levels = [] if wanted is None else list(LEVELS[LEVELS.index(wanted) :])
    assert link.told == [
        ("notifications/message", {"level": each, "data": {"at": each}, "logger": "here"})
        for each in levels
    ]


async def test_an_unknown_log_level_is_refused(make):
    with pytest.raises(InvalidArguments, match="log level 'loud' is not one of debug,"):
        make().log("loud", "x")


async def test_the_log_level_comes_from_the_session_or_the_request():
    server = Server("s")

    @server.tool
    async def speak(context: Context) -> str:
        for level in LEVELS:
            context.log(level, level)
        return ""

    heard: dict[str, list[str]] = {}
    for revision in ("2025-11-25", MODERN):
        logged: list[LogMessage] = []
        async with Client.memory(server, revision=revision, on_log=logged.append) as client:
            await client.call_tool("speak")
            if revision != MODERN:  # before `logging/setLevel` it gets the default level
                logged.clear()
            await client.set_log_level("critical")
            await client.call_tool("speak")
        heard[revision] = [each.level for each in logged]

    assert heard == {each: ["critical", "alert", "emergency"] for each in heard}


# Capabilities of the client


@each_row(
    ("declared", "can", "cannot"),
    [
        ({}, [], ["roots", "sampling", "elicitation", "elicitation.form", "nonsense"]),
        ({"elicitation": {}}, ["elicitation", "elicitation.form"], ["elicitation.url"]),
        ({"elicitation": {"url": {}}}, ["elicitation.url"], ["elicitation.form"]),
        ({"elicitation": {"form": {}, "url": {}}}, ["elicitation.form", "elicitation.url"], []),
        ({"sampling": {}}, ["sampling"], ["sampling.tools"]),
        ({"sampling": {"tools": {}}}, ["sampling.tools"], []),
    ],
)
async def test_can_returns_whether_a_capability_was_declared(make, declared, can, cannot):
    context = make(capabilities=ClientCapabilities(**declared))

    assert all(map(context.can, can))
    assert not any(map(context.can, cannot))


MISSING = [
    (lambda c: c.elicit("Name?", FORM), {}, {"elicitation": {}}),
    (
        lambda c: c.elicit("Name?", FORM),
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": {}}},
    ),
    (lambda c: c.elicit_url("Go", "https://x"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    (lambda c: c.sample("Hi", 5), {"roots": {}}, {"sampling": {}}),
    (
        lambda c: c.sample("Hi", 5, tools=[Tool(name="t", input_schema={})]),
        {"sampling": {}},
        {"sampling": {"tools": {}}},
    ),
    (lambda c: c.roots(), {}, {"roots": {}}),
]


@BOTH
@each_row(
    ("ask", "declared", "required"),
    MISSING,
)
async def test_a_question_without_the_declared_capability_is_refused(
    make, revision, ask, declared, required
):
    link = Recorder()
    context = make(revision, link, capabilities=ClientCapabilities(**declared))

    with pytest.raises(MissingCapability) as raised:
        await ask(context)

    assert to_wire(raised.value)[::2] == (-32021, {"requiredCapabilities": required})
    assert link.asked == []


async def test_a_question_that_the_revision_lacks_is_refused(make):
    context = make("2025-03-26")

    with pytest.raises(MissingCapability, match="'elicitation'"):
        await context.elicit("Name?", FORM)


@BOTH
async def test_the_error_names_the_missing_capability(revision):
    server = Server("s")

    @server.tool
    async def ask(context: Context) -> str:
        return (await context.elicit("Name?", FORM)).action

    async with Client.memory(server, revision=revision) as client:
        with pytest.raises(RemoteError, match="'elicitation'") as raised:
            await client.call_tool("ask")

    assert raised.value.code == -32021
    assert raised.value.data == {"requiredCapabilities": {"elicitation": {}}}


# Questions


def asking_server() -> Server:
    server = Server("s")

    @server.tool
    async def form(context: Context) -> dict[str, Any]:
        answer = await context.elicit("Name?", FORM)
        return {"action": answer.action, "content": answer.content}

    @server.tool
    async def page(context: Context) -> str:
        return (await context.elicit_url("Sign in", "https://example.com/")).action

    @server.tool
    async def model(context: Context) -> str:
        reply = await context.sample("Say hi", 10, system_prompt="Be kind.")
        assert isinstance(reply.content, TextContent)
        return reply.content.text

    @server.tool
    async def folders(context: Context) -> list[str]:
        return [each.uri for each in await context.roots()]

    @server.tool
    async def everything(context: Context) -> dict[str, str]:
        """Ask several questions at once, then another one."""
        answers = await context.ask(
            {"who": elicitation("Who?", FORM), "said": sampling("Hi", 5), "where": roots_list()}
        )
        more = await context.elicit("Sure?", FORM)
        return {
            "who": answers["who"].content["name"],
            "said": answers["said"].content.text,
            "where": answers["where"].roots[0].uri,
            "sure": more.action,
        }

    @server.tool
    async def in_a_row(context: Context) -> list[str]:
        return [(await context.elicit(f"{n}?", FORM)).content["name"] for n in range(3)]

    @server.resource("ask://{name}")
    async def resource(name: str, context: Context) -> str:
        return f"{name}: {(await context.elicit('Name?', FORM)).action}"

    @server.prompt
    async def prompt(topic: str, context: Context) -> str:
        return f"{topic}: {(await context.elicit('Name?', FORM)).action}"

    return server


async def elicit(params: Any) -> ElicitResult:
    if params.mode == "url":
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content={"name": f"re {params.message}"})


async def sample(params: Any) -> CreateMessageResult:
    text = f"{params.system_prompt or ''}{params.messages[0].content.text}!"
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="m")


def asked_client(server: Server, revision: str) -> Client:
    return Client.memory(
        server, revision=revision, roots=["/srv"], sampling=sample, elicitation=elicit
    )


@BOTH
async def test_a_handler_asks_alike_in_both_eras(revision):
    async with asked_client(asking_server(), revision) as client:
        assert (await client.call_tool("form")).structured == {
            "action": "accept",
            "content": {"name": "re Name?"},
        }
        assert (await client.call_tool("page")).text == "decline"
        assert (await client.call_tool("model")).text == "Be kind.Say hi!"
        assert (await client.call_tool("folders")).text == '["file:///srv"]'
        assert (await client.call_tool("everything")).structured == {
            "who": "re Who?",
            "said": "Hi!",
            "where": "file:///srv",
            "sure": "accept",
        }
        assert "re 0?" in (await client.call_tool("in_a_row")).text
        assert (await client.read_resource("ask://a")).text == "a: accept"
        message = (await client.get_prompt("prompt", {"topic": "b"})).messages[0]
        assert message.content == TextContent(text="b: accept")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Size:
    width: int
    color: Color = Color.RED


FORMS: dict[str, Any] = {"size": Size, "int": int, "color": Color, "colors": list[Color]}


@BOTH
@each_row(
    ("form", "content", "data"),
    [
        ("size", {"width": 3}, Size(3)),
        ("int", {"value": 3}, 3),
        ("color", {"value": "blue"}, Color.BLUE),
        ("colors", {"value": ["blue"]}, [Color.BLUE]),
    ],
)
async def test_a_typed_question_is_answered_by_a_value_of_the_type(revision, form, content, data):
    server = Server("s")
    answers: list[Accepted[Any] | Refused] = []
    actions = ["accept", "decline", "cancel"]

    @server.tool
    async def ask(context: Context) -> str:
        answers.append(await context.elicit("?", FORMS[form]))
        return answers[-1].action

    async def answer(question: ElicitParams) -> ElicitResult:
        action = actions[len(answers)]
        return ElicitResult(action=action, content=content if action == "accept" else None)

    async with Client.memory(server, elicitation=answer, revision=revision) as client:
        assert [(await client.call_tool("ask", {})).text for _ in actions] == actions

    assert answers == [Accepted(data), Refused("decline"), Refused("cancel")]


# The request


async def test_state_is_shared_within_a_request_and_empty_in_the_next():
    def layer(handle: ToolHandler) -> ToolHandler:
        async def handle_noted(call: ServedCall) -> Any:
            assert call.context.state == {}
            call.context.state["layer"] = call.name
            return await handle(call)

        return handle_noted

    server = Server("s", around=[layer])
    seen: list[dict[str, Any]] = []

    async def noted(context: Context) -> None:
        context.state["from"] = "dependency"

    @server.tool(task=True)
    async def use(context: Context, _noted: None = Depends(noted)) -> str:
        seen.append(dict(context.state))
        return "used"

    @server.tool
    async def asking(context: Context) -> str:
        seen.append(dict(context.state))
        context.state["round"] = 1
        return (await context.elicit("Name?", FORM)).action

    async with Client.memory(server, elicitation=elicit) as client:
        await client.call_tool("use", {})
        await client.call_tool("use", {})
        await client.call_tool("asking", {})

    asking_first = {"layer": "asking"}
    assert seen == [{"layer": "use", "from": "dependency"}] * 2 + [asking_first] * 2


@BOTH
async def test_the_lifespan_is_in_the_context_of_every_function(revision):
    @asynccontextmanager
    async def opened(_server: Server) -> AsyncIterator[dict[str, str]]:
        yield {"name": "db"}

    server = Server("s", lifespan=opened)

    @server.tool
    def plain(context: Context[dict[str, str]]) -> str:
        return context.lifespan["name"]

    @server.tool(task=True)
    async def task(context: Context) -> str:
        assert dict(context.headers) == {}  # not over HTTP
        return context.lifespan["name"]

    server.resource("x://db")(plain)
    server.prompt(plain)
    async with Client.memory(server, revision=revision) as client:
        assert (await client.call_tool("plain", {})).text == "db"
        assert (await client.call_tool("task", {})).text == "db"
        assert (await client.read_resource("x://db")).text == "db"
        assert (await client.get_prompt("plain")).messages[0].content == TextContent(text="db")


@each_row(
    ("name", "ours"),
    [
        ("info", "log"),
        ("report_progress", "progress"),
        ("read_resource", "the resource's function itself"),
        ("send_notification", "server.list_changed"),
        ("get_state", "state"),
        ("set_state", "state"),
        ("request_context", "lifespan"),
        ("lifespan_context", "lifespan"),
        ("list_roots", "roots"),
        ("get_http_request", "headers"),
    ],
)
async def test_a_name_of_another_library_raises_an_error_with_the_name_here(make, name, ours):
    context = make()

    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use .*\b{ours}\b"):
        getattr(context, name)
    with pytest.raises(AttributeError, match=r"no attribute 'unknown'$"):
        _ = context.unknown
    assert not hasattr(context, name)


async def test_a_refusal_of_a_legacy_client_raises_client_refused(make):
    link = Recorder(RemoteError(-1, "the person said no"))
    context = make("2025-11-25", link)

    with pytest.raises(RemoteError, match="the person said no"):
        await context.sample([SamplingMessage(role="user", content=TextContent(text="Hi"))], 5)

    assert link.asked[0][1]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Hi"}}
    ]


async def test_a_malformed_answer_of_a_legacy_client_is_refused(make):
    context = make("2025-11-25", Recorder({"action": "perhaps"}))

    with pytest.raises(InvalidArguments, match="malformed answer to elicitation/create") as raised:
        await context.elicit("Name?", FORM)

    assert to_wire(raised.value)[0] == -32602


async def test_questions_have_keys_by_their_order_unless_given(make):
    context = make()

    with pytest.raises(InputRequired) as first:
        await context.elicit("A", FORM)
    with pytest.raises(InputRequired) as second:
        await context.roots()
    with pytest.raises(InputRequired) as third:
        await context.sample("C", 1, key="mine")

    keys = [list(each.value.questions) for each in (first, second, third)]
    assert keys == [["question-1"], ["question-2"], ["mine"]]


async def test_only_unanswered_questions_are_asked(make):
    answered = Raw(b'{"action":"cancel"}')
    context = make(answers={"a": answered})

    with pytest.raises(InputRequired) as raised:
        await context.ask({"a": elicitation("A", FORM), "b": roots_list()})

    assert list(raised.value.questions) == ["b"]
    assert (await context.ask({"a": elicitation("A", FORM)}))["a"].action == "cancel"


# Rounds


class Caller:
    """A client that sends modern requests as any principal."""

    def __init__(self, server: Server, make: Callable[..., Context]) -> None:
        self._server = server
        self._make = make

    async def __call__(
        self, method: str, params: dict[str, Any], who: str | None = None
    ) -> dict[str, Any]:
        principal = None if who is None else Principal(who)
        request = Request(1, method, Raw(encode(params)))
        answer = await self._server.answer(request, self._make(principal=principal))
        result: dict[str, Any] = _decode(answer)
        return result

    async def refused(self, *arguments: Any, **more: Any) -> str:
        with pytest.raises(InterlockError) as raised:
            await self(*arguments, **more)
        code, message, _ = to_wire(raised.value)
        assert code == -32602
        return message


@pytest.fixture
def caller(make) -> Caller:
    return Caller(asking_server(), make)


CALL = {"name": "in_a_row", "arguments": {}}
ANSWER = {"action": "accept", "content": {"name": "x"}}


def answered(result: dict[str, Any], answer: Any = ANSWER, **params: Any) -> dict[str, Any]:
    """Return the params of the next round."""
    return {
        **CALL,
        **params,
        "inputResponses": dict.fromkeys(result["inputRequests"], answer),
        "requestState": result["requestState"],
    }


async def test_a_round_ends_with_questions_and_the_next_begins_with_the_answers(caller):
    first = await caller("tools/call", CALL)
    second = await caller("tools/call", answered(first))
    third = await caller("tools/call", answered(second))
    last = await caller("tools/call", answered(third))

    assert first["resultType"] == "input_required"
    assert first["inputRequests"] == {
        "question-1": {
            "method": "elicitation/create",
            "params": {"message": "0?", "requestedSchema": FORM},
        }
    }
    assert list(second["inputRequests"]) == ["question-2"]
    assert list(third["inputRequests"]) == ["question-3"]
    assert last["resultType"] == "complete"
    assert last["structuredContent"] == ["x", "x", "x"]


async def test_unanswered_question_is_asked_again(caller):
    first = await caller("tools/call", CALL)
    params = {**CALL, "inputResponses": {"other": ANSWER}, "requestState": first["requestState"]}

    again = await caller("tools/call", params)

    assert list(again["inputRequests"]) == ["question-1"]


@each_row("answer", [{}, {"action": "perhaps"}, {"action": 1}, {"content": {}}])
async def test_a_malformed_answer_of_a_modern_client_is_refused(caller, answer):
    first = await caller("tools/call", CALL)

    message = await caller.refused("tools/call", answered(first, answer))

    assert message.startswith("inputResponses.question-1 is not an answer: ")


@each_row("responses", [None, ["x"], "x", {"question-1": "x"}])
async def test_input_responses_must_be_an_object_of_objects(caller, responses):
    params = {**CALL, "inputResponses": responses}

    assert "inputResponses" in await caller.refused("tools/call", params)


def changed(text: str) -> list[str]:
    middle = len(text) // 2
    flipped = "B" if text[middle] == "A" else "A"
    return ["", "x", "é", text[:-4], text + "AAAA", text[:middle] + flipped + text[middle + 1 :]]


@each_row("number", range(6))
async def test_a_changed_request_state_is_refused(caller, number):
    first = await caller("tools/call", CALL)
    state = changed(first["requestState"])[number]

    message = await caller.refused("tools/call", {**answered(first), "requestState": state})

    assert message.startswith("requestState ")


async def test_a_request_state_is_valid_for_its_own_request_only(caller):
    first = await caller("tools/call", CALL)
    says = "requestState was changed, or belongs to another request"

    other_tool = answered(first, name="form")
    other_method = {**answered(first), "name": "prompt", "arguments": {"topic": "a"}}
    assert await caller.refused("tools/call", other_tool) == says
    assert await caller.refused("prompts/get", other_method) == says
    assert await caller.refused("resources/read", {**answered(first), "uri": "ask://a"}) == says


async def test_a_request_state_is_valid_for_its_own_method_only(make):
    server = Server("s")

    @server.prompt(name="x")
    async def prompt(a: str, context: Context) -> str:
        return (await context.elicit("?", FORM)).action

    @server.tool(name="x")
    async def tool(context: Context) -> str:
        return (await context.elicit("?", FORM)).action

    caller = Caller(server, make)
    first = await caller("prompts/get", {"name": "x", "arguments": {"a": "b"}})
    same = answered(first, name="x", arguments=[["a", "b"]])  # is what a prompt's are hashed as

    assert "belongs to another request" in await caller.refused("tools/call", same)


async def test_a_request_state_is_valid_for_equal_arguments_however_written(make):
    server = Server("s")

    @server.tool
    async def ask(a: int, b: dict[str, int], context: Context) -> str:
        return (await context.elicit("?", FORM)).action

    caller = Caller(server, make)
    call = {"name": "ask", "arguments": {"a": 1, "b": {"x": 1, "y": 2}}}
    first = await caller("tools/call", call)

    same = {"b": {"y": 2, "x": 1}, "a": 1}
    done = await caller("tools/call", answered(first, name="ask", arguments=same))
    message = await caller.refused(
        "tools/call", answered(first, name="ask", arguments={**same, "a": 2})
    )

    assert done["resultType"] == "complete"
    assert "belongs to another request" in message


async def test_a_request_state_is_valid_for_its_own_principal_only(caller):
    first = await caller("tools/call", CALL, who="ada")

    for other in ("bob", None):
        message = await caller.refused("tools/call", answered(first), who=other)
        assert "belongs to another request" in message
    assert (await caller("tools/call", answered(first), who="ada"))["inputRequests"]


async def test_a_request_state_expires(caller, monkeypatch):
    first = await caller("tools/call", CALL)
    now = sealing.time.time()
    monkeypatch.setattr(sealing.time, "time", lambda: now + 3601)

    message = await caller.refused("tools/call", answered(first))

    assert message == "requestState has expired; start the request again"


async def test_a_request_state_is_valid_in_another_process_with_the_same_key(make):
    async def first_round_here_second_there(one: Server, other: Server) -> dict[str, Any]:
        for server in (one, other):

            @server.tool
            async def in_a_row(context: Context) -> str:
                return (await context.elicit("?", FORM)).action

        first = await Caller(one, make)("tools/call", CALL)
        return await Caller(other, make)("tools/call", answered(first))

    key = b"k" * 32
    shared = await first_round_here_second_there(
        Server("s", sealing_key=key), Server("s", sealing_key=key)
    )
    assert shared["resultType"] == "complete"
    with pytest.raises(InvalidArguments, match="belongs to another"):
        await first_round_here_second_there(Server("s"), Server("s"))


async def test_the_number_of_rounds_is_limited(make):
    server = Server("s")

    @server.tool
    async def in_a_row(context: Context) -> str:
        for number in range(100):
            await context.elicit(f"{number}?", FORM)
        return ""

    caller = Caller(server, make)
    result = await caller("tools/call", CALL)
    for _ in range(9):
        result = await caller("tools/call", answered(result))

    message = await caller.refused("tools/call", answered(result))

    assert message == "too many rounds of questions (limit 10); start the request again"


async def test_a_legacy_request_ignores_request_state(make):
    server = asking_server()
    context = make("2025-11-25", Recorder(ANSWER))
    params = {"name": "form", "inputResponses": {"question-1": ANSWER}, "requestState": "x"}

    answer = await server.answer(Request(1, "tools/call", Raw(encode(params))), context)

    assert _decode(answer)["structuredContent"]["action"] == "accept"
    assert len(context.link.asked) == 1


# Principal and metadata


@BOTH
async def test_a_handler_gets_the_principal_and_the_metadata(revision):
    server = Server("s")
    seen: list[Context] = []

    @server.tool
    async def look(context: Context) -> str:
        seen.append(context)
        return ""

    async with Client.memory(server, revision=revision) as client:
        await client.call_tool("look", meta={"traceparent": "00-aa-bb-01"})

    (context,) = seen
    assert context.revision == revision
    assert context.is_modern == (revision == MODERN)
    assert context.client_info is not None
    assert context.client_info.name == "interlock"
    assert context.meta["traceparent"] == "00-aa-bb-01"
    assert context.principal is None
    assert context.finished


@BOTH
async def test_an_accepted_form_that_violates_its_schema_is_refused(make, revision):
    wrong = {"action": "accept", "content": {"name": 7}}
    link = Recorder(wrong)
    context = make(revision, link)
    context.answers = {"who": Raw(encode(wrong))}

    with pytest.raises(InterlockError, match=r"name: .*7"):
        await context.elicit("Name?", FORM, key="who")


@BOTH
async def test_a_declined_form_is_not_checked(make, revision):
    declined = {"action": "decline"}
    context = make(revision, Recorder(declined))
    context.answers = {"who": Raw(encode(declined))}

    assert (await context.elicit("Name?", FORM, key="who")).action == "decline"
