"""A real llama.cpp accepts the conversations of the lab.

The model is tiny and answers nonsense, so the conversations go on as if it had said what they need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlock.messages import AssistantMessage, Message, ToolCall
from interlock.models import Model, Reply, learned
from interlock.models.anthropic import AnthropicModel
from interlock.models.http import model_api
from interlock.models.openai import OpenAIModel
from tests.models.gguf.files import WITH_TOOLS, write_model
from tests.providers.answer_forms import input_of
from tests.providers.conversations import CONVERSATIONS, TO_CONTINUE, Conversation, asked
from tests.providers.fake_provider import Says

# The checks of the templates of Mistral's models, which ours adds to those of a model with tools.
STRICT = """\
{%- set checked = messages[1:] if messages[0].role == 'system' else messages %}
{%- set turns = namespace(count=0) %}
{%- for message in checked %}
{%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
{%- if (message.role == 'user') != (turns.count % 2 == 0) %}
{{ raise_exception('After the optional system message, conversation roles must alternate user and \
assistant roles except for tool calls and results.') }}
{%- endif %}
{%- set turns.count = turns.count + 1 %}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- if call.id|length != 9 %}
{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}
{%- endif %}
{%- endfor %}
{%- endfor %}
"""


@pytest.fixture(
    params=[
        pytest.param(("chat", WITH_TOOLS), id="chat completions"),
        pytest.param(("chat", STRICT + WITH_TOOLS), id="chat completions, strict template"),
        pytest.param(("messages", WITH_TOOLS), id="Messages API"),
    ]
)
async def model(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Model]:
    api, template = request.param
    monkeypatch.setattr(learned, "file", lambda: tmp_path / "models.json")
    monkeypatch.setattr(model_api, "_FIRST_PAUSE", 0.0)
    follows = {"\n": "Hello", "Hello": " there", " there": ""}
    path = write_model(tmp_path / "tiny.gguf", follows, template=template)
    import xllamacpp  # needs libraries of the system that not every machine has

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = 65_536, 1
    params.warmup = params.fit_params = params.ui = False
    params.verbosity, params.offline, params.use_jinja = -1, True, True
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server: Any = xllamacpp.Server(params)
    root, few = server.listening_address, {"max_tokens": 4}
    made: Model = AnthropicModel("tiny", api_key="none", base_url=root, options=few)
    if api == "chat":
        made = OpenAIModel("tiny", provider="llamacpp", base_url=f"{root}/v1", options=few)
    yield made
    await made.close()
    del server


@pytest.mark.slow("a real server reads a hundred conversations")
async def test_a_real_server_reads_every_conversation(model: Model) -> None:
    for conversation in (*CONVERSATIONS, TO_CONTINUE):
        try:
            await _send(model, conversation)
        except Exception as error:
            error.add_note(conversation.name)
            raise


async def _send(model: Model, conversation: Conversation) -> None:
    messages = list(conversation.history)
    for number, turn in enumerate(conversation.turns):
        messages += asked(turn, messages)
        events = [each async for each in model.stream(messages, conversation.tools)]
        assert isinstance(events[-1], Reply)
        says = turn.answer if isinstance(turn.answer, Says) else turn.answer[-1]
        if isinstance(says, Says):
            messages.append(_said(says, number, conversation))


def _said(says: Says, number: int, conversation: Conversation) -> Message:
    calls = (
        ToolCall(f"call_{number}_{place}", call.name, input_of(call, conversation.tools))
        for place, call in enumerate(says.calls)
    )
    return AssistantMessage(says.text, tuple(calls))
