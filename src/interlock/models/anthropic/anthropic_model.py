"""Anthropic's models, and any server with Anthropic's Messages API.

Rules for writing a conversation in the format of the Messages API:

1. System messages become the one `system` text.
2. Consecutive messages with the same role become one message, in which tool results come first.
3. Signed blocks, such as thinking, are sent back unchanged. If the API refuses them because the
   tools or the model have changed, the request is repeated without them.
4. The ends of the tools, the instructions and the conversation are marked for the prompt cache, so
   that the next request reads them from the cache. If a server refuses the marks, none are sent.
5. Deferred tools come last and are not marked. A result that loads tools has references to them, at
   which the API shows the model their definitions; it refuses references to tools not in `tools`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from interlock.errors import ModelUnavailable
from interlock.messages import Message, SystemMessage
from interlock.models.anthropic.messages_answer import MessagesAnswer
from interlock.models.anthropic.messages_request import (
    FILES,
    LARGEST_IMAGE,
    text_blocks,
    wire_messages,
)
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
from interlock.models.providers import BY_NAME

_PROVIDER = "anthropic"
VERSION = "2023-06-01"  # of the API, in a header of each request
_NEEDED = frozenset(("model", "max_tokens", "messages", "system", "tools"))
_MAX_TOKENS = 32_000
_FAMILY = re.compile(r"claude-[a-z]+-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FIRST_DEFERRING = (4, 5)  # the first version of each family that loads deferred tools


class AnthropicModel(HttpModel):
    """A model that is used through the Messages API.

    The first request opens the connections.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: The provider's name of the model.
            api_key: The API key; None uses `ANTHROPIC_API_KEY`, else `ANTHROPIC_AUTH_TOKEN`.
            base_url: The API's URL; None uses `ANTHROPIC_BASE_URL`, else Anthropic's own URL.
            options: Members to add to each request, such as {"temperature": 0.2}. "effort" is sent
                in `output_config`. "max_tokens" limits one answer, thinking included; if the API
                refuses the number as too high, the model's own limit is used.
        """
        super().__init__(model, BY_NAME[_PROVIDER], base_url)
        self._api_key = api_key
        self._limits = ModelLimits(self.name)
        self._options = dict(options or {})
        self._max_tokens = self._options.pop("max_tokens", _MAX_TOKENS)
        if effort := self._options.pop("effort", None):
            self._options.setdefault("output_config", {"effort": effort})

    def _open(self) -> ModelRequests:
        row = self._provider
        key = (self._api_key or os.environ.get(row.keys[0]) or "").strip()
        token = "" if key else os.environ.get(row.keys[1], "").strip()
        url = self._base_url or row.address()
        if not (key or token) and url.startswith(row.url):
            raise ModelUnavailable(f"no key for {self.name}: set {row.keys[0]} in the environment")
        host = host_of(url, self.name)
        variable = row.keys[1] if token else row.keys[0]
        endpoint = ModelEndpoint(self.name, self._model, host, key or token, variable)
        sent = {"Authorization": f"Bearer {token}"} if token else row.key_headers(key)
        api = ModelApi(endpoint, url, {**sent, "Anthropic-Version": VERSION})
        # A URL with the version is a mistake that is easy to make and to understand.
        path = "/messages" if urlsplit(url).path.rstrip("/").endswith("/v1") else "/v1/messages"

        def format(tools: Sequence[ToolDefinition]) -> RequestFormat:
            return RequestFormat(
                path,
                _NEEDED,
                self._request,
                lambda: MessagesAnswer(self.name, self._source),
                FILES,
                LARGEST_IMAGE,
                defers_tools=self._limits.may_defer(tools),
            )

        return ModelRequests(api, self._limits, self._options, format)

    @property
    def defers_tools(self) -> bool:
        """Whether to defer definitions; old models and proxies at other URLs often refuse that."""
        found = _FAMILY.match(self._model)
        version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
        is_able = version >= _FIRST_DEFERRING and self._is_at_provider
        return is_able and self._limits.lesson("lists_tools") is None

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], signed: bool
    ) -> dict[str, Any]:
        provider = self._source if signed else ""
        deferred = frozenset(tool.name for tool in tools if tool.deferred)
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._max_tokens,
            "messages": wire_messages(messages, provider=provider, deferred=deferred),
            "stream": True,
        }
        system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
        if system:
            request["system"] = text_blocks("\n\n".join(system))
        if tools:
            request["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": msgspec.json.decode(tool.input_schema),
                    **({"defer_loading": True} if tool.deferred else {}),
                }
                for tool in tools
            ]
        if not self._limits.refuses("cache_control"):
            _mark(request)
        return request | self._options


def _mark(request: dict[str, Any]) -> None:
    """Mark the ends of the tools, instructions and messages for the prompt cache."""
    conversation = request["messages"][-1]["content"] if request["messages"] else []
    for blocks in (request.get("tools", []), request.get("system", []), conversation):
        end = len(blocks) - 1
        while end >= 0 and "defer_loading" in blocks[end]:  # the API refuses both members together
            end -= 1
        if end >= 0 and blocks[end].get("type") not in ("thinking", "redacted_thinking"):
            blocks[end] = {**blocks[end], "cache_control": {"type": "ephemeral"}}
