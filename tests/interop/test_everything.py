"""Our client uses the TypeScript reference server: all it offers, over each of its transports.

What there is to use is asked of the server. A tool, prompt or template that nothing here uses
fails a test.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.types import (
    Annotations,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    TextContent,
)
from tests.interop.heard import Heard
from tests.support.served import serving

SERVER = "build/interop/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
PEERS = Path(__file__).with_name("peers")
PATHS = {"streamableHttp": "/mcp", "sse": "/sse"}
LIMIT = 20.0  # seconds for something to come
TEXT = "grüß \u20ac \U0001f600 \u2028 \x85"


class Everything:
    """A client that answers the questions of the server, and the notifications that it got."""

    def __init__(self, connect: Callable[..., Client]) -> None:
        self.heard = Heard()
        self.asked: list[ElicitParams] = []
        self.client = connect(
            roots=["file:///projects/notes"],
            sampling=self._sample,
            elicitation=self._elicit,
            on_log=self.heard.add,
            on_list_changed=self.heard.add,
            on_resource_updated=self.heard.add,
            timeout=LIMIT,
        )

    async def _sample(self, params: CreateMessageParams) -> CreateMessageResult:
        told = msgspec.to_builtins(params)
        text = f"{told['messages'][0]['content']['text']} / {told['maxTokens']}"
        return CreateMessageResult(role="assistant", content=TextContent(text=text), model="echo")

    async def _elicit(self, question: ElicitParams) -> ElicitResult:
        self.asked.append(question)
        if question.mode == "url":
            return ElicitResult(action="accept")
        known = {"name": "Ada", "email": "ada@example.com", "interpretation": "historical"}
        fields = (question.requested_schema or {})["properties"]
        return ElicitResult(
            action="accept", content={name: known[name] for name in known if name in fields}
        )


class Offered(NamedTuple):
    """The server: how clients of it are made, and where it writes what it does."""

    connect: Callable[..., Client]
    log: Path


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest,
    node: str,
    installed: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Offered]:
    """Offer the server. Over HTTP all tests here share one."""
    log = tmp_path_factory.mktemp("everything") / "log"
    command = [node, "--require", str(PEERS / "hurry.cjs"), installed(SERVER), request.param]
    if request.param == "stdio":
        yield Offered(partial(Client.stdio, *command), log)
        return
    command[1:1] = ["--require", str(PEERS / "loopback.cjs")]
    with serving(command, log) as url:
        yield Offered(partial(Client.http, url + PATHS[request.param]), log)


@pytest.fixture
async def it(nothing_is_left: list[Any], server: Offered) -> AsyncIterator[Everything]:
    it = Everything(server.connect)
    async with it.client:
        yield it


over_every_transport = pytest.mark.parametrize("server", ["stdio", *PATHS], indirect=True)

# The tools, each with a way to use it

TOOLS: dict[str, Callable[[Everything], Awaitable[None]]] = {}
Use = Callable[[Everything], Awaitable[None]]


def uses(name: str) -> Callable[[Use], Use]:
    """Note that a function uses a tool."""
    return lambda use: TOOLS.setdefault(name, use)


@over_every_transport
async def test_all_tools_of_the_peer_can_be_called_at_the_same_time(it: Everything) -> None:
    tools = await it.client.list_tools()
    assert not tools.skipped
    assert {tool.name for tool in tools} == set(TOOLS)

    async with asyncio.TaskGroup() as group:
        for use in TOOLS.values():
            group.create_task(use(it))


@uses("echo")
async def echo(it: Everything) -> None:
    result = await it.client.call_tool("echo", {"message": TEXT})
    wrong = await it.client.call_tool("echo", {"message": 1})

    assert result.text == f"Echo: {TEXT}"
    assert wrong.is_error
    assert "message" in wrong.text


@uses("get-sum")
async def get_sum(it: Everything) -> None:
    result = await it.client.call_tool("get-sum", {"a": 1, "b": 2.5})

    assert result.text == "The sum of 1 and 2.5 is 3.5."


@uses("get-structured-content")
async def get_structured_content(it: Everything) -> None:
    result = await it.client.call_tool("get-structured-content", {"location": "Chicago"})

    assert result.structured == json.loads(result.text)
    assert set(result.structured) == {"temperature", "conditions", "humidity"}


@uses("get-env")
async def get_env(it: Everything) -> None:
    environment = json.loads((await it.client.call_tool("get-env")).text)

    assert "PATH" in environment


@uses("get-tiny-image")
async def get_tiny_image(it: Everything) -> None:
    _, picture, _ = (await it.client.call_tool("get-tiny-image")).content

    assert isinstance(picture, ImageContent)
    assert picture.mime_type == "image/png"
    assert base64.b64decode(picture.data).startswith(b"\x89PNG")


@uses("get-annotated-message")
async def get_annotated_message(it: Everything) -> None:
    arguments = {"messageType": "error", "includeImage": True}
    text, picture = (await it.client.call_tool("get-annotated-message", arguments)).content

    assert isinstance(text, TextContent)
    assert isinstance(picture, ImageContent)
    assert text.annotations == Annotations(audience=["user", "assistant"], priority=1.0)
    assert picture.annotations == Annotations(audience=["user"], priority=0.5)


@uses("get-resource-links")
async def get_resource_links(it: Everything) -> None:
    _, *links = (await it.client.call_tool("get-resource-links", {"count": 4})).content

    assert [type(each) for each in links] == [ResourceLink] * 4
    for link in links:
        assert isinstance(link, ResourceLink)
        (contents,) = (await it.client.read_resource(link.uri)).contents
        assert contents.uri == link.uri


@uses("get-resource-reference")
async def get_resource_reference(it: Everything) -> None:
    arguments = {"resourceType": "Blob", "resourceId": 3}
    _, embedded, _ = (await it.client.call_tool("get-resource-reference", arguments)).content

    assert isinstance(embedded, EmbeddedResource)
    assert embedded.resource.uri == "demo://resource/dynamic/blob/3"
    assert base64.b64decode(embedded.resource.blob or "").startswith(b"Resource 3: ")


@uses("gzip-file-as-resource")
async def gzip_file_as_resource(it: Everything) -> None:
    arguments = {"name": "hello.gz", "data": "data:text/plain,hello"}
    (link,) = (await it.client.call_tool("gzip-file-as-resource", arguments)).content
    await it.heard.wait("resources")
    assert isinstance(link, ResourceLink)
    (contents,) = (await it.client.read_resource(link.uri)).contents

    assert link.uri in {each.uri for each in await it.client.list_resources()}
    assert gzip.decompress(base64.b64decode(contents.blob or "")) == b"hello"


@uses("trigger-long-running-operation")
async def trigger_long_running_operation(it: Everything) -> None:
    steps: list[tuple[float, float | None]] = []
    result = await it.client.call_tool(
        "trigger-long-running-operation",
        {"duration": 0.05, "steps": 5},
        progress=lambda told: steps.append((told.progress, told.total)),
    )

    assert result.text == "Long running operation completed. Duration: 0.05 seconds, Steps: 5."
    assert steps == [(step, 5) for step in range(1, 6)]


@uses("toggle-simulated-logging")
async def toggle_simulated_logging(it: Everything) -> None:
    begun = await it.client.call_tool("toggle-simulated-logging")
    message = await it.heard.wait("level")  # of any level, which is in its text
    ended = await it.client.call_tool("toggle-simulated-logging")

    assert begun.text.startswith("Started simulated")
    level, text = message.split(": ", 1)
    assert text.lower().startswith(level)
    assert ended.text.startswith("Stopped simulated")


@uses("toggle-subscriber-updates")
async def toggle_subscriber_updates(it: Everything) -> None:
    left, kept = (f"demo://resource/dynamic/text/{number}" for number in (1, 2))
    await it.client.subscribe(left)
    await it.client.subscribe(kept)
    await it.client.unsubscribe(left)
    begun = await it.client.call_tool("toggle-subscriber-updates")
    await it.heard.wait(kept)
    ended = await it.client.call_tool("toggle-subscriber-updates")

    assert begun.text.startswith("Started simulated")
    assert ended.text.startswith("Stopped simulated")


@uses("get-roots-list")
async def get_roots_list(it: Everything) -> None:
    first = await it.client.call_tool("get-roots-list")
    await it.heard.wait("Roots updated: 1 root(s)")
    roots = ["file:///projects/notes", "file:///projects/drafts"]
    it.client.set_roots(roots)
    await it.heard.wait("Roots updated: 2 root(s)")
    then = await it.client.call_tool("get-roots-list")
    while roots[1] not in then.text:  # over HTTP, the answer to an earlier question may come last
        it.client.set_roots(roots)
        then = await it.client.call_tool("get-roots-list")

    assert roots[0] in first.text


@uses("trigger-sampling-request")
async def trigger_sampling_request(it: Everything) -> None:
    arguments = {"prompt": "be short", "maxTokens": 7}
    result = await it.client.call_tool("trigger-sampling-request", arguments)

    answer = json.loads(result.text.partition("\n")[2])
    assert answer["model"] == "echo"
    assert answer["content"]["text"] == "Resource trigger-sampling-request context: be short / 7"


@uses("trigger-elicitation-request")
async def trigger_elicitation_request(it: Everything) -> None:
    result = await it.client.call_tool("trigger-elicitation-request")

    answer = json.loads(result.text.partition("Raw result: ")[2])
    given = {name: answer["content"][name] for name in ("name", "integer", "legacyTitledEnum")}
    assert given == {"name": "Ada", "integer": 42, "legacyTitledEnum": "pet-1"}


@uses("trigger-url-elicitation")
async def trigger_url_elicitation(it: Everything) -> None:
    arguments = {"url": "https://example.com/begin", "elicitationId": "one", "errorPath": True}
    with pytest.raises(RemoteError) as refused:
        await it.client.call_tool("trigger-url-elicitation", arguments)
    again = await it.client.call_tool("trigger-url-elicitation", arguments)

    (needed,) = refused.value.data["elicitations"]
    assert refused.value.code == -32042
    assert needed["mode"] == "url"
    assert again.text.startswith("✅")
    (question,) = (each for each in it.asked if each.mode == "url")
    assert (question.url, question.elicitation_id) == ("https://example.com/begin", "one")


@uses("simulate-research-query")
async def simulate_research_query(it: Everything) -> None:
    """The tool runs as a task and asks the user before it answers."""
    messages: list[str | None] = []
    result = await it.client.call_tool(
        "simulate-research-query",
        {"topic": "interlocks", "ambiguous": True},
        progress=lambda progress: messages.append(progress.message),
    )

    assert result.text.startswith("# Research Report: interlocks (historical)")
    assert messages


# Everything else


@over_every_transport
async def test_server_sends_its_revision_name_and_instructions(it: Everything) -> None:
    await it.client.ping()

    assert it.client.revision == "2025-11-25"
    assert it.client.server_info.name == "mcp-servers/everything"
    assert (it.client.instructions or "").startswith("# Everything Server")


@over_every_transport
async def test_every_resource_of_the_peer_can_be_read(it: Everything) -> None:
    resources = await it.client.list_resources()
    read = await asyncio.gather(*(it.client.read_resource(each.uri) for each in resources))

    assert len(resources) >= 7
    for resource, result in zip(resources, read, strict=True):
        (contents,) = result.contents
        assert (contents.uri, contents.mime_type) == (resource.uri, resource.mime_type)
        assert contents.text or contents.blob


@over_every_transport
async def test_every_template_can_be_completed_and_read(it: Everything) -> None:
    templates = await it.client.list_resource_templates()
    uris = [each.uri_template for each in templates]
    assert sorted(uris) == [
        f"demo://resource/dynamic/{kind}/{{resourceId}}" for kind in ("blob", "text")
    ]

    for uri in uris:
        reference = ResourceTemplateReference(uri=uri)
        number = await it.client.complete(reference, "resourceId", "12")
        nothing = await it.client.complete(reference, "resourceId", "twelve")
        (contents,) = (await it.client.read_resource(uri.replace("{resourceId}", "12"))).contents
        text = contents.text or base64.b64decode(contents.blob or "").decode()
        assert (number.values, nothing.values) == (["12"], [])
        assert text.startswith("Resource 12: ")


@over_every_transport
async def test_reading_an_unknown_resource_raises_invalid_params(it: Everything) -> None:
    with pytest.raises(RemoteError) as unknown:
        await it.client.read_resource("demo://resource/nothing")

    assert unknown.value.code == -32602


# The prompts: arguments, what they make, and how arguments are completed
PROMPTS: dict[str, tuple[dict[str, str], list[str], dict[str, list[str]]]] = {
    "simple-prompt": ({}, ["This is a simple prompt without arguments."], {}),
    "args-prompt": (
        {"city": "Bern", "state": "BE"},
        ["What's weather in Bern, BE?"],
        {"city": [], "state": []},
    ),
    "completable-prompt": (
        {"department": "Sales", "name": "Eve"},
        ["Please promote Eve to the head of the Sales team."],
        {"department": ["Sales", "Support"], "name": ["Eve"]},
    ),
    "resource-prompt": (
        {"resourceType": "Text", "resourceId": "5"},
        [
            "This prompt includes the Text resource with id: 5."
            " Please analyze the following resource:",
            "demo://resource/dynamic/text/5",
        ],
        {"resourceType": ["Text"], "resourceId": ["5"]},
    ),
}


@over_every_transport
async def test_every_prompt_can_be_got_and_its_arguments_completed(it: Everything) -> None:
    prompts = await it.client.list_prompts()
    assert {prompt.name for prompt in prompts} == set(PROMPTS)

    for prompt in prompts:
        arguments, made, completed = PROMPTS[prompt.name]
        got = await it.client.get_prompt(prompt.name, arguments)
        contents = [message.content for message in got.messages]
        assert [
            each.text if isinstance(each, TextContent) else each.resource.uri
            for each in contents
            if isinstance(each, TextContent | EmbeddedResource)
        ] == made
        reference = PromptReference(name=prompt.name)
        assert {
            each.name: (
                await it.client.complete(
                    reference, each.name, arguments[each.name][:1], context=arguments
                )
            ).values
            for each in prompt.arguments or []
        } == completed


@over_every_transport
async def test_log_messages_below_the_requested_level_are_not_sent(it: Everything) -> None:
    await it.client.set_log_level("error")
    await it.client.subscribe("demo://resource/dynamic/text/1")  # it logs this at "info"
    await it.client.set_log_level("info")
    await it.client.subscribe("demo://resource/dynamic/text/2")

    first = await it.heard.wait("Subscribe")
    assert "demo://resource/dynamic/text/2" in first


@over_every_transport
async def test_a_call_that_is_cancelled_leaves_the_connection_usable(it: Everything) -> None:
    begun = asyncio.Event()
    call = asyncio.create_task(
        it.client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.2, "steps": 20},
            progress=lambda _: begun.set(),
        )
    )
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await it.client.call_tool("echo", {"message": "still here"})).text == "Echo: still here"


@pytest.mark.parametrize("server", ["streamableHttp"], indirect=True)
async def test_its_session_is_ended_when_the_client_is_closed(
    nothing_is_left: list[Any], server: Offered
) -> None:
    before = server.log.read_text().count("session termination")
    async with server.connect(transport="streamable") as client:
        await client.ping()

    assert server.log.read_text().count("session termination") == before + 1


@pytest.mark.parametrize(
    ("server", "transport"),
    [("streamableHttp", "streamable"), ("sse", "sse")],
    indirect=["server"],
)
async def test_transport_of_the_peer_can_be_chosen_explicitly(
    nothing_is_left: list[Any], server: Offered, transport: str
) -> None:
    async with server.connect(transport=transport) as client:
        assert (await client.call_tool("echo", {"message": "hi"})).text == "Echo: hi"
