"""The table of providers: the address, the key and the differences of each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interlock.errors import ModelUnavailable
from interlock.messages import UserMessage
from interlock.models import choose, complete
from interlock.models.choosing import models_of
from interlock.models.providers import BY_NAME, PROVIDERS
from tests.models import wire_openai as wire
from tests.models.wire_http import WireServer
from tests.support.rows import each_row

HOSTED = [each.name for each in PROVIDERS if not each.is_local]
CHAT = [each.name for each in PROVIDERS if each.name not in ("anthropic", "azure")]


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for row in PROVIDERS:
        for name in (*row.keys, row.url_variable, "AZURE_OPENAI_API_VERSION"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    dated = "/openai/deployments/m/chat/completions"
    server = WireServer(
        "/v1/chat/completions", lambda _: None, "/openai/v1/chat/completions", dated
    )
    server.script = [wire.says("Hello.")] * 3
    await server.start()
    yield server
    await server.stop()


async def says_hello(name: str) -> None:
    model = await choose(name)
    assert (await complete(model, [UserMessage("Hi")])).message.content == "Hello."
    await model.close()


@each_row(
    ("provider", "url"),
    [
        ("anthropic", "https://api.anthropic.com"),
        ("openai", "https://api.openai.com/v1"),
        ("deepseek", "https://api.deepseek.com"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("mistral", "https://api.mistral.ai/v1"),
        ("openrouter", "https://openrouter.ai/api/v1"),
        ("groq", "https://api.groq.com/openai/v1"),
        ("ollama", "http://127.0.0.1:11434/v1"),
        ("llamacpp", "http://127.0.0.1:8080/v1"),
        ("lmstudio", "http://127.0.0.1:1234/v1"),
        ("vllm", "http://127.0.0.1:8000/v1"),
    ],
)
def test_provider_has_its_own_address(provider: str, url: str) -> None:
    assert BY_NAME[provider].address() == url


@pytest.mark.parametrize("provider", CHAT)
async def test_key_of_a_provider_is_sent_to_the_address_in_a_name(
    provider: str, server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BY_NAME[provider].keys[-1], "  the-key\n")

    await says_hello(f"{provider}:m@{server.root}/v1")

    (asked,) = server.asked
    assert asked.headers["Authorization"] == "Bearer the-key"
    assert not BY_NAME[provider].refused & asked.body.keys()


@pytest.mark.parametrize("provider", CHAT)
async def test_without_a_key_no_header_is_sent(provider: str, server: WireServer) -> None:
    await says_hello(f"{provider}:m@{server.root}/v1")

    assert "Authorization" not in server.asked[0].headers


@each_row("provider", HOSTED)
async def test_provider_without_its_key_names_the_variable(provider: str) -> None:
    with pytest.raises(ModelUnavailable, match=r"set [A-Z_]+"):
        await complete(await choose(f"{provider}:m"), [UserMessage("Hi")])


@each_row(
    ("endpoint", "version", "path"),
    [
        ("", "", "/openai/v1/chat/completions"),
        ("/", "", "/openai/v1/chat/completions"),
        ("/openai/v1/", "", "/openai/v1/chat/completions"),
        ("", "2024-10-21", "/openai/deployments/m/chat/completions"),
    ],
)
async def test_deployment_of_azure_is_asked_with_its_own_header(
    server: WireServer, monkeypatch: pytest.MonkeyPatch, endpoint: str, version: str, path: str
) -> None:
    server.asked.clear()
    server.script = [wire.says("Hello.")]
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "the-key")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.root}{endpoint}")
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", version)

    await says_hello("azure:m")

    (asked,) = server.asked
    assert (asked.path, asked.headers["api-key"]) == (path, "the-key")
    assert "Authorization" not in asked.headers


async def test_models_of_a_provider_are_listed(
    server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.models = ["models/big", "text-embedding", "small"]
    monkeypatch.setenv("VLLM_BASE_URL", f"{server.root}/v1")

    assert [each.name for each in await models_of("vllm")] == ["vllm:big", "vllm:small"]
    assert (await choose("vllm")).name == "vllm:big"


@each_row(
    ("provider", "words"),
    [
        ("nobody", "unknown model provider 'nobody'; use one of anthropic, "),
        ("opnai", "did you mean openai\\?"),
        ("google", "did you mean gemini\\?"),
        ("mistral", "set MISTRAL_API_KEY"),
        ("vllm", "has no list"),
    ],
)
async def test_list_that_cannot_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, provider: str, words: str
) -> None:
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:9/v1")

    with pytest.raises(ModelUnavailable, match=words):
        await models_of(provider)


@each_row("name", HOSTED)
def test_listed_files_are_those_of_the_documentation(name: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "use" / "models.md"
    rows = [[cell.strip() for cell in line.split("|")] for line in page.read_text().splitlines()]
    stated = next(
        row for row in rows if row[1:] and len(row) > 8 and row[1].lower().startswith(name)
    )
    can = BY_NAME[name].can

    assert [each in can for each in ("images", "PDFs")] == [each == "yes" for each in stated[2:4]]
