from interlock.cli.call_lines import LONGEST_ARGUMENTS, LONGEST_EXCERPT, call_line, excerpt


def test_call_line_writes_the_arguments_as_json():
    assert call_line("e:say", {"text": "x", "n": 1}) == 'e:say(text="x", n=1)'
    assert call_line("e:now", {}) == "e:now()"


def test_call_line_shortens_and_escapes_its_parts():
    line = call_line("e:\x1b[2J", {"text": "y" * 1000, "more": 1})

    assert line.startswith('e:\\x1b[2J(text="yyy')
    assert len(line) == len("e:\\x1b[2J()") + LONGEST_ARGUMENTS
    assert line.endswith("…)")


def test_excerpt_returns_the_first_lines_without_blank_ones():
    assert excerpt("one\n\n  \ntwo\x1b", 20) == ["one", "two\\x1b"]
    assert excerpt("", 20) == []


def test_excerpt_cuts_long_lines_and_counts_the_rest():
    lines = excerpt("\n".join(["x" * 30] * 9), 20)

    assert lines == ["x" * 19 + "…"] * LONGEST_EXCERPT + ["… 3 more lines"]
