"""The check of sentences finds each forbidden phrase, with its line."""

from __future__ import annotations

from tests.prose import habits, names_of_tests, phrases
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


@each_row(
    ("text", "words"),
    [
        ('    """What a server offers."""', "What"),
        ('    """How many calls wait."""', "How many"),
        ('    """Those that have failed."""', "Those that"),
        ('    """Who may call."""', "Who"),
        ('"""Which rule holds.\n', "Which"),
        ('    """As `send`."""', "As"),
        ("        user: Of the tenant.", "user: Of"),
        ("        keys: Those in use.", "keys: Those"),
        ("        name: Its name.", "name: Its"),
        ("        servers: By name.", "servers: By"),
    ],
)
def test_habits_finds_a_docstring_or_attribute_without_a_subject(text: str, words: str):
    assert list(habits(f"A line.\n{text}\n")) == [(2, words)]


def test_habits_accepts_sentences_and_annotations():
    text = '''    """Return the calls. As many as wait."""
        user: The user id of the tenant.
        ServerUnavailable: Its server does not answer.
    by: By = "user"
    """Whether the call has ended."""
'''

    assert not list(habits(text))
