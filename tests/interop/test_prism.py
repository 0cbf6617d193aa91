"""Prism, a validating mock server, as the judge of the requests that tools send."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlock.openapi.answers import ApiAnswer, OperationRequest
from interlock.openapi.exchange import HttpExchange
from interlock.openapi.plan import Plan
from interlock.openapi.results import Shape, success
from tests.openapi.documents import FOLDER
from tests.openapi.sampling import Unsatisfiable
from tests.openapi.test_tools import arguments_for, plans_of
from tests.support.node import node_folder

START = 60.0  # seconds that Prism gets

DOCUMENTS = [
    "jupyter.yaml",
    "airflow.yaml",
    "examples/2.0/json/petstore.json",
    "examples/3.0/json/petstore.json",
    "examples/3.0/json/star-trek.json",
    "examples/3.1/json/train-travel.json",
]
QUICK = ("examples/3.0/json/star-trek.json", "examples/3.0/json/petstore.json")
# A document of 2.0 that does not say what an operation consumes; Prism then accepts no body.
EXPLAINED = {
    "examples/2.0/json/petstore.json": (
        "No supported content types, but request included a non-empty body"
    )
}
_UNUSED = ("security", "servers", "basePath", "host", "schemes")


def open_to_all(path: Path, folder: Path) -> Path:
    """Write a document without credentials and addresses, which Prism would judge as well."""
    text = path.read_text()
    root = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    for key in _UNUSED:
        root.pop(key, None)
    for item in root["paths"].values():
        for operation in (item, *item.values()):
            if isinstance(operation, dict):
                operation.pop("security", None)
                operation.pop("servers", None)
    copy = folder / "document.json"
    copy.write_text(json.dumps(root, default=str))
    return copy


@contextmanager
def prism(program: str, document: Path) -> Iterator[str]:
    """Run Prism for a document; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        str(node_folder() / "node"),
        program,
        "mock",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        str(document),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        try:
            for line in running.stdout:
                if b"Prism is listening" in line:
                    break
            else:
                pytest.fail("Prism has not started")
            yield f"http://127.0.0.1:{port}"
        finally:
            running.kill()


async def ask(url: str, plan: Plan, exchange: HttpExchange, mode: str) -> ApiAnswer | None:
    """Send the request of a made-up call; None if no arguments fit the schema."""
    try:
        request = plan.request(arguments_for(plan, mode))
    except Unsatisfiable:
        return None
    deadline = asyncio.get_running_loop().time() + START
    return await exchange.fetch(
        OperationRequest(
            request.method,
            f"{url}{request.target}",
            request.headers,
            request.body,
            1_000_000,
            deadline,
        )
    )


def rejection(answer: ApiAnswer) -> str:
    """Return why Prism rejects a request; "" if it accepts it."""
    violations: list[dict[str, Any]] = json.loads(answer.headers.get("sl-violations", "[]"))
    of_request = [
        each
        for each in violations
        if each["location"][:1] == ["request"] and each["severity"] == "Error"
    ]
    if of_request:
        return str(of_request[0]["message"])
    if b"errors#NO_PATH_MATCHED" in answer.body or b"errors#NO_METHOD_MATCHED" in answer.body:
        return "no such route"
    return "invalid" if b"errors#UNPROCESSABLE_ENTITY" in answer.body else ""


@pytest.mark.program("Prism, and documents of others")
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.product) for each in DOCUMENTS],
)
async def test_prism_accepts_the_calls_of_a_document(
    name: str, tmp_path: Path, installed: Callable[[str], str]
) -> None:
    program = installed("build/interop/node_modules/@stoplight/prism-cli/dist/index.js")
    document = open_to_all(FOLDER / name, tmp_path)
    _, plans = plans_of(document)
    rejected: list[str] = []
    count = 0
    exchange = HttpExchange()
    with prism(program, document) as url:
        for plan in plans.values():
            for mode in ("least", "all"):
                answer = await ask(url, plan, exchange, mode)
                if answer is None:
                    continue
                count += 1
                why = rejection(answer)
                if why and why != EXPLAINED.get(name):
                    rejected.append(f"{plan.operation.key}, {mode}: {why}")
                shape = Shape(plan.operation, plan.definition.get("outputSchema"), True, {})
                if answer.status < 300:
                    assert not success(answer, shape, [], []).is_error
    await exchange.close()

    print(f"{name}: {count - len(rejected)} of {count}")
    assert count
    assert rejected == []  # so no caller written by hand would be accepted more often
