"""The user's settings of models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from interlock.config import ToolSearch
from interlock.config.settings import Price, change, load, loads
from interlock.errors import ConfigError
from tests.support.rows import each_row

FULL: dict[str, Any] = {
    "model": "fast",
    "options": {"temperature": 0.2, "max_tokens": 500},
    "aliases": {"fast": "openai:gpt-6-luna"},
    "models": {
        "fast": {"options": {"temperature": 1}, "price": {"input": 3, "output": 15.5}},
        "ollama:qwen3:8b": {"price": {"input": 0, "output": 0, "cached": 0}},
    },
}


def test_settings_of_a_model_are_found_by_its_name_and_its_alias():
    found = loads(json.dumps(FULL).encode())

    assert found.name_of("fast") == "openai:gpt-6-luna"
    assert found.name_of("ollama") == "ollama"
    assert found.options_of("openai:gpt-6-luna") == {"temperature": 1, "max_tokens": 500}
    assert found.options_of("anthropic:x") == FULL["options"]
    assert found.options_of("local:gemma") == {}
    assert found.price_of("openai:gpt-6-luna") == Price(3, 15.5)
    assert found.price_of("ollama:qwen3:8b") == Price(0, 0, 0)
    assert found.price_of("anthropic:x") is None


@each_row(
    ("content", "problem"),
    [
        ({"model": 5}, "line 2: model must be a string"),
        ({"options": []}, "options must be an object"),
        ({"aliases": {"a:b": "local"}}, "must be a name without colon"),
        ({"aliases": {"a": "b", "b": "local"}}, "aliases.a stands for another alias"),
        ({"models": {"x": {"price": {"input": 1}}}}, 'models.x.price needs "output"'),
        ({"models": {"x": {"price": {"input": "1", "output": 1}}}}, "price of a million tokens"),
        ({"models": {"x": {"price": {"input": -1, "output": 1}}}}, "from 0 to 1,000,000"),
        ({"toolSearch": "onn"}, "toolSearch must be one of auto, on, off (did you mean 'on'?)"),
        ({"toolSearch": {"mode": True}}, "toolSearch.mode must be one of auto, on, off"),
        ({"toolSearch": {"always": "crm:*"}}, "toolSearch.always must be a list of strings"),
        ({"toolSearch": {"threshold": -1}}, "toolSearch.threshold must be between 0"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(content: Any, problem: str):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        loads(json.dumps(content, indent=1).encode())


@each_row(
    ("content", "search"),
    [
        ({}, ToolSearch()),
        ({"toolSearch": "off"}, ToolSearch("off")),
        ({"toolSearch": {}}, ToolSearch()),
        (
            {"toolSearch": {"mode": "on", "always": ["crm:*"], "threshold": 0}},
            ToolSearch("on", ("crm:*",), 0),
        ),
    ],
)
def test_search_for_tools_is_a_mode_or_an_object(content: Any, search: ToolSearch):
    assert loads(json.dumps(content).encode()).tool_search == search


def test_a_pattern_without_a_server_is_refused():
    with pytest.raises(ConfigError, match=r'toolSearch\.always\[1\] must be "SERVER:NAME"'):
        loads(b'{"toolSearch": {"always": ["crm:*", "find_*"]}}')


def test_an_unknown_setting_is_a_warning_with_the_nearest_name():
    (warning,) = loads(b'{"modle": "local"}').warnings

    assert "modle is unknown and ignored (did you mean 'model'?)" in warning


def test_edit_leaves_the_rest_of_the_file_unchanged(tmp_path: Path):
    path = tmp_path / "folder" / "settings.json"
    change("model", "local", path)
    path.write_text('{\n  // the usual one\n  "model": "local",\n  "options": {"top_p": 0.5}\n}\n')
    change("options.temperature", 0.2, path)
    change("options.top_p", None, path)
    change("aliases.fast", "openai:gpt-6-luna", path)
    change("aliases.fast", "openai:gpt-6-terra", path)
    change("toolSearch", "on", path)
    with pytest.raises(ConfigError, match="one of auto, on, off"):
        change("toolSearch", "maybe", path)

    assert "// the usual one" in path.read_text()
    found = load(path)
    assert (found.model, found.options) == ("local", {"temperature": 0.2})
    assert found.aliases == {"fast": "openai:gpt-6-terra"}
    assert found.tool_search == ToolSearch("on")
    assert path.stat().st_mode & 0o777 == 0o600


@each_row("name", ["colour", "model.x", "toolSearch.mode", "options", "models.x"])
def test_change_of_an_unknown_setting_is_refused(name: str, tmp_path: Path):
    with pytest.raises(ConfigError, match="no setting"):
        change(name, "x", tmp_path / "settings.json")

    assert not (tmp_path / "settings.json").exists()


def test_the_example_of_the_documentation_is_valid():
    page = Path(__file__).parents[2] / "docs/use/settings.md"
    _, _, rest = page.read_text().partition('```json title="settings.json"\n')
    example = rest.partition("```")[0]
    found = loads(example.encode())

    assert found.warnings == ()
    assert found.price_of("openai:gpt-6-luna") == Price(0.25, 2, 0.025)
