"""References within a document, and into files of its folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.openapi import document
from interlock.openapi.references import DocumentError, References
from tests.support.rows import each_row


def references(root: Any) -> References:
    return References(root, None, "", lambda _data, _name: None)


def load(folder: Path, files: dict[str, Any]) -> document.Document:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    return document.load(folder / "api.json")


def api(reference: str) -> dict[str, Any]:
    schema = {"$ref": reference}
    content = {"application/json": {"schema": schema}}
    operation = {"requestBody": {"required": True, "content": content}}
    return {"openapi": "3.1.0", "info": {}, "paths": {"/x": {"post": operation}}}


def test_pointer_is_decoded_and_leads_through_lists_and_other_references():
    root = {
        "paths": {"/a/{b}": {"get": {"parameters": [{"$ref": "#/shared/p~0q"}]}}},
        "shared": {"p~q": {"schema": {"type": "string"}}},
    }

    found = references(root).find("#/paths/~1a~1%7Bb%7D/get/parameters/0/schema")

    assert found == {"type": "string"}


def test_siblings_of_a_reference_override_its_target():
    root = {"a": {"type": "string", "description": "old"}}

    found = references(root).follow({"$ref": "#/a", "description": "new"})

    assert found == {"type": "string", "description": "new"}


@each_row("reference", ["#/missing", "#/list/9", "#/list/x", "#anchor", "#/a/b/c"])
def test_reference_that_leads_nowhere_is_refused(reference: str):
    with pytest.raises(DocumentError, match="leads nowhere"):
        references({"list": [1], "a": {"b": 1}}).find(reference)


def test_circle_and_endless_chain_are_refused_at_once():
    chain = {f"x{i}": {"$ref": f"#/x{i + 1}"} for i in range(100_000)}
    inner = {"a": {"$ref": "#/a/b"}}
    start = time.process_time()

    for root, node in (
        ({"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}, {"$ref": "#/a"}),
        (chain, {"$ref": "#/x0"}),
        (inner, {"$ref": "#/a/b"}),
    ):
        with pytest.raises(DocumentError, match=r"too long \(limit 32\)"):
            references(root).follow(node)
    assert time.process_time() - start < 1


def test_references_that_fan_out_are_resolved_in_linear_time():
    root: dict[str, Any] = {"l0": {"s": {}}}
    for i in range(1, 31):
        root[f"l{i}"] = {"$ref": f"#/l{i - 1}"}
        root[f"m{i}"] = {"s": {"$ref": f"#/m{i - 1}/s/s" if i > 1 else "#/l0"}}
    start = time.process_time()

    with pytest.raises(DocumentError):
        references(root).follow({"$ref": "#/m30/s/s/s"})
    assert time.process_time() - start < 1


def test_parts_in_other_files_refer_to_each_other_by_their_own_folders(tmp_path: Path):
    found = load(
        tmp_path,
        {
            "api.json": api("parts/order.yaml#/Order"),
            "parts/order.yaml": b"Order: {properties: {a: {$ref: 'deep/item.json'},"
            b" b: {$ref: '#/Local'}, c: {$ref: '../api.json#/info'}}}\nLocal: {type: integer}",
            "parts/deep/item.json": {"properties": {"d": {"$ref": "../order.yaml#/Local"}}},
        },
    )
    follow = found.references.follow
    order = follow({"$ref": "parts/order.yaml#/Order"})["properties"]

    assert follow(order["b"]) == {"type": "integer"}
    assert follow(follow(order["a"])["properties"]["d"]) == {"type": "integer"}
    assert order["c"] == {"$ref": "#/info"}
    assert sorted(path.name for path in found.files) == ["item.json", "order.yaml"]


@pytest.mark.parametrize(
    "reference",
    [
        "../secret.json#/a",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x#/a",
        "link.json#/a",
        "%2e%2e/secret.json#/a",
        "parts/../../secret.json#/a",
        "parts\\..\\..\\secret.json",
    ],
)
def test_reference_out_of_the_folder_is_refused_and_reads_nothing(tmp_path: Path, reference: str):
    (tmp_path / "secret.json").write_text('{"a": {"type": "string"}}')
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    found = load(folder, {"api.json": api(reference)})

    with pytest.raises(DocumentError, match="outside of the document's folder"):
        found.references.follow({"$ref": reference})
    assert found.files == []


def test_document_that_is_not_a_local_file_has_no_other_files(tmp_path: Path):
    (tmp_path / "part.json").write_text("{}")
    found = document.read(msgspec.json.encode(api("part.json#/a")))

    with pytest.raises(DocumentError, match="outside"):
        found.references.find("part.json#/a")


def test_number_of_files_is_limited(tmp_path: Path):
    files = {f"f{i}.json": {} for i in range(201)}
    found = load(tmp_path, {"api.json": api("f0.json"), **files})

    for i in range(200):
        found.references.find(f"f{i}.json")
    with pytest.raises(DocumentError, match=r"too many files \(limit 200\)"):
        found.references.find("f200.json")


def test_size_of_other_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = load(tmp_path, {"api.json": api("a.json"), "a.json": {"a": 1}, "b.json": {"b": 2}})
    monkeypatch.setattr("interlock.openapi.references.MAX_FILES_BYTES", 10)

    assert found.references.find("a.json#/a") == 1
    with pytest.raises(DocumentError, match="too large"):
        found.references.find("b.json#/b")
