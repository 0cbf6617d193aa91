"""The budget of results: what passes, what a model gets of the rest, and who can read it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from interlock.auth import Principal
from interlock.calls import Call, Caller, Entry, Outcome
from interlock.config import Config
from interlock.config.gateway import Results
from interlock.config.servers import StdioServer
from interlock.errors import NotKept, RemoteProtocolError
from interlock.layers.kept_results import URI, MemoryResults
from interlock.layers.results import META_KEY, ResultBudget, ResultLimits
from interlock.store.kept import Kept, Owner
from interlock.types import CallToolResult, JsonObject, ResourceLink, TextContent
from tests.layers.support import call_of
from tests.support.rows import each_row

KIB = 1024
LIMIT = 64 * KIB


def outcome_of(**members: Any) -> Outcome:
    return Outcome(Raw(msgspec.json.encode(members)))


def text_result(text: str) -> Outcome:
    return outcome_of(content=[{"type": "text", "text": text}])


def sized(size: int) -> Outcome:
    """Return a result whose content has exactly so many bytes."""
    empty = len(b'{"content":[{"type":"text","text":""}]}')
    return text_result("x" * (size - empty))


async def fitted(outcome: Outcome, call: Call | None = None, **limits: Any) -> CallToolResult:
    """Return the result as a client of the default revision gets it."""
    budget = ResultBudget(limits=ResultLimits(Results(**limits)))
    return (await budget.fit(call or call_of(), outcome)).result


def note_of(result: CallToolResult) -> str:
    """Return the sentence after the excerpt."""
    return [each.text for each in result.content if isinstance(each, TextContent)][-1]


def about(result: CallToolResult) -> JsonObject:
    assert result.meta is not None
    found: JsonObject = result.meta[META_KEY]
    return found


# What passes


@each_row("size", [LIMIT - 1, LIMIT])
async def test_result_within_the_budget_passes_undecoded(size: int):
    outcome = sized(size)

    assert await ResultBudget().fit(call_of(), outcome) is outcome
    assert outcome._result is None


async def test_meta_of_a_result_does_not_count_towards_the_budget():
    outcome = outcome_of(content=[], _meta={"x": "y" * 2 * LIMIT})

    assert await ResultBudget().fit(call_of(), outcome) is outcome


async def test_images_up_to_one_mebibyte_pass_and_do_not_count():
    image = {"type": "image", "mimeType": "image/png", "data": b64encode(bytes(KIB**2)).decode()}
    outcome = outcome_of(content=[image, image, {"type": "text", "text": "two"}])

    assert await ResultBudget().fit(call_of(), outcome) is outcome


@each_row("surface", ["library", "cli"])
async def test_results_for_programs_and_people_are_not_shortened(surface: Any):
    call = replace(call_of(), caller=Caller(surface=surface))
    outcome = sized(10 * LIMIT)

    assert await ResultBudget().fit(call, outcome) is outcome


async def test_questions_of_a_server_are_not_cut():
    outcome = outcome_of(resultType="input_required", requestState="s" * 2 * LIMIT)

    assert await ResultBudget().fit(call_of(), outcome) is outcome


# Excerpts


async def test_text_is_cut_after_a_line_and_the_sentence_states_where_to_read_on():
    lines = [f"line {number}\n" for number in range(20_000)]
    text = "".join(lines)

    result = await fitted(text_result(text))

    excerpt = result.content[0].text  # type: ignore[union-attr]
    shown = excerpt.count("\n")
    assert excerpt == "".join(lines[:shown])
    id = about(result)["id"]
    assert note_of(result).endswith(
        f"lines 1–{shown:,} of 20,000 are above; read on with interlock__read_result "
        f'{{"id": "{id}", "line": {shown + 1}}}'
    )
    assert result.content[-1] == ResourceLink(
        uri=URI + id, name=id, title="The whole result", size=about(result)["bytes"]
    )
    assert about(result)["shown"] == len(excerpt)
    assert not result.is_error


async def test_array_is_cut_between_items():
    rows = [{"id": number, "text": "ä\n" * 5} for number in range(9_000)]

    result = await fitted(text_result(msgspec.json.encode(rows).decode()))

    shown = msgspec.json.decode(result.content[0].text)  # type: ignore[union-attr]
    assert shown == rows[: len(shown)]
    assert f"items 1–{len(shown):,} of 9,000" in note_of(result)


async def test_line_that_is_too_long_is_cut_between_characters():
    result = await fitted(text_result("😀" * 50_000))

    shown = result.content[0].text  # type: ignore[union-attr]
    assert set(shown) == {"😀"}
    assert f'"offset": {len(shown)}' in note_of(result)


@each_row("size", [LIMIT + 1, KIB**2, 15 * KIB**2])
async def test_result_over_the_budget_is_shortened_to_the_budget(size: int):
    budget = ResultBudget()
    outcome = await budget.fit(call_of(), sized(size))

    assert len(outcome.raw) <= LIMIT
    assert outcome.size == size
    assert outcome.kept == about(outcome.result)["id"]


PDF = {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "QUJD" * LIMIT}
LARGER = b64encode(bytes(KIB**2 + 1)).decode()  # than an image that passes


@each_row(
    ("block", "mime_type"),
    [
        ({"type": "resource", "resource": PDF}, "application/pdf"),
        ({"type": "image", "mimeType": "image/png", "data": LARGER}, "image/png"),
        ({"type": "audio", "mimeType": "audio/wav", "data": LARGER}, "audio/wav"),
    ],
)
async def test_binary_block_over_the_budget_becomes_a_link(block: JsonObject, mime_type: str):
    result = await fitted(outcome_of(content=[block]))

    id = about(result)["id"]
    assert f'interlock__read_result {{"id": "{id}/1", "offset": 0}}' in note_of(result)
    links = [each for each in result.content if isinstance(each, ResourceLink)]
    assert [(each.uri, each.mime_type) for each in links] == [
        (URI + id, None),
        (f"{URI}{id}/1", mime_type),
    ]


async def test_excerpt_of_a_tool_with_an_output_schema_is_an_error_for_clients_that_check_it():
    entry = call_of().entry
    assert isinstance(entry, Entry)
    schema = {"type": "object"}
    call = replace(call_of(), entry=replace(entry, tool=replace(entry.tool, output_schema=schema)))
    outcome = outcome_of(content=[], structuredContent={"rows": ["x" * 20] * 5_000})

    budget = ResultBudget()
    cut = await budget.fit(call, outcome)
    of_agent = replace(call, caller=Caller(surface="agent"))

    assert cut.result.is_error
    assert not cut.is_error  # the tool has succeeded, for records and metrics
    assert cut.result.structured is None
    assert not (await budget.fit(of_agent, outcome)).result.is_error


async def test_tool_error_is_forwarded_as_an_error():
    outcome = outcome_of(content=[{"type": "text", "text": "x" * 2 * LIMIT}], isError=True)
    cut = await ResultBudget().fit(call_of(), outcome)

    assert cut.is_error
    assert cut.result.is_error


async def test_malformed_result_over_the_budget_is_an_error():
    with pytest.raises(RemoteProtocolError):
        await ResultBudget().fit(call_of(), outcome_of(content="x" * 2 * LIMIT))


async def test_result_that_cannot_be_kept_is_cut_and_states_the_reason():
    class Full(MemoryResults):
        async def keep(self, owner: Owner, call: str, content: bytes) -> Kept:
            raise NotKept("the disk is full")

    result = (await ResultBudget(Full()).fit(call_of(), sized(2 * LIMIT))).result

    assert "the rest is not kept (the disk is full)" in note_of(result)
    assert "id" not in about(result)
    assert not any(isinstance(each, ResourceLink) for each in result.content)


# Limits


async def test_limit_of_a_tool_overrides_the_server_limit_and_a_view_lowers_both():
    limits = ResultLimits(
        Results(max=1_000, tools={"crm:ref*": 4_000}, views={"small": 500}), {"crm": 3_000}
    )
    refund, other = call_of(), call_of(tool="other")
    small = replace(other, caller=Caller(Principal("anna", view="small"), surface="mcp"))

    assert limits.smallest == 500
    assert [limits.of(each) for each in (refund, other, small)] == [4_000, 3_000, 500]
    assert limits.of(call_of(server="time")) == 1_000
    assert limits.of(replace(refund, result_limit=800)) == 800


def test_configured_limit_of_a_server_applies_to_its_namespace():
    servers = {
        "crm-eu": StdioServer(command="x", namespace="crm", max_result_bytes=500),
        "plain": StdioServer(command="x", max_result_bytes=700),
    }
    limits = ResultLimits.from_config(Config(servers=servers), Results(max=9_000))

    assert [limits.of(call_of(server=name)) for name in ("crm", "plain", "crm-eu")] == [
        500,
        700,
        9_000,
    ]


async def test_read_result_stays_within_the_budget_of_the_call():
    budget, call = ResultBudget(), call_of()
    id = (await budget.fit(call, text_result("x" * (LIMIT + 1)))).kept
    reading = replace(call_of(tool="read_result"), arguments={"id": id}, result_limit=8 * KIB)

    outcome = await budget.answer(reading)

    assert outcome.kept == id
    assert KIB < len(outcome.raw) <= 8 * KIB
