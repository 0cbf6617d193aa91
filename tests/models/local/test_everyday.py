"""Requests of people who do not know the rules: no invented fact, and no effect unasked.

Both sets were written before any rule was tuned on them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from interlock.messages import ToolCall, UserMessage
from interlock.models import Reply, ToolDefinition, complete
from interlock.models.llama import Text
from interlock.models.local.embedded import INTRODUCTION, TOOLLESS, UNFIT, LocalModel
from tests.models.local.offered import DESK, WORKSHOP
from tests.support.rows import each_row

CASES = Path(__file__).parents[3] / "benchmarks" / "embedded_model_cases.json"

# Each with the only calls that answer it: "=>" if they are made, "->" if it is declined so far.
# The others ask for what no tool has in such words.
EVERYDAY = """
What time is it in Lisbon? => time__get_current_time Europe/Lisbon
Is it already dark in Oslo?
What's the weather like in Madrid? => weather__get_forecast Madrid
Will I need an umbrella in Hamburg tomorrow? -> weather__get_forecast Hamburg
How tall is the Eiffel Tower?
Who is the mayor of London right now?
How much does a stamp cost?
When is my next dentist appointment?
What did Anna write to me yesterday?
Do I have anything on 2026-12-24? => calendar__list_events 2026-12-24
Remind me to call mum at 5pm.
Delete everything I don't need.
create a file todo.txt with the text buy milk
Rename report.doc to report-old.doc => files__move_file report.doc report-old.doc
Book a table for two on Friday.
Cancel my last order.
Cancel order 4711 => shop__cancel_order 4711
Is order 4711 already on its way?
Reply to Peter that I'm late.
Read notes.txt to me => files__read_file notes.txt
Convert 20 euros to dollars.
What's the fastest way to the airport?
Turn off the light in the kitchen.
How many days until Christmas?
What's 15% of 80?
Translate 'good morning' into Japanese.
Wie wird das Wetter morgen in Bern?
Wie viel Uhr ist es in New York?
Welche Termine habe ich am 2026-11-30?
Lösche die Datei alt.txt
Schreib Peter eine Mail, dass ich später komme.
Wie hoch ist das Matterhorn?
Wann hat die Post heute offen?
Was steht in einkauf.txt?
Storniere bitte meine letzte Bestellung.
Wie weit ist es von Basel nach Zürich?
Hat Anna schon geantwortet?
Quel temps fera-t-il demain à Lyon ?
Quelle heure est-il à Montréal ?
Supprime le fichier ancien.txt
Combien coûte un billet pour Genève ?
Envoie un message à Marie.
Qui a écrit Les Misérables ?
Quel jour sommes-nous ?
Lis le fichier courses.txt
Annule mon rendez-vous de demain.
À quelle heure part le dernier train ?
How many words does notes.txt have?
Any mails about the invoice? => mail__search invoice
What's on my calendar on 2026-12-01? => calendar__list_events 2026-12-01
How many orders did I make last year?
Which words rhyme with house?
Does report.txt mention Peter? -> files__read_file report.txt
Wie viele Wörter hat brief.txt?
Ist es in Tokio schon Mitternacht?
Wer hat mir zuletzt geschrieben?
Combien de lignes y a-t-il dans liste.csv ?
Montre-moi la météo de Paris -> weather__get_forecast Paris
What time is it in Tokyo and in New York? \
=> time__get_current_time Asia/Tokyo; time__get_current_time America/New_York
Weather in Hamburg and Paris => weather__get_forecast Hamburg; weather__get_forecast Paris
Read a.txt and b.txt => files__read_file a.txt; files__read_file b.txt
Did I order anything in 2025?
Should I delete draft.txt?
Will you please delete draft.txt? => files__delete_file draft.txt
Send the report to Anna and Peter
Move a.txt and b.txt to archive => files__move_file a.txt archive; files__move_file b.txt archive
Search my mails for Anna and Zoe => mail__search Anna; mail__search Zoe
Convert 3pm from London to Tokyo and Sydney \
=> time__convert_time Europe/London 15:00 Asia/Tokyo; \
time__convert_time Europe/London 15:00 Australia/Sydney
Is it later in Tokyo or in Sydney?
Read chapter 3 and 4 of book.txt
Lies bitte notiz.txt und todo.txt vor
Wetter in München und Wien?
Supprime a.txt et b.txt
"""
INVENTED = "It is 10 pm now."


class InventingEngine:
    def write(self, prompt: str, *, on_text: Callable[[str], bool], **_: object) -> Text:
        on_text(INVENTED)
        return Text(INVENTED, 1, 1, True)

    def close(self) -> None:
        """Free nothing."""


async def answer(request: str, tools: Sequence[ToolDefinition]) -> Reply:
    model = LocalModel()
    model._engine = InventingEngine()  # type: ignore[assignment]  # as far as it is used
    return await complete(model, [UserMessage(request)], tools)


@each_row("line", EVERYDAY.strip().splitlines())
async def test_everyday_request_invents_nothing_and_proposes_no_other_call(line: str) -> None:
    request, arrow, right = [*re.split(" (=>|->) ", line), "", ""][:3]

    reply = await answer(request, DESK)
    made = [
        " ".join([each.name, *map(str, each.input.values())]) for each in reply.message.tool_calls
    ]
    text = reply.message.content

    assert made == right.split("; ") if arrow == "=>" else made in ([], right.split("; "))
    assert made or text == UNFIT or re.match(r"For (cancel_order|send) I also need: ", text)
    assert (await answer(request, ())).message.content == TOOLLESS


@pytest.mark.slow("ranks 35 tools for many requests")
async def test_plain_requests_that_no_rule_was_tuned_on_get_the_right_call() -> None:
    cases = [
        case
        for case in json.loads(CASES.read_text())
        if (case["half"], case["wording"]) == ("held-out", "plain")
    ]
    wanted = [case for case in cases if case["tool"]]
    others = [case for case in cases if not case["tool"]]
    replies = {case["request"]: await answer(case["request"], WORKSHOP) for case in cases}

    wrong = [
        case["request"]
        for case in wanted
        if not is_right(case, replies[case["request"]].message.tool_calls)
    ]

    assert (len(wanted), len(others), len(WORKSHOP)) == (24, 9, 35)
    assert len(wanted) - len(wrong) >= 20, wrong
    for case in others:
        reply = replies[case["request"]].message
        assert not reply.tool_calls
        assert reply.content in (UNFIT, INVENTED) or reply.content.startswith(INTRODUCTION)


def is_right(case: dict[str, Any], calls: Sequence[ToolCall]) -> bool:
    """Return whether the only call is the wanted one, without any argument but defaults."""
    if [call.name for call in calls] != [case["tool"]]:
        return False
    [definition] = [each for each in WORKSHOP if each.name == case["tool"]]
    properties = json.loads(definition.input_schema)["properties"]
    given, accepted = calls[0].input, case["arguments"]
    return all(given.get(name) in values for name, values in accepted.items()) and all(
        value == properties[name].get("default", ...)
        for name, value in given.items()
        if name not in accepted
    )
