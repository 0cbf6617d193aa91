"""Options of a tool: hints for clients, needed scopes, and callers that may not see the tool."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from interlock import Client, Context, Server
from interlock.auth import Principal
from interlock.errors import LocalProtocolError, RemoteError, SignatureError
from interlock.types import ToolAnnotations
from tests.gateway.support import as_principal
from tests.support.rows import each_row


def work() -> str:
    return "done"


@each_row(
    "options, wanted",
    [
        ({"read_only": True}, {"readOnlyHint": True}),
        (
            {"destructive": False, "idempotent": True},
            {"destructiveHint": False, "idempotentHint": True},
        ),
        ({"open_world": False}, {"openWorldHint": False}),
        (
            {"read_only": True, "annotations": ToolAnnotations(title="Work")},
            {"title": "Work", "readOnlyHint": True},
        ),
    ],
)
async def test_hints_given_as_booleans_become_annotations(options, wanted):
    server = Server("hints")
    server.tool(work, **options)

    async with Client.memory(server) as client:
        (tool,) = (await client.list_tools()).definitions

    assert tool["annotations"] == wanted


async def later(_: Context) -> bool:
    return True


@each_row(
    "options, problem",
    [
        ({"read_only": "yes"}, "read_only='yes' must be True or False"),
        ({"read_only": True, "destructive": True}, "cannot be read_only and destructive"),
        (
            {"read_only": False, "annotations": ToolAnnotations(read_only_hint=True)},
            "read_only=False contradicts the annotations",
        ),
        ({"scopes": "notes:write"}, r"write scopes=\['notes:write'\]"),
        ({"scopes": ["notes write"]}, "'notes write' is not a valid scope"),
        ({"visible": True}, "visible=True is not a function"),
        ({"visible": later}, "visible is async"),
        ({"visible": lambda: True}, "visible must take one argument, the context"),
    ],
)
def test_an_option_that_has_no_meaning_is_refused_at_the_definition(options, problem):
    with pytest.raises(SignatureError, match=rf"test_tool_options\.py:\d+: .*{problem}"):
        Server("wrong").tool(work, **options)


async def test_a_tool_can_be_added_without_a_decorator():
    server = Server("plain")
    server.add_tool(work)
    assert server.tool(work, name="toil") is work

    async with Client.memory(server) as client:
        assert [each.name for each in await client.list_tools()] == ["work", "toil"]
        assert (await client.call_tool("toil")).text == "done"


# Visibility


def of_ada(context: Context) -> bool:
    return context.principal is not None and context.principal.id == "ada"


async def test_a_tool_is_hidden_from_and_unknown_to_callers_that_may_not_see_it():
    server = Server("private")
    server.tool(work)
    server.tool(work, name="own", visible=of_ada)
    seen, unknown = {}, {}

    for user in ("ada", "bob"):
        async with Client.memory(as_principal(server, Principal(user))) as client:
            for _ in range(2):  # the second list comes from the cache
                seen[user] = [each.name for each in await client.list_tools()]
            for name in ("own", "none"):
                try:
                    await client.call_tool(name)
                except RemoteError as error:
                    unknown[user, name] = error.message

    assert seen == {"ada": ["work", "own"], "bob": ["work"]}
    assert unknown == {
        ("ada", "none"): "unknown tool 'none'",
        ("bob", "own"): "unknown tool 'own'",
        ("bob", "none"): "unknown tool 'none'",
    }


@each_row("answer", [RuntimeError("the database said hunter2"), later(None)])
async def test_a_tool_is_hidden_if_its_predicate_does_not_answer(caplog, answer):
    server = Server("broken")

    @server.tool(visible=lambda _: answered(answer))
    def shown() -> str:
        return "never"

    with caplog.at_level(logging.ERROR):
        async with Client.memory(server) as client:
            assert list(await client.list_tools()) == []
            with pytest.raises(RemoteError, match="unknown tool 'shown'"):
                await client.call_tool("shown")

    assert "visible of tool shown failed" in caplog.text


def answered(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


async def test_lists_without_a_predicate_are_encoded_once_for_all_callers(monkeypatch):
    server = Server("cached")
    server.tool(work)
    encoded = []
    encoder = server._methods._encoder
    listing = encoder.listing
    monkeypatch.setattr(encoder, "listing", lambda *a, **k: encoded.append(a) or listing(*a, **k))

    for user in ("ada", "bob"):
        async with Client.memory(as_principal(server, Principal(user))) as client:
            await client.list_tools()

    assert len(encoded) == 1


async def test_clients_can_be_notified_that_the_visible_tools_have_changed():
    server = Server("changing")
    server.tool(work, visible=lambda _: is_open)
    is_open = False

    async with Client.memory(server) as client:
        assert list(await client.list_tools()) == []
        is_open = True
        server.list_changed("tools")
        await client.ping()
        assert [each.name for each in await client.list_tools()] == ["work"]

    with pytest.raises(LocalProtocolError, match="'tool' is not one of tools, prompts, resources"):
        server.list_changed("tool")
