"""Options of the commands for a gateway: times, rates and views."""

from __future__ import annotations

import click
import msgspec
import pytest

from interlock.cli.database_options import Duration, RateOption, check_view
from interlock.config import Config, loads
from tests.support.rows import each_row


def config(**gateway: object) -> Config:
    return loads(msgspec.json.encode({"mcpServers": {}, "gateway": gateway}))


@each_row(("text", "seconds"), [("30s", 30), ("10m", 600), ("90d", 7_776_000)])
def test_a_time_has_a_unit(text: str, seconds: float):
    assert Duration().convert(text, None, None) == seconds


@each_row("text", ["soon", "10", "-1s", "never"])
def test_text_that_is_not_a_duration_is_a_usage_error(text: str):
    with pytest.raises(click.BadParameter, match="is not a time such as 30s"):
        Duration().convert(text, None, None)


def test_duration_option_accepts_never_if_no_expiry_is_allowed():
    assert Duration(or_never=True).convert("never", None, None) == 0
    with pytest.raises(click.BadParameter, match="or never"):
        Duration(or_never=True).convert("soon", None, None)


def test_a_rate_is_kept_as_it_was_written():
    assert RateOption().convert("20/s", None, None) == "20/s"
    with pytest.raises(click.BadParameter, match="'fast' is not"):
        RateOption().convert("fast", None, None)


def test_an_unknown_view_is_an_error_that_names_the_known_ones():
    check_view(config(), "")
    check_view(config(views={"support": {}}), "support")
    with pytest.raises(click.BadParameter, match=r"no view 'x' in .*; the views are support"):
        check_view(config(views={"support": {}}), "x")
    with pytest.raises(click.BadParameter, match="it has no views"):
        check_view(Config(), "x")
