"""A turn where neither stdout nor stderr is a terminal."""

import pytest

from interlock.agent import AgentEvent, Compacted, Done, ToolFinished, ToolStarted
from interlock.cli.chat.output import Screen
from interlock.config.settings import Price
from interlock.messages import AssistantMessage
from interlock.models import Notice, ReasoningDelta, TextDelta, Usage


def done(text: str, stop_reason: str = "end") -> Done:
    return Done(AssistantMessage(text), Usage(), stop_reason)


def test_text_goes_to_stdout_unchanged_and_ends_with_a_newline(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    with screen.turn():
        for event in (TextDelta("a\x1b"), TextDelta("b"), done("a\x1bb")):
            screen.show(event)

    assert capsys.readouterr() == ("a\x1bb\n", "")


def test_tokens_of_a_turn_are_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    event = Done(AssistantMessage("a"), Usage(12_345, 67, 12_000), "end")
    Screen().show(event)
    monkeypatch.setattr("interlock.cli.chat.output.is_terminal", lambda _: True)
    Screen().show(event)
    Screen().show(done("a"))

    assert capsys.readouterr().err == "tokens: 12,345 in (12,000 cached), 67 out\n"


def test_cost_of_a_turn_is_shown_if_the_price_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.cli.chat.output.is_terminal", lambda _: True)
    screen = Screen()
    screen.cost = Price(input=2, output=10, cached=0.5).cost

    screen.show(Done(AssistantMessage("a"), Usage(600_000, 50_000, 200_000), "end"))

    line = "tokens: 600,000 in (200,000 cached), 50,000 out; cost: 1.4000\n"
    assert capsys.readouterr().err == line


def test_notice_about_the_model_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    for event in (Notice("m cannot use tools"), TextDelta("a"), done("a")):
        screen.show(event)

    assert capsys.readouterr() == ("a\n", "m cannot use tools\n")


def test_reasoning_is_not_shown_and_separates_lines_of_text(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    for event in (TextDelta("a"), ReasoningDelta("hm"), TextDelta("b"), done("ab")):
        screen.show(event)

    assert capsys.readouterr() == ("a\nb\n", "")


def test_tool_calls_are_lines_on_stderr(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    screen.show(ToolStarted("1", "e:say", {"text": "x"}))
    screen.show(ToolFinished("1", "e:say", {"text": "x"}, "x\x1b\ny", False, 0.125))
    screen.show(ToolFinished("2", "e:fail", {}, "no", True, 1.0))

    assert capsys.readouterr() == (
        "",
        '[TOOL] e:say(text="x")\n'
        "[TOOL] e:say ok in 0.12 s: x\\x1b y\n"
        "[TOOL] e:fail failed in 1.00 s: no\n",
    )


def test_calls_of_one_tool_at_the_same_time_are_numbered(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    for id in "123":
        screen.show(ToolStarted(id, "e:say", {"text": id}))
    for id in "312":
        screen.show(ToolFinished(id, "e:say", {"text": id}, id, False, 0))
    screen.show(ToolStarted("4", "e:say", {}))

    assert capsys.readouterr().err.splitlines() == [
        '[TOOL] e:say(text="1")',
        '[TOOL] e:say#2(text="2")',
        '[TOOL] e:say#3(text="3")',
        "[TOOL] e:say#3 ok in 0.00 s: 3",
        "[TOOL] e:say ok in 0.00 s: 1",
        "[TOOL] e:say#2 ok in 0.00 s: 2",
        "[TOOL] e:say()",
    ]


def test_numbering_of_many_calls_takes_linear_time(capsys: pytest.CaptureFixture[str]):
    screen = Screen()
    for id in range(10_000):  # took hours when each call looked at all others
        screen.show(ToolStarted(str(id), "e:say", {}))

    assert capsys.readouterr().err.endswith("[TOOL] e:say#10000()\n")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (done("x", "length"), "warning: the answer was cut off at the model's token limit\n"),
        (done("", "refusal"), "warning: the model refused to answer\n"),
        (done(" "), "(the answer is empty)\n"),
        (Compacted(3), "(too long for the model: 3 older messages are cut or left out)\n"),
    ],
)
def test_an_unusual_turn_is_reported_on_stderr(
    capsys: pytest.CaptureFixture[str], event: AgentEvent, message: str
):
    Screen().show(event)

    assert capsys.readouterr() == ("", message)
