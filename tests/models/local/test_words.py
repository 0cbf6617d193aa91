from interlock.models.local.words import similarity, stems
from tests.support.rows import each_row


def test_names_and_text_are_split_into_the_same_words() -> None:
    assert stems("git_createBranch") == stems("Git: create a branch!")


@each_row(
    ("one", "other"),
    [("commits", "committed"), ("factors", "factor"), ("zones", "zone"), ("staging", "staged")],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stems(one) == stems(other)


def test_stop_words_are_left_out_unless_keep_all() -> None:
    assert stems("what is in the box") == stems("box")
    assert stems("from base", keep_all=True) == ["from", "bas"]


def test_not_staged_has_the_same_stem_as_unstaged() -> None:
    assert stems("which are not yet staged") == stems("unstaged")


def test_similarity_of_words_depends_on_meaning_or_prefix() -> None:
    assert similarity(*stems("erase"), *stems("delete")) > 0.5
    assert similarity(*stems("difference"), *stems("diff")) > 0.3
    assert similarity(*stems("base"), *stems("basement")) == 0
