"""The providers of models: one row each, with everything in which they differ.

A new provider with OpenAI's API is a new row. What a row does not say about a provider, interlock
learns from the provider's refusals (`learned`).
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from interlock.errors import ModelUnavailable


class ModelProvider(Struct, frozen=True):
    """A provider whose models are used over HTTP.

    Attributes:
        name: The name before the colon of a model's name.
        url: The URL of the API, before the path of a request; "" if only the environment has it.
        keys: Environment variables that may have the key; the first that is set is used.
        url_variable: The environment variable that replaces `url`; "" for none.
        model: The default model; "" to use the first model that the server lists.
        can: The default model's abilities besides text: see `ListedModel`.
        is_local: Whether the server usually runs on this machine, and needs no key.
        key_header: The header that has the key; "Authorization" has it after "Bearer".
        refused: Members of a request that the provider refuses.
        output: The member with the most tokens of an answer.
    """

    name: str
    url: str
    keys: tuple[str, ...]
    url_variable: str = ""
    model: str = ""
    can: tuple[str, ...] = ("tools",)
    is_local: bool = False
    key_header: str = "Authorization"
    refused: frozenset[str] = frozenset()
    output: str = "max_tokens"

    def address(self) -> str:
        """Return the URL of the API, from the environment or the table.

        Raises:
            ModelUnavailable: The environment does not have the URL.
        """
        own = os.environ.get(self.url_variable, "").strip() if self.url_variable else ""
        if self.name == "ollama":
            return _ollama_url(own)
        if self.name == "azure":
            return _azure_url(own)
        return own or self.url

    def key(self) -> str:
        """Return the key from the environment; "" if none is set."""
        return next(filter(None, (os.environ.get(each, "").strip() for each in self.keys)), "")

    def key_headers(self, key: str) -> dict[str, str]:
        """Return the header that sends a key; no header without a key."""
        if not key:
            return {}
        is_bearer = self.key_header == "Authorization"
        return {self.key_header: f"Bearer {key}" if is_bearer else key}

    @property
    def is_set_up(self) -> bool:
        """Whether the environment has what a request to the provider needs."""
        if self.name == "azure":
            return bool(self.key() and os.environ.get(self.url_variable))
        return self.is_local or bool(self.key() or self.has_own_server)

    @property
    def has_own_server(self) -> bool:
        """Whether the user has set another server with this API, which may need no key."""
        return self.name == "openai" and bool(os.environ.get(self.url_variable))


_ALL = ("tools", "images", "PDFs", "reasoning", "caching")
# In the order of preference if several keys are set.
PROVIDERS = (
    ModelProvider(
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "ANTHROPIC_BASE_URL",
        model="claude-sonnet-5-5",
        can=_ALL,
        key_header="X-Api-Key",
    ),
    ModelProvider(
        "openai",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "OPENAI_BASE_URL",
        model="gpt-6-luna",
        can=_ALL,
        output="max_completion_tokens",
    ),
    ModelProvider(
        "deepseek",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        model="deepseek-flash",
        can=("tools", "reasoning", "caching"),
    ),
    ModelProvider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-flash-latest",
        can=("tools", "images", "reasoning", "caching"),
    ),
    ModelProvider(
        "mistral",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        model="mistral-medium-latest",
        can=("tools", "images", "PDFs"),
        refused=frozenset(("stream_options",)),  # its usage comes without being asked for
    ),
    ModelProvider(
        "openrouter",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        model="openrouter/auto",
        can=("tools", "images", "PDFs", "reasoning", "caching"),
    ),
    ModelProvider(
        "groq",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        model="openai/gpt-oss-120b",
        can=("tools", "reasoning"),
    ),
    ModelProvider(
        "azure",
        "",
        ("AZURE_OPENAI_API_KEY",),
        "AZURE_OPENAI_ENDPOINT",
        can=("tools", "images", "reasoning", "caching"),
        key_header="api-key",
        output="max_completion_tokens",
    ),
    ModelProvider("ollama", "", ("OLLAMA_API_KEY",), "OLLAMA_HOST", is_local=True),
    ModelProvider(
        "llamacpp",
        "http://127.0.0.1:8080/v1",
        ("LLAMA_API_KEY",),
        "LLAMACPP_BASE_URL",
        is_local=True,
    ),
    ModelProvider(
        "lmstudio",
        "http://127.0.0.1:1234/v1",
        ("LM_API_TOKEN",),
        "LMSTUDIO_BASE_URL",
        is_local=True,
    ),
    ModelProvider(
        "vllm",
        "http://127.0.0.1:8000/v1",
        ("VLLM_API_KEY",),
        "VLLM_BASE_URL",
        is_local=True,
    ),
)
BY_NAME = {each.name: each for each in PROVIDERS}


def _ollama_url(host: str) -> str:
    host = host.rstrip("/") or "127.0.0.1"
    scheme, found, address = host.rpartition("://")
    # The variable also sets the address the server listens on; clients cannot connect to 0.0.0.0.
    address = re.sub(r"^0\.0\.0\.0(?=:|$)", "127.0.0.1", address)
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:11434"
    return f"{scheme if found else 'http'}://{address}/v1"


def _azure_url(endpoint: str) -> str:
    """Return the URL of a resource of Azure, or of one deployment for a dated API version."""
    if not endpoint:
        raise ModelUnavailable(
            "no address for azure: set AZURE_OPENAI_ENDPOINT to the URL of your resource, such as "
            "https://NAME.openai.azure.com"
        )
    endpoint = endpoint.rstrip("/")
    if version := os.environ.get("AZURE_OPENAI_API_VERSION", "").strip():
        return f"{endpoint}/openai/deployments/{{model}}?api-version={version}"
    return endpoint if endpoint.endswith("/openai/v1") else f"{endpoint}/openai/v1"
