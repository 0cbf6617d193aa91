"""A tool's result, told to a person without changing a word of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from interlock.messages import ToolMessage

__all__ = ["told"]

_FIELDS = 12  # an object of at most so many plain values is shown as lines
_LETTERS = 8_000  # of one result


def told(results: Sequence[ToolMessage]) -> str:
    """The answer that `results` give. Several are told one after another."""
    return "\n\n".join(_told(result) for result in results)


def _told(result: ToolMessage) -> str:
    tool = result.name.rpartition("__")[2] or "the tool"
    content = result.content.strip()
    if result.is_error:
        return f"{tool} did not work: {_shortened(content) or 'it gave no reason'}"
    if not content:
        return f"{tool} is done. It returned nothing."
    return f"{tool} says:\n\n{_shortened(_plain(content))}"


def _plain(content: str) -> str:
    """A flat JSON object as lines; everything else as it is."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict) and 0 < len(value) <= _FIELDS:
        return "\n".join(f"- {name}: {_scalar(field)}" for name, field in value.items())
    return content if isinstance(value, dict | list) else _scalar(value)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    if len(text) <= _LETTERS:
        return text
    return f"{text[:_LETTERS]}\n… {len(text) - _LETTERS} more characters"
