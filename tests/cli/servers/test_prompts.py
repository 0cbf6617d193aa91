"""`interlock prompts` and `prompt`."""

from __future__ import annotations

import pytest

from tests.support.rows import each_row


@pytest.mark.slow("starts a program")
def test_prompts_are_listed_with_their_arguments(interlock, library):
    assert "library:review  book=… [tone=…]  Review a book." in interlock("prompts").out


@pytest.mark.slow("starts a program")
def test_prompt_prints_its_messages(interlock, library):
    ran = interlock("prompt", "library:review", "book=Moby Dick")

    assert (ran.code, ran.out) == (0, "Review Moby Dick in a kind tone.\n")


@pytest.mark.slow("starts a program")
@each_row(
    ("words", "code"), [(["library:review"], 1), (["review"], 2), (["library:review", "x"], 2)]
)
def test_prompt_without_its_arguments_is_an_error(interlock, library, words: list[str], code: int):
    ran = interlock("prompt", *words)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
