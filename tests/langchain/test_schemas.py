"""Input schemas that LangChain's own resolver can read."""

from __future__ import annotations

import msgspec
import pytest

from interlock.langchain.schemas import readable


def test_a_reference_with_an_escape_leads_to_a_plain_copy() -> None:
    schema = {
        "properties": {"a": {"$ref": "#/$defs/a~1b"}, "b": {"$ref": "#/$defs/c%7E0d"}},
        "$defs": {"a/b": {"type": "string"}, "c~d": {"type": "integer"}},
    }

    found = readable(msgspec.json.encode(schema))

    for name, kind in (("a", "string"), ("b", "integer")):
        reference = found["properties"][name]["$ref"]
        assert reference.startswith("#/$defs/interlock-")
        assert found["$defs"][reference.rpartition("/")[2]]["type"] == kind


def test_a_recursive_schema_is_rewritten_once() -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/no~0de"}}}

    found = readable(msgspec.json.encode({"$ref": "#/$defs/no~0de", "$defs": {"no~de": node}}))

    copy = found["$defs"]["interlock-0"]
    assert copy["properties"]["next"]["$ref"] == found["$ref"] == "#/$defs/interlock-0"


def test_a_reference_to_nothing_is_an_error_and_properties_are_added() -> None:
    assert readable(b"{}") == {"properties": {}}
    with pytest.raises(ValueError, match="'#/nowhere' cannot be followed"):
        readable(b'{"$ref": "#/nowhere"}')
