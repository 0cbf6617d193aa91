"""`interlock models`."""

import re
from pathlib import Path

import pytest

from interlock.models import choosing, learned
from interlock.models.learned import Lesson
from tests.models import wire_openai as wire
from tests.models.gguf.files import WITH_TOOLS, write_model
from tests.support.rows import each_row


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


def test_lessons_are_listed_with_their_reasons_until_they_are_forgotten(interlock):
    name = "openai:m@http://127.0.0.1:9/v1"
    learned.note(name, Lesson("tool", "digest", "s:t", reason="array schema missing items"))
    learned.note("anthropic:claude-x", Lesson("output", limit=8192))

    out = interlock("models").out
    assert f"{name}  the tool s:t is left out: array schema missing items" in out
    assert re.search(r"anthropic:claude-x +at most 8,192 tokens of an answer", out)
    by_name = {each["name"]: each for each in interlock("models", "--json").json}
    assert by_name[name]["learned"] == ["the tool s:t is left out: array schema missing items"]

    assert interlock("models", "--forget", name).err == f"forgot what was learned of {name}\n"
    assert interlock("models", "--forget", name).err == f"nothing learned of {name}\n"
    assert name not in interlock("models").out


def test_models_of_one_provider_are_listed(interlock, served, monkeypatch: pytest.MonkeyPatch):
    served.models = ["big", "small"]
    monkeypatch.setenv("VLLM_BASE_URL", f"{served.root}/v1")

    assert interlock("models", "vllm").out == "vllm:big    ready  tools\nvllm:small  ready  tools\n"
    ran = interlock("models", "mistral")
    assert (ran.code, ran.out) == (1, "")
    assert "set MISTRAL_API_KEY" in ran.err


def test_continued_conversation_sends_the_key_if_an_alias_names_the_address(
    interlock, served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "the-key")
    served.script = [wire.says("Yes.")] * 3
    model = f"openai:m@{served.root}/v1"

    interlock("chat", "one", "--no-tools", "--model", model)
    interlock("chat", "two", "--no-tools", "-c")
    interlock("settings", "set", "aliases.mine", model)
    assert interlock("chat", "three", "--no-tools", "-c").out == "Yes.\n"

    keys = [asked.headers.get("Authorization") for asked in served.asked]
    assert keys == ["Bearer the-key", None, "Bearer the-key"]


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


@each_row(
    ("name", "hint"),
    [("gpt-4o", "openai:gpt-4o"), ("claude-x", "anthropic:claude-x"), ("qwen3:8b", "ollama:qwen3")],
)
def test_model_without_its_provider_gets_a_suggestion(interlock, name: str, hint: str):
    ran = interlock("chat", "hi", "--no-tools", "--model", name)

    assert ran.code == 1
    assert f"did you mean {hint}" in ran.err
