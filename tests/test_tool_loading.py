"""Which definitions an agent's requests have, if the model searches for tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from interlock import Agent, Toolbox, ToolSearch, compaction, tool_loading
from interlock.agent import ToolFinished
from interlock.calls import Call, Caller, CallHandler, Entry, Outcome
from interlock.errors import StepLimit
from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import Notice, ToolDefinition
from interlock.models.local import LocalModel
from interlock.models.scripted import Scripted, ScriptedModel
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json, ScriptedServer
from tests.support.toolboxes import described, kb

CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NOUNS = ("invoice", "ticket", "branch", "weather", "meeting", "file", "page", "contact")


def shop(count: int = 120, *, tokens: int = 0) -> ScriptedServer:
    """A server with `count` tools, each of about `tokens` tokens."""
    names = [f"{verb}_{noun}" for verb in ("create", "list", "delete") for noun in NOUNS]
    names += [f"count_item{number}" for number in range(count - len(names))]
    filling = " " * max(0, 4 * tokens - 150)
    return kb(
        [
            described(each, CITY, description=f"{each.replace('_', ' ').capitalize()}.{filling}")
            for each in names[:count]
        ]
    )


@asynccontextmanager
async def open_shop(*, around: Any = (), **servers: ScriptedServer) -> AsyncIterator[Toolbox]:
    servers = servers or {"shop": shop()}
    async with Toolbox(servers, environ={}, revision=LEGACY, around=around) as toolbox:
        yield toolbox


def search(query: str, id: str = "c1") -> list[ToolCall]:
    return [ToolCall(id, SEARCH_TOOLS, {"query": query})]


def call(name: str, id: str = "c2", **arguments: Any) -> list[ToolCall]:
    return [ToolCall(id, name, arguments)]


class DeferringModel(ScriptedModel):
    """A scripted model that accepts deferred definitions."""

    defers_tools = True


class SelectingModel(ScriptedModel):
    selects_tools = True


class Some:
    """Some tools of a toolbox."""

    def __init__(self, toolbox: Toolbox, tools: list[Entry]) -> None:
        self._toolbox = toolbox
        self.tools = tools

    def __getattr__(self, name: str) -> Any:
        return getattr(self._toolbox, name)


async def asked(
    toolbox: Toolbox, *replies: Scripted, messages: list[Message] | None = None, **options: Any
) -> tuple[list[Message], ScriptedModel]:
    """Answer a message with these replies; return the conversation and the model."""
    messages = [UserMessage("Hello")] if messages is None else messages
    model = options.pop("kind", ScriptedModel)(replies)
    await Agent(model, toolbox, **options).complete(messages)
    return messages, model


def names(tools: Sequence[ToolDefinition]) -> list[str]:
    return [each.name for each in tools]


def is_searching(model: ScriptedModel) -> bool:
    return SEARCH_TOOLS in names(model.requests[-1].tools)


OWN = [SEARCH_TOOLS, "interlock__read_result", "interlock__read_resource"]
LOADED = ToolMessage("c", "found", SEARCH_TOOLS, loads=("shop__list_ticket",))
SEARCHED: list[Message] = [
    UserMessage("Hello"),
    AssistantMessage("", (ToolCall("c", SEARCH_TOOLS, {"query": "tickets"}),)),
    LOADED,
]


# Whether a model searches


@each_row(
    "count, tokens, mode, searches",
    [
        (99, 99, "auto", False),
        (100, 0, "auto", True),
        (50, 220, "auto", True),
        (3, 0, "auto", False),
        (3, 0, "on", True),
        (0, 0, "on", False),
        (120, 0, "off", False),
        (3, 0, ToolSearch(threshold=10), True),
        (120, 0, ToolSearch("off"), False),
    ],
)
async def test_model_searches_if_there_are_many_tools_or_the_user_wants_it(
    count: int, tokens: int, mode: Any, searches: bool
) -> None:
    async with open_shop(shop=shop(count, tokens=tokens)) as toolbox:
        _, model = await asked(toolbox, "Hi.", tool_search=mode)
        assert is_searching(model) == searches
        assert len(model.requests[0].tools) == (len(OWN) if searches else count)


@each_row(("mode", "is_told"), [("auto", True), ("on", False), ("off", False)])
async def test_user_of_a_new_conversation_is_told_of_a_search_that_nobody_asked_for(
    mode: str, is_told: bool
) -> None:
    async with open_shop() as toolbox:
        agent = Agent(ScriptedModel(["Hi.", "Hi again."]), toolbox, tool_search=mode)
        messages: list[Message] = []
        for told in (is_told, False):
            messages.append(UserMessage("Hello"))
            notices = [
                each.text async for each in agent.stream(messages) if isinstance(each, Notice)
            ]
            assert [each for each in notices if "your 120 tools" in each] == notices
            assert bool(notices) == told


async def test_first_request_with_500_tools_has_a_twentieth_of_the_definitions_at_most() -> None:
    def size(tools: Sequence[ToolDefinition]) -> int:
        return sum(len(each.description) + len(each.input_schema) for each in tools)

    servers = {f"shop{n}": shop(50, tokens=290) for n in range(10)}
    async with open_shop(**servers) as toolbox:
        _, every = await asked(toolbox, "Hi.", tool_search="off")
        _, some = await asked(toolbox, "Hi.", kind=DeferringModel)
    assert size(some.requests[0].tools) <= size(every.requests[0].tools) / 20


async def test_conversation_that_has_searched_goes_on_searching_with_few_tools() -> None:
    async with open_shop(shop=shop(10)) as toolbox:
        _, model = await asked(toolbox, "Hi.", messages=[*SEARCHED])
        assert names(model.requests[0].tools) == [*OWN, "shop__list_ticket"]


async def test_model_that_selects_tools_itself_gets_all_definitions() -> None:
    async with open_shop() as toolbox:
        _, model = await asked(toolbox, "Hi.", messages=[*SEARCHED], kind=SelectingModel)
        assert len(model.requests[0].tools) == 120
    assert LocalModel.selects_tools


async def test_agent_that_does_not_search_builds_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "interlock.toolbox.tool_index", raising=False)
    async with open_shop(shop=shop(5)) as toolbox:
        await asked(toolbox, call("shop__list_file", city="Ulm"), "Done.")
    assert "interlock.toolbox.tool_index" not in sys.modules


@each_row(
    "value, error",
    [("sometimes", 'use "auto", "on" or "off"'), ("", "tool search ''")],
)
def test_unknown_mode_is_refused_with_the_known_ones(value: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Agent(tool_search=value)
    with pytest.raises(ValueError, match="threshold -1"):
        ToolSearch(threshold=-1)
    for always in ("crm:find_*", ("find_*",), (5,)):
        with pytest.raises(
            ValueError, match=r'use a tuple of patterns, such as \("crm:find_\*",\)'
        ):
            ToolSearch(always=always)  # type: ignore[arg-type]


# Loading


async def test_found_tools_are_listed_from_the_next_request_on_and_called_by_their_names() -> None:
    recorded: list[Call] = []

    def log(handle: CallHandler) -> CallHandler:
        async def logged(call: Call) -> Outcome:
            recorded.append(call)
            return await handle(call)

        return logged

    async with open_shop(around=[log]) as toolbox:
        weather = call("shop__list_weather", city="Ulm")
        messages, model = await asked(toolbox, search("list the weather"), weather, "Sunny.")

    first, second, third = (names(each.tools) for each in model.requests)
    assert first == OWN
    assert second[: len(OWN)] == OWN
    assert second[len(OWN)] == "shop__list_weather"
    assert third == second
    found = messages[2]
    assert isinstance(found, ToolMessage)
    assert found.loads == tuple(second[len(OWN) :])
    assert messages[4] == ToolMessage("c2", '{"city": "Ulm"}', "shop__list_weather")
    assert [each.entry.address for each in recorded] == [
        "interlock:search_tools",
        "shop:list_weather",
    ]


async def test_tools_that_are_always_listed_come_first_in_the_order_of_the_configuration() -> None:
    always = ToolSearch("on", always=("shop:list_f*",))
    async with open_shop() as toolbox:
        tools = [replace(each, is_always_listed="delete" in each.address) for each in toolbox.tools]
        model = ScriptedModel([search("create a page"), "Ok."])
        await Agent(model, Some(toolbox, tools), tool_search=always).complete([UserMessage("Hi")])
    expected = [*OWN, "shop__list_file", *(f"shop__delete_{each}" for each in NOUNS)]
    assert names(model.requests[0].tools) == expected
    assert names(model.requests[1].tools)[: len(expected)] == expected


async def test_model_that_accepts_deferred_definitions_gets_one_from_the_first_request_on() -> None:
    async with open_shop() as toolbox:
        replies = (search("create a page"), search("delete files", "c2"), "Done.")
        messages, model = await asked(toolbox, *replies, kind=DeferringModel)
    deferred = [
        [each.name for each in request.tools if each.deferred] for request in model.requests
    ]
    assert deferred[0] == ["shop__create_invoice"]
    assert deferred[2][: len(deferred[1])] == deferred[1]
    loaded = tool_loading.loaded(tool_loading.uses(messages))
    assert {*deferred[2]} == {"shop__create_invoice", *loaded}
    listed = [[each for each in request.tools if not each.deferred] for request in model.requests]
    assert listed[0] == listed[1] == listed[2]


async def test_at_most_64_tools_stay_listed_and_the_one_unused_longest_leaves() -> None:
    async with open_shop() as toolbox:
        every = names([ToolDefinition(each.wire_name, "", b"") for each in toolbox.tools])
        messages: list[Message] = [UserMessage("Hello")]
        for place in range(0, 65, 5):
            id = f"c{place}"
            messages += [
                AssistantMessage("", (ToolCall(id, SEARCH_TOOLS, {"query": "x"}),)),
                ToolMessage(id, "found", SEARCH_TOOLS, loads=tuple(every[place : place + 5])),
            ]
        used = (ToolCall("u", every[0], {"city": "Ulm"}),)
        messages += [AssistantMessage("", used), ToolMessage("u", "ok", every[0])]
        _, model = await asked(toolbox, "Hi.", messages=[*messages])
        _, deferring = await asked(toolbox, "Hi.", messages=messages, kind=DeferringModel)
    assert names(model.requests[0].tools) == [*OWN, *every[:4], *every[5:65]]
    assert len(deferring.requests[0].tools) == len(OWN) + 65


async def test_loaded_tool_that_is_gone_is_left_out_and_its_call_is_refused() -> None:
    async with open_shop() as toolbox:
        gone = replace(LOADED, loads=("shop__gone", "shop__list_ticket"))
        messages = [*SEARCHED[:2], gone, AssistantMessage("Ok."), UserMessage("Again")]
        found, model = await asked(
            toolbox, call("shop__gone", city="Ulm"), "Ok.", messages=messages, kind=DeferringModel
        )
    assert "shop__gone" not in names(model.requests[0].tools)
    assert "no tool 'shop__gone'" in found[-2].content


# Calls


async def test_call_of_a_tool_that_was_not_loaded_runs_or_explains_its_parameters() -> None:
    async with open_shop() as toolbox:
        right = call("shop__list_file", city="Ulm")
        wrong = call("shop__list_file", town="Ulm")
        loaded = call("shop__list_ticket", town="Ulm")
        messages, _ = await asked(toolbox, right, wrong, loaded, "Ok.", messages=[*SEARCHED])
    results = [each for each in messages if isinstance(each, ToolMessage)][1:]
    assert [each.is_error for each in results] == [False, True, True]
    assert '; the parameters of shop__list_file are {"type":"object"' in results[1].content
    assert "parameters of" not in results[2].content


@each_row("searches, fails", [(5, False), (6, True)])
async def test_up_to_five_searching_rounds_do_not_count_as_rounds_of_calls(
    searches: int, fails: bool
) -> None:
    rounds = [search("files", f"s{number}") for number in range(searches)]
    rounds.append(call("shop__list_file", city="Ulm"))
    async with open_shop() as toolbox:
        if fails:
            with pytest.raises(StepLimit):
                await asked(toolbox, *rounds, "Ok.", max_rounds=2)
        else:
            await asked(toolbox, *rounds, "Ok.", max_rounds=2)


async def test_search_finds_only_what_the_model_is_offered() -> None:
    async with open_shop() as toolbox:
        messages: list[Message] = [UserMessage("Hello")]
        model = ScriptedModel([search("list ticket"), "Ok."])
        tools = [each for each in toolbox.tools if each.address != "shop:list_ticket"]
        agent = Agent(model, Some(toolbox, tools))
        finished = [each async for each in agent.stream(messages) if isinstance(each, ToolFinished)]
    assert "shop__create_ticket" in finished[0].result
    assert "shop__list_ticket" not in finished[0].result


async def test_search_cannot_be_called_for_a_user_whose_tools_are_not_stated() -> None:
    from interlock.auth import Principal

    async with open_shop() as toolbox:
        mine = await toolbox.call("interlock:search_tools", {"query": "list ticket"})
        assert "shop__list_ticket" in mine.text
        entry = toolbox.find(SEARCH_TOOLS)
        other = Caller(Principal("u1"), surface="mcp")
        with pytest.raises(Exception, match="no tool 'interlock:search_tools'"):
            await toolbox.handle(Call(entry, {"query": "list ticket"}, other))


# Long conversations


def test_result_that_loads_tools_is_never_shortened() -> None:
    long = replace(LOADED, content="x" * 5_000)
    other = ToolMessage("o", "x" * 5_000, "shop__list_ticket")
    turn = [AssistantMessage("", (ToolCall("o", "shop__list_ticket"),)), other]
    messages = [*SEARCHED[:2], long, *turn, AssistantMessage("Ok."), UserMessage("And now?")]
    kept = compaction.fit(messages, 6_000).messages
    assert long in kept
    assert other not in kept


def test_tools_of_a_result_that_is_left_out_become_ordinary_definitions() -> None:
    definitions = [
        ToolDefinition("shop__create_invoice", "", b"", deferred=True),
        ToolDefinition("shop__list_ticket", "", b"", deferred=True),
        ToolDefinition("shop__list_file", "", b"", deferred=True),
    ]
    later = replace(LOADED, loads=("shop__list_file",))
    messages = [*SEARCHED, later]
    fitted = tool_loading.fitted(definitions, messages, [later])
    assert [each.deferred for each in fitted] == [True, False, True]
    assert tool_loading.fitted(definitions, messages, messages) == definitions
