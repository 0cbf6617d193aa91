"""Run a suite with other versions of Python: `python -m tests.pythons 3.12,3.13 -m pytest ...`.

An interpreter is taken from PATH, from uv or from pyenv, else from a release of Debian that is
unpacked into `build/pythons` and entered with bubblewrap. A version that cannot be had is named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "pythons"
UV = Path(sys.executable).with_name("uv")
PINNED = [ROOT / "requirements" / name for name in ("dev.txt", "conformance.txt")]
DEBIAN = {"3.13": "trixie", "3.14": "forky"}  # releases whose `python3` is of this version
TOOLS = ("mmdebstrap", "bwrap")


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the words before each command that let it run."""

    python: str
    enter: tuple[str, ...] = ()

    def run(self, *command: str | Path, check: bool = True) -> int:
        """Run a command from the root of the checkout; return its status."""
        words = [*self.enter, *map(str, command)]
        env = {**os.environ, "UV_CACHE_DIR": str(BUILD / "cache"), "UV_LINK_MODE": "copy"}
        return subprocess.run(words, cwd=ROOT, env=env, check=check).returncode


def find(version: str) -> Interpreter | str:
    """Return an interpreter of a version, or why there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = [f"python{version}", *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    uv = [UV, "python", "find", "--no-config", "--no-python-downloads", "--no-project", version]
    asked = subprocess.run(uv, capture_output=True, text=True)
    for candidate in [*known, asked.stdout.strip()]:
        if candidate and _is(candidate, version):
            return Interpreter(str(candidate))
    if version not in DEBIAN:
        return "neither PATH, uv, pyenv nor a release of Debian has it"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not found; apt-get install mmdebstrap bubblewrap"
    return _from_debian(version)


def _is(candidate: str | Path, version: str) -> bool:
    """Whether a program is a Python of a version; the shims of pyenv may be none."""
    words = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.strip() == version
    except OSError:
        return False


def _from_debian(version: str) -> Interpreter | str:
    root = BUILD / f"debian-{version}"
    if not (root / "usr" / "bin" / f"python{version}").exists():
        shutil.rmtree(root, ignore_errors=True)
        made = subprocess.run(
            [
                *("mmdebstrap", "--quiet", "--variant=apt", "--include=python3,git,make"),
                "--aptopt=Acquire::Check-Valid-Until false",  # a mirror may be some weeks old
                *(DEBIAN[version], str(root)),
            ]
        )
        if made.returncode or not (root / "usr" / "bin" / f"python{version}").exists():
            shutil.rmtree(root, ignore_errors=True)
            return f"mmdebstrap made no Debian {DEBIAN[version]} with it (status {made.returncode})"
    shared = [str(each) for each in {ROOT, (ROOT / "build").resolve()}]
    binds = [word for each in shared for word in ("--bind", each, each)]
    host = [word for each in _of_host() for word in ("--ro-bind", each, each)]
    devices = ("--dev-bind", "/dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp")
    ends = ("--die-with-parent", "--chdir", str(ROOT))
    enter = ("bwrap", "--bind", str(root), "/", *devices, *binds, *host, *ends)
    return Interpreter(f"/usr/bin/python{version}", enter)


def _of_host() -> list[str]:
    """Return what the package index is reached with."""
    return [each for each in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl") if Path(each).exists()]


def environment(version: str, interpreter: Interpreter) -> Path:
    """Return an environment with the pinned requirements, made once for each set of them."""
    place = BUILD / version
    python = place / "bin" / "python"
    stamp = place / ".stamp"
    wanted = [*PINNED, ROOT / "pyproject.toml"]
    if stamp.exists() and all(each.stat().st_mtime < stamp.stat().st_mtime for each in wanted):
        return python
    uv = (UV, "--no-config", "--quiet")
    interpreter.run(
        *uv, "venv", "--clear", "--no-managed-python", "--python", interpreter.python, place
    )
    install = (*uv, "pip", "install", "--python", python, "--no-deps")
    lists = [word for each in PINNED for word in ("-r", each)]
    interpreter.run(*install, "--require-hashes", *lists)
    interpreter.run(*install, "--no-build-isolation", "--editable", ROOT)
    stamp.touch()
    return python


def main(versions: list[str], arguments: list[str]) -> int:
    """Run Python with the arguments in each version; return 1 if one of them failed."""
    BUILD.mkdir(parents=True, exist_ok=True)
    results: dict[str, str] = {}
    for version in versions:
        found = find(version)
        if isinstance(found, str):
            results[version] = f"MISSING: {found}"
            continue
        print(f"Python {version}: {' '.join((*found.enter[:1], found.python))}", flush=True)
        python = environment(version, found)
        status = found.run(python, *arguments, check=False)
        results[version] = f"failed (status {status})" if status else "passed"
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int(any(result.startswith("failed") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(","), sys.argv[2:]))
