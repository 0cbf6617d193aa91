"""Results that are kept: read on by line, item, pointer and search, by their owner only."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock.auth import Principal
from interlock.calls import Caller, Outcome
from interlock.config.gateway import Results
from interlock.errors import InvalidArguments, NotKept, UnknownResource
from interlock.layers.kept_results import URI, MemoryResults, Reading
from interlock.layers.results import ResultBudget, ResultLimits
from interlock.types import CallToolResult, EmbeddedResource, TextContent
from tests.layers.support import call_of
from tests.support.rows import each_row


def outcome_of(**members: Any) -> Outcome:
    return Outcome(Raw(msgspec.json.encode(members)))


def text_result(text: str) -> Outcome:
    return outcome_of(content=[{"type": "text", "text": text}])


def note_of(result: CallToolResult) -> str:
    """Return the sentence after the excerpt."""
    return [each.text for each in result.content if isinstance(each, TextContent)][-1]


async def read_back(
    budget: ResultBudget, caller: Caller, id: str, size: int = 10_000, **first: Any
) -> list[Any]:
    """Read a result by the tool, following each answer's sentence; return the first blocks."""
    blocks, following = [], {"id": id, **first}
    while True:
        result = await budget.read(caller, Reading(**following), size)
        blocks.append(result.content[0])
        assert len(msgspec.json.encode(result.content)) < size + 1_000
        if "this is the end" in note_of(result):
            return blocks
        following = msgspec.json.decode(note_of(result).partition("interlock__read_result ")[2])


@pytest.mark.slow("works through much data")
@each_row(
    "text",
    [
        "".join(f'line "{number}" ä\n' for number in range(8_000)),
        "😀\\" * 20_000,
        "\n".join(["short", "x" * 70_000, "", "end"]),
        "\n" * 80_000,
    ],
    ids=["lines", "one line", "a long line", "empty lines"],
)
async def test_text_is_read_back_to_the_character(text: str):
    budget, call = ResultBudget(), call_of()
    outcome = await budget.fit(call, text_result(text))

    blocks = await read_back(budget, call.caller, outcome.kept)
    (content,) = (await budget.resource(call.caller, URI + outcome.kept)).contents

    assert "".join(each.text for each in blocks) == text
    assert content.text == text


async def test_excerpt_and_following_reads_make_up_the_whole_result():
    text = "".join(f"line {number}\n" for number in range(8_000))
    budget, call = ResultBudget(), call_of()
    result = (await budget.fit(call, text_result(text))).result

    following = msgspec.json.decode(note_of(result).partition("interlock__read_result ")[2])
    rest = await read_back(budget, call.caller, following.pop("id"), **following)

    assert result.content[0].text + "".join(each.text for each in rest) == text  # type: ignore[union-attr]


async def test_array_is_read_back_item_by_item():
    rows = [{"id": number, "name": f"ä{number}"} for number in range(5_000)]
    budget, call = ResultBudget(), call_of()
    outcome = await budget.fit(call, outcome_of(content=[], structuredContent={"rows": rows}))

    blocks = await read_back(budget, call.caller, outcome.kept, pointer="/rows")
    (content,) = (await budget.resource(call.caller, URI + outcome.kept)).contents

    assert [row for each in blocks for row in msgspec.json.decode(each.text)] == rows
    assert content.mime_type == "application/json"
    assert msgspec.json.decode(content.text or "") == {"rows": rows}


async def test_binary_data_is_read_back_byte_for_byte():
    data = os.urandom(100_000)
    resource = {"uri": "file:///a", "mimeType": "x/y", "blob": b64encode(data).decode()}
    budget, call = ResultBudget(), call_of()
    block = {"type": "resource", "resource": resource}
    outcome = await budget.fit(call, outcome_of(content=[{"type": "text", "text": "a"}, block]))

    blocks = await read_back(budget, call.caller, f"{outcome.kept}/2")
    contents = (await budget.resource(call.caller, f"{URI}{outcome.kept}")).contents

    assert all(isinstance(each, EmbeddedResource) for each in blocks)
    assert b"".join(b64decode(each.resource.blob or "") for each in blocks) == data
    assert (contents[0].text, b64decode(contents[1].blob or "")) == ("a", data)


async def kept(value: object) -> tuple[ResultBudget, Caller, str]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    budget, call = ResultBudget(limits=ResultLimits(Results(max=100))), call_of()
    return budget, call.caller, (await budget.fit(call, text_result(text))).kept


async def read(found: tuple[ResultBudget, Caller, str], **what: Any) -> str:
    budget, caller, id = found
    content = (await budget.read(caller, Reading(id, **what), 10_000)).content
    return "\n".join(each.text for each in content if isinstance(each, TextContent))


async def test_pointer_selects_members_items_and_texts():
    found = await kept({"a/b": [1, {"text": "one\ntwo"}], "pad": "x" * 100})

    assert await read(found, pointer="/a~1b/0") == "1\nlines 1–1 of 1; this is the end"
    assert (await read(found, pointer="/a~1b")).startswith('[1,{"text":"one\\ntwo"}]\nitems 1–2')
    assert (await read(found, pointer="/a~1b/1/text", line=2)).startswith("two\nlines 2–2 of 2")
    with pytest.raises(InvalidArguments, match="no member 'x'; there are a/b, pad"):
        await read(found, pointer="/x")
    with pytest.raises(InvalidArguments, match="the array has 2 items"):
        await read(found, pointer="/a~1b/7")


async def test_pointer_into_text_that_is_not_json_is_refused():
    with pytest.raises(InvalidArguments, match="not JSON; read it by line or offset"):
        await read(await kept("no JSON " * 50), pointer="/a")


async def test_find_returns_lines_with_their_numbers_and_continues():
    found = await kept("".join(f"{number} {'x' * (number % 3)}.\n" for number in range(300)))

    first = await read(found, find="xx.", limit=2)

    assert first.splitlines()[:2] == ["line 3: 2 xx.", "line 6: 5 xx."]
    following = msgspec.json.decode(first.partition("interlock__read_result ")[2])
    following.pop("id")
    assert (await read(found, **following)).splitlines()[0] == "line 9: 8 xx."
    assert "no match for '[x]+'" in await read(found, find="[x]+")


async def test_find_in_a_long_line_returns_the_surroundings_and_their_offset():
    found = await kept("a" * 5_000 + "needle" + "b" * 5_000)

    assert (await read(found, find="needle")).startswith(
        f"line 1, offset 4800: …{'a' * 200}needle{'b' * 200}…"
    )


async def test_missing_place_in_a_result_is_refused_with_the_existing_places():
    found = await kept("one\ntwo\n" * 100)

    for what, problem in (
        ({"line": 999}, "line 999 does not exist; there are 200 lines"),
        ({"offset": 9_999}, r"offset 9999 is past the end \(800\)"),
        ({"pointer": "a"}, "pointer 'a' is not valid; it begins with /"),
    ):
        with pytest.raises(InvalidArguments, match=problem):
            await read(found, **what)
    budget, caller, id = found
    with pytest.raises(InvalidArguments, match=f"{id}/7 does not exist; .* fewer parts"):
        await budget.read(caller, Reading(f"{id}/7"), 1_000)
    with pytest.raises(UnknownResource):
        await budget.resource(caller, f"{URI}{id}/7")


async def test_item_too_large_for_an_answer_is_refused_with_its_pointer():
    found = await kept({"rows": [1, "x" * 20_000]})

    assert (await read(found, pointer="/rows")).startswith("[1]\nitems 1–1 of 2; read on with ")
    with pytest.raises(InvalidArguments, match=r"too large .* read it with pointer /rows/1"):
        await read(found, pointer="/rows", offset=1)
    assert "characters 1–" in await read(found, pointer="/rows/1", offset=0)


async def test_search_below_a_pointer_continues_below_it():
    found = await kept({"log": "hit\n" * 50, "other": "hit"})

    first = await read(found, pointer="/log", find="hit", limit=49)
    following = msgspec.json.decode(first.partition("interlock__read_result ")[2])

    assert following.pop("id") == found[2]
    assert (await read(found, **following)).splitlines() == ["line 50: hit", "1 match"]


async def test_binary_data_is_read_by_offset_and_cannot_be_searched():
    data = bytes(range(200))
    budget, call = ResultBudget(limits=ResultLimits(Results(max=100))), call_of()
    resource = {"uri": "file:///a", "mimeType": "x/y", "blob": b64encode(data).decode()}
    block = {"type": "resource", "resource": resource}
    id = (await budget.fit(call, outcome_of(content=[block]))).kept

    answer = await budget.read(call.caller, Reading(id, offset=10, limit=5), 1_000)

    assert isinstance(answer.content[0], EmbeddedResource)
    assert b64decode(answer.content[0].resource.blob or "") == data[10:15]
    assert note_of(answer).startswith("bytes 11–15 of 200; read on with ")
    for what in ({"find": "a"}, {"pointer": "/a"}, {"line": 2}):
        with pytest.raises(InvalidArguments, match=r"is binary \(x/y\); read it by offset"):
            await budget.read(call.caller, Reading(id, **what), 1_000)


async def test_expired_result_is_refused_with_advice_to_call_the_tool_again():
    budget = ResultBudget()

    with pytest.raises(InvalidArguments, match=r"no kept result 'r_0'.* call the tool again"):
        await budget.read(call_of().caller, Reading("r_0"), 1_000)


async def test_result_of_another_user_looks_like_a_result_that_never_existed():
    budget, _, id = await kept("x" * 200)
    other = Caller(Principal("bert", tenant="acme"), surface="mcp")
    texts = []
    for each in (id, "r_0123456789abcdef0123"):
        with pytest.raises(InvalidArguments) as caught:
            await budget.read(other, Reading(each), 1_000)
        texts.append(str(caught.value).replace(each, "ID"))
        with pytest.raises(UnknownResource):
            await budget.resource(other, URI + each)

    assert texts[0] == texts[1]


async def test_result_in_memory_expires_and_is_dropped_for_later_results():
    now = 0
    store = MemoryResults(100, keep=10, clock=lambda: now)
    owner = ("t", "anna")
    old, new = [await store.keep(owner, "c", bytes(60)) for _ in range(2)]

    assert await store.load(owner, old.id) is None
    assert await store.load(owner, new.id) == bytes(60)
    now = 10_000_000
    assert await store.load(owner, new.id) is None
    assert store.bytes == 0
    with pytest.raises(NotKept):
        await store.keep(owner, "c", bytes(101))


# Each kind of result in each size

LIMIT, MIB = 65_536, 1024 * 1024
ROW = "a row with ä, \u2028 and 😀 "


def members_of(kind: str, size: int, fill: str) -> dict[str, Any]:
    """Return the members of a result of nearly so many bytes, longer by `fill`."""
    row = len(msgspec.json.encode(ROW)) + 1
    rows = [*[ROW] * ((size - 200) // row), fill]
    if kind == "structured":
        return {"content": [], "structuredContent": {"rows": rows}}
    if kind == "binary":
        blob = b64encode(bytes(range(256)) * 99_999)[: (size - 200) // 4 * 4].decode()
        resource = {"uri": f"file:///{fill}", "mimeType": "x/y", "blob": blob}
        return {"content": [{"type": "resource", "resource": resource}]}
    if kind == "array":  # quotes and characters are escaped twice
        rows = [*rows[: int(len(rows) * row / (row + 3)) - 3], fill]
        text = msgspec.json.encode(rows).decode()
    else:
        text = "\n".join([*rows[: int(len(rows) * row / (row + 1)) - 3], fill])
    return {"content": [{"type": "text", "text": text}]}


def sized(kind: str, size: int) -> dict[str, Any]:
    """Return the members of a result of exactly so many bytes."""
    missing = size - len(msgspec.json.encode(members_of(kind, size, "")))
    return members_of(kind, size, "x" * missing)


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize("kind", ["text", "array", "structured", "binary"])
@pytest.mark.parametrize(
    "size",
    [LIMIT - 1, LIMIT, LIMIT + 1, MIB, pytest.param(15 * MIB, marks=pytest.mark.product)],
)
async def test_every_kind_is_read_back_byte_for_byte_by_tool_and_resource(kind: str, size: int):
    budget, call, members = ResultBudget(), call_of(), sized(kind, size)
    whole = outcome_of(**members)
    assert len(whole.raw) == size
    outcome = await budget.fit(call, whole)
    if size <= LIMIT:
        assert outcome is whole
        return
    assert len(outcome.raw) <= LIMIT
    id, pieces = outcome.kept, size // 8 + 10_000
    (content,) = (await budget.resource(call.caller, URI + id)).contents

    if kind == "binary":
        blob = members["content"][0]["resource"]["blob"]
        blocks = await read_back(budget, call.caller, f"{id}/1", pieces)
        assert b"".join(b64decode(each.resource.blob) for each in blocks) == b64decode(blob)
        assert content.blob == blob
    elif kind == "structured":
        found = members["structuredContent"]
        blocks = await read_back(budget, call.caller, id, pieces, pointer="/rows")
        assert [row for each in blocks for row in msgspec.json.decode(each.text)] == found["rows"]
        assert msgspec.json.decode(content.text or "") == found
    else:
        text = members["content"][0]["text"]
        first = {"pointer": ""} if kind == "array" else {}
        blocks = await read_back(budget, call.caller, id, pieces, **first)
        texts = [each.text for each in blocks]
        if kind == "array":
            rows = [row for each in texts for row in msgspec.json.decode(each)]
            assert rows == msgspec.json.decode(text)
        else:
            assert "".join(texts) == text
        assert content.text == text
