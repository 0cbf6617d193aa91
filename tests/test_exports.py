"""What the package offers, what it costs to import, and which part may know which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import interlock

PACKAGE = Path(interlock.__file__).parent

# The rooms of the house, by what they rest on: each may import what stands above it, and itself.
TABLE = """
    build extras errors messages types revisions lazy text observing
    aio durable histogram attachments media protocol schema
    auth oauth transports connection config
    store calls
    context policy layers
    client server openapi toolbox
    models compaction tool_loading agent streamed_answer chat telemetry
    callables langchain langgraph testing
    gateway web claude
    cli __main__
"""
ROOMS = TABLE.split()


def modules() -> dict[str, Path]:
    """Every module by its name without "interlock."; the package itself is ""."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
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


def test_names_of_the_package_are_listed_by_dir():
    assert {*interlock.__all__} <= {*dir(interlock)}


def test_type_checkers_find_the_same_names():
    tree = ast.parse(Path(interlock.__file__).read_text())
    seen = {
        alias.name: str(node.module).removeprefix("interlock.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interlock")
        for alias in node.names
        if alias.name != "loader"
    }

    assert seen == interlock._HOMES
    assert sorted(seen) == interlock.__all__


def test_no_two_modules_define_public_classes_of_one_name():
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in re.findall(r"^class ([^_]\w*)", path.read_text(), re.MULTILINE):
            homes.setdefault(name, []).append(module)

    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def test_no_two_files_of_a_room_have_one_name():
    names = Counter(
        (room(each), each.rpartition(".")[2])
        for each, path in MODULES.items()
        if "." in each and path.stem != "__init__"
    )

    assert {name: count for name, count in names.items() if count > 1} == {}


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
    "annotated_types",
    "anthropic",
    "click",
    "cryptography",
    "jsonschema_rs",
    "jwt",
    "keyring",
    "openai",
    "prompt_toolkit",
    "pydantic",
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
    loaded = loaded_modules("import interlock.cli.chat.terminal_chat")

    assert not {name for name in loaded if name.startswith("interlock.server")}
    assert not {"aiohttp", "anthropic", "openai", "sqlalchemy", "xllamacpp"} & loaded


@pytest.mark.slow("works through much data")
def test_gateway_loads_no_front_door_unless_it_is_configured():
    loaded = loaded_modules(
        "import interlock.gateway.assembly, interlock.gateway.serving.endpoint, interlock.store"
    )

    door = ("interlock.gateway.front_door", "interlock.auth.authorization_ring")
    assert [each for each in loaded if each.startswith(door)] == []


# Architecture


def test_the_page_of_the_architecture_shows_the_rows_of_rooms_and_at_most_ten():
    page = (PACKAGE.parents[1] / "docs/architecture.md").read_text()
    shown = re.findall(r"^\| (`.*?`) \|", page[page.index("## Layers") :], re.MULTILINE)
    rows = [line.split() for line in TABLE.strip().splitlines()]

    assert [re.findall(r"`(\w+)/?`", row) for row in shown] == rows
    assert len(rows) <= 10


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


@pytest.mark.slow("works through much data")
def test_folders_of_a_room_never_import_each_other():
    def place(module: str) -> str:
        return ".".join(module.split(".")[:2]) if module.count(".") > 1 else module

    graph: dict[str, set[str]] = {}
    for module in filter(None, MODULES):
        inside = {place(each) for each in imports(module) if room(each) == room(module)}
        graph.setdefault(place(module), set()).update(inside - {place(module), room(module)})

    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_gateway_needs_neither_command_line_nor_pages_nor_agent():
    reached = {module for module in MODULES if room(module) == "gateway"}
    left = [*reached]
    while left:
        found = {each for each in imports(left.pop()) if each} - reached
        reached |= found
        left += found

    assert reached & {"layers.audit", "toolbox.toolbox"}
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
