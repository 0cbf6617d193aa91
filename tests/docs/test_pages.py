"""Everything on a page runs, in its order: files, Python, configuration and sessions."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import asyncpg
import pytest

from interlock.config import load, settings
from interlock.gateway.manifests import read_plugins
from interlock.models.scripted import ScriptedModel
from tests.cli.conftest import home, interlock, terminal
from tests.docs import gateway_page
from tests.docs.page import ROOT, Block, blocks, pages
from tests.docs.session import Shell
from tests.servers.postgres import client_programs

__all__ = ["home", "interlock", "terminal"]  # fixtures

PAGES = {str(each.relative_to(ROOT)): each for each in pages()}
POSTGRES = "PostgreSQL"
# What the blocks of a page need beside the package.
PROGRAMS = {
    "docs/operate/backup.md": POSTGRES,
    "README.md": "mcp-server-time and the embedded model",
    "docs/start/assistant.md": "mcp-server-time and the embedded model",
    "examples/cron-agent/README.md": "mcp-server-time and the embedded model",
    "examples/offline/README.md": "mcp-server-time and the embedded model",
    "examples/team-gateway/README.md": "mcp-server-time",
    "docs/operate/nginx.md": "nginx",
    "docs/operate/caddy.md": "Caddy",
    "docs/operate/haproxy.md": "HAProxy",
    "docs/operate/serve.md": "mcp-server-time",
    "docs/use/client.md": "mcp-server-time",
    "docs/use/toolbox.md": "mcp-server-time",
    "docs/use/agent.md": "mcp-server-time",
    **dict.fromkeys(
        (each for each in PAGES if re.match("docs/migrate/(?:fastmcp|mcp-sdk)", each)), "FastMCP"
    ),
    "docs/use/chat.md": "the embedded model",
}
MOST_NORUN = 0.05  # of all blocks


class Page:
    """A page that is being run, in a folder and a module of its own."""

    def __init__(self, name: str, folder: Path, shell: Shell, module: ModuleType) -> None:
        self._name = name
        self._folder = folder
        self._shell = shell
        self._module = module

    def run(self, block: Block, runner: asyncio.Runner, rest: str) -> None:
        """Run or read a block; `rest` is the code after it."""
        if block.language == "python" and block.norun:
            self._check(block)
        elif block.title:
            self._write(block, rest)
        elif block.language == "python":
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(self._source(block), self._name, "exec", flags, dont_inherit=True)
            result = eval(code, vars(self._module))
            if inspect.iscoroutine(result):
                runner.run(result)
        elif block.language == "console":
            self._shell.run(block)
        elif block.language == "http":
            self._shell.exchange(block)

    def _source(self, block: Block) -> str:
        text = self._shell.with_ports(block.text)
        return "\n" * (block.line - 1) + text  # so that tracebacks have lines of the page

    def _write(self, block: Block, rest: str) -> None:
        file = self._folder / Path(block.title).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._shell.with_ports(block.text))
        if file.suffix == ".py":
            compile(self._source(block), self._name, "exec", dont_inherit=True)
            stem = re.escape(file.stem)
            if not re.search(rf"\b{stem}\.py\b|\b(?:from|import) {stem}\b", rest):
                runpy.run_path(str(file), run_name="__main__")
        elif block.title.startswith(".claude"):  # read by Claude Code alone
            json.loads(block.text)
        elif file.name == "manifest.json":
            (plugin,) = read_plugins(file.parents[1], frozenset())
            assert plugin.problems == {}
        elif file.suffix == ".toml":
            tomllib.loads(block.text)
        elif file.name == "settings.json" and "/" not in block.title:
            assert settings.load(file).warnings == ()
        elif file.name == "answers.json":
            ScriptedModel.from_file(file)
        elif file.suffix == ".json":
            assert load(file).warnings == ()

    def _check(self, block: Block) -> None:
        """Compile a block, import what it imports, and look for names that nothing defines."""
        tree = compile(self._source(block), self._name, "exec", ast.PyCF_ONLY_AST)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interlock"):
                module = importlib.import_module(str(node.module))
                assert [each.name for each in node.names if not hasattr(module, each.name)] == []
        ruff = Path(sys.executable).with_name("ruff")
        ran = subprocess.run(
            [ruff, "check", "--isolated", "--select=F821", "--quiet", "-"],
            input=block.text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout


@pytest.fixture
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a page: empty, but for the examples of the checkout."""
    page = tmp_path / "page"
    page.mkdir()
    (page / "examples").symlink_to(ROOT / "examples")
    for name, place in (("CONFIG", ".config"), ("DATA", ".local/share"), ("CACHE", ".cache")):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / place))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # a reader has pytest alone
    monkeypatch.chdir(page)
    monkeypatch.syspath_prepend(page)
    return page


@pytest.fixture
def module(folder: Path) -> Iterator[ModuleType]:
    """The module in which the Python of a page runs; what it has imported is forgotten."""
    page = ModuleType("page")
    page.__file__ = str(folder / "page.py")
    before = {*sys.modules}
    sys.modules["page"] = page
    yield page
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


def runnable(name: str) -> list[Block]:
    return [each for each in blocks(PAGES[name].read_text()) if each.language != "text"]


def params() -> Iterator[object]:
    """Yield each page with code."""
    for name in PAGES:
        if runnable(name):
            marks = [pytest.mark.slow("runs the commands of a page")]
            marks += [pytest.mark.program(PROGRAMS[name])] if name in PROGRAMS else []
            yield pytest.param(name, id=name, marks=marks)


async def new_database(server: str) -> str:
    """Create an empty PostgreSQL database for a page; return its URL."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute("CREATE DATABASE page")
    finally:
        await connection.close()
    return server.replace("/postgres?", "/page?")


@pytest.mark.parametrize("name", [*params()])
def test_every_block_of_a_page_runs(
    name: str,
    interlock,
    terminal,
    folder: Path,
    module: ModuleType,
    monkeypatch,
    capsys,
    request: pytest.FixtureRequest,
):
    if PROGRAMS.get(name) == POSTGRES:
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("DATABASE_URL", asyncio.run(new_database(server)))
        monkeypatch.setenv("PATH", f"{client_programs()}:{os.environ['PATH']}")
    if "pip install pytest pytest-asyncio" in PAGES[name].read_text():
        monkeypatch.setenv("PYTEST_PLUGINS", "pytest_asyncio.plugin")
    if name.startswith("examples/"):
        shutil.copytree((ROOT / name).parent, folder, dirs_exist_ok=True)
        (folder.parent / "notes").symlink_to(ROOT / "examples/notes")
    shell = Shell(interlock, terminal, folder, monkeypatch)
    page = Page(name, folder, shell, module)
    every = runnable(name)
    with asyncio.Runner() as runner:
        try:
            if name in gateway_page.PAGES:
                gateway_page.prepare(name, folder, shell, monkeypatch)
            for number, block in enumerate(every, start=1):
                rest = "\n".join(each.text for each in every[number:])
                try:
                    page.run(block, runner, rest)
                    capsys.readouterr()  # what its Python has printed
                except BaseException as error:
                    error.add_note(f"in {name}, line {block.line}")
                    raise
        finally:
            shell.close()


def test_every_block_is_in_a_form_that_the_test_can_run():
    left = [
        f"{name}:{each.line}"
        for name, page in PAGES.items()
        for each in blocks(page.read_text())
        if not each.is_converted
    ]

    assert left == []


def test_few_blocks_are_exempt_from_running():
    every = [each for page in PAGES.values() for each in blocks(page.read_text())]
    runnable = [each for each in every if each.language != "text"]
    exempt = [each for each in runnable if each.norun]

    assert len(exempt) <= MOST_NORUN * len(runnable), [each.norun for each in exempt]
