"""Models of a gateway's chat are counted, without a word of what they are asked."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from interlock.errors import ModelUnavailable
from interlock.layers.exposition import family, text_of
from interlock.layers.model_metrics import ModelMetrics
from interlock.messages import AssistantMessage, Usage, UserMessage
from interlock.models import ScriptedModel
from interlock.telemetry import names
from interlock.web.chat.measured_model import MeasuredModel

LABELS = 'gen_ai_operation_name="chat",gen_ai_provider_name="mistral_ai",gen_ai_request_model="m"'
NAME = "mistral:m@https://canary.example/v1"


async def test_answers_are_counted_by_tokens_time_and_error_without_their_text():
    metrics = ModelMetrics()
    times = iter((0.0, 0.5, 2.0, 10.0, 10.1))
    replies = [
        AssistantMessage("canary", usage=Usage(7, 3, 2, 1)),
        ModelUnavailable("canary"),
        AssistantMessage("canary"),
    ]
    model = MeasuredModel(ScriptedModel(replies, name=NAME), metrics, lambda: next(times, 20.0))
    async for _ in model.stream([UserMessage("canary")]):
        pass
    with pytest.raises(ModelUnavailable):
        async for _ in model.stream([UserMessage("canary")]):
            pass
    async with aclosing(model.stream([UserMessage("canary")])) as events:
        await anext(events)  # the user stops the answer

    text = text_of(family(name, *each) for name, each in metrics.gauges().items())
    lines, tokens = text.splitlines(), f'{LABELS},gen_ai_token_modality="unknown"'
    for kind, number in (
        ("input", 7),
        ("output", 3),
        ("cache_read_input", 2),
        ("cache_write_input", 1),
    ):
        name = f"gen_ai_client_inference_usage_{kind}_tokens_total"
        assert f"{name}{{{tokens}}} {number}" in lines
    duration = "gen_ai_client_inference_duration_seconds"
    assert f"{duration}_sum{{{LABELS}}} 2.000000" in lines
    assert f'{duration}_count{{{LABELS},error_type="model_error"}} 1' in lines
    assert f'{duration}_count{{{LABELS},error_type="cancelled"}} 1' in lines
    first = "gen_ai_client_inference_time_to_first_chunk_seconds"
    assert f'{first}_bucket{{{LABELS},le="0.64"}} 2' in lines
    assert "canary" not in text
    known = {name.partition("{")[0].removesuffix("_count") for name in lines if "_count{" in name}
    assert all(names.metric(each)[0] in names.METRICS for each in known)
