"""All layers of a call pass in one order, which the page of the module shows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import Raw

from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.config.gateway import PolicyRules, Rule
from interlock.errors import CallRefused, InvalidArguments
from interlock.layers import Layers, stack
from interlock.policy import Policy
from tests.layers.support import OK, call_of

ASKS = PolicyRules(rules=(Rule(id="r", effect="ask", who=("*",), kind="tools", patterns=("*:*",)),))


class Journey:
    """Records the layers that a call has passed."""

    def __init__(self) -> None:
        self.passed: list[str] = []

    def layer(self, name: str, error: Exception | None = None) -> Around:
        """Return a layer that records its name; it raises `error` if there is one."""

        def wrap(handle: CallHandler) -> CallHandler:
            async def noted(call: Call) -> Outcome:
                self.passed.append(name)
                if error is not None:
                    raise error
                return await handle(call)

            return noted

        return wrap

    async def send(self, _: Call) -> Outcome:
        self.passed.append("sending")
        return Outcome(Raw(OK))


def places() -> list[str]:
    """Return the places of a call as the page of the module lists them, outermost first."""
    return re.findall(r"^    ([a-z]+) {4,}", str(stack.__doc__), re.MULTILINE)


async def test_layers_run_in_the_documented_order_whatever_the_order_of_arguments():
    journey = Journey()
    page = places()
    given: dict[str, Any] = {
        name: journey.layer(name)
        for name in reversed(page)
        if name not in ("admit", "validation", "policy", "around", "sending")
    }
    layers = Layers(around=[journey.layer("around")], policy=Policy.compile(None), **given)
    await layers.build(journey.send, journey.layer("validation"))(call_of(None))

    assert journey.passed == [name for name in page if name not in ("admit", "policy")]
    fields = {*Layers.__struct_fields__} - {"instead"}
    assert fields == {*page} - {"validation", "sending"}


async def test_denied_call_reaches_no_layer_inside_the_policy():
    journey = Journey()
    layers = Layers(
        policy=Policy.compile(ASKS),  # without a layer that asks, its calls are denied
        refusals=journey.layer("refusals"),
        around=[journey.layer("around")],
        limits=journey.layer("limits"),
    )
    with pytest.raises(CallRefused):
        await layers.build(journey.send, journey.layer("validation"))(call_of(None))

    assert journey.passed == ["refusals", "validation"]


async def test_call_that_needs_approval_reaches_the_approval_layer():
    journey = Journey()
    layers = Layers(policy=Policy.compile(ASKS), approval=journey.layer("approval"))
    await layers.build(journey.send)(call_of(None))

    assert journey.passed == ["approval", "sending"]


async def test_handler_of_a_single_tool_replaces_the_layers_inside_the_policy():
    journey = Journey()

    async def instead(_: Call) -> Outcome:
        journey.passed.append("instead")
        return Outcome(Raw(OK))

    layers = Layers(
        policy=Policy.compile(None), instead={"crm:one": instead}, trail=journey.layer("trail")
    )
    handle = layers.build(journey.send)
    await handle(call_of(None, tool="one"))
    await handle(call_of(None, tool="two"))

    assert journey.passed == ["instead", "trail", "sending"]


async def test_call_with_invalid_arguments_reaches_only_the_refusal_layer():
    journey = Journey()
    layers = Layers(
        counting=journey.layer("counting"),
        refusals=journey.layer("refusals"),
        trail=journey.layer("trail"),
    )
    invalid = journey.layer("validation", InvalidArguments("wrong"))
    with pytest.raises(InvalidArguments):
        await layers.build(journey.send, invalid)(call_of(None))

    assert journey.passed == ["counting", "refusals", "validation"]


async def test_layers_of_a_program_are_single_functions_or_all_layers():
    journey = Journey()
    single = Layers.of([journey.layer("outer"), journey.layer("inner")])
    await single.build(journey.send)(call_of(None))

    assert journey.passed == ["outer", "inner", "sending"]
    assert Layers.of(single) is single
