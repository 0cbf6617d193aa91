"""Resources, prompts and completions of servers behind a gateway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.calls import Call, CallHandler, Outcome
from interlock.config import loads
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.layers import Layers
from interlock.policy import Policy
from interlock.revisions import ALL
from interlock.types import ElicitParams, ElicitResult, PromptReference, ResourceTemplateReference
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer

CAPABILITIES = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}}


def library(name: str = "lib", *, revision: str = LEGACY) -> ScriptedServer:
    """A server with a resource, a template, a prompt and completions."""

    def read(params: Json) -> Json:
        if not params["uri"].startswith(("doc://", f"{name}://")):
            raise RemoteError(-32002, f"no {params['uri']} in /srv/private")
        contents = [{"uri": params["uri"], "text": f"{params['uri']} of {name}"}]
        return {"contents": contents, "x-pages": 3}

    def complete(params: Json) -> Json:
        return {"completion": {"values": [params["argument"]["value"] + "!"]}, "x-took": 1}

    prompt = {"messages": [{"role": "user", "content": {"type": "text", "text": name}}]}
    return ScriptedServer(
        revision,
        {
            "tools/list": {"tools": []},
            "resources/list": {
                "resources": [
                    {"uri": "doc://one", "name": "one", "x-shelf": 4},
                    {"uri": f"{name}://own", "name": "own"},
                ]
            },
            "resources/templates/list": {
                "resourceTemplates": [{"uriTemplate": f"{name}://{{id}}/page", "name": "page"}]
            },
            "prompts/list": {"prompts": [{"name": "review", "x-mood": "kind"}]},
            "resources/read": read,
            "prompts/get": prompt | {"x-more": 1},
            "completion/complete": complete,
        },
        capabilities=CAPABILITIES,
    )


def gateway_of(
    servers: dict[str, Any], rules: list[Json] | None = None, **more: Any
) -> ForwardingServer:
    policy = Policy.compile(None)
    if rules is not None:
        file = {"mcpServers": {}, "gateway": {"policy": {"rules": rules}}}
        policy = Policy.from_config(loads(msgspec.json.encode(file)))
    return ForwardingServer(servers, policy, environ={}, **more)


@each_row("revision", ALL)
@each_row("theirs", [LEGACY, MODERN])
async def test_items_pass_through_in_every_revision(revision: str, theirs: str):
    gateway = gateway_of({"lib": library(revision=theirs)})
    async with Client.memory(gateway, revision=revision) as client:
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()
        read = await client.read_resource("doc://one")
        page = await client.read_resource("lib://7/page")
        prompt = await client.get_prompt("lib__review", {"a": "b"})
        raw = await client.request("resources/read", {"uri": "doc://one"})

    assert [each.uri for each in resources] == ["doc://one", "lib://own"]
    assert resources.definitions[0]["x-shelf"] == 4
    assert [each.uri_template for each in templates] == ["lib://{id}/page"]
    assert [each.name for each in prompts] == ["lib__review"]
    assert prompts.definitions[0]["x-mood"] == "kind"
    assert read.text == "doc://one of lib"
    assert page.text == "lib://7/page of lib"
    assert prompt.messages[0].content.text == "lib"  # type: ignore[union-attr]
    if revision > "2025-06-18":
        assert msgspec.json.decode(raw)["x-pages"] == 3


@each_row("ours", [LEGACY, MODERN])
async def test_one_object_in_place_of_a_list_is_passed_on_as_a_list(ours: str):
    server = library()
    server.answers |= {
        "prompts/list": {"prompts": {"name": "review"}},
        "resources/list": {"resources": {"uri": "doc://one", "name": "one"}},
        "resources/read": {"contents": {"uri": "doc://one", "text": "one"}},
        "prompts/get": {"messages": {"role": "user", "content": "hi"}},
    }
    async with Client.memory(gateway_of({"lib": server}), revision=ours) as client:
        assert [each.name for each in await client.list_prompts()] == ["lib__review"]
        assert [each.uri for each in await client.list_resources()] == ["doc://one"]
        read = await client.request("resources/read", {"uri": "doc://one"})
        prompt = await client.request("prompts/get", {"name": "lib__review"})
        server.answers["resources/read"] = {"contents": "one"}
        with pytest.raises(RemoteError, match="malformed resources/read result"):
            await client.read_resource("doc://one")

    assert msgspec.json.decode(read)["contents"] == [{"uri": "doc://one", "text": "one"}]
    hi = {"type": "text", "text": "hi"}
    assert msgspec.json.decode(prompt)["messages"] == [{"role": "user", "content": hi}]


@each_row("theirs", ["2025-03-26", LEGACY, MODERN])
async def test_arguments_are_completed_by_the_server_that_has_them(theirs: str):
    server = library(revision=theirs)
    async with Client.memory(gateway_of({"lib": server})) as client:
        of_prompt = await client.complete(
            PromptReference(name="lib__review"), "a", "v", context={"b": "c"}
        )
        of_template = await client.complete(
            ResourceTemplateReference(uri="lib://{id}/page"), "id", "4"
        )
        with pytest.raises(RemoteError, match="unknown prompt or resource template"):
            await client.complete(PromptReference(name="review"), "a", "v")

    assert (of_prompt.values, of_template.values) == (["v!"], ["4!"])
    first, second = server.sent("completion/complete")
    assert first["ref"] == {"type": "ref/prompt", "name": "review"}
    assert ("context" in first) is (theirs != "2025-03-26")
    assert second["ref"] == {"type": "ref/resource", "uri": "lib://{id}/page"}


async def test_resource_of_two_servers_has_the_prefix_of_its_server_in_lists_and_contents():
    one, two = library("one"), library("two")
    async with Client.memory(gateway_of({"one": one, "two": two})) as client:
        uris = [each.uri for each in await client.list_resources()]
        read = await client.read_resource("interlock://servers/two/doc://one")
        page = await client.read_resource("interlock://servers/one/one://7/page")

    assert uris == [
        "interlock://servers/one/doc://one",
        "interlock://servers/one/one://own",
        "interlock://servers/two/doc://one",
        "interlock://servers/two/two://own",
    ]
    assert read.contents[0].uri == "interlock://servers/two/doc://one"
    assert page.text == "one://7/page of one"
    assert two.sent("resources/read")[0]["uri"] == "doc://one"


OPEN = [
    {"id": "docs", "effect": "allow", "who": ["*"], "resources": ["lib:doc://*"]},
    {"id": "none", "effect": "allow", "who": ["*"], "prompts": ["lib:other"]},
]


@each_row("revision", [LEGACY, MODERN])
async def test_hidden_item_answers_exactly_like_a_missing_item(revision: str):
    server = library()
    async with Client.memory(gateway_of({"lib": server}, OPEN), revision=revision) as client:
        assert [each.uri for each in await client.list_resources()] == ["doc://one"]
        assert await client.list_resource_templates() == []
        assert await client.list_prompts() == []
        answers = []
        for uri, prompt in (("lib://own", "lib__review"), ("lib://ow", "lib__revie")):
            with pytest.raises(RemoteError) as unread:
                await client.read_resource(uri)
            with pytest.raises(RemoteError) as ungot:
                await client.get_prompt(prompt)
            with pytest.raises(RemoteError) as uncompleted:
                await client.complete(PromptReference(name=prompt), "a", "v")
            answers.append(
                [
                    (each.value.code, str(each.value).replace(name, "NAME"))
                    for each, name in ((unread, uri), (ungot, prompt), (uncompleted, prompt))
                ]
            )

    assert answers[0] == answers[1]
    assert server.sent("resources/read") == server.sent("prompts/get") == []


async def test_resource_that_its_server_does_not_have_is_answered_without_the_servers_text():
    server = library("other")
    server.answers["resources/templates/list"] = {
        "resourceTemplates": [{"uriTemplate": "x://{id}", "name": "x"}]
    }
    async with Client.memory(gateway_of({"lib": server}), revision=LEGACY) as client:
        with pytest.raises(RemoteError, match="no resource 'x://1'") as caught:
            await client.read_resource("x://1")

    assert caught.value.code == -32002


async def test_requests_for_items_pass_the_layers_of_the_stack():
    passed: list[tuple[str, str]] = []

    def around(handle: CallHandler) -> CallHandler:
        async def note(call: Call) -> Outcome:
            passed.append((call.kind, call.entry.address))
            return await handle(call)

        return note

    async with Client.memory(
        gateway_of({"lib": library()}, layers=Layers(around=[around]))
    ) as client:
        await client.read_resource("doc://one")
        await client.get_prompt("lib__review")

    assert passed == [("resource", "lib:doc://one"), ("prompt", "lib:review")]


async def test_tools_are_listed_though_the_server_fails_to_list_other_items():
    server = library()
    server.answers["prompts/list"] = lambda _: {"prompts": 5}
    async with Client.memory(gateway_of({"lib": server})) as client:
        assert await client.list_prompts() == []
        assert len(await client.list_resources()) == 2
        assert await client.list_tools() == []


@each_row("theirs", [LEGACY, MODERN])
async def test_question_during_a_prompt_is_answered_by_the_client(theirs: str):
    server = library(revision=theirs)
    form = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}

    async def legacy(_: Json) -> Json:
        answer = await server.ask("elicitation/create", form)
        return {"messages": [], "description": answer["result"]["content"]["name"]}

    def modern(params: Json) -> Json:
        if "inputResponses" in params:
            name = params["inputResponses"]["q"]["content"]["name"]
            return {"messages": [], "description": name}
        question = {"method": "elicitation/create", "params": form}
        return {"resultType": "input_required", "inputRequests": {"q": question}}

    async def anna(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "anna"})

    server.answers["prompts/get"] = legacy if theirs == LEGACY else modern
    gateway = gateway_of({"lib": server})
    async with Client.memory(gateway, revision=theirs, elicitation=anna) as client:
        assert (await client.get_prompt("lib__review")).description == "anna"


@each_row("is_shared", [False, True], ids=["unique", "prefixed"])
async def test_resource_that_a_result_links_to_can_be_read_by_permitted_callers(is_shared: bool):
    server = library("lib")
    link = {"type": "resource_link", "uri": "doc://unlisted", "name": "u", "x-more": 1}
    server.answers["tools/list"] = {"tools": [{"name": "get", "inputSchema": {"type": "object"}}]}
    server.answers["tools/call"] = {"content": [link]}
    servers: dict[str, Any] = {"lib": server}
    if is_shared:
        servers["other"] = library("other")
    gateway = gateway_of(servers)
    async with Client.memory(gateway, revision=MODERN) as client:
        with pytest.raises(RemoteError, match="no resource"):
            await client.read_resource("doc://unlisted")
        raw = await client.request("tools/call", {"name": "lib__get", "arguments": {}})
        (block,) = msgspec.json.decode(raw)["content"]
        read = await client.read_resource(block["uri"])

    prefix = "interlock://servers/lib/" if is_shared else ""
    assert block == link | {"uri": f"{prefix}doc://unlisted"}
    assert read.text == "doc://unlisted of lib"
