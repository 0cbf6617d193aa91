"""The Python on the pages passes strict mypy, with the settings of the package itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import ROOT, blocks, pages


def write_modules(folder: Path) -> None:
    """Write the Python of each page, at the lines that it has there.

    Files keep their names behind that of their page; the blocks without a title are one module. A
    file that a page writes again is another module, and the last one is imported.
    """
    for page in pages():
        prefix = page.stem.replace("-", "_")
        code: dict[str, str] = {}
        every = [each for each in blocks(page.read_text()) if each.language == "python"]
        for number, block in enumerate(every):
            stem = Path(block.title).stem or "page"
            if stem != "page" and block.title in [each.title for each in every[number + 1 :]]:
                stem += str(number)
            missing = block.line - 1 - code.get(stem, "").count("\n")
            code[stem] = code.get(stem, "") + "\n" * missing + block.text
        imports = re.compile(rf"^(from|import) (?=(?:{'|'.join(code)})\b)", re.MULTILINE)
        for stem, source in code.items():
            (folder / f"{prefix}_{stem}.py").write_text(imports.sub(rf"\1 {prefix}_", source))


@pytest.mark.slow("runs mypy, which takes seconds where `make lint` has filled its cache")
def test_python_on_the_pages_passes_strict_mypy(tmp_path: Path):
    write_modules(tmp_path)

    checked = subprocess.run(
        [Path(sys.executable).with_name("mypy"), *sorted(tmp_path.glob("*.py"))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert checked.returncode == 0, checked.stdout.replace(f"{tmp_path}/", "")
