"""The unit of systemd, as `systemd-analyze` judges it; the tests of `serve` notify a manager."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT

UNIT = ROOT / "deploy" / "systemd" / "interlock.service"
MOST_EXPOSED = 16  # tenths, of 100; 0 is a unit that can do nothing


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists."""
    program = Path(sys.executable).with_name("interlock")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/interlock/bin/interlock", str(program)))
    return copy


def analyze(*arguments: str | Path) -> tuple[int, str]:
    ran = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def test_unit_is_correct_and_a_misspelt_line_is_not(unit: Path):
    assert analyze("verify", unit) == (0, "")
    unit.write_text(re.sub("ProtectClock=yes", "ProtectClok=yes", unit.read_text()))
    assert "ProtectClok" in analyze("verify", unit)[1]


def test_unit_exposes_little(unit: Path):
    code, text = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", unit)

    assert code == 0, text
