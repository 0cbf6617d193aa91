"""The commit that a package states, and what a wheel contains besides the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from interlock import __version__
from interlock.build import Build, of_checkout
from tests.test_repository import ROOT, pins


def git(folder: Path, *arguments: str) -> None:
    names = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    # In UTC it is the day before.
    dates = {f"GIT_{who}_DATE": "2026-12-02T01:00:00+02:00" for who in ("AUTHOR", "COMMITTER")}
    subprocess.run(
        ["git", "-C", folder, *arguments], check=True, env={**os.environ, **names, **dates}
    )


@pytest.mark.slow("starts git")
def test_commit_of_a_checkout_has_its_day_and_tells_of_other_files(tmp_path: Path):
    assert of_checkout(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert of_checkout(tmp_path) is None  # nothing is committed
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "first")
    clean = of_checkout(tmp_path)
    (tmp_path / "mcp.json").touch()  # an operator's file, which no package contains

    assert clean is not None
    assert of_checkout(tmp_path) == clean
    (tmp_path / "pyproject.toml").touch()
    assert (len(clean.commit), clean.date) == (7, "2026-12-01")
    assert of_checkout(tmp_path) == Build(f"{clean.commit}+dirty", clean.date)


def test_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    charts = [yaml.safe_load(each.read_text()) for each in ROOT.glob("deploy/*/Chart.yaml")]

    assert project["version"] == __version__
    assert {each["appVersion"] for each in charts} <= {__version__}


@pytest.mark.slow("builds a wheel")
def test_wheel_states_its_commit_and_lists_what_it_needs_and_contains(tmp_path: Path):
    command = ["hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    shown = subprocess.run(
        [sys.executable, "-m", "interlock", "--version"],
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / f"interlock-{__version__}.dist-info/sboms"
    listed = {file.name: json.loads(file.read_text()) for file in folder.iterdir()}
    needed, contained = listed["interlock.cdx.json"], listed["interlock-web.cdx.json"]
    vendored = json.loads((ROOT / "src/interlock/web/static/vendor/vendor.json").read_text())

    built = of_checkout(ROOT)
    assert built is not None
    assert shown.stdout == f"interlock {__version__} ({built.commit}, {built.date})\n"
    assert {each["name"]: each["version"] for each in needed["components"]} == pins(
        ROOT / "requirements/all.txt"
    )
    required = {each["name"] for each in needed["components"] if each["scope"] == "required"}
    assert required == set(pins(ROOT / "requirements/base.txt"))
    assert {each["name"]: each["version"] for each in contained["components"]} == {
        name: each["version"] for name, each in vendored.items()
    }
    assert {(each["bomFormat"], each["specVersion"]) for each in listed.values()} == {
        ("CycloneDX", "1.6")
    }
