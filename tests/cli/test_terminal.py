"""Untrusted text is escaped before it reaches a terminal."""

import json
import sys
import unicodedata

import pytest

from interlock.cli import terminal
from interlock.cli.terminal import (
    emit,
    emit_json,
    emit_lines,
    emit_table,
    in_columns,
    safe,
    safe_line,
)
from tests.support.rows import each_row

ATTACKS = {
    "colour": ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
    "clear the screen": ("a\x1b[2J\x1b[Hb", "a\\x1b[2J\\x1b[Hb"),
    "title by OSC": ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
    "link that hides": ("\x1b]8;;http://evil\x1b\\good\x1b]8;;\x1b\\", None),
    "C1 introducer": ("\x9b31mred", "\\x9b31mred"),
    "overwrite by return": ("delete all\rlist all  ", "delete all\\x0dlist all  "),
    "backspace": ("rm\b\bls", "rm\\x08\\x08ls"),
    "null and bell": ("a\0b\a", "a\\x00b\\x07"),
    "delete": ("a\x7fb", "a\\x7fb"),
    "right to left override": ("\u202egnp.exe", "\\u202egnp.exe"),
    "isolates": ("\u2066a\u2069", "\\u2066a\\u2069"),
    "zero width": ("pay\u200bpal", "pay\\u200bpal"),
    "joiner between letters": ("pay\u200dpal", "pay\\u200dpal"),
    "byte order mark": ("\ufeffa", "\\ufeffa"),
    "soft hyphen": ("pay\u00adpal", "pay\\xadpal"),
    "tags": ("a\U000e0041\U000e007f", "a\\U000e0041\\U000e007f"),
    "selectors that carry data": ("a\ufe00\U000e0100", "a\\ufe00\\U000e0100"),
    "fillers": ("a\u3164\uffa0\u115f", "a\\u3164\\uffa0\\u115f"),
    "line separators": ("a\u2028b\u2029c\x85d", "a\\u2028b\\u2029c\\x85d"),
    "lone surrogate": ("a\ud800b", "a\\ud800b"),
    "internal placeholder": ("a\ue000b", "a\\ue000b"),
}


@pytest.mark.parametrize(("attack", "shown"), ATTACKS.values(), ids=ATTACKS)
def test_safe_escapes_control_characters_of_a_terminal(attack: str, shown: str | None):
    assert shown is None or safe(attack) == shown
    assert not set(safe(attack)) & set(map(chr, [*range(32), *range(127, 160)]))


@pytest.mark.slow("works through much data")
def test_safe_escapes_every_invisible_character():
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    # These have a shape: signs of Arabic, Syriac, Kaithi and Egyptian numbers and quadrats.
    drawn = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD]
    drawn += range(0x13430, 0x13440)
    passed = [
        f"{code:04x}"
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in hidden
        and code not in drawn
        and chr(code) not in "\n\t"
        and safe(f"a{chr(code)}a") == f"a{chr(code)}a"
    ]

    assert passed == []


@each_row("text", ["plain", "a\nb\tc", "Zürich 東京 שלום", "⚠\ufe0f 1\ufe0f⃣", "👍🏽", "<b>&amp;"])
def test_safe_keeps_plain_text_of_every_language(text: str):
    assert safe(text) == text


def test_safe_removes_joiners_that_shape_a_script():
    assert safe("می\u200cخواهم") == "میخواهم"
    assert safe("👩\u200d🚀") == "👩🚀"


def test_safe_line_returns_one_short_line():
    assert safe_line("a\r\n  b\tc\n") == "a b c"
    assert safe_line("x" * 50, 10) == "x" * 9 + "…"
    assert len(safe_line("\x1b" * 1_000_000, 10)) == 10


def test_safe_keeps_windows_line_ends_as_newlines():
    assert safe("a\r\nb") == "a\nb"


def test_emit_to_a_pipe_writes_the_text_unchanged(capsys: pytest.CaptureFixture[str]):
    emit("\x1b[31m\u202e")

    assert capsys.readouterr().out == "\x1b[31m\u202e\n"


def test_emit_to_a_terminal_escapes_the_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(terminal, "is_terminal", lambda _: True)
    emit("\x1b[31m\u202e")

    assert capsys.readouterr().out == "\\x1b[31m\\u202e\n"


def test_emit_json_escapes_without_changing_the_value(capsys: pytest.CaptureFixture[str]):
    value = {"a\u202e": ["\x1b\x9b\U000e0041 é"]}
    emit_json(value)
    out = capsys.readouterr().out

    assert json.loads(out) == value
    assert out.isprintable() or {c for c in out if not c.isprintable()} == {"\n"}
    assert "é" in out


def test_tables_are_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]):
    for printed in (emit_table, emit_lines):
        printed([("a", "one\ntwo " * 30), ("long", "\x1b[2J")])

        assert capsys.readouterr().out == f"a     {'one two ' * 29}one two\nlong  \\x1b[2J\n"


def test_a_list_cuts_lines_at_the_edge_of_the_terminal_and_a_table_wraps_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(terminal, "is_terminal", lambda _: True)
    row = ("extra oauth", "x" * 40, "pip install --no-input 'keyring>=25.5' 'pyjwt>=2.11'")
    emit_lines([row])
    emit_table([row, ("a", "b", "c")])

    start = f"extra oauth  {'x' * 40}"
    assert capsys.readouterr().out.splitlines() == [
        f"{start}  pip install --no-input '…",
        start,
        "    pip install --no-input 'keyring>=25.5' 'pyjwt>=2.11'",
        f"a            b{' ' * 39}  c",
    ]


def test_table_columns_wrap_between_words():
    text = "one two three four five six seven eight"
    rows = [("a:b", text), ("ab:\x1b", "x\ny"), ("c", "")]

    assert in_columns(rows, 40) == [
        "a:b      one two three four five six",
        "         seven eight",
        "ab:\\x1b  x y",
        "c",
    ]
    assert in_columns([("a:" + "b" * 30, text)], 40) == [
        "a:" + "b" * 30,
        "    one two three four five six seven",
        "    eight",
    ]
    assert in_columns([("b" * 30, "2026-11-28", "c" * 9, "denied by a rule")], 44) == [
        f"{'b' * 30}  2026-11-28",
        "    ccccccccc  denied by a rule",
    ]
    assert in_columns([("path", f"in {'/folder' * 9} of")], 60) == [
        "path  in",
        f"      {'/folder' * 9}",
        "      of",
    ]
