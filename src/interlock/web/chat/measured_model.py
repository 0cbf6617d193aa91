"""A model whose answers are counted in a gateway's metrics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from time import monotonic

from interlock.layers.error_types import error_type
from interlock.layers.model_metrics import ModelMetrics
from interlock.messages import Message, Usage
from interlock.models import Model, ModelEvent, ReasoningDelta, Reply, TextDelta
from interlock.models.model import ToolDefinition
from interlock.models.model_name import provider_and_model
from interlock.telemetry import names


class MeasuredModel:
    """Counts and times the answers of a model.

    Args:
        metrics: Counts the answers.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self, model: Model, metrics: ModelMetrics, clock: Callable[[], float] = monotonic
    ) -> None:
        self._model = model
        self._metrics = metrics
        self._clock = clock

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def url(self) -> str:
        """The URL of the provider's API; "" if the model runs in this process."""
        url: str = getattr(self._model, "url", "")
        return url

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; see `Model.stream`."""
        began, first, usage, error = self._clock(), None, Usage(), ""
        try:
            async with aclosing(self._model.stream(messages, tools)) as events:
                async for event in events:
                    if first is None and isinstance(event, TextDelta | ReasoningDelta):
                        first = self._clock() - began
                    if isinstance(event, Reply):
                        usage = event.usage
                    yield event
        except GeneratorExit:  # the user stopped the answer
            error = "cancelled"
            raise
        except BaseException as failed:
            error = error_type(failed)
            raise
        finally:
            provider, model = provider_and_model(self.name)
            provider = names.PROVIDERS.get(provider, provider)
            self._metrics.note(
                *(provider, model, usage, self._clock() - began, first, error),
            )

    async def close(self) -> None:
        await self._model.close()
