"""The stated API: the names in `__all__` of `interlock` and of the modules right below it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "tests/typing").glob("*.py")),
]
MODULES = [
    name
    for name in (each.name for each in pkgutil.iter_modules(interlock.__path__, "interlock."))
    if name != "interlock.__main__"
]
PUBLIC = {
    name: module.__all__
    for name in ("interlock", *MODULES)
    if hasattr(module := importlib.import_module(name), "__all__")
}
_PYTHON = re.compile(r"^```python\b.*?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"^ *from (interlock[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Return the names that a text imports from the package, each with its module."""
    for module, many, few in _IMPORT.findall(code):
        for name in re.sub(r"#.*", "", many or few).split(","):
            if name.strip():
                yield module, name.split()[0]


def private(code: str) -> list[str]:
    return [
        f"{module}: {name}"
        for module, name in imported(code)
        if name not in PUBLIC.get(module, ()) and f"{module}.{name}" not in PUBLIC
    ]


def documented(module: str, name: str) -> bool:
    """Return whether a name has a docstring where it is defined; after its value, for a value."""
    tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text())
    for at, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == name:
                return bool(ast.get_docstring(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == name:
                after = tree.body[at + 1] if at + 1 < len(tree.body) else None
                return isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    for node in ast.walk(tree):  # imported from where it is defined
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("interlock"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return documented(str(node.module), alias.name)
    return False


def test_public_names_can_be_imported_and_have_docstrings():
    for module, names in PUBLIC.items():
        assert len(names) == len(set(names)), module
        missing = [name for name in names if not hasattr(importlib.import_module(module), name)]
        assert missing == [], module

    undocumented = [
        f"{module}: {name}"
        for module, names in PUBLIC.items()
        for name in names
        if not documented(module, name)
    ]
    assert undocumented == []


def test_every_class_of_the_vocabulary_is_public():
    for module in ("interlock.errors", "interlock.messages", "interlock.types"):
        tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text())
        classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert {name for name in classes if name[0] != "_"} <= set(PUBLIC[module])


def test_page_of_the_library_lists_every_public_module():
    page = (ROOT / "docs/reference/api/index.md").read_text()

    assert re.findall(r"^\| \[`(interlock[\w.]*)`\]", page, re.MULTILINE) == sorted(PUBLIC)


def test_examples_and_pages_import_public_names_only():
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*EXAMPLES, *PAGES)
        for code in (
            [path.read_text()] if path.suffix == ".py" else _PYTHON.findall(path.read_text())
        )
        for name in private(code)
    ]

    assert found == []
