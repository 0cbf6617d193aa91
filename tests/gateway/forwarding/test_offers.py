"""Names of tools over random configurations."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.calls import Entry
from interlock.client.listing import Listing
from interlock.config.gateway import View
from interlock.gateway.forwarding.offers import STEP, Offers
from interlock.gateway.forwarding.uris import Uris
from interlock.policy import CompiledView
from interlock.protocol.envelope import encode
from interlock.toolbox.names import address, plain_name, wire_name
from interlock.types import Tool

names = st.one_of(
    st.sampled_from(["a", "b", "a_b", "a__b", "a-b", "_a", "git", "get_x", "get__x", "x" * 70]),
    st.text("aä_-. ;'", min_size=1, max_size=70),
)
configurations = st.dictionaries(names, st.lists(names, unique=True, max_size=3), max_size=3)


def offers(servers: dict[str, list[str]], plain: View | None = None) -> Offers:
    tools = [entry(server, name) for server, each in servers.items() for name in each]
    upstream = SimpleNamespace(
        obstacle=("", ""),
        unusable=(),
        waiting_prompts={},
        entries=tools,
        items=dict.fromkeys(("resources", "resourceTemplates", "prompts"), _Empty()),
    )
    toolbox = SimpleNamespace(tools=tools, upstreams=dict.fromkeys(servers, upstream))
    view = CompiledView(plain) if plain is not None else None
    made = Offers(cast("Any", toolbox), Uris(), cast("Any", None), view)
    for _ in made.build(None):
        pass
    return made


class _Empty(list[Any]):
    definitions: tuple[()] = ()


def entry(server: str, name: str) -> Entry:
    return Entry(
        server=server,
        tool=Tool(name=name, input_schema={}),
        address=address(server, name),
        wire_name=wire_name(server, name),
        input_schema=b"{}",
        definition=encode({"name": wire_name(server, name), "inputSchema": {}}),
    )


@pytest.mark.slow("tries many examples")
@settings(max_examples=100)
@given(servers=configurations, more=configurations)
def test_adding_servers_changes_no_wire_name_and_none_is_there_twice(
    servers: dict[str, list[str]], more: dict[str, list[str]]
):
    before = offers(servers).tools
    after = offers(more | servers).tools

    count = sum(map(len, servers.values()))
    assert len(before) == count
    assert all(1 <= len(name) <= 64 for name in before)
    assert {name: each.entry.address for name, each in before.items()}.items() <= {
        name: each.entry.address for name, each in after.items()
    }.items()


@pytest.mark.slow("tries many examples")
@settings(max_examples=200)
@given(servers=configurations)
def test_plain_name_belongs_to_the_first_tool_and_later_tools_clash(
    servers: dict[str, list[str]],
):
    found = offers(servers, View(names="plain"))

    first = {
        plain_name(server, name): server
        for server, each in reversed(servers.items())
        for name in each
    }
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in found.tools)
    assert {name: each.entry.server for name, each in found.tools.items()} == first
    assert len(found.tools) + len(found.clashes) == sum(map(len, servers.values()))
    assert {each.reason for each in found.clashes} <= {"name_clash"}


def test_long_lists_are_read_in_steps_and_unchanged_ones_are_reused() -> None:
    found: Listing[Any] = Listing()
    found.definitions = [{"uri": f"x://{n}", "name": str(n)} for n in range(2 * STEP + 1)]
    upstream = SimpleNamespace(
        obstacle=("", ""),
        unusable=(),
        waiting_prompts={},
        entries=(),
        items={"resources": found, "resourceTemplates": Listing(), "prompts": Listing()},
    )
    toolbox = cast("Any", SimpleNamespace(tools=[], upstreams={"a": upstream}))
    first, second = (Offers(toolbox, Uris(), cast("Any", None), None) for _ in range(2))
    assert len([*first.build(None)]) == 2
    assert len([*second.build(first)]) == 0
    assert second.resources["x://7"] is first.resources["x://7"]
    assert second.resources["x://7"].definition.fields == {"uri": "x://7", "name": "7"}
