"""A process is killed in the middle of a turn; another one continues the conversation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import ToolMessage

from interlock.agent import Done
from interlock.langchain.history import INTERRUPTED
from interlock.langgraph import stream
from tests.langgraph.crashing import POINTS, WAYS, Conversation, opened, three_calls
from tests.support.chat_model import ScriptedChatModel
from tests.support.providers import check_for_providers

# The calls that were made in the process that was killed, if it is known.
MADE = {
    "before the model": [],
    "after the model": [],
    "after the approval": [],
    "after two of three calls": [1, 2],
    "before the last answer": [1, 2, 3],
}
PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.program("PostgreSQL"))]


@pytest.fixture(scope="module")
def places(
    postgres_server: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[str, Path]]:
    """Databases with the conversations of processes that were killed, and their calls."""
    files = tmp_path_factory.mktemp("crashes") / "chat.db"
    made = {"sqlite": str(files), "postgres": postgres_server}
    found = {kind: (place, tmp_path_factory.mktemp("made")) for kind, place in made.items()}
    arguments = [str(each) for pair in found.values() for each in pair]
    command = [sys.executable, "-m", "tests.langgraph.crashing", *arguments]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    return found


@pytest.mark.slow("processes are killed")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", PLACES)
async def test_a_turn_that_was_killed_continues_without_a_second_call(
    places: dict[str, tuple[str, Path]], kind: str, point: str, way: str
) -> None:
    place, folder = places[kind]
    async with opened(place) as saver:
        conversation = Conversation(saver, folder, f"{point}-{way}")
        before = conversation.made
        assert before == MADE.get(point, before[:1] or [0])
        # A model that has not answered before the crash makes the calls now.
        script = [three_calls(), "done"] if point == "before the model" else ["done"]
        model = ScriptedChatModel(*script)
        async with conversation.graph(model) as graph:
            content = "and now?" if way == "message" else None
            events = [each async for each in stream(graph, content, thread=conversation.thread)]
            messages = (await graph.aget_state(conversation.config)).values["messages"]

    assert events[-1].message.content == "done"
    assert isinstance(events[-1], Done)
    assert conversation.made == ([1, 2, 3] if point == "before the model" else before)
    check_for_providers(messages)
    check_for_providers(model.requests[-1])
    results = [each.content for each in messages if isinstance(each, ToolMessage)]
    if point == "after two of three calls":
        assert results == ["result 1", "result 2", INTERRUPTED]
    elif point in ("before the model", "before the last answer"):
        assert results == ["result 1", "result 2", "result 3"]
    else:
        assert set(results) == {INTERRUPTED}
