"""Models of OpenAI, and of every other provider and server with OpenAI's API.

A model that chat completions refuse is used through the Responses API, and so are OpenAI's models
that can load deferred tools, if a request has any. A server's reasoning is shown and stored, but
sent back to the same server only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from interlock.errors import ModelUnavailable
from interlock.messages import Message
from interlock.models.http import (
    HttpModel,
    ModelApi,
    ModelEndpoint,
    ModelLimits,
    ModelRequests,
    RequestFormat,
)
from interlock.models.http.model_endpoint import host_of
from interlock.models.model import ToolDefinition
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.chat_request import FILES, NEEDS, RETURNED, wire_messages, wire_tool
from interlock.models.openai.responses_answer import ResponsesAnswer
from interlock.models.openai.responses_request import response_request
from interlock.models.providers import BY_NAME
from interlock.models.vendors import DOCUMENTS, IMAGES, without_files
from interlock.text import urls

_CHAT_NEEDS = frozenset(("model", "messages", "tools"))
_RESPONSES_NEED = frozenset(("model", "input", "instructions", "tools"))
_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?![\w.])")
_FIRST_DEFERRING = (5, 4)  # https://developers.openai.com/api/docs/guides/tools-tool-search
# https://github.com/Oaklight/llm-rosetta/issues/394
_NOT_DEFERRING = "gpt-5.4-nano"


class OpenAIModel(HttpModel):
    """A model that is used through a chat completions API.

    The first request opens the connections.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: The provider's name of the model.
            provider: A name of the table in `models.providers`, such as "openai" or "ollama".
            api_key: The key; None for that of the environment, and "" for no key. Only the servers
                of the providers themselves require a key.
            base_url: The URL up to and including "/v1"; None for that of the environment or of the
                table.
            options: Members to add to each request, such as {"temperature": 0.2}. "effort" is sent
                as "reasoning_effort".

        Raises:
            ValueError: The provider is unknown.
        """
        row = BY_NAME.get(provider)
        if row is None or row.name == "anthropic":
            known = ", ".join(each for each in BY_NAME if each != "anthropic")
            raise ValueError(f"provider {provider!r} is not one of {known}")
        super().__init__(model, row, base_url)
        self._api_key = api_key
        self._limits = ModelLimits(self.name, row.refused)
        self._options = dict(options or {})
        if "effort" in self._options:
            self._options.setdefault("reasoning_effort", self._options.pop("effort"))

    def _open(self) -> ModelRequests:
        row = self._provider
        key = row.key() if self._api_key is None else self._api_key.strip()
        address = self._base_url or row.address().replace("{model}", quote(self._model, ""))
        if not key and not row.is_local and address.startswith(row.url or address):
            raise ModelUnavailable(f"no key for {self.name}: set {row.keys[0]} in the environment")
        is_own = address == row.url or (self._base_url is None and not row.url)  # Azure
        if is_own and "max_tokens" in self._options:
            # OpenAI's own models refuse the name that most servers expect.
            self._options[row.output] = self._options.pop("max_tokens")
        host = host_of(address, self.name)
        variable = "" if self._api_key == "" else row.keys[0]
        is_bare = self._base_url and not urlsplit(address).path.strip("/")
        hint = f"did you mean {urls.display(address).rstrip('/')}/v1?" if is_bare else ""
        endpoint = ModelEndpoint(self.name, self._model, host, key, variable, hint)
        api = ModelApi(endpoint, address, row.key_headers(key))
        return ModelRequests(api, self._limits, self._options, self._format)

    @property
    def defers_tools(self) -> bool:
        """Whether to defer definitions, for which the Responses API is used."""
        found = _VERSION.match(self._model)
        version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
        is_able = version >= _FIRST_DEFERRING and not self._model.startswith(_NOT_DEFERRING)
        is_able = is_able and self._provider.name == "openai" and self._is_at_provider
        return is_able and self._limits.lesson("lists_tools") is None

    def _format(self, tools: Sequence[ToolDefinition]) -> RequestFormat:
        defers_tools = self._limits.may_defer(tools)
        if (defers_tools and self.defers_tools) or self._limits.lesson("responses"):
            build, provider = self._response_request, f"responses:{self._source}"
            return RequestFormat(
                "/responses",
                _RESPONSES_NEED,
                build,
                lambda: ResponsesAnswer(self.name, provider),
                IMAGES | DOCUMENTS,
                defers_tools=defers_tools,
            )
        needed = _CHAT_NEEDS | ({"reasoning_effort"} if self._limits.lesson("effort") else set())
        return RequestFormat(
            "/chat/completions",
            needed,
            self._chat_request,
            lambda: ChatAnswer(self.name, self._source),
            self._readable,
        )

    @property
    def _readable(self) -> frozenset[str]:
        return frozenset() if self._provider.name == "deepseek" else FILES

    def _response_request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], signed: bool
    ) -> dict[str, Any]:
        provider = f"responses:{self._source}"
        return response_request(
            self._model, messages, tools, self._options, provider=provider, signed=signed
        )

    def _chat_request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], signed: bool
    ) -> dict[str, Any]:
        # Unsigned: the conversation is written as if another model had produced it, so that the
        # parts that only this provider reads are left out.
        provider = self._source if signed else f"{self._source} (unsigned)"
        refused = frozenset(each for each in RETURNED if self._limits.refuses(each))
        needs = frozenset(each for each in NEEDS if self._limits.lesson("need", each))
        readable = without_files(messages, self._readable)
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(readable, provider=provider, refused=refused, learned=needs),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = [wire_tool(tool) for tool in tools]
            if self._limits.lesson("effort"):
                request["reasoning_effort"] = "none"
        return request | self._options
