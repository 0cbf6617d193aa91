"""Writes docs/reference/api/: each public name is on the page of one module.

python -m tests.docs.api_pages

`::: interlock.agent.Agent` stands for the signature and the docstring, which `make docs` reads from
the source.
"""

from __future__ import annotations

import importlib

from tests.docs.page import ROOT
from tests.test_api import PUBLIC

FOLDER = ROOT / "docs" / "reference" / "api"


def owner(module: str, name: str) -> str:
    """Return the module on whose page a name is: where it is defined, else not `interlock`."""
    value = getattr(importlib.import_module(module), name)
    every = [
        each
        for each, names in PUBLIC.items()
        if name in names and getattr(importlib.import_module(each), name) is value
    ]
    defined = f"{getattr(value, '__module__', '')}."
    return max(every, key=lambda each: (each != "interlock", defined.startswith(f"{each}.")))


def texts() -> dict[str, str]:
    """Return the text of each page, by the name of its file."""
    pages = {}
    for module, names in PUBLIC.items():
        owners = {each: owner(module, each) for each in names}
        about = (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0]
        lines = [f"# `{module}`\n", f"{about}\n"]
        lines += [f"::: {module}.{each}\n" for each in names if owners[each] == module]
        if elsewhere := {each: other for each, other in owners.items() if other != module}:
            lines += [f"These names are also in `{module}`:\n"]
            lines += [
                f"- [`{name}`]({file_of(other)}) of `{other}`" for name, other in elsewhere.items()
            ]
            lines += [""]
        pages[file_of(module)] = "\n".join(lines).rstrip("\n") + "\n"
    return pages


def file_of(module: str) -> str:
    return f"{module.removeprefix('interlock.')}.md"


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
