"""Copy the libraries of the pages from their npm packages: `make vendor`.

A browser resolves only paths, so the names of packages in imports are replaced by paths.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build/browser/node_modules"
LOCK = ROOT / "tests/browser/package-lock.json"
TARGET = ROOT / "src/interlock/web/static/vendor"

FILES = {  # target: package, and the file in it
    "preact.js": ("preact", "dist/preact.mjs"),
    "hooks.js": ("preact", "hooks/dist/hooks.mjs"),
    "signals.js": ("@preact/signals", "dist/signals.mjs"),
    "signals-core.js": ("@preact/signals-core", "dist/signals-core.mjs"),
    "htm.js": ("htm", "dist/htm.mjs"),
    "marked.js": ("marked", "lib/marked.esm.js"),
    "inter.woff2": ("@fontsource-variable/inter", "files/inter-latin-wght-normal.woff2"),
    "inter-ext.woff2": ("@fontsource-variable/inter", "files/inter-latin-ext-wght-normal.woff2"),
    "jetbrains-mono.woff2": (
        "@fontsource-variable/jetbrains-mono",
        "files/jetbrains-mono-latin-wght-normal.woff2",
    ),
}
IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
TYPES = {  # for the type checker alone; they are not served
    "preact.d.ts": 'export * from "preact";',
    "hooks.d.ts": 'export * from "preact/hooks";',
    "signals.d.ts": 'export * from "@preact/signals";',
    "signals-core.d.ts": 'export * from "@preact/signals-core";',
    "htm.d.ts": 'export { default } from "htm";',
    "marked.d.ts": 'export * from "marked";',
}


def content(package: str, file: str) -> bytes:
    """Return a file of a package as a browser can load it."""
    found = (PACKAGES / package / file).read_bytes()
    if not file.endswith(("js", "mjs")):
        return found
    text = re.sub(r"\n?//# sourceMappingURL=\S+", "", found.decode())

    def replaced(match: re.Match[str]) -> str:
        return match[1] + IMPORTS.get(match[2], match[2]) + match[3]

    return re.sub(r"""(from\s?["'])([^"'.][^"']*)(["'])""", replaced, text).encode()


def integrity(data: bytes) -> str:
    """Return the hash of a file, as in an npm lock file."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def files() -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of all files of the folder."""
    locked = json.loads(LOCK.read_text())["packages"]
    packages: dict[str, Any] = {}
    for target, (package, file) in FILES.items():
        data = content(package, file)
        yield target, data
        lock = locked[f"node_modules/{package}"]
        entry = packages.setdefault(
            package,
            {
                "version": lock["version"],
                "licence": lock["license"],
                "integrity": lock["integrity"],
                "files": {},
            },
        )
        entry["files"][target] = integrity(data)
    for target, text in TYPES.items():
        yield target, f"{text}\n".encode()
    yield "vendor.json", (json.dumps(packages, indent=2) + "\n").encode()
    yield "LICENSES.txt", "\n".join(licence(each) for each in packages).encode()


def licence(package: str) -> str:
    """Return the licence of a package under its name."""
    text = (PACKAGES / package / "LICENSE").read_text().strip()
    return f"{package}\n{'=' * len(package)}\n\n{text}\n"


if __name__ == "__main__":
    for name, data in files():
        path = TARGET / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{len(data):>8,}  {name}", file=sys.stderr)
