"""`interlock models`."""

from pathlib import Path

import pytest

from interlock.models import choosing
from tests.models.gguf.files import WITH_TOOLS, write_model


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "LOCAL_SERVERS", ())


def test_models_are_listed_with_their_requirements(interlock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    lines = interlock("models").out.splitlines()

    assert "  set ANTHROPIC_API_KEY  " in lines[0]
    assert lines[0].endswith("tools, images, PDFs, reasoning, caching")
    assert lines[1].startswith("openai:")
    assert "  ready  " in lines[1]
    last = {"name": "local", "problem": "", "can": ["tools"], "context": 0, "learned": []}
    assert interlock("models", "--json").json[-1] == last


@pytest.mark.slow("llama.cpp")
def test_gguf_file_answers_and_is_found_again_from_another_folder(
    interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_model(tmp_path / "m.gguf", {"\n": "Hello", "Hello": ""})
    monkeypatch.chdir(tmp_path)
    first = interlock("chat", "Hi", "--no-tools", "--model", "local:m.gguf")
    monkeypatch.chdir("/")
    again = interlock("chat", "Hi", "--no-tools", "-c")

    assert (first.out, again.out) == ("Hello\n", "Hello\n")
    assert "embedded" not in first.err


@pytest.mark.slow("llama.cpp")
def test_gguf_file_calls_a_tool_and_answers_its_result(interlock, servers, tmp_path: Path):
    servers()
    start = "<tool_call>\n"
    call = '{"name": "e__say", "arguments": {"text": "noon"}}\n</tool_call>'
    follows = {"\n": start, start: call, call: "", "<|result|>": "It is noon.", "It is noon.": ""}
    write_model(tmp_path / "m.gguf", follows, template=WITH_TOOLS)

    ran = interlock("chat", "When?", "--model", f"local:{tmp_path / 'm.gguf'}")

    assert ran.out == "It is noon.\n"
    assert '[TOOL] e:say(text="noon")' in ran.err


@pytest.mark.parametrize(
    ("name", "hint"),
    [("gpt-4o", "openai:gpt-4o"), ("claude-x", "anthropic:claude-x"), ("qwen3:8b", "ollama:qwen3")],
)
def test_model_without_its_provider_gets_a_suggestion(interlock, name: str, hint: str):
    ran = interlock("chat", "hi", "--no-tools", "--model", name)

    assert ran.code == 1
    assert f"did you mean {hint}" in ran.err
