from typing import Any

import pytest

from interlock import wording


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("x", "a string"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_each_kind_of_value_has_its_name(value: Any, expected: str) -> None:
    assert wording.kind(value) == expected
