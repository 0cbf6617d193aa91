"""What a build adds to the package: the commit, and the lists of what it uses and contains.

It uses only the standard library, and gives the same bytes for the same commit.
"""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LOCK = "requirements/all.txt"
REQUIRED = "requirements/base.txt"  # a part of LOCK: what the package needs without extras
VENDORED = "src/interlock/web/static/vendor/vendor.json"

_PIN = re.compile(r"^([a-z0-9][a-z0-9.-]*)(?:\[[^]]*\])?==([^ ]+)(?: .*)?$")
_VIA = re.compile(r"^    #(?: via)?(?: +)([a-z0-9][a-z0-9.-]*)(?:\[[^]]*\])?(?: .*)?$")


class Hook(BuildHookInterface):  # type: ignore[misc, type-arg]
    """Adds `build.json` and, to wheels, the software bills of materials."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the files into a temporary folder, and add them."""
        if version == "editable":  # its files change after the installation
            return
        self._folder = TemporaryDirectory()
        root, folder = Path(self.root), Path(self._folder.name)
        package = "src/interlock" if self.target_name == "sdist" else "interlock"
        built = runpy.run_path(str(root / "src/interlock/build.py"))
        kept = root / "src/interlock" / built["FILE"]  # in an unpacked sdist
        found = built["of_checkout"](root) if (root / ".git").exists() else None
        if found is not None:
            kept = folder / built["FILE"]
            kept.write_text(json.dumps(found._asdict()) + "\n")
        if kept.exists():
            build_data["force_include"][str(kept)] = f"{package}/{built['FILE']}"
        if self.target_name == "wheel":
            for name, content in boms(root, self.metadata.version).items():
                (folder / name).write_text(json.dumps(content, indent=1) + "\n")
                build_data["sbom_files"].append(str(folder / name))

    def finalize(self, version: str, *_: Any) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            self._folder.cleanup()


def boms(root: Path, version: str) -> dict[str, dict[str, Any]]:
    """Return the software bills of materials in CycloneDX 1.6, by the name of their file."""
    lock, required = (pins((root / each).read_text()) for each in (LOCK, REQUIRED))
    packages = [
        _component("pypi", name, pin, scope="required" if name in required else "optional")
        for name, (pin, _) in lock.items()
    ]
    needs = {
        name: [of for of, (_, by) in lock.items() if name in by] for name in ["interlock", *lock]
    }
    files = json.loads((root / VENDORED).read_text())
    contained = [
        _component("npm", name, each["version"], licenses=[{"license": {"id": each["licence"]}}])
        for name, each in files.items()
    ]
    return {
        "interlock.cdx.json": _bom(version, packages, needs),
        "interlock-web.cdx.json": _bom(version, contained, {"interlock": list(files)}),
    }


def pins(text: str) -> dict[str, tuple[str, set[str]]]:
    """Return the version of each package in a lock file, and the names of those that need it."""
    found: dict[str, tuple[str, set[str]]] = {}
    name = ""
    for line in text.splitlines():
        if pin := _PIN.match(line.rstrip("\\ ")):
            name = pin[1]
            found[name] = pin[2], set()
        elif name and (via := _VIA.match(line)):
            found[name][1].add(via[1])
    return found


def _bom(version: str, components: list[Any], needs: dict[str, list[str]]) -> dict[str, Any]:
    own = _component("pypi", "interlock", version, licenses=[{"license": {"id": "MIT"}}])
    references = {each["name"]: each["bom-ref"] for each in [own, *components]}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[each] for each in others)}
            for name, others in needs.items()
        ],
    }


def _component(kind: str, name: str, version: str, **members: Any) -> dict[str, Any]:
    purl = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **members,
    }
