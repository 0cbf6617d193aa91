"""Facts about models, learned from requests that providers refused, stored for `KEPT` days.

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
MOST = 200  # models; with more, the oldest facts are dropped
_DAY = 86_400


class Fact(Struct, frozen=True, omit_defaults=True):
    """The facts that refusals have revealed about a model.

    Attributes:
        day: The day of the last refusal, in days since 1970.
        responses: Whether the model answers only through OpenAI's Responses API.
        output_limit: The largest number of tokens of an answer; 0 if unknown.
    """

    day: int = 0
    responses: bool = False
    output_limit: int = 0


_read: dict[Path, dict[str, Fact]] = {}


def fact(model: str) -> Fact:
    """Return the facts about the model with this name, as for `--model`."""
    return _facts(file()).get(model, Fact())


def note(model: str, *, responses: bool = False, output_limit: int = 0) -> None:
    """Store another fact about a model; ignore errors when writing the file."""
    path = file()
    _read.pop(path, None)  # read again, because another process may have written it
    facts = _facts(path)
    known = facts.pop(model, Fact())
    facts[model] = replace(
        known,
        day=_today(),
        responses=responses or known.responses,
        output_limit=output_limit or known.output_limit,
    )
    for name in list(facts)[:-MOST]:
        del facts[name]
    with suppress(OSError, durable.NotSynced):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        durable.replace(path, msgspec.json.encode(facts))


def file() -> Path:
    """Return the file's path; the file may not exist."""
    from platformdirs import user_cache_path

    return user_cache_path("interlock") / "models.json"


def _facts(path: Path) -> dict[str, Fact]:
    """Return the facts of the file and of this process, the latest last."""
    if path not in _read:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=dict[str, Fact])
        except (OSError, msgspec.DecodeError):
            found = {}
        oldest = _today() - KEPT
        _read[path] = {name: each for name, each in found.items() if each.day >= oldest}
    return _read[path]


def _today() -> int:
    return int(time.time()) // _DAY
