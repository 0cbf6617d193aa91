"""Formats tool results as answers for the user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from interlock.messages import ToolCall, ToolMessage
from interlock.text.quoting import fenced

_MAX_FIELDS = 12  # an object with more fields is shown as JSON
_MAX_LENGTH = 8_000  # characters of one result


def format_results(results: Sequence[ToolMessage], calls: Sequence[ToolCall] = ()) -> str:
    """Return the results as one answer; several results get their calls' inputs as titles."""
    inputs = {call.id: call.input for call in calls} if len(results) > 1 else {}
    return "\n\n".join(
        _format_result(result, inputs.get(result.tool_call_id, {})) for result in results
    )


def _format_result(result: ToolMessage, input: dict[str, Any]) -> str:
    content = _shortened(_plain(result.content.strip()))
    given = ", ".join(f"{name} {_scalar(value)}" for name, value in input.items())
    title = f"{_title(result.name)} ({given})" if given else _title(result.name)
    if result.is_error:
        reason = content.removeprefix("error: ") or "no reason was given."
        return f"{title} did not work: {reason}"
    if not content:
        return f"{title}: done, and nothing was returned."
    if content.startswith("- "):
        return f"{title}:\n\n{content}"
    # A code block, because Markdown would join the lines.
    return f"{title}:\n\n{fenced(content)}" if "\n" in content else f"{title}: {content}"


def _title(name: str) -> str:
    """Return a title for a wire name: "Current time" for "time__get_current_time"."""
    words = name.rpartition("__")[2].replace("-", "_").split("_")
    if len(words) > 1 and words[0] in ("get", "show", "list", "read", "fetch"):
        words = words[1:]
    return " ".join(words).strip().capitalize() or "The tool"


def _plain(content: str) -> str:
    """Return a flat JSON object, and a list of such objects, as lines; other text unchanged."""
    try:
        value = json.loads(content)
    except ValueError:
        return content
    if isinstance(value, dict) and list(value) == ["result"]:
        value = value["result"]  # the Python SDK wraps plain values like this
    if value in ([], {}):
        return "nothing"
    if isinstance(value, dict) and len(value) <= _MAX_FIELDS:
        return "\n".join(f"- {name}: {_scalar(field)}" for name, field in value.items())
    if isinstance(value, list) and value and all(map(_is_flat, value)):
        return "\n".join(f"- {_scalar(each)}" for each in value)
    return content if isinstance(value, dict) else _scalar(value)


def _is_flat(value: Any) -> bool:
    return isinstance(value, dict) and not any(isinstance(v, dict | list) for v in value.values())


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value
    if _is_flat(value):
        return ", ".join(f"{name}: {_scalar(field)}" for name, field in value.items())
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_LENGTH:
        return text
    return f"{text[:_MAX_LENGTH]}\n… {len(text) - _MAX_LENGTH} more characters"
