"""Trust in a folder's `.mcp.json`, which applies only to its exact path and content.

Nothing in such a file is used until the operator has reviewed the file and `grant` has stored its
hash, which also covers the files of variables (`envFile`) that it names. After any edit of one of
them, the operator must review the file again.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import msgspec

from interlock import config
from interlock.config import shared_file
from interlock.config.resolving import env_file_of
from interlock.config.servers import Config, StdioServer
from interlock.errors import ConfigError
from interlock.text.surrogates import path_text

PROJECT_FILE = ".mcp.json"


def project_file() -> Path | None:
    """Return the path of the `.mcp.json` in the working directory; None without it.

    Read the file only with `load`, which checks that it is trusted.
    """
    path = Path.cwd() / PROJECT_FILE
    return path.resolve() if path.is_file() else None


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file and of the files of variables that it names, for `grant`.

    Raises:
        ConfigError: The file cannot be read, or is not valid.
    """
    content = shared_file.read(path)
    return _hash(content, config.loads(content, path))


def is_trusted(path: Path) -> bool:
    """Return whether the operator trusts this file at this path with its present content."""
    try:
        return _granted(path) == fingerprint(path)
    except ConfigError:
        return False


def grant(path: Path, seen: str) -> None:
    """Record that the operator trusts a file.

    Args:
        path: The file.
        seen: The `fingerprint` of the content that the operator has reviewed.

    Raises:
        ConfigError: The file is not valid or has changed, or the trust cannot be stored.
    """
    content = shared_file.read(path)
    if _hash(content, config.loads(content, path)) != seen:
        raise ConfigError(f"{path} has changed since it was shown: review it again")

    def with_grant() -> bytes:
        grants = _grants() | {path_text(path.resolve()): seen}
        return msgspec.json.format(msgspec.json.encode(grants), indent=2)

    shared_file.edit(_store(), with_grant)


def load(path: Path) -> Config:
    """Read a folder's `.mcp.json` if it is trusted. The content that was checked is used.

    Raises:
        ConfigError: The file is not trusted, or its content is not valid.
    """
    content = shared_file.read(path)
    granted = _granted(path)
    found = config.loads(content, path) if granted is not None else Config()
    if granted is None or granted != _hash(content, found):
        raise ConfigError(f"{path} is not trusted: review it with `interlock servers trust`")
    return found


def untrusted_warning() -> str | None:
    """Return a warning if `.mcp.json` is ignored because it is not trusted, or None."""
    path = project_file()
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


def _hash(content: bytes, found: Config) -> str:
    """Return the hash of a file, and of the content of each file of variables that it names."""
    hashed = sha256(content)
    for name, server in found.servers.items():
        if isinstance(server, StdioServer) and server.env_file is not None:
            try:
                path = env_file_of(server, os.environ)
                inner = sha256(path.read_bytes()).digest() if path else b""
            except (OSError, ConfigError):
                inner = b""
            hashed.update(b"\0" + name.encode() + b"\0" + inner)
    return hashed.hexdigest()


def _granted(path: Path) -> str | None:
    return _grants().get(path_text(path.resolve()))


def _grants() -> dict[str, str]:
    """Return the trusted SHA-256 for each resolved path; {} if the file is missing or damaged."""
    try:
        return msgspec.json.decode(_store().read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _store() -> Path:
    from platformdirs import user_data_path

    return user_data_path("interlock") / "trusted.json"
