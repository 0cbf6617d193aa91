"""The command that installs an extra, for each way in which the package was installed."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from interlock.extras import install_command
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# Asks an index for a package by our name, which may be a stranger's. "@" names a place instead.
FROM_AN_INDEX = re.compile(
    r"""interlock\[[^]\n]*\](?!\s@\s)
    |   (?:install|inject|uvx|pipx\srun|uv\sadd|--from|--with)\s+
        (?:-\S+\s+)*['"]?interlock\b(?!\[|\s@\s|-)""",
    re.VERBOSE,
)
PAGES = ("*.md", "docs/**/*.md", "examples/*", "benchmarks/*.md", ".github/**/*")
SOURCE = ("src/**/*.py", "src/**/*.js")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Pretend that the package was installed from an origin, into an environment of `files`."""
    ours = metadata.distribution("interlock")

    class Installed:
        requires = ours.requires

        def __init__(self, origin: object) -> None:
            self._origin = origin

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(self._origin) if self._origin else None

    def install(origin: object = None, **files: str) -> Path:
        prefix = tmp_path / "the environment"
        prefix.mkdir()
        for name, text in files.items():
            (prefix / name.replace("_DOT_", ".")).write_text(text)
        monkeypatch.setattr(metadata, "distribution", lambda _: Installed(origin))
        monkeypatch.setattr(sys, "prefix", str(prefix))
        return prefix

    return install


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    return folder


def test_a_checkout_is_installed_again_with_the_extra(installed, checkout: Path):
    installed({"url": checkout.as_uri(), "dir_info": {}})

    assert install_command("web") == f"pip install '{checkout}[web]'"


def test_an_editable_checkout_stays_editable(installed, checkout: Path):
    installed({"url": checkout.as_uri(), "dir_info": {"editable": True}})

    assert install_command("web,chat") == f"pip install -e '{checkout}[web,chat]'"


def test_the_embedded_model_in_the_environment_of_make_is_added_by_make(
    installed, checkout: Path, monkeypatch: pytest.MonkeyPatch
):
    installed({"url": checkout.as_uri(), "dir_info": {"editable": True}})
    assert install_command("local") == f"pip install -e '{checkout}[local]'"

    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    assert install_command("local") == f"make -C '{checkout}' model"
    monkeypatch.chdir(checkout)
    assert install_command("local") == "make model"
    assert install_command("web") == f"pip install -e '{checkout}[web]'"


def test_a_repository_is_named_with_its_revision(installed):
    info = {"vcs": "git", "requested_revision": "main", "commit_id": "0" * 40}
    installed({"url": "https://example.com/i.git", "vcs_info": info})

    place = "git+https://example.com/i.git@main"
    assert install_command("web") == f"pip install 'interlock[web] @ {place}'"


@pytest.mark.parametrize(
    "origin",
    [
        None,
        {"url": "file:///tmp/interlock-0.1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "file:///no/such/folder", "dir_info": {"editable": True}},
    ],
    ids=["unknown", "wheel", "deleted checkout"],
)
@pytest.mark.parametrize("extra", EXTRAS)
def test_hint_without_a_source_names_the_packages_of_the_extra(installed, origin, extra: str):
    installed(origin)
    program, verb, *packages = shlex.split(install_command(extra))

    own = [each for each in EXTRAS[extra] if not each.startswith("interlock[")]
    names = {re.split(r"[<>=]", each)[0] for each in own}
    assert (program, verb) == ("pip", "install")
    assert names <= {re.split(r"[<>=]", each)[0] for each in packages}
    assert packages
    assert not [each for each in packages if each.startswith("interlock")]


def test_an_environment_of_pipx_or_uv_is_changed_by_its_program(installed, checkout: Path):
    origin = {"url": checkout.as_uri(), "dir_info": {}}
    prefix = installed(origin, pyvenv_DOT_cfg="home = /usr/bin\nuv = 0.9.1\n")
    assert install_command("web") == (f"uv pip install --python '{prefix}' '{checkout}[web]'")

    (prefix / "pipx_metadata.json").write_text("{}")
    assert install_command("web") == (f"pipx runpip 'the environment' install '{checkout}[web]'")


def test_source_without_an_installation_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    def missing(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "distribution", missing)

    assert install_command("web") == "install what the extra web of its pyproject.toml lists"


def test_no_text_asks_a_package_index_for_interlock():
    files = [each for pattern in (*PAGES, *SOURCE) for each in ROOT.glob(pattern) if each.is_file()]
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in files
        if file != ROOT / "src/interlock/extras.py"
        for match in FROM_AN_INDEX.finditer(file.read_text())
    ]

    assert found == []


@each_row(
    "text",
    [
        "pip install 'interlock[web]'",
        "pip install interlock",
        'pip install -U "interlock"',
        "uvx interlock chat",
        "pipx run interlock",
        "uv tool install interlock",
        "needs interlock[local]",
    ],
)
def test_source_search_finds_each_form_that_suggests_a_package_index(text: str):
    assert FROM_AN_INDEX.search(text)
    assert not FROM_AN_INDEX.search("pip install 'interlock[web] @ git+https://example.com/i'")
