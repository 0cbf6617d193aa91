"""The names of spans and metrics are those of the pinned release of the conventions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from interlock.layers import metrics, model_metrics
from interlock.telemetry import names

CONVENTIONS = json.loads(Path(__file__).with_name("conventions.json").read_text())
_DOTTED = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")
# The types of the attributes that spans and resources have, where they are not texts.
TYPES = {
    names.SERVER_PORT: "int",
    names.PROCESS: "int",
    names.FINISH: "string[]",
    names.INPUT_TOKENS: "int",
    names.OUTPUT_TOKENS: "int",
    names.CACHE_READ_TOKENS: "int",
    names.CACHE_WRITE_TOKENS: "int",
}


def attributes() -> set[str]:
    """Return the names of attributes that are not interlock's own."""
    constants = (value for name, value in vars(names).items() if name.isupper())
    dotted = {each for each in constants if isinstance(each, str) and _DOTTED.fullmatch(each)}
    own = {each for each in dotted if each.startswith("interlock.")}
    return dotted - own - {*names.METRICS, names.TOKENS}


def test_each_attribute_is_in_the_pinned_release_with_its_type():
    known: dict[str, Any] = CONVENTIONS["attributes"]
    assert CONVENTIONS["release"] == names.RELEASE
    assert len(attributes()) > 25
    assert attributes() - {*known} == set()
    assert {each: known[each]["type"] for each in attributes()} == {
        each: TYPES.get(each, "string") for each in attributes()
    }


def test_each_metric_is_in_the_pinned_release_with_its_unit_instrument_and_buckets():
    known: dict[str, Any] = CONVENTIONS["metrics"]
    assert {each: known[each]["unit"] for each in names.METRICS} == names.METRICS
    histograms = {each for each in names.METRICS if known[each]["instrument"] == "histogram"}
    assert histograms == {each for each, unit in names.METRICS.items() if unit == "s"}
    for name in histograms:
        bounds = metrics.OPERATION_BOUNDS if name.startswith("mcp.") else model_metrics.MODEL_BOUNDS
        assert list(bounds) == known[name]["bounds"]


def test_the_metrics_page_has_the_same_names_in_the_form_of_prometheus():
    models = model_metrics.ModelMetrics().gauges()
    found = {names.metric(each)[0] for each in models}
    found |= {
        names.metric(f"mcp_{side}_operation_duration_seconds")[0] for side in ("server", "client")
    }

    assert found == {*names.METRICS}
    assert {names.LABELS[each] for each in metrics.OPERATION_LABELS} <= attributes()
