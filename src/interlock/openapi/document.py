"""An OpenAPI document: its version, its operations by key, its servers and security schemes."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import MissingExtra
from interlock.openapi import yaml_parser
from interlock.openapi.references import DocumentError, References
from interlock.text import quoting
from interlock.text.surrogates import repair_json
from interlock.types import JsonObject

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_OPERATIONS = 10_000
MAX_URL = 2_000  # characters
MAX_JSON_VALUES = 1_000_000  # GitHub has 270,000
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_NEVER = frozenset({"TRACE", "CONNECT"})
_METHOD = re.compile(r"[A-Z][A-Z0-9_-]{0,31}")
_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}  # OpenAPI 2.0 -> 3


class Document:
    """A parsed OpenAPI document. Only parts that the listed tools need are read.

    Args:
        root: The decoded document.
        references: Resolves the document's references.
        warnings: Problems found so far; later problems are added to the list.

    Attributes:
        version: "2.0", "3.0", "3.1" or "3.2".
        title: The document's title; "" if it has no title.
        keys: The path item and the operation object, keyed by "METHOD /path".
        by_id: Operation keys by operationId; several keys if the document repeats an id.
        warnings: One line for each dubious part of the document.

    Raises:
        DocumentError: The data is not an OpenAPI document, or is over a limit.
    """

    def __init__(self, root: Any, references: References, warnings: list[str]) -> None:
        self.version = _version(root)
        self.root: JsonObject = root
        self.references = references
        self.warnings = warnings
        info = root.get("info")
        self.title = str(info.get("title", "")) if isinstance(info, dict) else ""
        self.keys: dict[str, tuple[JsonObject, JsonObject]] = {}
        self.by_id: dict[str, list[str]] = {}
        for path, item in _members(root.get("paths")):
            if path.startswith("/"):
                self._index(path, item)

    def find(self, operation: str) -> str:
        """Return the key of an operation, given its operationId or "METHOD /path".

        Raises:
            DocumentError: No operation has this name, or several have this id. The text suggests
                similar names.
        """
        keys = self.by_id.get(operation, [])
        if len(keys) > 1:
            some = ", ".join(keys[:5])
            raise DocumentError(
                f"the operationId {quoting.echo(operation)} is not unique; name one of {some}"
            )
        if keys:
            return keys[0]
        method, _, path = operation.partition(" ")
        key = f"{method.upper()} {path.strip()}"
        if key in self.keys:
            return key
        close = difflib.get_close_matches(operation[:200], [*self.by_id, *self.keys], n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise DocumentError(f"the document has no operation {quoting.echo(operation)}{hint}")

    @property
    def files(self) -> list[Path]:
        """The files besides the document that its references have named so far."""
        return self.references.files

    @property
    def servers(self) -> list[str]:
        """The URLs of the API's servers, with variables replaced by their defaults."""
        if self.version == "2.0":
            schemes = self.root.get("schemes")
            host = self.root.get("host")
            base = self.root.get("basePath")
            path = base if isinstance(base, str) else ""
            if not isinstance(host, str):
                return [path] if path else []
            names = schemes if isinstance(schemes, list) and schemes else ["https"]
            return [f"{name}://{host}{path}" for name in names if isinstance(name, str)]
        servers = self.root.get("servers")
        return [
            _with_defaults(server["url"], server.get("variables"))
            for server in (servers if isinstance(servers, list) else [])
            if isinstance(server, dict) and isinstance(server.get("url"), str)
        ]

    @property
    def security_schemes(self) -> dict[str, JsonObject]:
        """The valid security schemes by name, converted to OpenAPI 3."""
        if self.version == "2.0":
            return {
                name: _modern_scheme(scheme)
                for name, scheme in _members(self.root.get("securityDefinitions"))
                if isinstance(scheme, dict)
            }
        components = self.root.get("components")
        schemes = components.get("securitySchemes") if isinstance(components, dict) else None
        found = {}
        for name, scheme in _members(schemes):
            try:
                scheme = self.references.follow(scheme)
            except DocumentError as error:
                self.warnings.append(f"security scheme {quoting.echo(name)}: {error}")
            if isinstance(scheme, dict):
                found[name] = scheme
        return found

    def _index(self, path: str, item: Any) -> None:
        try:
            item = self.references.follow(item)
        except DocumentError as error:
            self.warnings.append(f"path {quoting.echo(path)}: {error}")
            return
        for method, operation in _operations(item, self.version):
            if len(self.keys) >= MAX_OPERATIONS:
                raise DocumentError(
                    f"the document has too many operations (limit {MAX_OPERATIONS:,})"
                )
            key = f"{method} {path}"
            self.keys[key] = (item, operation)
            name = operation.get("operationId")
            if isinstance(name, str) and name:
                self.by_id.setdefault(name, []).append(key)


def read(data: bytes, *, file: Path | None = None) -> Document:
    """Parse an OpenAPI document.

    Args:
        data: The document, as JSON or YAML.
        file: The file that `data` was read from, if the document may refer to other files in its
            folder; else None.

    Raises:
        DocumentError: The data is not an OpenAPI document, or is over a limit.
        MissingExtra: The data is YAML, and PyYAML is not installed.
    """
    if len(data) > MAX_FILE_BYTES:
        raise DocumentError(
            f"the document is too large ({len(data):,} bytes, limit {MAX_FILE_BYTES:,})"
        )
    warnings: list[str] = []
    root = parse(data, warnings)
    references = References(
        root,
        file.parent if file else None,
        file.name if file else "",
        lambda part, _name: parse(part, warnings),
    )
    return Document(root, references, warnings)


def restore(root: bytes, files: Mapping[str, bytes], own_name: str) -> Document:
    """Rebuild a document from its cached copy, without reading any file.

    Args:
        root: The document, as JSON.
        files: The other files of the document (`References.parts`), each as JSON.
        own_name: The document's file name; "" if it was not read from a file.

    Raises:
        DocumentError: The copy is damaged.
    """
    warnings: list[str] = []
    references = References(parse(root, warnings), None, own_name, lambda part, _: part)
    references.parts = {name: parse(bytes(part), warnings) for name, part in files.items()}
    return Document(references.root, references, warnings)


def load(file: Path) -> Document:
    """Read and parse a local document.

    Raises:
        DocumentError: The file cannot be read, or `read` raises this error.
        MissingExtra: See `read`.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"{file} cannot be read ({error.strerror}); check the path") from None
    return read(data, file=file)


def parse(data: bytes, warnings: list[str]) -> Any:
    """Decode JSON, or YAML if it is not JSON.

    Raises:
        DocumentError, MissingExtra: See `read`.
    """
    data = repair_json(data.removeprefix(b"\xef\xbb\xbf"))
    if not data.lstrip(b" \t\r\n").startswith(b"{"):
        return yaml_parser.parse(data, warnings)
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > MAX_JSON_VALUES:
        raise DocumentError(
            f"the document has too many values (about {values:,}, limit {MAX_JSON_VALUES:,}); "
            "remove what no tool needs"
        )
    try:
        root = msgspec.json.decode(data)
        # Only the last value of a repeated key is decoded, so the encoded result has fewer colons.
        if data.count(b":") > msgspec.json.encode(root).count(b":"):
            warnings += _repeated_keys(data)
        return root
    except RecursionError:
        raise DocumentError("the document is nested too deep") from None
    except ValueError as error:
        json_error = str(error)
    try:
        return yaml_parser.parse(data, warnings)  # a YAML file may start with a brace as well
    except (DocumentError, MissingExtra):
        raise DocumentError(f"the document is not valid JSON: {json_error}") from None


def _repeated_keys(data: bytes) -> list[str]:
    """Return a warning for each key that is repeated within an object of a JSON document."""
    found: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen and len(found) < yaml_parser.MAX_WARNINGS:
                found.append(f"the key {quoting.echo(key)} is repeated; its last value is used")
            seen.add(key)

    json.loads(data, object_pairs_hook=check)
    return found


def _version(root: Any) -> str:
    if not isinstance(root, dict):
        raise DocumentError(f"an OpenAPI document must be an object, not {quoting.kind(root)}")
    named = root.get("openapi", root.get("swagger"))
    version = str(named)[:3]
    if version not in {"2.0", "3.0", "3.1", "3.2"}:
        given = f"version {quoting.echo(named)}" if named is not None else "no version"
        raise DocumentError(
            f"not a supported OpenAPI document ({given}); use OpenAPI 2.0, 3.0, 3.1 or 3.2"
        )
    return version


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items()) if isinstance(value, dict) else iter(())


def _operations(item: Any, version: str) -> Iterator[tuple[str, JsonObject]]:
    if not isinstance(item, dict):
        return
    for method in (*METHODS, "query") if version == "3.2" else METHODS:
        if isinstance(item.get(method), dict):
            yield method.upper(), item[method]
    if version == "3.2":
        for method, operation in _members(item.get("additionalOperations")):
            if method in _NEVER or not _METHOD.fullmatch(method):
                continue
            if isinstance(operation, dict):
                yield method, operation


def _with_defaults(url: str, variables: Any) -> str:
    for name, variable in _members(variables):
        if isinstance(variable, dict):
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        if len(url) > MAX_URL:
            return url[:MAX_URL]
    return url


def _modern_scheme(scheme: JsonObject) -> JsonObject:
    if scheme.get("type") == "basic":
        return {**scheme, "type": "http", "scheme": "basic"}
    if scheme.get("type") != "oauth2":
        return scheme
    flow = {key: scheme[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in scheme}
    name = str(scheme.get("flow", ""))
    return {"type": "oauth2", "flows": {_FLOWS.get(name, name): flow}}
