"""YAML 1.2 into JSON values, within limits."""

from __future__ import annotations

import sys
import time
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
import yaml
from hypothesis import given, settings

from interlock.errors import MissingExtra
from interlock.openapi import yaml_parser
from interlock.openapi.references import DocumentError
from tests.support.rows import each_row


def parse(text: str) -> Any:
    return yaml_parser.parse(text.encode(), [])


@each_row(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("12", 12),
        ("-0", 0),
        ("0o17", 15),
        ("0xff", 255),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("yes", "yes"),
        ("on", "on"),
        ("2026-11-22", "2026-11-22"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("'12'", "12"),
        ('"a\\nb"', "a\nb"),
        ("!!str 12", "12"),
        ("!!float 1", 1.0),
        ("!!int '7'", 7),
        ("!unknown x", "x"),
    ],
)
def test_yaml_scalar_is_parsed_by_the_core_schema(text: str, value: object):
    found = parse(text)

    assert found == value
    assert type(found) is type(value)


def test_yaml_keys_become_strings():
    assert parse("200: a\ntrue: b\n~: c\n1.5: d") == {"200": "a", "true": "b", "~": "c", "1.5": "d"}


def test_aliases_and_merged_mappings_are_resolved():
    assert parse("a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, l: 3}\nd: {<<: [*x, {m: 4}]}") == {
        "a": {"k": 1, "l": 2},
        "b": {"k": 1, "l": 2},
        "c": {"k": 1, "l": 3},
        "d": {"k": 1, "l": 2, "m": 4},
    }


def test_repeated_key_keeps_the_last_value_and_warns():
    warnings: list[str] = []

    assert yaml_parser.parse(b"a: 1\nb: 2\na: 3", warnings) == {"a": 3, "b": 2}
    assert warnings == ["the key 'a' is repeated in line 3"]


def test_very_many_merges_and_repeated_keys_cost_no_more_than_their_number():
    warnings: list[str] = []
    merges = "".join(f"<<: {{k{i}: 1}}\n" for i in range(20_000))
    start = time.process_time()
    found = yaml_parser.parse((merges + "a: 1\n" * 1_000).encode(), warnings)

    assert len(found) == 20_001
    assert time.process_time() - start < 2  # it would take a minute
    assert len(warnings) == yaml_parser.MAX_WARNINGS


def test_tag_of_a_language_creates_no_object():
    assert parse("!!python/object/apply:os.system ['true']") == ["true"]
    assert parse("a: !!python/name:os.system x") == {"a": "x"}


@each_row(
    ("text", "problem"),
    [
        ("a: 1\n---\nb: 2", "several YAML documents"),
        ("a: [", "not valid YAML: .* in line"),
        ("", "empty"),
        ("[" * 200_000, "nested too deep"),
        ("- " * 100_000, "nested too deep"),
        ("a: &a [*a]", "is undefined, or contains itself"),
        ("a: *b", "is undefined"),
        ("? {a: 1}\n: 2", "key of a YAML mapping is not a scalar"),
        ("a: &x 1\nb: [" + "*x," * 1_001 + "]", "too many YAML aliases"),
        ("a: &x " + "a" * 100_000 + "\nb: [" + "*x," * 999 + "]", "too many keys and values"),
        ("a: &x [[[1]]]\nb: " + "[" * 254 + "*x" + "]" * 254, "nested too deep"),
    ],
)
def test_document_that_cannot_be_used_is_refused_with_the_reason(text: str, problem: str):
    with pytest.raises(DocumentError, match=problem):
        parse(text)


def test_short_document_of_very_many_keys_is_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(yaml_parser, "MIN_NODES", 1_000)
    dense, spaced = "a: 1\n" * 1_000, "name: some more text\n" * 1_000

    assert parse(spaced) == {"name": "some more text"}
    with pytest.raises(DocumentError, match=r"keys and values \(limit 1,500 for its size"):
        parse(dense)


def test_alias_bomb_is_refused_before_it_grows():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]

    with pytest.raises(DocumentError, match="aliases expand to too many values"):
        parse("\n".join(lines))


def test_bytes_that_are_not_text_are_refused():
    with pytest.raises(DocumentError, match="not valid YAML"):
        yaml_parser.parse(b"a: \xff\xfe\x00", [])


def test_missing_parser_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(MissingExtra, match="needs the extra openapi: "):
        parse("a: 1")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.slow("tries many examples")
@settings(max_examples=50, deadline=None)
@given(_JSON, st.booleans())
def test_values_written_as_yaml_are_parsed_back_unchanged(value: Any, flow: bool):
    written = yaml.safe_dump(value, default_flow_style=flow, sort_keys=False)

    # The writer is one of YAML 1.1, so it quotes more than needed, and never less.
    assert msgspec.json.encode(parse(written)) == msgspec.json.encode(value)
