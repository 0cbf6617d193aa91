"""Durations and tokens of the language models in the chat of a gateway, as metrics."""

from __future__ import annotations

from collections import Counter

from interlock.histogram import Histogram
from interlock.layers.exposition import Gauge, Labels
from interlock.messages import Usage

# The bounds and names that the OpenTelemetry conventions for generative AI prescribe.
MODEL_BOUNDS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_DURATION = "gen_ai_client_inference_duration_seconds"
_FIRST_CHUNK = "gen_ai_client_inference_time_to_first_chunk_seconds"
_TOKENS = "gen_ai_client_inference_usage_{}_total"
_KINDS = {
    "input_tokens": "Tokens of questions, including cached ones.",
    "output_tokens": "Tokens of answers.",
    "cache_read_input_tokens": "Tokens of questions that came from the provider's cache.",
    "cache_write_input_tokens": "Tokens of questions that were written to the cache.",
}
# Providers do not say which tokens are those of a picture or a recording.
_MODALITY = ("gen_ai_token_modality", "unknown")


class ModelMetrics:
    """Counts and times the answers of models."""

    def __init__(self) -> None:
        self._durations: dict[Labels, Histogram] = {}
        self._first_chunks: dict[Labels, Histogram] = {}
        self._tokens: dict[str, Counter[Labels]] = {kind: Counter() for kind in _KINDS}

    def note(
        self,
        provider: str,
        model: str,
        usage: Usage,
        seconds: float,
        first: float | None,
        error: str,
    ) -> None:
        """Count an answer.

        Args:
            provider, model: The names of the provider and of its model.
            usage: The numbers of tokens.
            seconds: How long the answer took.
            first: The seconds until its first piece; None if there was none.
            error: The value of `error.type`; "" without an error.
        """
        labels: Labels = (
            ("gen_ai_operation_name", "chat"),
            ("gen_ai_provider_name", provider),
            ("gen_ai_request_model", model),
        )
        ended = (*labels, ("error_type", error)) if error else labels
        _note(self._durations, ended, seconds)
        if first is not None:
            _note(self._first_chunks, labels, first)
        numbers = (
            *(usage.input_tokens, usage.output_tokens),
            *(usage.cached_tokens, usage.cache_written_tokens),
        )
        for counter, number in zip(self._tokens.values(), numbers, strict=True):
            counter[(*labels, _MODALITY)] += number

    def gauges(self) -> dict[str, Gauge]:
        """Return the metrics by name, each with its help text and samples."""
        return {
            _DURATION: ("Time of an answer of a model.", self._durations),
            _FIRST_CHUNK: ("Time until the first piece of an answer.", self._first_chunks),
            **{
                _TOKENS.format(kind): (text, dict(self._tokens[kind]))
                for kind, text in _KINDS.items()
            },
        }


def _note(histograms: dict[Labels, Histogram], labels: Labels, seconds: float) -> None:
    histogram = histograms.get(labels)
    if histogram is None:
        histogram = histograms[labels] = Histogram(MODEL_BOUNDS)
    histogram.note(seconds)
