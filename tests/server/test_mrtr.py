from __future__ import annotations

import pytest
from msgspec import Raw

from interlock.errors import InvalidArguments
from interlock.server.mrtr import canonical


def test_equal_arguments_have_equal_bytes_whatever_their_order_and_spaces():
    one = canonical(Raw(b'{"b": [1, 2], "a": {"y": null, "x": "\\u00e9"}}'))
    other = canonical(Raw('{"a":{"x":"é","y":null},"b":[1,2]}'.encode()))

    assert one == other


def test_different_arguments_have_different_bytes():
    assert canonical(Raw(b'{"a":[1,2]}')) != canonical(Raw(b'{"a":[2,1]}'))


def test_arguments_with_a_number_out_of_range_are_invalid():
    with pytest.raises(InvalidArguments, match="out of range"):
        canonical(Raw(b'{"a":1e999}'))
