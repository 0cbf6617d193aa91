"""What a call means arrives: every operation of real documents, read by a decoder of the tests.

Three calls for each operation are made from the schema of its tool: the least, all, and all
with text that needs encoding everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import jsonschema_rs
import msgspec
import pytest
import yaml
from hypothesis import given, settings

from interlock.errors import InvalidArguments
from interlock.openapi import document
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.selection import read_tools
from tests.openapi import decoding
from tests.openapi.documents import FOLDER
from tests.openapi.sampling import AWKWARD, Sampler, Unsatisfiable

OWN = Path(__file__).parent / "fixtures"
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
MODES = {"least": (False, "x"), "all": (True, "text"), "awkward": (True, AWKWARD)}
# Operations whose schemas no value, or no value with all properties, fits.
UNSATISFIABLE = {
    "PUT /anything/quirks/polymorphism",
    "POST /anything/quirks/polymorphism",
    "PATCH /anything/quirks/polymorphism",
    "POST /post",
}
HEADER_TEXT = 'a b;c="d"&e%41|f'  # ASCII, and without the comma that separates items


def paths() -> Iterator[Any]:
    yield from sorted(OWN.glob("*"))
    for name in ("jupyter.yaml", "airflow.yaml", "figma.yaml", "github.json", "examples"):
        mark = pytest.mark.program("the documents of others, which `make test-all` downloads")
        yield pytest.param(FOLDER / name, marks=mark)


def files(path: Path) -> list[Path]:
    assert path.exists(), f"{path} is missing: `make test-all` downloads it"
    return sorted(path.rglob("*.json")) if path.is_dir() else [path]


@cache
def plans_of(path: Path, first: int = 0) -> tuple[Any, dict[str, Plan]]:
    """Return a document with the plans of its operations; of many, every fourth from `first`."""
    data = path.read_bytes()
    root = (
        msgspec.json.decode(data) if path.suffix == ".json" else yaml.load(data, yaml.CSafeLoader)
    )
    found = document.load(path)
    keys = list(found.keys)[first :: 4 if len(found.keys) > 1_000 else 1]
    plans, missing = compile_tools(found, read_tools({f"t{i}": k for i, k in enumerate(keys)}))
    assert missing == {}
    return root, plans


def arguments_for(plan: Plan, mode: str) -> dict[str, Any]:
    full, text = MODES[mode]
    schema = plan.input_schema
    texts = {}
    if mode == "awkward":
        texts = {
            name: HEADER_TEXT for name, each in plan.arguments.items() if each["in"] == "header"
        }
    return Sampler(schema.get("$defs", {}), full=full, text=text).arguments(schema, texts)


def meant(plan: Plan, reader: decoding.Reader, arguments: dict[str, Any]) -> dict[Any, Any]:
    """Return what must arrive, in the decoder's form."""
    _, parameters = reader.operation(plan.operation.key)
    declared = {(each["in"], each["name"]): each for each in parameters}
    expected: dict[Any, Any] = {}
    for name, value in arguments.items():
        place, target = plan.arguments[name]["in"], plan.arguments[name]["name"]
        parameter = declared.get((place, target), {})
        if place == "body" or any("json" in each for each in parameter.get("content", ())):
            expected[place, target] = value
        elif value in ([], {}):
            continue
        elif parameter.get("style") == "deepObject" and isinstance(value, dict):
            expected[place, target] = decoding.deep(value)
        else:
            expected[place, target] = decoding.flat(value)
    return expected


def in_body_form(content_type: str, value: Any, got: Any) -> Any:
    """Convert one argument of a body to the form in which its media type delivers it."""
    if "form-urlencoded" in content_type:
        return decoding.deep(value) if isinstance(value, dict | list) else decoding.as_text(value)
    if "multipart/" in content_type:
        return in_part_form(value, got)
    return value


def in_part_form(value: Any, got: Any) -> Any:
    if isinstance(value, list):
        items = got if isinstance(got, list) else [got]
        converted = [in_part_form(each, one) for each, one in zip(value, items, strict=True)]
        return converted if isinstance(got, list) else converted[0]
    if isinstance(got, dict) and "file" in got:
        return {**got, "data": value["text"].encode(), "file": value["name"]}
    return value if isinstance(value, dict) else decoding.as_text(value)


def check(plan: Plan, root: Any, mode: str) -> None:
    arguments = arguments_for(plan, mode)
    request = plan.request(arguments)
    reader = decoding.Reader(root)
    compare(plan, reader, arguments, request.target, request.headers, request.body)


def compare(
    plan: Plan,
    reader: decoding.Reader,
    arguments: dict[str, Any],
    target: str,
    headers: list[tuple[str, str]],
    body: bytes | None,
) -> None:
    """Compare what arrives with what a call means."""
    sent = {
        (plan.arguments[name]["in"], plan.arguments[name]["name"]): value
        for name, value in arguments.items()
    }
    decoder = decoding.Decoder(reader, plan.operation.key)
    got = decoder.decode(target, headers, body, sent)
    expected = meant(plan, reader, arguments)
    content_type = dict(headers).get("Content-Type", "")
    for key, value in list(expected.items()):
        if key[0] != "body":
            continue
        if value is None and "json" not in content_type:
            del expected[key]
        elif content_type and key[1] is not None:
            expected[key] = in_body_form(content_type, value, got.get(key))
        elif isinstance(got.get(key), bytes):
            text = value["text"] if isinstance(value, dict) else decoding.as_text(value)
            expected[key] = text.encode()
        elif "json" not in content_type and isinstance(value, dict):
            expected[key] = {
                name: in_body_form(content_type, each, got[key].get(name))
                for name, each in value.items()
            }
    assert got == expected


@pytest.mark.parametrize("path", [*paths()], ids=lambda path: path.stem)
def test_arguments_of_every_operation_arrive_as_meant(path: Path):
    check_all(path)


@pytest.mark.product
@pytest.mark.parametrize("first", [1, 2, 3])
def test_arguments_of_all_other_operations_of_github_arrive_as_meant(first: int):
    check_all(FOLDER / "github.json", first)


def check_all(path: Path, first: int = 0) -> None:
    wrong = []
    count = 0
    for file in files(path):
        root, plans = plans_of(file, first)
        for plan in plans.values():
            for mode in MODES:
                count += 1
                try:
                    check(plan, root, mode)
                except InvalidArguments as error:
                    key = f"{plan.operation.method} {plan.operation.path}"
                    # Refused, as the delimiter of the style would split what was meant.
                    if "cannot carry an item" not in str(error) and key not in UNSATISFIABLE:
                        wrong.append(f"{file.name} {plan.operation.key} {mode}: {error}")
                except Unsatisfiable:
                    wrong.append(f"{file.name} {plan.operation.key} {mode}: no arguments found")
                except Exception as error:
                    wrong.append(f"{file.name} {plan.operation.key} {mode}: {error!r}"[:1500])
    assert wrong == [], f"{len(wrong)} of {count} calls"


@pytest.mark.parametrize("path", [*paths()], ids=lambda path: path.stem)
def test_every_operation_becomes_a_tool_that_models_and_clients_accept(path: Path):
    for file in files(path):
        for plan in plans_of(file)[1].values():
            schema = plan.definition["inputSchema"]
            assert schema["type"] == "object"
            assert not schema.keys() & {"oneOf", "anyOf", "allOf", "not", "enum", "$ref"}
            assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", key) for key in schema["properties"])
            assert set(schema.get("required", ())) <= set(schema["properties"])
            assert set(plan.arguments) == set(schema["properties"])
            assert plan.shown.size <= 8 * 1024
            for each in (schema, plan.output_schema):
                if each is not None:
                    jsonschema_rs.validator_for({**DIALECT, **each})
            assert len(msgspec.json.encode(plan.output_schema)) <= 4 * 1024


# Documents made up


def stays_in_its_segment(text: str) -> bool:
    return not re.search("%[0-9a-f]{2}", text, re.IGNORECASE) and text not in (".", "..")


_CHARACTERS = st.characters(exclude_characters="/\\", exclude_categories=["C"])
_TEXT = st.text(_CHARACTERS, min_size=1, max_size=8).filter(stays_in_its_segment)
_KINDS = {
    "scalar": ({"type": "string"}, _TEXT),
    "integer": ({"type": "integer"}, st.integers(-(2**53), 2**53)),
    "boolean": ({"type": "boolean"}, st.booleans()),
    "array": (
        {"type": "array", "items": {"type": "string"}},
        st.lists(_TEXT, min_size=1, max_size=3),
    ),
    "object": (
        {"type": "object", "properties": {"k": {"type": "string"}, "l": {"type": "integer"}}},
        st.fixed_dictionaries({"k": _TEXT, "l": st.integers(0, 99)}),
    ),
}
_STYLES = {"path": ("simple", "label", "matrix"), "query": ("form",), "cookie": ("form",)}


@st.composite
def made_up(draw: st.DrawFn) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """Return a document of one operation, and what a call to it means by place and name."""
    version = draw(st.sampled_from(["3.0.3", "3.1.0"]))
    parameters, meaning, variables, schemas = [], {}, "", {}
    places = draw(st.lists(st.sampled_from(sorted(_STYLES)), min_size=1, max_size=4))
    for index, place in enumerate(places):
        name = f"p{index}"
        kind = draw(st.sampled_from(sorted(_KINDS)))
        schema, values = _KINDS[kind]
        if draw(st.booleans()):
            schemas[name], schema = schema, {"$ref": f"#/components/schemas/{name}"}
        style = draw(st.sampled_from(_STYLES[place]))
        explode = kind != "object" and draw(st.booleans())
        parameters.append(
            {"name": name, "in": place, "style": style, "explode": explode, "schema": schema}
        )
        meaning[place, name] = draw(values)
        variables += f"/{{{name}}}" if place == "path" else ""
    path = f"/x{variables}"
    root = {
        "openapi": version,
        "paths": {path: {"get": {"parameters": parameters}}},
        "components": {"schemas": schemas},
    }
    return root, meaning


@pytest.mark.slow("tries many examples")
@settings(max_examples=50, deadline=None)
@given(made_up())
def test_request_carries_every_argument_for_any_styles_and_values(
    made: tuple[dict[str, Any], dict[tuple[str, str], Any]],
):
    root, meaning = made
    found = document.read(msgspec.json.encode(root))
    plans, _ = compile_tools(found, read_tools({"tool": next(iter(found.keys))}))
    plan = plans["tool"]
    arguments = {
        name: meaning[place["in"], place["name"]] for name, place in plan.arguments.items()
    }

    request = plan.request(arguments)

    reader = decoding.Reader(root)
    compare(plan, reader, arguments, request.target, request.headers, request.body)
