"""The commit from which this package was built.

A wheel contains it, because `hatch_build.py` calls `of_checkout` and writes `build.json`. Without
that file, as in an editable install, git is asked when a caller needs to know. This module imports
nothing of the package, because `hatch_build.py` runs it where the package is not installed.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = "build.json"
_SOURCES = ("src", "requirements", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
_TIMEOUT = 2  # seconds that git may take
_FOLDER = Path(__file__).parent


class Build(NamedTuple):
    """A commit.

    Attributes:
        commit: The first seven digits of its hash, with "+dirty" if files of the package
            differed from it.
        date: The commit's day in UTC, such as "2026-12-01".
    """

    commit: str
    date: str


@cache
def build() -> Build | None:
    """Return the commit of this package; None if it is not known."""
    import json

    try:
        found = json.loads((_FOLDER / FILE).read_text(encoding="utf-8"))
        return Build(str(found["commit"]), str(found["date"]))
    except FileNotFoundError:
        root = _FOLDER.parents[1]
        return of_checkout(root) if (root / ".git").exists() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def commit() -> str:
    """Return the commit of this package; "" if it is not known."""
    found = build()
    return "" if found is None else found.commit


def described(version: str) -> str:
    """Return a version with its commit and date, such as "0.2.0 (a1b2c3d, 2026-12-01)"."""
    found = build()
    return version if found is None else f"{version} ({found.commit}, {found.date})"


def of_checkout(root: Path) -> Build | None:
    """Ask git for the commit that is checked out; return None if git cannot tell.

    Args:
        root: The folder of the checkout.
    """
    import subprocess

    try:
        shown = _git(root, "log", "-1", "--date=format-local:%Y-%m-%d", "--format=%H %cd")
        is_dirty = bool(_git(root, "status", "--porcelain", "--", *_SOURCES))
    except (OSError, subprocess.SubprocessError):
        return None
    commit, _, date = shown.strip().partition(" ")
    return Build(commit[:7] + ("+dirty" if is_dirty else ""), date)


def _git(root: Path, *arguments: str) -> str:
    import subprocess  # loaded by the few commands that need it

    # Without variables such as GIT_DIR, which a hook of another repository sets.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(  # noqa: S603
        ["git", "--no-optional-locks", "-C", str(root), *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
        timeout=_TIMEOUT,
        stdin=subprocess.DEVNULL,
        env={**environ, "TZ": "UTC", "LC_ALL": "C"},
    )
    return done.stdout
