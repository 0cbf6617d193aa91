"""The index that ranks tools by the words of a query."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from interlock.toolbox.search_words import WORDS
from interlock.toolbox.tool_index import IndexedTool, ToolIndex, fold, stem
from interlock.types import JsonObject
from tests.support.rows import each_row
from tests.toolbox.invented_tools import MODEL_REQUESTS, PERSON_REQUESTS, TOOLS

TOOL = re.compile(r"(?P<name>[\w-]+): (?P<text>[^(]+)(?:\((?P<parameters>.*)\))?")


def invented() -> list[IndexedTool]:
    found: list[IndexedTool] = []
    server = ""
    for line in TOOLS.strip().splitlines():
        match = TOOL.fullmatch(line)
        if match is None:
            server = line
            continue
        names = (match["parameters"] or "").split(", ")
        schema: JsonObject = {"properties": {name: {} for name in names if name}}
        address = f"{server}:{match['name']}"
        found.append(IndexedTool(address, server, match["name"], "", match["text"], schema))
    return found


def index_of(tools: list[IndexedTool]) -> ToolIndex:
    index = ToolIndex()
    index.replace(tools)
    return index


def tool(
    at: str, description: str = "", *, title: str = "", parameters: JsonObject | None = None
) -> IndexedTool:
    server, _, name = at.partition(":")
    return IndexedTool(at, server, name, title, description, {"properties": parameters or {}})


def found(index: ToolIndex, query: str, limit: int = 5) -> list[str]:
    return [each.address for each in index.search(query, limit)]


# Recall


@each_row(
    ("requests", "first", "five"), [(MODEL_REQUESTS, 0.9, 0.97), (PERSON_REQUESTS, 0.5, 0.75)]
)
def test_most_of_the_invented_requests_find_an_acceptable_tool(
    requests: str, first: float, five: float
) -> None:
    index = index_of(invented())
    lines = [line.split(" | ") for line in requests.strip().splitlines()]
    ranks = []
    for query, accepted in lines:
        ranked = found(index, query, 5)
        places = [ranked.index(each) for each in accepted.split() if each in ranked]
        ranks.append(min(places, default=9))
    missed = [line[0] for line, rank in zip(lines, ranks, strict=True) if rank == 9]
    assert len(lines) - len(missed) >= five * len(lines), missed
    assert ranks.count(0) >= first * len(lines)


def test_stuffed_tools_come_after_the_tool_that_a_query_is_about() -> None:
    verbs = ("create", "list", "get", "delete", "add", "set", "search", "send", "move", "open")
    counted = Counter(re.findall(r"[a-z]{4,}", TOOLS.lower()))
    words = [word for word, _ in counted.most_common(600)]
    evil = [
        tool("evil:helper", " ".join(words)),
        tool("evil:" + "_".join(verbs)),
        tool("evil:best", " ".join(words[:90] * 5), title=" ".join(words[:30])),
        tool("evil:more", parameters={word: {"description": " ".join(words)} for word in words}),
    ]
    index = index_of([*evil, *invented()])
    queries = [
        line.split(" | ")[0] for line in (MODEL_REQUESTS + PERSON_REQUESTS).split("\n") if line
    ]
    taken = [q for q in queries if any(each.startswith("evil") for each in found(index, q, 1))]
    assert len(taken) <= 0.02 * len(queries), taken


def test_the_word_list_is_small_and_each_line_has_a_meaning() -> None:
    assert len(WORDS) <= 10_000
    assert all(re.fullmatch(r"[a-z ]+: [a-z0-9 ]+", line) for line in WORDS.strip().splitlines())


@each_row(
    "query, best",
    [
        ("Which domains do we have?", "dns:domain-list"),
        ("domains", "dns:domain-create"),  # not a question: the order of the configuration
        ("how do I delete a domain", "dns:domain-delete"),
        ("whichever domain", "dns:domain-create"),
    ],
)
def test_a_question_finds_the_tool_that_reads_unless_it_names_another_action(
    query: str, best: str
) -> None:
    names = ("domain-create", "domain-delete", "domain-list")
    assert found(index_of([tool(f"dns:{each}") for each in names]), query)[0] == best


# Words


@each_row(
    "word, expected",
    [
        ("issues", "issu"), ("issue", "issu"), ("queries", "query"), ("boxes", "box"),
        ("running", "run"), ("created", "creat"), ("creates", "creat"), ("status", "status"),
        ("address", "address"), ("string", "string"), ("ids", "ids"), ("calling", "call"),
    ],
)  # fmt: skip
def test_a_word_and_its_forms_have_one_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


@each_row(
    "text, folded",
    [
        ("Ｅｘｐｏｒｔ", "export"),
        ("Zürich", "zurich"),
        ("dele\u200bte\U000e0041", "delete"),
        ("Straße", "strasse"),
    ],
)
def test_texts_are_compared_without_accents_case_and_format_characters(
    text: str, folded: str
) -> None:
    assert fold(text) == folded


@each_row(
    "query, address",
    [
        ("getIssueById", "a:get_issue_by_id"),
        ("GET-ISSUE", "a:get_issue_by_id"),
        ("mong", "b:find"),  # a word that no tool has stands for words that begin with it
        ("ページ 作成", "c:ページを作成"),
        ("priority", "d:put"),  # a parameter
        ("urgentissimo", "d:put"),  # a value that it may have
        ("nested", "d:put"),
        ("deprecated", "e:old"),  # a title
        ("42", "f:answer_42"),  # a number, if there is nothing else
    ],
)
def test_a_tool_is_found_by_the_words_of_all_its_parts(query: str, address: str) -> None:
    parts: JsonObject = {
        "priority": {"enum": ["urgentissimo"]},
        "item": {"type": "object", "properties": {"nested": {"type": "string"}}},
    }
    index = index_of(
        [
            tool("a:get_issue_by_id"),
            tool("b:find", "Search MongoDB."),
            tool("c:ページを作成"),
            tool("d:put", parameters=parts),
            tool("e:old", title="Deprecated"),
            tool("f:answer_42"),
        ]
    )
    assert found(index, query)[:1] == [address]


@each_row(
    "query, best",
    [
        ("open a GitHub issue", "github:open_issue"),  # two words are the name of a server
        ("delete from mongo", "mongodb:delete"),  # the beginning of one, which others mention
        ("mindmap", "chart:mind_map"),  # two words of a tool, which no other tool joins
        ("my cards", "b:get_my_cards"),  # a stop word in a name
        ("list PRs", "g:list_pull_requests"),
        ("release templates", "b:release_templates"),  # as it is spelled
        ("search data", "a:search_data"),  # not each tool of a server that begins so
    ],
)
def test_compounds_servers_and_spellings_of_a_query_are_understood(query: str, best: str) -> None:
    names = (
        "a:get_card a:search_data b:get_card b:get_my_cards b:release_template b:release_templates "
        "chart:mind chart:map chart:mind_map datadog:query datadog:search git:open_issue g:list_rs "
        "github:open_issue g:list_pull_requests mongodb:delete"
    )
    shelf = tool("shelf:view", "A mongo, a map, data.")
    index = index_of([shelf, *map(tool, names.split())])
    assert found(index, query)[:1] == [best]


@each_row("query", ["", " ", "the of", "😀", "\0", "(((", "\ud800", "x" * 100_000, "ab " * 50_000])
def test_an_odd_query_is_answered(query: str) -> None:
    assert len(found(index_of(invented()), query)) <= 5


def test_only_the_beginning_of_a_query_counts() -> None:
    index = index_of(invented())
    assert found(index, "word" * 250 + " create invoice") == []
    many = " ".join(f"word{n}" for n in range(64))
    assert found(index, many + " invoice") == []


# Ranking


def test_the_ranking_of_visible_tools_is_that_of_an_index_of_them_alone() -> None:
    chance, tools = random.Random(1), invented()
    whole = index_of(tools)
    for line in MODEL_REQUESTS.strip().splitlines():
        seen = chance.sample(tools, 40)
        seen.sort(key=tools.index)
        query = line.split(" | ")[0]
        assert whole.search(query, 10, {each.address for each in seen}) == index_of(seen).search(
            query, 10
        )


def test_equal_tools_have_the_order_of_the_configuration() -> None:
    twins = [tool(f"s{n}:find_page", "Find a page.") for n in range(9)]
    random.Random(2).shuffle(twins)
    index = index_of(twins[:5])
    index.replace(twins)
    assert found(index, "find page", 9) == [each.address for each in twins]


def test_matches_name_the_words_and_the_parts_that_contain_them() -> None:
    index = index_of(invented())
    assert index.matches("make an invoice zebra", "ledger:create_invoice") == {
        "make": {"creat": ["name", "description"]},
        "invoice": {"invoic": ["name", "description"]},
    }


# Changes


def test_an_updated_index_is_that_of_the_tools_alone() -> None:
    chance, tools, index = random.Random(3), invented(), ToolIndex()
    for _ in range(12):
        now = chance.sample(tools, chance.randint(0, len(tools)))
        now = [
            tool(each.address, "Create a page.") if chance.random() < 0.1 else each for each in now
        ]
        index.replace(now)
        for query in ("create page", "delete branch", "parcel"):
            assert index.search(query, 20) == index_of(now).search(query, 20)
        assert len(index) == len(now)


def test_an_unchanged_tool_is_not_indexed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(invented())
    added: list[str] = []
    monkeypatch.setattr(ToolIndex, "_add", lambda _, each: added.append(each.address))
    index.replace([*invented(), tool("new:tool")])
    assert added == ["new:tool"]


def test_during_an_update_the_tools_so_far_are_found_and_removed_ones_are_not() -> None:
    many = [tool(f"s:page_{n}") for n in range(120)]
    index = index_of([tool("old:page")])
    steps = index.update(many)
    next(steps)
    assert not index.is_complete
    assert len(found(index, "page", 200)) == 50
    assert [*steps]
    assert index.is_complete
    assert len(found(index, "page", 200)) == 120
