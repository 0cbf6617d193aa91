"""An explanation as the command and the admin API show it."""

from __future__ import annotations

from interlock.gateway.explain.explanation import Check, Explanation


def test_explanation_object_has_the_checks_and_the_remedy():
    server = Check("server", "ok")
    rules = Check("policy", "deny", "no rule allows it", "no_rule", "add a rule")
    denied = Explanation("deny", "no_rule", "", (server, rules), rules, "ok", is_uncertain=True)

    assert denied.as_json() == {
        "effect": "deny",
        "reason": "no_rule",
        "steps": [
            {"step": "server", "verdict": "ok", "detail": ""},
            {"step": "policy", "verdict": "deny", "detail": "no rule allows it"},
        ],
        "uncertain": True,
        "change": "add a rule",
    }


def test_json_of_an_allowed_call_has_no_reason_and_no_change():
    allowed = Explanation("allow", "", "reads", (Check("server", "ok"),), None, "ok")

    assert allowed.as_json() == {
        "effect": "allow",
        "rule": "reads",
        "steps": [{"step": "server", "verdict": "ok", "detail": ""}],
    }
