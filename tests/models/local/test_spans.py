import time

from interlock.models.local.spans import find_spans
from tests.support.rows import each_row


def values(text: str, kind: str) -> list[object]:
    return [span.value for span in find_spans(text) if span.kind == kind]


@each_row(
    ("text", "kind", "expected"),
    [
        ("read /etc/hosts, please", "path", ["/etc/hosts"]),
        ("what is in ~/notes?", "path", ["~/notes"]),
        ("move notes.md to ideas/new.md", "path", ["notes.md", "ideas/new.md"]),
        ("time in Asia/Tokyo", "zone", ["Asia/Tokyo"]),
        ("time in New York and in Paris", "zone", ["America/New_York", "Europe/Paris"]),
        ("a nice evening in paris", "zone", []),  # no capital: perhaps not the city
        ("a trip to 'Paris'", "zone", []),
        ("see Paris.txt and Paris/notes", "zone", []),
        ("release 1.15", "clock", []),
        ("commit 0123456 and 01234567", "hash", []),
        ("at 14:30", "clock", ["14:30"]),
        ("at 9:05 am or 3pm", "clock", ["09:05", "15:00"]),
        ("at 12 am, at noon", "clock", ["00:00", "12:00"]),
        ("on 2026-03-04", "date", ["2026-03-04"]),
        ("add 3, -4.5 and 1,000 and seven", "number", [3, -4.5, 1000, 7]),
        ("commit abc1234 of release-2.0", "number", []),
        ("commit abc1234 of release-2.0", "hash", ["abc1234"]),
        ("commit abc1234 of release-2.0", "identifier", ["release-2.0"]),
        ("what is (12 + 8) / 5?", "expression", ["(12 + 8) / 5"]),
        ("what is 12 plus 30?", "expression", ["12 + 30"]),
        ("solve x**2 - 3*x = 4", "expression", ["x**2 - 3*x = 4"]),
        ('say "good night" to `all`', "quoted", ["good night", "all"]),
        ("it's what I'd call 'fine'", "quoted", ["fine"]),
        ("fetch https://example.org/a?b=c.", "url", ["https://example.org/a?b=c"]),
        ("write to info@example.org!", "email", ["info@example.org"]),
        ("run SELECT a FROM b WHERE c = 1", "sql", ["SELECT a FROM b WHERE c = 1"]),
        ("multiply [[1, 2], [3, 4]]", "json", [[[1, 2], [3, 4]]]),
        ("a [note] in brackets", "json", []),
    ],
)
def test_argument_values_are_found_by_their_form(
    text: str, kind: str, expected: list[object]
) -> None:
    assert values(text, kind) == expected


def test_recognised_spans_of_a_request_do_not_overlap() -> None:
    definite = [span.kind for span in find_spans('Commit "3 files" in /srv/app at 10:00')]

    assert definite == ["quoted", "path", "clock"]


def test_word_after_a_preposition_may_become_an_argument_value() -> None:
    assert "main" in values("the differences between my branch and main in /srv", "object")


def test_filler_words_are_not_taken_as_values() -> None:
    assert values("what is in the box?", "object") == ["box"]


@each_row(
    "text",
    ["(" * 2000, "((1)+" * 400, "1+" * 1000, "a@" * 1000, "a-" * 1000, "[[" * 1000, "'" * 2000],
)
def test_adversarial_text_is_scanned_quickly(text: str) -> None:
    start = time.process_time()

    find_spans(text)

    assert time.process_time() - start < 2.0  # an exponential pattern would take hours
