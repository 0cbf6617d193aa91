"""Resolve `$ref`: local JSON Pointers, and files in the folder of a local document."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from interlock.errors import InterlockError
from interlock.text import quoting
from interlock.types import JsonObject

MAX_CHAIN = 32
MAX_FILES = 200
MAX_FILES_BYTES = 64 * 1024 * 1024  # total size of the files that references name


class DocumentError(InterlockError, ValueError):
    """The error for a document, or a part of it that a tool needs, that cannot be used."""


class References:
    """Resolves the `$ref` references of one document.

    When a file is loaded, its references are made absolute: `#/pointer` leads into the document
    itself, and `parts/file.yaml#/pointer` into another file in the document's folder.

    Args:
        root: The document.
        folder: The folder of a local document; None if references to other files are refused.
        own_name: The document's file name within the folder.
        parse: Decodes a file, given its bytes and its name.

    Attributes:
        root: The document.
        parts: The decoded contents of the other files read so far, keyed by their path in the
            folder.
    """

    def __init__(
        self,
        root: JsonObject,
        folder: Path | None,
        own_name: str,
        parse: Callable[[bytes, str], Any],
    ) -> None:
        self.root = root
        self.parts: dict[str, Any] = {}
        self._folder = folder.resolve() if folder else None
        self._own_name = own_name
        self._parse = parse
        self._named: dict[str, None] = {}  # the other files that were named, even if missing
        self._found: dict[str, Any] = {}
        self._bytes = 0  # total size of the other files

    @property
    def files(self) -> list[Path]:
        """The other files that references have named so far, including missing files."""
        return [self._folder / name for name in self._named] if self._folder else []

    def follow(self, node: Any, depth: int = 0) -> Any:
        """Follow a node's chain of references to its target; members beside `$ref` override it.

        Raises:
            DocumentError: A reference leads nowhere, out of the folder, or in a circle.
        """
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            if depth == MAX_CHAIN:
                raise DocumentError(f"a chain of references is too long (limit {MAX_CHAIN})")
            depth += 1
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            node = self.find(node["$ref"], depth)
            if siblings and isinstance(node, dict):
                node = node | siblings
        return node

    def find(self, reference: str, depth: int = 0) -> Any:
        """Return the node that an absolute reference points to.

        Raises:
            DocumentError: See `follow`.
        """
        if reference in self._found:
            return self._found[reference]
        file, _, pointer = reference.partition("#")
        node = self._load(file, reference) if file else self.root
        for step in _steps(pointer, reference):
            node = self.follow(node, depth)
            if isinstance(node, dict) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isascii() and step.isdigit() and len(step) < 7:
                node = node[int(step)] if int(step) < len(node) else _missing(reference)
            else:
                _missing(reference)
        self._found[reference] = node
        return node

    def _load(self, file: str, reference: str) -> Any:
        name = posixpath.normpath(unquote(file))
        if name == self._own_name:
            return self.root
        if name not in self.parts:
            path = self._inside(name, reference)
            if len(self.parts) >= MAX_FILES:
                raise DocumentError(f"the document refers to too many files (limit {MAX_FILES})")
            try:
                self._bytes += path.stat().st_size
                if self._bytes > MAX_FILES_BYTES:
                    raise DocumentError(
                        f"the files of the document are too large (limit {MAX_FILES_BYTES:,} bytes)"
                    )
                data = path.read_bytes()
            except OSError as error:
                raise DocumentError(
                    f"the file of {quoting.echo(reference)} cannot be read ({error.strerror})"
                ) from None
            content = self._parse(data, name)
            _make_absolute(content, name, self._own_name)
            self.parts[name] = content
        return self.parts[name]

    def _inside(self, name: str, reference: str) -> Path:
        refused = DocumentError(
            f"the reference {quoting.echo(reference)} leads outside of the document's folder"
        )
        if self._folder is None or ":" in name or "\\" in name or "\0" in name:
            raise refused
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise refused
        self._named[name] = None
        if not path.is_file():
            raise DocumentError(f"the file of {quoting.echo(reference)} is missing")
        return path


def _steps(pointer: str, reference: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        _missing(reference)
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _missing(reference: str) -> Any:
    raise DocumentError(f"the reference {quoting.echo(reference)} leads nowhere")


def _make_absolute(content: Any, name: str, own_name: str) -> None:
    """Change the references in a file's contents to absolute references, in place."""
    nodes = [content]
    seen = set()  # YAML aliases share nodes
    for node in nodes:  # the loop appends to `nodes`
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict) and id(node) not in seen:
            seen.add(id(node))
            nodes += node.values()
            if isinstance(node.get("$ref"), str):
                node["$ref"] = _absolute(node["$ref"], name, own_name)


def _absolute(reference: str, name: str, own_name: str) -> str:
    file, _, pointer = reference.partition("#")
    if ":" in file:
        return reference  # `find` refuses it
    if file:
        name = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(file)))
    return f"{'' if name == own_name else quote(name)}#{pointer}"
