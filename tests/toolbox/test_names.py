"""Names of tools: no two the same, none changed by another."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock.toolbox.names import MAX_WIRE_NAME, address, plain_name, wire_name
from tests.support.rows import each_row

PARTS = st.text("ab_-9A", max_size=6) | st.text(max_size=80) | st.from_regex(r"\A[\w.-]{1,128}\Z")
PAIRS = st.tuples(PARTS, PARTS)
FOR_MODELS = re.compile(r"[A-Za-z0-9_-]{1,64}")


@given(PAIRS)
@example(("", ""))
@example(("\0", "\ud800"))
@example(("a" * 500, "b" * 500))
@example((";", "b" * 70))
def test_wire_name_is_valid_for_every_model(pair: tuple[str, str]):
    assert FOR_MODELS.fullmatch(wire_name(*pair))
    assert wire_name(*pair)[0].isalpha()


@given(PAIRS, PAIRS)
@example(("a_", "b"), ("a", "_b"))
@example(("a__b", "c"), ("a", "b__c"))
@example(("a", "b"), ("a_", "b"))
@example(("a", "b_"), ("a", "b"))
@example(("a", "Ь"), ("a", "b"))  # the first is Cyrillic
@example(("time", "nоw"), ("time", "now"))  # the first has a Cyrillic o
@example(("a", "b c"), ("a", "b_c"))
@example(("a\0b", "c"), ("a", "b\0c"))
@example(("a", ""), ("", "a"))
@example(("\0", ""), ("", "\0"))
@example(("a", "n" * 200), ("a", "n" * 201))
def test_different_tools_have_different_wire_names(one: tuple[str, str], other: tuple[str, str]):
    assert (wire_name(*one) == wire_name(*other)) == (one == other)


@pytest.mark.slow("tries many examples")
@given(PAIRS, PAIRS)
def test_tool_name_cannot_imitate_a_hashed_wire_name(one: tuple[str, str], other: tuple[str, str]):
    taken = wire_name(*one)
    server, _, name = taken.partition("__")
    for attempt in ((server, name), (taken, ""), ("", taken), (other[0], taken)):
        assert attempt == one or wire_name(*attempt) != taken


@given(PAIRS, PAIRS)
@example(("a", "b.c"), ("b", "b.c"))
@example(("a", "b.c"), ("a", "b c"))
@example(("a", "b.c"), ("b", plain_name("a", "b.c")))
def test_plain_names_are_valid_and_two_names_never_share_one(
    one: tuple[str, str], other: tuple[str, str]
):
    names = plain_name(*one), plain_name(*other)

    assert all(FOR_MODELS.fullmatch(name) for name in names)
    assert names[0] != names[1] or one == other or one[1] == other[1] == names[0]


@each_row(
    ("name", "plain"),
    [
        ("search", "search"),
        ("get__x_", "get__x_"),
        ("n" * 64, "n" * 64),
        ("a.b", "a_b__[0-9a-f]{10}"),
        ("日本語", "x__[0-9a-f]{10}"),
        ("n" * 65, "n{52}__[0-9a-f]{10}"),
        ("interlock__read_result", "interlock_read_result__[0-9a-f]{10}"),
        ("a_b__0123456789", "a_b_0123456789__[0-9a-f]{10}"),
    ],
)
def test_plain_name_is_kept_unless_clients_would_refuse_or_confuse_it(name: str, plain: str):
    assert re.fullmatch(plain, plain_name("server", name))


def test_plain_names_are_unchanged_in_wire_names():
    assert wire_name("time", "get_current_time") == "time__get_current_time"
    assert wire_name("git-2", "log") == "git-2__log"
    assert wire_name("a", "b" * (MAX_WIRE_NAME - 3)) == "a__" + "b" * (MAX_WIRE_NAME - 3)


def test_other_names_stay_recognizable_in_wire_names():
    assert re.fullmatch(r"files__read_file__[0-9a-f]{10}", wire_name("files", "read.file"))
    assert re.fullmatch(r"a__b__[0-9a-f]{10}", wire_name("a_", "b"))
    assert re.fullmatch(r"x__x__[0-9a-f]{10}", wire_name("日本", "語"))
    long = wire_name("server" * 20, "tool" * 40)
    assert len(long) <= MAX_WIRE_NAME
    assert long.startswith("serverserver")


def test_wire_name_is_the_same_in_every_process():
    digest = hashlib.sha256(b"5:filesread.file").hexdigest()

    assert wire_name("files", "read.file") == f"files__read_file__{digest[:10]}"


@given(st.text(st.characters(exclude_characters=":")), st.text(), PAIRS)
def test_address_can_be_split_into_server_and_tool(server: str, name: str, other: tuple[str, str]):
    assert address(server, name).split(":", 1) == [server, name]
