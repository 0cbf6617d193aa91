"""Everyday requests: what reaches the model, which would invent facts, and what does not."""

from __future__ import annotations

import json
from collections.abc import Callable

from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.models import ToolDefinition, complete
from interlock.models.llama import Text
from interlock.models.local.embedded import INTRODUCTION, TOOLLESS, UNFIT, LocalModel
from tests.support.rows import each_row

MADE_UP = "It is 10 pm now."


def tool(name: str, description: str, *required: str) -> ToolDefinition:
    properties = {key: {"type": "string"} for key in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolDefinition(name, description, json.dumps(schema).encode())


TOOLS = [
    tool("time__get_current_time", "Get current time in a specific timezone", "timezone"),
    tool("git__git_status", "Shows the working tree status", "repo_path"),
    tool("files__read_file", "Read the contents of a file", "path"),
]
TALK = """
Hello!
Good morning, how are you?
Thank you very much!
Bye, see you tomorrow!
I feel a bit tired today.
Tell me a joke.
Write a short poem about the sea.
Guten Morgen, wie geht es dir?
Vielen Dank!
Erzähl mir einen Witz.
Bonjour, ça va ?
Merci beaucoup !
Raconte-moi une histoire.
"""
# Each asks for a fact that none of the tools has, or has under other words.
FACTS = """
Wie spät ist es gerade in Zürich?
What is the capital of France?
Who wrote Hamlet?
How old is the universe?
What is today's weather in Rome?
What happened on 2024-02-30?
What is 12 * 4?
Which is larger, 17 or 71?
Is the train to Basel late now?
What's the latest version of Python?
How many people live in Kenya?
Who is the president?
Recommend a good book.
What is the price of gold today?
When does the shop open?
How long is the Nile?
Summarise the news.
Tell me the story of what happened today.
Hello! How hot is it outside?
Was ist die Hauptstadt von Australien?
Wie viele Dateien sind hier?
Welcher Tag ist heute?
Wann fährt der nächste Zug?
Wer hat die Relativitätstheorie entwickelt?
Was kostet ein Liter Milch?
Quelle heure est-il maintenant ?
Quel temps fait-il à Paris ?
Combien font 7 fois 8 ?
Qui a gagné le match hier ?
Où est mon fichier notes.txt ?
"""


class InventingEngine:
    """Answers every prompt with a made-up fact."""

    def write(self, prompt: str, *, on_text: Callable[[str], bool], **_: object) -> Text:
        on_text(MADE_UP)
        return Text(MADE_UP, 1, 1, True)

    def close(self) -> None:
        """Free nothing."""


async def answer(request: str, *, tools: bool = True, before: tuple[Message, ...] = ()) -> str:
    model = LocalModel()
    model._engine = InventingEngine()  # type: ignore[assignment]  # as far as it is used
    reply = await complete(model, [*before, UserMessage(request)], TOOLS if tools else ())
    called = [f"{call.name} {call.input}" for call in reply.message.tool_calls]
    return called[0] if called else reply.message.content


@each_row("request_", TALK.strip().splitlines())
async def test_small_talk_and_made_up_texts_are_answered_by_the_model(request_: str) -> None:
    assert await answer(request_) == MADE_UP


@each_row("request_", FACTS.strip().splitlines())
async def test_request_for_a_fact_gets_no_invented_answer(request_: str) -> None:
    assert await answer(request_) == UNFIT
    assert await answer(request_, tools=False) == TOOLLESS


async def test_results_of_earlier_calls_are_not_repeated_with_other_values() -> None:
    call = ToolCall("1", "time__get_current_time", {"timezone": "Asia/Tokyo"})
    before = (
        UserMessage("What time is it in Tokyo?"),
        AssistantMessage(tool_calls=(call,)),
        ToolMessage("1", "12:00", call.name),
        AssistantMessage("Current time: 12:00"),
    )

    assert await answer("Wie spät ist es gerade in Zürich?", before=before) == UNFIT
    assert await answer("and how warm is it?", before=before) == UNFIT


@each_row("request_", ["Who are you?", "What can you do?", "Was kannst du?", "help"])
async def test_question_about_the_model_is_answered_with_its_description(request_: str) -> None:
    assert (await answer(request_)).startswith(INTRODUCTION)
    assert "time, git, files" in await answer(request_)
