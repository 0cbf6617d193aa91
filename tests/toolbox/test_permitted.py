"""Questions that the server behind a gateway may ask clients."""

from __future__ import annotations

from typing import Any

from interlock.config import StdioServer
from interlock.revisions import TASKS_EXTENSION
from interlock.toolbox.permitted import PermittedQuestions
from interlock.types import ClientCapabilities

CAN = ClientCapabilities(
    elicitation={"form": {}},
    sampling={},
    roots={},
    extensions={TASKS_EXTENSION: {}, "com.example/x": {}},
)


def permitted(**settings: Any) -> PermittedQuestions:
    return PermittedQuestions(StdioServer(command="x", **settings))


def test_a_server_may_use_only_the_features_in_its_configuration():
    found = permitted(asks=("roots",)).of(CAN)

    assert (found.elicitation, found.sampling, found.roots) == (None, None, {})
    assert found.extensions == CAN.extensions
    assert permitted(asks=("elicitation", "sampling", "roots")).of(CAN) is CAN


def test_a_connection_for_one_call_offers_no_tasks():
    found = permitted(asks=("roots",), sharing="per_call").of(CAN)

    assert found.extensions == {"com.example/x": {}}


def test_without_refused_removes_the_handlers_of_questions_that_are_not_permitted():
    async def answer(*_: Any) -> Any:
        raise NotImplementedError

    options: Any = {"sampling": answer, "elicitation": answer, "timeout": 5.0}

    assert permitted(asks=("sampling",)).without_refused(options) == {
        "sampling": answer,
        "timeout": 5.0,
    }
    assert "elicitation" in options
