"""Lessons about models, from requests that providers refused, stored for `KEPT` days.

The file is in the user's cache folder. Without it, the first requests of each process would be
refused for the same reasons.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import durable

KEPT = 30  # days, after which a model may have changed
MOST = 200  # models; with more, the oldest lessons are dropped
MOST_LESSONS = 300  # for one model
_DAY = 86_400


class Lesson(Struct, frozen=True, omit_defaults=True):
    """A fact about a model that a refusal has shown.

    Attributes:
        kind: "tool" (the model cannot have this tool), "tools" (the most tools), "tool_bytes" (the
            largest size of all tools), "member" (of a request, that the API does not take),
            "output" (the most tokens of an answer), "need" (what a conversation must have),
            "lists_tools" (no definitions are deferred) or "responses" (the model is available
            through the Responses API only). `PASSING` has the kinds that are not stored.
        what: The digest of a tool, or the name of a member.
        name: The tool's address, or the member's new name.
        limit: The limit, of "tools", "tool_bytes" and "output".
        reason: The provider's reason, on one line.
        day: The day of the refusal, in days since 1970.
    """

    kind: str
    what: str = ""
    name: str = ""
    limit: int = 0
    reason: str = ""
    day: int = 0


# Kinds that are forgotten with the process, because a local server may be started with other flags:
# "no_tools", "effort" (tools only without reasoning) and "unread" (kinds of files).
PASSING = frozenset(("no_tools", "effort", "unread"))

_read: dict[Path, dict[str, list[Lesson]]] = {}


def lessons(model: str) -> list[Lesson]:
    """Return the stored lessons about the model with this name, as for `--model`."""
    return list(_all(file()).get(model, ()))


def everything() -> dict[str, list[Lesson]]:
    """Return all stored lessons by the name of the model, the latest last."""
    return {model: list(each) for model, each in _all(file()).items() if each}


def note(model: str, *new: Lesson) -> None:
    """Store lessons about a model; ignore errors when writing the file."""
    path = file()
    _read.pop(path, None)  # read again, because another process may have written it
    stored = _all(path)
    known = {(each.kind, each.what): each for each in stored.pop(model, [])}
    for each in new:
        known.pop((each.kind, each.what), None)
        known[each.kind, each.what] = replace(each, day=_today())
    stored[model] = list(known.values())[-MOST_LESSONS:]
    for name in list(stored)[:-MOST]:
        del stored[name]
    _write(path, stored)


def described(lesson: Lesson) -> str:
    """Return a lesson in words: what interlock does, and the provider's reason."""
    because = f": {lesson.reason}" if lesson.reason else ""
    match lesson.kind:
        case "tool":
            return f"the tool {lesson.name} is left out{because}"
        case "tools":
            return f"at most {lesson.limit} tools{because}"
        case "tool_bytes":
            return f"at most {lesson.limit:,} bytes of tools{because}"
        case "member" if lesson.name:
            return f"{lesson.what} is sent as {lesson.name}{because}"
        case "member":
            return f"{lesson.what} is left out{because}"
        case "output":
            return f"at most {lesson.limit:,} tokens of an answer{because}"
        case "need":
            return f"conversations are written for strict {lesson.what}{because}"
        case "lists_tools":
            return f"tools that a search finds are added to the list of tools{because}"
        case "responses":
            return f"the Responses API is used{because}"
    return f"{lesson.kind}{because}"


def forget(model: str) -> bool:
    """Delete the lessons about a model; return whether there were any."""
    path = file()
    _read.pop(path, None)
    stored = _all(path)
    found = bool(stored.pop(model, None))
    if found:
        _write(path, stored)
    return found


def file() -> Path:
    """Return the file's path; the file may not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("interlock") / "models.json"


def _write(path: Path, stored: dict[str, list[Lesson]]) -> None:
    with suppress(OSError, durable.NotSynced):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        durable.replace(path, msgspec.json.encode(stored))


def _all(path: Path) -> dict[str, list[Lesson]]:
    """Return the lessons of the file and of this process, the latest last."""
    if path not in _read:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, list[Lesson]])
        except (OSError, msgspec.DecodeError):
            found = {}
        oldest = _today() - KEPT
        _read[path] = {
            model: [each for each in known if each.day >= oldest] for model, known in found.items()
        }
    return _read[path]


def _today() -> int:
    return int(time.time()) // _DAY
