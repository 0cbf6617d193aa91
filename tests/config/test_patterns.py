"""Patterns of addresses: refused if they match nothing, warned of if they name no known server."""

from __future__ import annotations

from tests.config.support import check_refusal, gateway
from tests.support.rows import each_row


def deny(pattern: str) -> dict[str, object]:
    return {"views": {"v": {"tools": {"deny": [pattern]}}}}


@each_row("pattern", ["refund", "crm:", ":refund", "", "crm:a\u202eb"])
def test_a_text_without_server_and_name_is_refused(pattern: str):
    check_refusal(deny(pattern), "views.v.tools.deny[0]", 'must be "SERVER:NAME"')


@each_row("pattern", ["crm:refund", "crm:*", "*:get_*", "c?m:x", "interlock:*"])
def test_a_pattern_of_known_servers_is_read_without_a_warning(pattern: str):
    loaded = gateway(deny(pattern))

    assert loaded.gateway.views["v"].deny == (pattern,)
    assert loaded.warnings == ()


def test_an_unknown_server_is_a_warning_with_a_suggestion():
    (warning,) = gateway(deny("crn:refund")).warnings

    assert "names a server that this file lacks (did you mean 'crm'?)" in warning
