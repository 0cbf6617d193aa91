"""Finds the shell command that installs an optional dependency.

A package named `interlock` in an index may be a different project, so the command never installs
that name. It names the place from which this installation came (PEP 610), or only the packages that
the extra requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def install_command(extra: str) -> str:
    """Return a shell command that adds an extra to this installation.

    Args:
        extra: The name of an extra, or several names separated by commas.
    """
    from importlib import metadata

    try:
        installed = metadata.distribution("interlock")
    except metadata.PackageNotFoundError:  # interlock runs from source, without an installation
        return f"install what the extra {extra} of its pyproject.toml lists"
    source = _source(installed.read_text("direct_url.json") or "{}", extra)
    if extra == "local" and (command := _make_command(source)):
        return command
    return f"{_installer()} {source or _packages(installed.requires or [], extra)}"


def _source(direct_url: str, extra: str) -> str:
    """Return the installed checkout or repository with the extra; "" for any other origin."""
    import json
    import shlex
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    origin: dict[str, Any] = json.loads(direct_url)
    url = origin.get("url", "")
    below = origin.get("subdirectory", "")
    if "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path), below)
        if not (folder / "pyproject.toml").is_file():
            return ""
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return editable + shlex.quote(f"{folder}[{extra}]")
    if "vcs_info" in origin:
        version = origin["vcs_info"].get("requested_revision", "")
        address = f"{origin['vcs_info']['vcs']}+{url}" + (version and f"@{version}")
        address += below and f"#subdirectory={below}"
        return shlex.quote(f"interlock[{extra}] @ {address}")
    return ""


def _make_command(source: str) -> str:
    """Return `make model` if this is the environment that the checkout's Makefile has made."""
    import shlex
    import sys
    from pathlib import Path

    checkout = Path(sys.prefix).parent
    if source != f"-e {shlex.quote(f'{checkout}[local]')}" or Path(sys.prefix).name != ".venv":
        return ""
    return "make model" if Path.cwd() == checkout else f"make -C {shlex.quote(str(checkout))} model"


def _packages(required: list[str], extra: str) -> str:
    """Return the packages that an extra requires, quoted for a shell."""
    import shlex

    return " ".join(shlex.quote(each) for each in sorted({*_required(required, extra)}))


def _required(required: list[str], extra: str) -> Iterator[str]:
    markers = {f"extra=={quote}{name}{quote}" for name in extra.split(",") for quote in "'\""}
    for each in required:
        requirement, _, marker = each.partition(";")
        if marker.replace(" ", "") in markers:
            yield requirement.strip()


def _installer() -> str:
    """Return the install command of the program that manages this environment."""
    import shlex
    import sys
    from pathlib import Path

    folder = Path(sys.prefix)
    if (folder / "pipx_metadata.json").exists():
        return f"pipx runpip {shlex.quote(folder.name)} install"
    settings = folder / "pyvenv.cfg"
    if settings.exists() and "\nuv = " in f"\n{settings.read_text()}":  # uv made it, without pip
        return f"uv pip install --python {shlex.quote(sys.prefix)}"
    return "pip install"
