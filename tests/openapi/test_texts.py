"""Text of documents, made fit for a model."""

from __future__ import annotations

from interlock.openapi import texts
from tests.support.rows import each_row


def test_invisible_and_control_characters_are_removed_and_lines_stay():
    assert texts.visible("a\u200bb\u202ec\x1b[0m\nd\te\U000e0041") == "abc[0m\nd\te"


@each_row(
    ("text", "plain"),
    [
        ("<p>One <b>two</b></p>", "One two"),
        ("a < b and b > c", "a < b and b > c"),
        ("One\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nTwo", "One\n\nTwo"),
        ("One<!-- hidden -->Two <!-- open", "OneTwo"),
        ("One  two\n \n\n three", "One two\n\nthree"),
    ],
)
def test_markup_is_removed_from_prose(text: str, plain: str):
    assert texts.prose(text) == plain


def test_clipped_text_ends_after_a_whole_word_within_its_limit():
    assert texts.clip("one two three", 13) == "one two three"
    assert texts.clip("one two three", 10) == "one two…"
    assert texts.clip("x" * 20, 10) == "x" * 9 + "…"
