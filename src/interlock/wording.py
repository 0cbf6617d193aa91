"""JSON values in messages: what they are called, and as much of them as is shown."""

from __future__ import annotations

from typing import Any


def kind(value: Any) -> str:
    """Say what kind of JSON value it is: "a list"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
