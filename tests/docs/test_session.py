"""The test of pages refuses a page that shows something else than what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import Block, blocks
from tests.docs.session import Shell, commands, compare, has_shape_of
from tests.support.rows import each_row


@each_row(
    ("shown", "printed"),
    [
        ("took 0.02 s", "took 11.5 s"),
        ("added 'time' to …", "added 'time' to /home/ann/mcp.json"),
        ("{\n…\n}", '{\n  "a": 1,\n  "b": 2\n}'),
        ("at 2026-11-22T10:00Z", "at 2027-01-01T23:59Z"),
    ],
)
def test_output_may_differ_where_runs_differ(shown: str, printed: str):
    compare(printed.splitlines(), shown.splitlines(), "x")


@each_row(
    ("shown", "printed"),
    [
        ("3 tools", "2 tools"),
        ("one line", "one line\nand another"),
        ("one line\nand another", "one line"),
        ("took 0.02 s", "took long"),
        ("a+b", "aab"),
    ],
)
def test_different_output_is_an_error_that_shows_both_texts(shown: str, printed: str):
    with pytest.raises(AssertionError, match="and the page shows"):
        compare(printed.splitlines(), shown.splitlines(), "x")


def test_answer_may_have_other_values_but_no_other_types_and_no_missing_members():
    shown = {"ok": True, "ms": 3.1, "items": [{"id": "c_1"}]}

    assert has_shape_of({"ok": False, "ms": 9, "items": [{"id": "c_2"}], "more": 1}, shown)
    for wrong in (
        {"ms": 1},
        {**shown, "ok": 1},
        {**shown, "ms": "3"},
        {**shown, "items": [{"name": "c_1"}]},
    ):
        assert not has_shape_of(wrong, shown)


def test_session_is_split_into_commands_with_their_output():
    assert [*commands("$ one\nits output\n$ two \\\n  --long\n")] == [
        ("one", ["its output"]),
        ("two    --long", []),
    ]


@pytest.mark.slow("starts a program")
def test_server_that_is_still_starting_is_awaited_after_the_other_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    up = "1 of 1 server is up, 2 tools"
    printed = rf"0 of 1 server is up, 0 tools\nwarning: a is still starting\nkey\n{up}\n"
    page = f'```console\n$ printf "{printed}" &\n{up}\nkey\n```\n'
    shell = Shell(pytest.fail, pytest.fail, tmp_path, monkeypatch)
    try:
        for block in blocks(page):
            shell.run(block)
    finally:
        shell.close()


def test_block_has_its_title_comments_and_line():
    (block,) = blocks('Text.\n\n<!-- model: ["Hi."] -->\n```python title="a.py"\nx = 1\n```\n')

    assert block == Block(5, "python", "a.py", "", ('model: ["Hi."]',), "x = 1\n")


def test_block_that_does_not_run_has_a_reason():
    (block,) = blocks('```python {.norun reason="needs a key"}\nx = 1\n```\n')

    assert block.norun == "needs a key"
    with pytest.raises(AssertionError, match="needs a reason"):
        [*blocks("```python {.norun}\nx = 1\n```\n")]


@each_row(
    ("block", "is_converted"),
    [
        ("```python\nx = 1\n```\n", True),
        ("<!-- examples/a.py -->\n```python\nx = 1\n```\n", False),
        ('```json title="a.json"\n{}\n```\n', True),
        ("```json\n{}\n```\n", False),
        ("```console\n$ ls\n```\n", True),
        ("```http\nGET /me\n\n200\n{}\n```\n", True),
        ("```text\n$ ls\n```\n", False),
        ("```text\na -> b\n```\n", True),
        ("```\na -> b\n```\n", False),
    ],
)
def test_block_is_converted_if_its_language_states_how_to_run_it(block: str, is_converted: bool):
    assert [each.is_converted for each in blocks(block)] == [is_converted]
