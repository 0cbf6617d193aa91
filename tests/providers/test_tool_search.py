"""Agents that search for tools, with strict fakes of the providers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pydantic
import pytest
from msgspec.structs import replace
from openai.types.responses import ResponseInputItemParam, ToolParam

from interlock import Agent, Toolbox
from interlock.messages import SEARCH_TOOLS, AssistantMessage, Message, ToolMessage, UserMessage
from interlock.models import Model, learned
from interlock.models.anthropic import AnthropicModel
from interlock.models.http import model_api
from interlock.models.openai import OpenAIModel
from interlock.models.providers import BY_NAME
from interlock.models.scripted import ScriptedModel
from interlock.store import ConversationStore
from tests.models import wire_openai, wire_responses
from tests.models.wire_http import WireServer
from tests.providers.fake_provider import Call, Fails, Says
from tests.providers.fake_providers import FAKES
from tests.providers.lab import Lab, lab_of
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json
from tests.support.toolboxes import described, kb

pytestmark = pytest.mark.slow("starts providers")
BY_ROW = {each.name: each for each in FAKES}
ANTHROPIC, RESPONSES = BY_ROW["Anthropic"], BY_ROW["OpenAI, Responses API"]
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
NOUNS = ("invoice", "ticket", "branch", "weather", "meeting", "file", "page", "contact")
NAMES = [f"{verb}_{noun}" for verb in ("create", "list", "delete") for noun in NOUNS]
NAMES += [f"count_item{number}" for number in range(100)]
DONE = Says("Done.")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(learned, "file", lambda: tmp_path / "models.json")
    monkeypatch.setattr(model_api, "_FIRST_PAUSE", 0.0)


@pytest.fixture
async def toolbox() -> AsyncIterator[Toolbox]:
    tools = [described(each, CITY, description=f"{each.replace('_', ' ')}.") for each in NAMES]
    async with Toolbox({"shop": kb(tools)}, environ={}, revision=LEGACY) as opened:
        yield opened


def find(query: str) -> Says:
    return Says("", (Call(SEARCH_TOOLS, json.dumps({"query": query})),))


def use(name: str) -> Says:
    return Says("", (Call(f"shop__{name}", '{"city": "Ulm"}'),))


async def answer(
    lab: Lab, toolbox: Toolbox, *says: Says | Fails, messages: list[Message] | None = None
) -> list[Message]:
    """Let the lab's model answer a message of the user with these answers."""
    messages = [] if messages is None else messages
    messages.append(UserMessage("Go on."))
    model = lab.models[-1] if lab.models else await lab.choose(lab.fake.model, {})
    lab.server.script = list(says)
    await Agent(model, toolbox).complete(messages)
    return messages


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(each) for key, each in value.items() if key != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """Return a value with lists in place of the iterators of pydantic."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [plain(each) for each in value]


def check(kind: Any, *values: Json) -> None:
    """Check values against a type of a vendor's package, unknown members included."""
    for value in values:
        assert plain(pydantic.TypeAdapter(kind).validate_python(value)) == value


# Shapes


async def test_anthropic_gets_references_to_deferred_definitions(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab_of(ANTHROPIC, monkeypatch) as lab:
        await answer(lab, toolbox, find("list the weather"), use("list_weather"), DONE)
        first, second, third = (each.body for each in lab.server.asked)
        assert lab.server.refused == []

    result = second["messages"][-1]["content"]
    (called,) = second["messages"][1]["content"]
    (found,) = unmarked(result)
    assert found == {
        "type": "tool_result",
        "tool_use_id": called["id"],
        "content": found["content"],
    }
    assert found["content"][0] == {"type": "tool_reference", "tool_name": "shop__list_weather"}
    deferred = {each["name"]: each for each in second["tools"] if "defer_loading" in each}
    assert json.dumps(deferred["shop__list_weather"]) == json.dumps(
        {
            "name": "shop__list_weather",
            "description": "list weather.",
            "input_schema": CITY,
            "defer_loading": True,
        }
    )
    assert [each["name"] for each in first["tools"] if "defer_loading" in each] == [
        "shop__create_invoice"
    ]
    assert {each["tool_name"] for each in found["content"]} <= deferred.keys()
    assert third["tools"] == second["tools"]
    marks = [
        [each["name"] for each in b["tools"] if "cache_control" in each] for b in (first, second)
    ]
    assert marks == [["interlock__read_resource"]] * 2


async def test_responses_get_the_definitions_in_the_output_of_the_search(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab_of(RESPONSES, monkeypatch) as lab:
        await answer(lab, toolbox, find("list the weather"), use("list_weather"), DONE)
        first, second, third = (each.body for each in lab.server.asked)
        assert lab.server.refused == []

    check(ToolParam, *second["tools"])
    check(ResponseInputItemParam, *third["input"])
    search, *others = first["tools"]
    assert [*search] == ["type", "execution", "description", "parameters"]
    assert (search["type"], search["execution"]) == ("tool_search", "client")
    assert not any("defer_loading" in each for each in others)
    call, output = second["input"][1:]
    assert call == {
        "type": "tool_search_call",
        "call_id": call["call_id"],
        "execution": "client",
        "status": "completed",
        "arguments": {"query": "list the weather"},
    }
    assert json.dumps({**output, "tools": output["tools"][:1]}) == json.dumps(
        {
            "type": "tool_search_output",
            "call_id": call["call_id"],
            "execution": "client",
            "status": "completed",
            "tools": [
                {
                    "type": "function",
                    "name": "shop__list_weather",
                    "description": "list weather.",
                    "parameters": CITY,
                    "strict": False,
                    "defer_loading": True,
                }
            ],
        }
    )
    assert first["tools"] == second["tools"] == third["tools"]


def prefix(body: Json) -> list[str]:
    """Return the parts of a request that the prompt cache reads, in its order, as bytes of JSON."""
    listed = [each for each in body["tools"] if "defer_loading" not in each]
    system = [body.get("system"), body.get("instructions")]
    blocks: list[Any] = []
    for message in body.get("messages", ()):  # a message may grow, as results are joined
        blocks += [[message["role"], each] for each in message["content"]]
    return [
        json.dumps(each) for each in unmarked([listed, system, *blocks, *body.get("input", ())])
    ]


@pytest.mark.parametrize("fake", [ANTHROPIC, RESPONSES], ids=["Anthropic", "Responses"])
async def test_each_request_extends_the_one_before_over_20_turns_with_5_searches(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch, fake: Any
) -> None:
    messages: list[Message] = []
    async with lab_of(fake, monkeypatch) as lab:
        for turn in range(20):
            noun = NOUNS[turn // 4]
            says = [find(f"list {noun}")] if turn % 4 == 0 else []
            thought = Says("", use(f"list_{noun}").calls, "Hm.")
            await answer(lab, toolbox, *says, thought, DONE, messages=messages)
        bodies = [each.body for each in lab.server.asked]
        assert lab.server.refused == []
    assert len(bodies) == 45
    for before, after in pairwise(bodies):
        known = prefix(before)
        assert prefix(after)[: len(known)] == known
        deferred = [each for each in before["tools"] if "defer_loading" in each]
        later = [each for each in after["tools"] if "defer_loading" in each]
        assert later[: len(deferred)] == deferred


@pytest.fixture
async def openai(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WireServer]:
    """OpenAI with both APIs, for which chat completions are the usual one."""
    server = wire_responses.server()
    await server.start()
    row = replace(BY_NAME["openai"], url=f"{server.root}/v1")
    monkeypatch.setitem(BY_NAME, "openai", row)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    yield server
    await server.stop()
    assert server.problems == []


CHAT, RESPONSES_PATH = "/v1/chat/completions", "/v1/responses"


async def test_openai_model_uses_the_responses_api_for_requests_with_deferred_tools(
    toolbox: Toolbox, openai: WireServer
) -> None:
    search = wire_responses.searches("c1", {"query": "list files"})
    openai.script = [search, wire_responses.answer(wire_responses.message("Done."))]
    openai.script.append(wire_openai.says("Plain."))
    model = OpenAIModel("gpt-6-luna")
    messages: list[Message] = [UserMessage("Hi")]
    await Agent(model, toolbox).complete(messages)
    await Agent(model).complete([*messages, UserMessage("Go on")])
    await model.close()
    assert [each.path for each in openai.asked] == [RESPONSES_PATH, RESPONSES_PATH, CHAT]


async def test_openai_key_without_the_responses_api_uses_chat_completions(
    toolbox: Toolbox, openai: WireServer
) -> None:
    scope = "You have insufficient permissions. Missing scopes: api.responses.write."
    openai.script = [wire_openai.error(401, scope), wire_openai.says("Done.")]
    model = OpenAIModel("gpt-6-luna")
    await Agent(model, toolbox).complete([UserMessage("Hi")])
    await model.close()
    assert [each.path for each in openai.asked] == [RESPONSES_PATH, CHAT]


# Models


@each_row(
    "model, url, defers",
    [
        ("claude-sonnet-4-5", "", True),
        ("claude-opus-4-5-20251101", "", True),
        ("claude-haiku-4-5-20251001", "", True),
        ("claude-sonnet-5-5", "", True),
        ("claude-opus-4-1-20250805", "", False),
        ("claude-sonnet-4-20250514", "", False),
        ("claude-3-5-sonnet-20241022", "", False),
        ("claude-sonnet-5-5", "https://api.anthropic.com/v1/", True),
        ("claude-sonnet-5-5", "https://proxy.example", False),
        ("gpt-5.4", "", True),
        ("gpt-5.4-mini", "", True),
        ("gpt-6-luna", "", True),
        ("gpt-5.4-nano", "", False),
        ("gpt-5.3-codex", "", False),
        ("gpt-4o", "", False),
        ("gpt-6-luna", "https://proxy.example/v1", False),
    ],
)
def test_models_that_load_tools_natively_are_known_by_name_and_url(
    monkeypatch: pytest.MonkeyPatch, model: str, url: str, defers: bool
) -> None:
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    kind: Any = AnthropicModel if model.startswith("claude") else OpenAIModel
    assert kind(model, base_url=url or None).defers_tools is defers
    assert OpenAIModel(model, provider="deepseek").defers_tools is False


# Refusals


REFUSALS = [
    (ANTHROPIC, "tools.3.custom.defer_loading: Extra inputs are not permitted"),
    (ANTHROPIC, "messages.2.content.0.tool_result.content.0: Input tag 'tool_reference' found"),
    (RESPONSES, "Unknown parameter: 'input[2].tools[0].defer_loading'."),
    (RESPONSES, "Tool 'tool_search' is not supported with gpt-6-luna-pro."),
    (RESPONSES, "Invalid value: 'tool_search_output'. Supported values are: 'message'"),
]


@pytest.mark.parametrize(("fake", "refusal"), REFUSALS, ids=range(len(REFUSALS)))
async def test_refused_loading_is_repeated_with_listed_definitions_and_remembered(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch, fake: Any, refusal: str
) -> None:
    fake = fake._replace(refusals={**fake.refusals, "native": (400, refusal)})
    async with lab_of(fake, monkeypatch) as lab:
        says = (find("list the weather"), Fails("native"), use("list_weather"), DONE)
        messages = await answer(lab, toolbox, *says)
        listed = lab.server.asked[2].body
        assert "defer_loading" not in json.dumps(listed)
        assert "tool_search" not in json.dumps(listed).replace(SEARCH_TOOLS, "")
        assert "shop__list_weather" in [each["name"] for each in listed["tools"]]
        assert "shop__create_invoice" not in [each["name"] for each in listed["tools"]]
        assert lab.server.refused == []

        learned._read.clear()  # what a new process has read
        again = await lab.choose(fake.model, {})
        assert again.defers_tools is False  # type: ignore[attr-defined]
        await answer(lab, toolbox, DONE, messages=messages)
        assert len(lab.server.asked) == 5
        (lesson,) = [each for each in learned.lessons(fake.model) if each.kind == "lists_tools"]
        assert "added to the list of tools" in learned.described(lesson)

        monkeypatch.setattr(learned, "_today", lambda: lesson.day + learned.KEPT + 1)
        learned._read.clear()
        assert again.defers_tools is True  # type: ignore[attr-defined]


async def test_other_refusals_teach_nothing_about_loading(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lab_of(ANTHROPIC, monkeypatch) as lab:
        await answer(lab, toolbox, Fails("failure"), find("list files"), DONE)
        assert learned.lessons(ANTHROPIC.model) == []


# A loaded tool that can no longer be used


class Fewer:
    """A toolbox of which some tools have vanished: removed, waiting, forbidden or switched off."""

    def __init__(self, toolbox: Toolbox, gone: Sequence[str]) -> None:
        self._toolbox = toolbox
        self._gone = [f"shop:{each}" for each in gone]

    @property
    def tools(self) -> list[Any]:
        return [each for each in self._toolbox.tools if each.address not in self._gone]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._toolbox, name)


@pytest.mark.parametrize("fake", FAKES, ids=[each.name for each in FAKES])
async def test_request_after_a_loaded_tool_has_vanished_is_valid(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch, fake: Any
) -> None:
    async with lab_of(fake, monkeypatch) as lab:
        says = (find("list the weather"), use("list_weather"), DONE)
        messages = await answer(lab, toolbox, *says)
        refused = len(lab.server.refused)
        await answer(lab, Fewer(toolbox, ["list_weather", NAMES[0]]), DONE, messages=messages)  # type: ignore[arg-type]
        await answer(lab, Fewer(toolbox, NAMES[:-1]), DONE, messages=messages)  # type: ignore[arg-type]
        await answer(lab, Fewer(toolbox, NAMES), DONE, messages=messages)  # type: ignore[arg-type]
        assert len(lab.server.refused) == refused


# Other models


@asynccontextmanager
async def labs(monkeypatch: pytest.MonkeyPatch, *rows: str) -> AsyncIterator[list[Lab]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(lab_of(BY_ROW[row], monkeypatch)) for row in rows]


async def test_conversation_goes_from_model_to_model_through_resume_undo_and_fork(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Embedded(ScriptedModel):
        selects_tools = True

    async def resumed(messages: Sequence[Message]) -> list[Message]:
        """Store messages, copy the conversation, and read the copy, as a new process does."""
        async with ConversationStore.open(tmp_path / "chat.db") as store:
            made = await store.create("t", "m")
            await store.append(made.id, *messages, model="m")
            copy = await store.fork(made.id, len(messages))
        async with ConversationStore.open(tmp_path / "chat.db") as store:
            return list(await store.resume(copy.id))

    rows = ("Anthropic", "OpenAI, Responses API", "DeepSeek", "Mistral")
    async with labs(monkeypatch, *rows) as (claude, gpt, deepseek, mistral):
        messages = await answer(claude, toolbox, find("list ticket"), use("list_ticket"), DONE)
        messages = await resumed(messages)
        await answer(gpt, toolbox, use("list_ticket"), find("list page"), DONE, messages=messages)
        await answer(
            deepseek, toolbox, use("list_page"), use("list_ticket"), DONE, messages=messages
        )
        undone = len(messages)
        await answer(mistral, toolbox, find("list file"), use("list_file"), DONE, messages=messages)
        messages = await resumed(messages[:undone])
        embedded: Model = Embedded([AssistantMessage("I found nothing.")])
        messages.append(UserMessage("Again"))
        await Agent(embedded, toolbox).complete(messages)
        says = (use("list_page"), use("list_ticket"), DONE)
        await answer(claude, toolbox, *says, messages=messages)
        for each in (claude, gpt, deepseek, mistral):
            assert each.server.refused == []
        last = claude.server.asked[-1].body

    results = [each for each in messages if isinstance(each, ToolMessage)]
    assert not any(each.is_error for each in results)
    assert sum(bool(each.loads) for each in results) == 2
    deferred = [each["name"] for each in last["tools"] if "defer_loading" in each]
    assert {"shop__list_ticket", "shop__list_page"} <= {*deferred}


@pytest.mark.parametrize("fake", [ANTHROPIC, RESPONSES], ids=["Anthropic", "Responses"])
async def test_shortened_conversation_lists_the_tools_whose_result_is_left_out(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch, fake: Any
) -> None:
    async with lab_of(fake, monkeypatch) as lab:
        messages = await answer(lab, toolbox, find("list ticket"), Says("x" * 20_000))
        says = (Fails("context"), use("list_ticket"), DONE)
        await answer(lab, toolbox, *says, messages=messages)
        whole, short = (each.body for each in lab.server.asked[2:4])
        assert lab.server.refused == []
    names = [each.get("name") for each in short["tools"] if "defer_loading" not in each]
    assert "shop__list_ticket" in names
    assert "tool_reference" not in json.dumps(short.get("messages", ""))
    assert "shop__list_ticket" not in [
        each.get("name") for each in whole["tools"] if "defer_loading" not in each
    ]
