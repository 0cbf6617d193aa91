"""The check of sentences finds each forbidden phrase, with its line."""

from __future__ import annotations

from tests.prose import names_of_tests, phrases
from tests.support.rows import each_row


@each_row(
    ("text", "words"),
    [
        ("an address that is none", "that is none"),
        ("This is no URL", "is no URL"),
        ("Who asks", "Who asks"),
        ("whoever it may be", "whoever"),
        ("begin anew.", "anew"),
        ("a process of ours", "of ours"),
        ("# this is\n    # no URL", "is no URL"),
        ('"this is "\n    f"no URL"', "is no URL"),
    ],
)
def test_phrases_finds_a_forbidden_phrase(text: str, words: str):
    assert list(phrases(f"A line.\n{text}\n")) == [(2, words)]


def test_phrases_accepts_plain_english():
    assert not list(phrases("An invalid URL is not accepted. There are no hours. It is now open."))


def test_only_the_names_of_tests_are_checked_in_a_test_file():
    names = names_of_tests(
        "# is no URL\ndef test_this_is_no_url() -> None:\n    this_is_no_url()\n"
    )

    assert list(phrases(names)) == [(2, "is no url")]
