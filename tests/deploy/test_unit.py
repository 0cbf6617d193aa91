"""The units of systemd, as `systemd-analyze` judges them; the tests of `serve` have the states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT

FOLDER = ROOT / "deploy" / "systemd"
MOST_EXPOSED = 16  # tenths, of 100; a unit with 0 can do nothing


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, and the template that the drop-in makes of it, with a program that exists."""
    copied = {
        "interlock.service": "interlock.service",
        "interlock@.service": "interlock.service",
        "interlock@.service.d/replica.conf": "replica.conf",
    }
    program = Path(sys.executable).with_name("interlock")
    for name, source in copied.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        text = (FOLDER / source).read_text().replace("/opt/interlock/bin/interlock", str(program))
        (tmp_path / name).write_text(text)
    return tmp_path / "interlock.service"


def analyze(*arguments: str | Path) -> tuple[int, str]:
    ran = subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def test_unit_and_template_are_correct_and_a_misspelt_line_is_not(unit: Path):
    assert analyze("verify", unit) == (0, "")
    assert analyze("verify", unit.with_name("interlock@1.service")) == (0, "")
    unit.write_text(unit.read_text().replace("ProtectClock=yes", "ProtectClok=yes"))
    assert "ProtectClok" in analyze("verify", unit)[1]
    drop_in = unit.with_name("interlock@.service.d") / "replica.conf"
    drop_in.write_text(drop_in.read_text().replace("User=", "Usr="))
    assert "Usr" in analyze("verify", unit.with_name("interlock@1.service"))[1]


def test_unit_exposes_little(unit: Path):
    code, text = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", unit)

    assert code == 0, text


def test_commands_of_operators_have_the_variables_and_the_state_of_the_unit():
    unit, admin = (
        (FOLDER / "interlock.service").read_text(),
        (FOLDER / "interlock-admin").read_text(),
    )
    variables = dict(
        pair.replace("%S", "/var/lib").split("=", 1)
        for line in re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
        for pair in line.split()
    )
    given = dict(re.findall(r"--setenv=(\w+)=(\S+)", admin))

    assert given.pop("INTERLOCK_MCP_CONFIG") in unit
    assert given.items() <= variables.items()
    properties = re.findall(r"--property=(\S+=\S+)", admin)
    assert {each for each in properties if f"\n{each}\n" not in unit} == {"User=interlock"}


def test_no_variable_is_expanded_in_the_arguments_of_an_operator(tmp_path: Path):
    (tmp_path / "systemd-run").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (tmp_path / "systemd-run").chmod(0o755)
    ran = subprocess.run(
        [FOLDER / "interlock-admin", "call", "", "a  b", "${DATABASE_URL} $$ \\ %n"],
        env={"PATH": f"{tmp_path}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.endswith("<call><><a  b><$${DATABASE_URL} $$$$ \\ %n>")
