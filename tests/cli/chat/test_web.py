"""`interlock web`: which models it offers. The page itself is tested in a browser."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.config.settings import Settings
from interlock.errors import MissingExtra
from interlock.models import Model, choosing
from interlock.models.choosing import ListedModel
from interlock.web import local_site
from interlock.web.chat.model_choice import OpenModel


class Served:
    """A site that ends at once, after it has opened each of its models."""

    status = ()

    def __init__(self) -> None:
        self.models: list[Model] = []

    @asynccontextmanager
    async def open(
        self,
        config: object,
        models: Sequence[str],
        port: int,
        *,
        opens: OpenModel,
        settings: Settings,
        engine: str,
    ) -> AsyncIterator[Served]:
        self.models = [await opens(name) for name in models]
        self.settings = settings
        yield self

    async def link(self) -> str:
        return "http://127.0.0.1/"

    async def served(self) -> None:
        """End at once."""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    made = Served()
    monkeypatch.setattr(local_site, "open_local_site", made.open)
    return made


def test_models_have_the_aliases_and_options_of_the_settings(interlock, served: Served):
    for setting in ("aliases.fast openai:gpt-6-luna", "options.temperature 0.2"):
        assert interlock("settings", "set", *setting.split()).code == 0
    models = ("--model", "fast", "--model", "openai:other")

    ran = interlock("web", "--no-open", "--no-tools", *models)

    assert ran == (0, "http://127.0.0.1/\n", "")
    assert [each.name for each in served.models] == ["openai:gpt-6-luna", "openai:other"]
    options: list[Any] = [vars(each)["_options"] for each in served.models]
    assert options == [{"temperature": 0.2}] * 2
    assert served.settings.options == {"temperature": 0.2}  # with the prices, for the page


def test_errors_of_models_are_shown_on_the_terminal(
    interlock, served: Served, monkeypatch: pytest.MonkeyPatch
):
    async def fail() -> None:
        logging.getLogger("interlock.web").warning("turn t_1 failed: %s", "no credit")

    monkeypatch.setattr(served, "served", fail)

    assert "turn t_1 failed: no credit" in interlock("web", "--no-open", "--no-tools").err


def test_default_model_of_the_settings_comes_first(interlock, served: Served, script):
    name = script("Hello.")
    assert interlock("settings", "set", "model", name).code == 0

    assert interlock("web", "--no-open", "--no-tools").code == 0

    assert served.models[0].name == name


def test_key_is_sent_to_the_servers_that_the_user_named_and_to_no_other_that_answers(
    interlock, served: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "the-key")
    found = "openai:m@http://127.0.0.1:8080/v1"

    async def available() -> list[ListedModel]:
        return [ListedModel(found), ListedModel("openai:gpt-6-luna")]

    monkeypatch.setattr(choosing, "available", available)

    def keys() -> dict[str, Any]:
        return {each.name: vars(each)["_api_key"] for each in served.models}

    assert interlock("web", "--no-open", "--no-tools").code == 0
    assert keys() == {"openai:gpt-6-luna": None, found: ""}
    assert interlock("web", "--no-open", "--no-tools", "--model", found).code == 0
    assert keys() == {found: None}
    interlock("settings", "set", "aliases.own", found)
    assert interlock("web", "--no-open", "--no-tools").code == 0
    assert keys()[found] is None


@pytest.mark.slow("starts the program on a terminal")
def test_page_is_opened_in_the_browser_with_the_printed_url(terminal, script, home: Path):
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {home}/opened\n')
    browser.chmod(0o755)
    page = terminal("web", "--port", "0", INTERLOCK_MODEL=script("x"), BROWSER=str(browser))
    page.expect("press Enter for another one-time URL, Ctrl-C to end")
    opened = (home / "opened").read_text()

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#\S+", opened)
    assert page.seen.startswith(f"{opened}\r\n")
    page.type("\x03")
    page.leave()
    assert "error" not in page.seen


def test_missing_package_is_an_error_with_all_extras_to_install(interlock, monkeypatch):
    monkeypatch.setitem(sys.modules, "websockets", None)

    ran = interlock("web", "--no-open")

    assert (ran.code, ran.err) == (
        1,
        f"error: {MissingExtra('the chat in the browser', 'web,chat')}\n",
    )
