"""The part that the models of all HTTP APIs share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence

from interlock.errors import ModelUnavailable
from interlock.messages import Message
from interlock.models.http.model_requests import ModelRequests
from interlock.models.model import ModelEvent, ToolDefinition
from interlock.models.providers import ModelProvider
from interlock.text import urls


class HttpModel(ABC):
    """A model of one provider, whose first request connects to the API.

    Args:
        model: The provider's name of the model.
        provider: The provider.
        base_url: The API's URL; None uses the provider's URL.
    """

    def __init__(self, model: str, provider: ModelProvider, base_url: str | None) -> None:
        self._model = model
        self._provider = provider
        self._base_url = base_url
        self._requests: ModelRequests | None = None

    @property
    def name(self) -> str:
        address = f"@{urls.display(self._base_url)}" if self._base_url else ""
        return f"{self._provider.name}:{self._model}{address}"

    @property
    def url(self) -> str:
        """The URL of the API; "" if the environment does not have it."""
        try:
            return self._base_url or self._provider.address()
        except ModelUnavailable:
            return ""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        async for event in self._opened().answer(messages, tools):
            yield event

    async def prepare(self) -> None:
        """Import the HTTP client, so that the first request is fast.

        Raises:
            ModelUnavailable: The key is not set.
        """
        await self._opened().api.open()

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed, and the next request reopens them."""
        if self._requests is not None:
            await self._requests.api.close()

    @property
    def _source(self) -> str:
        """The model and the server, to which alone the data of an answer is sent back."""
        own = self._provider.address()  # the environment may replace the provider's URL
        has_own = self._base_url is not None or own == self._provider.url
        return self.name if has_own else f"{self.name}@{urls.display(own)}"

    @property
    def _is_at_provider(self) -> bool:
        """Whether requests go to the provider's own URL."""
        url = self._base_url or self._provider.address()
        return _without_version(url) == _without_version(self._provider.url)

    def _opened(self) -> ModelRequests:
        if self._requests is None:
            self._requests = self._open()
        return self._requests

    @abstractmethod
    def _open(self) -> ModelRequests:
        """Return the requests to the model, with its key.

        Raises:
            ModelUnavailable: The key is not set.
        """


def _without_version(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")
