"""Trust in a `.mcp.json` that came with a folder, for its exact place and content.

Nothing in such a file is used until the operator has seen it and `grant` has noted its hash;
any later edit needs a new look.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec

from interlock import config
from interlock.config import shared_file
from interlock.config.servers import Config
from interlock.errors import ConfigError

PROJECT_FILE = ".mcp.json"


def project_file(folder: Path | None = None) -> Path | None:
    """Find the `.mcp.json` that came with a folder, the working folder by default.

    Nothing in it may be used before `is_trusted`; `load` sees to that.
    """
    path = (folder or Path.cwd()) / PROJECT_FILE
    return path.resolve() if path.is_file() else None


def fingerprint(path: Path) -> str:
    """Hash a file's content, for `grant`: SHA-256 in hex.

    Raises:
        ConfigError: It cannot be read.
    """
    return _hash(shared_file.read(path))


def is_trusted(path: Path) -> bool:
    """Whether somebody has trusted this file, at this place, with exactly this content."""
    try:
        return _granted(path) == fingerprint(path)
    except ConfigError:
        return False


def grant(path: Path, seen: str) -> None:
    """Note that the operator trusts a file.

    Args:
        path: The file.
        seen: `fingerprint` of the content that was shown to the operator.

    Raises:
        ConfigError: The file is wrong, has changed since it was shown, or trust cannot be noted.
    """
    content = shared_file.read(path)
    if _hash(content) != seen:
        raise ConfigError(f"{path} has changed since it was shown: look at it again")
    config.loads(content, path)

    def noted() -> bytes:
        grants = _grants() | {str(path.resolve()): seen}
        return msgspec.json.format(msgspec.json.encode(grants), indent=2)

    shared_file.edit(_store(), noted)


def load(path: Path) -> Config:
    """Read a project's file, if it is trusted. What was checked is what is read.

    Raises:
        ConfigError: It is not trusted, or something in it is wrong.
    """
    content = shared_file.read(path)
    if _granted(path) != _hash(content):
        raise ConfigError(f"{path} is not trusted: interlock servers trust")
    return config.loads(content, path)


def untrusted_warning(folder: Path | None = None) -> str | None:
    """Say in one line that a folder's `.mcp.json` is being ignored; None when it is not."""
    path = project_file(folder)
    if path is None or is_trusted(path):
        return None
    try:
        count = len(config.load(path).servers)
        what = "1 server" if count == 1 else f"{count} servers"
    except ConfigError:
        what = "which has errors"
    return (
        f"found {PROJECT_FILE} ({what}) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()


def _granted(path: Path) -> str | None:
    return _grants().get(str(path.resolve()))


def _grants() -> dict[str, str]:
    """Read what is trusted: resolved path -> SHA-256. Damaged or absent: nothing."""
    try:
        return msgspec.json.decode(_store().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _store() -> Path:
    from platformdirs import user_data_path

    return user_data_path("interlock") / "trusted.json"
