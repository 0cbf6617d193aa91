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
    content = _shortened(_plain(result.content.strip()))
    title = _title(result.name)
    if result.is_error:
        return f"{title} did not work: {content or 'no reason was given.'}"
    if not content:
        return f"{title}: done, and nothing was returned."
    block = "\n" in content or content.startswith("- ")
    return f"{title}:\n\n{content}" if block else f"{title}: {content}"


def _title(name: str) -> str:
    """ "time__get_current_time" as "Current time"."""
    words = name.rpartition("__")[2].replace("-", "_").split("_")
    if len(words) > 1 and words[0] in ("get", "show", "list", "read", "fetch"):
        words = words[1:]
    return " ".join(words).strip().capitalize() or "The tool"


def _plain(content: str) -> str:
    """A flat JSON object as lines; everything else as it is."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]  # how the Python SDK wraps a plain value
    if isinstance(value, dict) and 0 < len(value) <= _FIELDS:
        return "\n".join(f"- {name}: {_scalar(field)}" for name, field in value.items())
    return content if isinstance(value, dict) else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and not any(isinstance(v, dict | list) for v in value.values()):
        return ", ".join(f"{name}: {_scalar(field)}" for name, field in value.items())
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    if len(text) <= _LETTERS:
        return text
    return f"{text[:_LETTERS]}\n… {len(text) - _LETTERS} more characters"
