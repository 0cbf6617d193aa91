"""What the package offers, what it costs to import, and which part may know which."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import interlock
from tests.support.rows import each_row

PACKAGE = Path(interlock.__file__).parent

# The rooms of the house, by what they rest on: each may import what stands above it, and itself.
TABLE = """
    errors messages types revisions version lazy
    quoting redaction urls aio durable timestamps base32 attachments
    protocol schema
    auth oauth transports connection config store
    calls context
    client server openapi toolbox policy
    models compaction agent chat
    callables langchain langgraph
    gateway web claude
    cli
    __main__
"""
ROOMS = TABLE.split()


def modules() -> dict[str, Path]:
    """Every module by its name without "interlock."; the package itself is ""."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if "migrations" not in parts:  # loaded by file, by alembic
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


@cache
def parsed(name: str) -> list[ast.Import | ast.ImportFrom]:
    """Return the import statements of a module, those in functions included."""
    tree = ast.parse(MODULES[name].read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(name: str) -> Iterator[str]:
    """Return the modules that a module imports, also in functions and for type checkers."""
    for node in parsed(name):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import in line {node.lineno}"
            if node.module and node.module.split(".")[0] == "interlock":
                module = node.module.removeprefix("interlock").removeprefix(".")
                for alias in node.names:
                    inner = f"{module}.{alias.name}".removeprefix(".")
                    yield inner if inner in MODULES else module
        else:
            for alias in node.names:
                if alias.name.split(".")[0] == "interlock":
                    yield alias.name.removeprefix("interlock").removeprefix(".")


def room(module: str) -> str:
    return module.partition(".")[0]


# Names


def test_public_names_are_sorted_and_unique():
    assert interlock.__all__ == sorted(set(interlock.__all__))


@each_row("name", interlock.__all__)
def test_every_public_name_can_be_imported_and_has_a_docstring(name: str):
    value = getattr(interlock, name)

    assert inspect.getdoc(value)
    assert value.__name__ == name
    assert value.__module__.startswith("interlock.")
    assert name in dir(interlock)


def test_type_checkers_find_the_same_names():
    tree = ast.parse(Path(interlock.__file__).read_text())
    seen = {
        alias.name: str(node.module).removeprefix("interlock.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interlock")
        for alias in node.names
        if alias.name not in ("__version__", "loader")
    }

    assert seen == interlock._HOMES
    assert sorted(seen) == interlock.__all__


# Classes that docs/claude-code.md names by words which the rest of the package uses as well.
OF_TWO_MODULES = {
    "Answer": ["claude.events", "protocol.core"],  # of a prompt; JSON-RPC's to a request
    "Done": ["agent", "claude.events"],  # Claude Code's adds the `Answer` to the agent's
    "Notice": ["claude.events", "models.model"],  # what Claude Code reports; a remark about a model
    "Request": ["claude.decisions", "protocol.core"],  # a call to decide about; JSON-RPC's
    "ToolProgress": ["agent", "claude.events"],  # Claude Code's also has the tool's address
}


def test_no_two_modules_define_public_classes_of_one_name():
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in re.findall(r"^class ([^_]\w*)", path.read_text(), re.MULTILINE):
            homes.setdefault(name, []).append(module)

    shared = {name: sorted(places) for name, places in homes.items() if len(places) > 1}
    assert shared == OF_TWO_MODULES


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'interlock' has no attribute 'Sever'"):
        _ = interlock.Sever
    assert (PACKAGE / "py.typed").exists()


# Cost


def loaded_by(statement: str) -> set[str]:
    """Run a statement in a new interpreter; return the packages that it has loaded."""
    return {name.partition(".")[0] for name in loaded_modules(statement)}


def loaded_modules(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*shown.stdout.split()}


HEAVY = {
    "aiohttp",
    "alembic",
    "anthropic",
    "click",
    "cryptography",
    "jsonschema_rs",
    "jwt",
    "keyring",
    "openai",
    "prompt_toolkit",
    "rich",
    "sqlalchemy",
    "xllamacpp",
}


def test_importing_the_package_loads_no_heavy_module():
    loaded = loaded_by("import interlock")

    assert not loaded & (HEAVY | {"asyncio", "msgspec", "ssl", "logging"})


@pytest.mark.slow("works through much data")
def test_importing_the_public_names_loads_no_heavy_module():
    assert not loaded_by(f"from interlock import {', '.join(interlock.__all__)}") & HEAVY


@pytest.mark.slow("works through much data")
def test_opening_a_chat_loads_no_server_and_no_package_of_a_provider():
    loaded = loaded_modules("import interlock.cli.terminal_chat")

    assert not {name for name in loaded if name.startswith("interlock.server")}
    assert not {"aiohttp", "anthropic", "openai", "sqlalchemy", "xllamacpp"} & loaded


# Architecture


def test_every_module_belongs_to_a_room():
    assert {room(module) for module in MODULES if module} <= set(ROOMS)
    assert len(set(ROOMS)) == len(ROOMS)


@pytest.mark.slow("parses every module")
def test_imports_go_up_and_never_down():
    down = [
        f"{module} imports {imported}"
        for module in filter(None, MODULES)
        for imported in imports(module)
        if imported and ROOMS.index(room(imported)) > ROOMS.index(room(module))
    ]

    assert down == []


@pytest.mark.slow("works through much data")
def test_modules_never_import_each_other_even_lazily():
    graph = {module: {*imports(module)} - {""} for module in MODULES if module}

    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_gateway_needs_neither_command_line_nor_pages_nor_agent():
    reached = {module for module in MODULES if room(module) == "gateway"}
    left = [*reached]
    while left:
        found = {each for each in imports(left.pop()) if each} - reached
        reached |= found
        left += found

    assert reached & {"calls.audit", "toolbox.toolbox"}
    assert {room(each) for each in reached} & {"cli", "web", "agent"} == set()


def test_the_core_imports_neither_network_nor_clock():
    pure = [each for each in MODULES if each.startswith("protocol")]
    for module in ("errors", "messages", "types", "revisions", "toolbox.names", *pure):
        outside = {
            alias.name if isinstance(node, ast.Import) else str(node.module)
            for node in parsed(module)
            for alias in node.names
        }
        assert not {name.partition(".")[0] for name in outside} & {
            "asyncio",
            "os",
            "socket",
            "subprocess",
            "threading",
            "time",
        }, module


# Where a further function would cost every call.
LONG = {"toolbox.server_calls.send"}


def test_no_function_is_longer_than_50_lines():
    long = {
        f"{name}.{node.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= 50
    }

    assert long == LONG
