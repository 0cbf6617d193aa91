import json

from interlock.messages import ToolCall, ToolMessage
from interlock.models.local.answers import format_results
from tests.support.rows import each_row


def test_a_flat_object_becomes_one_line_per_field() -> None:
    result = ToolMessage(
        "1", '{"timezone": "Asia/Tokyo", "is_dst": false}', "time__get_current_time"
    )

    assert format_results([result]) == "Current time:\n\n- timezone: Asia/Tokyo\n- is_dst: false"


def test_lines_of_a_text_are_not_joined() -> None:
    assert format_results(
        [ToolMessage("1", "On branch main\nnothing to commit", "git__git_status")]
    ) == ("Git status:\n\n```\nOn branch main\nnothing to commit\n```")


def test_a_single_value_stays_on_one_line() -> None:
    assert (
        format_results([ToolMessage("1", '{"result": true}', "math__is_prime")]) == "Is prime: true"
    )
    assert format_results([ToolMessage("1", "42", "answer")]) == "Answer: 42"


@each_row("result", ["[]", "{}", '{"result": []}'])
def test_empty_list_is_described_as_nothing(result: str) -> None:
    assert format_results([ToolMessage("1", result, "search")]) == "Search: nothing"


def test_a_nested_result_keeps_every_value() -> None:
    result = json.dumps({"pages": [{"title": "Ünder"}, {"title": "Two"}], "total": 2}, indent=1)

    answer = format_results([ToolMessage("1", result, "list_pages")])

    assert "Ünder" in answer
    assert "Two" in answer
    assert "- total: 2" in answer


def test_a_nested_flat_object_becomes_one_line() -> None:
    result = ToolMessage("1", '{"source": {"zone": "UTC", "dst": false}}', "convert_time")

    assert format_results([result]) == "Convert time:\n\n- source: zone: UTC, dst: false"


def test_a_list_of_flat_objects_becomes_one_line_for_each() -> None:
    result = ToolMessage("1", '[{"name": "a", "size": 1}, {"name": "b"}]', "list_files")

    assert format_results([result]) == "Files:\n\n- name: a, size: 1\n- name: b"


@each_row("prefix", ["", "error: "])
def test_an_error_names_the_tool_and_the_reason(prefix: str) -> None:
    result = ToolMessage("1", f"{prefix}no such folder: /x", "git__git_status", is_error=True)

    assert format_results([result]) == "Git status did not work: no such folder: /x"
    assert "no reason" in format_results([ToolMessage("1", "", "git__git_status", is_error=True)])


def test_empty_result_becomes_a_text_that_nothing_was_returned() -> None:
    assert format_results([ToolMessage("1", " \n", "lights__turn_on")]) == (
        "Turn on: done, and nothing was returned."
    )


def test_several_results_become_one_answer_with_the_input_of_each() -> None:
    results = [ToolMessage("1", "true", "is_even"), ToolMessage("2", "b", "")]
    calls = [ToolCall("1", "is_even", {"n": 12}), ToolCall("2", "", {})]

    assert format_results(results, calls) == "Is even (n 12): true\n\nThe tool: b"


def test_oversized_result_is_cut_with_a_notice() -> None:
    answer = format_results([ToolMessage("1", "x" * 10_000, "read_file")])

    assert len(answer) < 8_200
    assert answer.endswith("\n… 2000 more characters\n```")
