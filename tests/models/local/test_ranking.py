import json
from typing import Any

from interlock.models import ToolDefinition
from interlock.models.local.embedded import CLEAR, SURE
from interlock.models.local.ranking import ToolRanking
from tests.support.rows import each_row


def tool(name: str, description: str, **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolDefinition(name, description, json.dumps(schema).encode())


STRING = {"type": "string"}
TOOLS = [
    tool("disk__read_file", "Read a file.", path=STRING),
    tool("disk__delete_file", "Delete a file.", path=STRING),
    tool("disk__usage", "Show how much space is used and free."),
    tool("web__fetch", "Get a page from the internet.", url=STRING),
    tool("lights__turn_on", "Turn on the light in a room.", room=STRING),
    tool("lights__turn_off", "Turn off the light in a room.", room=STRING),
    tool("sums__is_even", "Return whether a number is even.", n={"type": "integer"}),
]


@each_row(
    ("request_", "expected"),
    [
        ("Read the file /etc/hosts", "disk__read_file"),
        ("Erase the file /tmp/x", "disk__delete_file"),
        ("How much free space do I have?", "disk__usage"),
        ("What does https://example.org say?", "web__fetch"),
        ("Please turn on the light in the kitchen", "lights__turn_on"),
        ("Turn the light in the kitchen off", "lights__turn_off"),
        ("Is 12 even?", "sums__is_even"),
    ],
)
def test_the_matching_tool_ranks_first(request_: str, expected: str) -> None:
    best = ToolRanking(TOOLS).rank(request_)[0]

    assert best.tool.definition.name == expected
    assert best.score >= SURE


@each_row(
    "request_",
    ["", "Hello!", "Tell me a joke.", "Why is the sky blue?", "What is an even number?", "🙂" * 50],
)
def test_small_talk_and_general_questions_match_no_tool(request_: str) -> None:
    assert all(candidate.score < SURE for candidate in ToolRanking(TOOLS).rank(request_))


def test_question_ranks_a_read_only_tool_before_a_changing_tool() -> None:
    best = ToolRanking(TOOLS).rank("Which file is in /tmp/x?")[0]

    assert best.tool.definition.name == "disk__read_file"


def test_a_missing_argument_lowers_the_score_below_the_full_score() -> None:
    best = max(ToolRanking(TOOLS).rank("Is it even?"), key=lambda candidate: candidate.full_score)

    assert best.tool.title == "is_even"
    assert [parameter.name for parameter in best.filling.missing] == ["n"]
    assert best.score < best.full_score >= CLEAR


@each_row("schema", [b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"properties":7}'])
def test_a_tool_with_a_broken_schema_has_no_parameters(schema: bytes) -> None:
    odd = ToolDefinition("odd", "Ring the bell.", schema)

    best = ToolRanking([odd]).rank("Ring the bell")[0]

    assert best.filling.arguments == {}
    assert best.score >= SURE


def test_a_tool_without_server_and_description_can_rank_first() -> None:
    bare = ToolDefinition("ring_bell", "", b'{"type":"object"}')

    assert ToolRanking([bare, *TOOLS]).rank("ring the bell")[0].tool.title == "ring_bell"


def test_only_the_beginning_of_a_long_request_is_read() -> None:
    request = "Is 12 even? " + "lorem ipsum 3, " * 100_000

    assert len(ToolRanking(TOOLS).rank(request)) == len(TOOLS)


def test_ranking_without_tools_is_empty() -> None:
    assert ToolRanking([]).rank("Is 12 even?") == []
