"""`interlock models`."""

import pytest

from interlock.models import choose


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "LOCAL_SERVERS", ())


def test_models_are_listed_with_what_they_need(interlock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    lines = interlock("models").out.splitlines()

    assert lines[0].split("  ")[-1] == "set ANTHROPIC_API_KEY"
    assert lines[1].startswith("openai:")
    assert lines[1].endswith("ready")
    assert interlock("models", "--json").json[-1] == {"name": "local", "problem": ""}


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gpt-4o", "openai:gpt-4o"), ("claude-x", "anthropic:claude-x"), ("qwen3:8b", "ollama:qwen3")],
)
def test_model_without_its_provider_gets_a_suggestion(interlock, name: str, hint: str):
    ran = interlock("chat", "hi", "--no-tools", "--model", name)

    assert ran.code == 1
    assert f"did you mean {hint}" in ran.err
