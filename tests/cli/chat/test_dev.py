"""`interlock dev`: wrong usage. The page itself is tested in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.cli.chat import dev
from interlock.errors import MissingExtra


def test_missing_file_is_wrong_usage(interlock):
    ran = interlock("dev", "nowhere.py")

    assert (ran.code, ran.out) == (2, "")
    assert "file nowhere.py does not exist" in ran.err


def test_missing_packages_are_an_error_with_the_extra(
    interlock, home: Path, monkeypatch: pytest.MonkeyPatch
):
    (home / "notes.py").write_text("")
    monkeypatch.setattr(dev, "find_spec", lambda _: None)

    ran = interlock("dev", "notes.py")

    assert (ran.code, ran.err) == (1, f"error: {MissingExtra('the inspector', 'web,chat')}\n")
