"""The client under test of the official conformance suite.

    python client.py URL

The suite sets MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_PROTOCOL_VERSION and, for some scenarios,
MCP_CONFORMANCE_CONTEXT (JSON). Most scenarios need the same: connect to the server, list
everything, use everything. The browser of a login is simulated here. Only the public API is used.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp

from interlock import Client, InterlockError
from interlock.errors import RemoteError
from interlock.oauth import (
    AuthorizationRequest,
    ClientCredentials,
    ClientIdentity,
    Fetcher,
    JwtBearer,
    MemoryTokenStore,
    OAuth,
    TokenExchange,
)
from interlock.types import ElicitParams, ElicitResult, Tool

REDIRECT_URI = "http://127.0.0.1:8976/callback"
METADATA_URL = "https://conformance-test.local/client-metadata.json"
FORM = {"confirmed": True, "confirm": True, "ok": True, "name": "Ada", "username": "ada"}

# A scenario whose server lists a tool but does not implement `tools/call`.
NO_CALLS = ("json-schema-ref-no-deref", -32601)

# Valid arguments, by type; the suite's servers accept any.
DUMMIES: dict[str, Any] = {
    "string": "text",
    "integer": 3,
    "number": 5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


async def main(url: str) -> None:
    """Use the server at `url` as the scenario requires."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    client = Client.http(
        url,
        auth=authorization(url, scenario, context),
        revision=version if version and version < "2026" else "auto",
        elicitation=accept,
        timeout=20.0,
    )
    async with client:
        tools = await client.list_tools()
        for call in context.get("toolCalls", calls_of(tools)):
            try:
                await client.call_tool(call["name"], call["arguments"])
            except RemoteError as error:
                if (scenario, error.code) != NO_CALLS:
                    raise
        if client.capabilities.resources is not None:
            for resource in await client.list_resources():
                await client.read_resource(resource.uri)
        if client.capabilities.prompts is not None:
            for prompt in await client.list_prompts():
                needed = [each.name for each in prompt.arguments or () if each.required]
                await client.get_prompt(prompt.name, dict.fromkeys(needed, "text"))


def calls_of(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return a call of each tool; one of them takes the schema of the first."""
    return [
        {
            "name": tool.name,
            "arguments": {"schema": tools[0].input_schema}
            if tool.name == "json_schema_echo"
            else dummies(tool.input_schema),
        }
        for tool in tools
    ]


def dummies(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that are valid for a tool's input schema."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {
        name: each["enum"][0] if "enum" in each else DUMMIES[each.get("type", "string")]
        for name, each in properties.items()
    }


async def accept(question: ElicitParams) -> ElicitResult:
    """Accept a form; fields with a default are left to the client."""
    form: Mapping[str, Any] = (question.requested_schema or {}).get("properties", {})
    answers = {
        name: FORM.get(name, "text") for name, field in form.items() if not has_default(field)
    }
    return ElicitResult(action="accept", content=answers)


def has_default(field: Mapping[str, Any]) -> bool:
    """Return whether the client fills in a field itself."""
    return "default" in field


def authorization(
    url: str, scenario: str, context: Mapping[str, Any]
) -> OAuth | ClientCredentials | JwtBearer | None:
    """Return the authorization for a scenario; None for one without."""
    if not scenario.startswith("auth/"):
        return None
    store = MemoryTokenStore()
    client = None
    if "client_id" in context:
        client = ClientIdentity(
            id=context["client_id"],
            secret=context.get("client_secret", ""),
            private_key=context.get("private_key_pem", ""),
            algorithm=context.get("signing_algorithm", ""),
            issuer=context.get("issuer", ""),
        )
    if client is not None and "client-credentials" in scenario:
        return ClientCredentials(url, client=client, store=store)
    if client is not None and (assertion := jwt_source(url, context)) is not None:
        return JwtBearer(url, assertion=assertion, client=client, store=store)
    return OAuth(
        url,
        redirect_uri=REDIRECT_URI,
        ask=browse,
        client=client,
        client_metadata_url=METADATA_URL,
        store=store,
    )


def jwt_source(url: str, context: Mapping[str, Any]) -> Callable[[str, str], Awaitable[str]] | None:
    """Return where the JWT of a workload or of a company's user comes from; None for neither."""

    async def platform(issuer: str, resource: str) -> str:
        return str(context["valid_jwt"])

    async def id_token() -> str:
        return str(context["idp_id_token"])

    if "valid_jwt" in context:
        return platform
    if "idp_token_endpoint" not in context:
        return None
    return TokenExchange(
        context["idp_token_endpoint"],
        client=ClientIdentity(id=context["idp_client_id"], issuer=context["idp_issuer"]),
        id_token=id_token,
        fetcher=Fetcher(url),  # this machine is the identity provider, too
    )


async def browse(request: AuthorizationRequest) -> Mapping[str, str]:
    """Open the page as a browser would; return the query of its redirect."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(request.url, allow_redirects=False) as response,
    ):
        return dict(parse_qsl(urlsplit(response.headers["Location"]).query))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except InterlockError as error:
        sys.exit(f"error: {error}")
    print("done")  # without this line, the run counts as cut off
