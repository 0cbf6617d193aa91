"""`interlock web`: open the chat in the browser for the person at this machine."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.chat import settings
from interlock.cli.chat.settings import tool_search_option
from interlock.cli.log import open_log
from interlock.cli.server_status import warn_of_broken
from interlock.cli.servers import inputs
from interlock.cli.signals import run
from interlock.cli.terminal import emit, is_terminal, say, warn
from interlock.errors import InterlockError, MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    import asyncio

    from interlock.chat import ModelWishes
    from interlock.config import Config
    from interlock.web.local_site import LocalSite


@click.command()
@click.option(
    "--model",
    metavar="PROVIDER:NAME",
    multiple=True,
    help="A model as for `interlock chat`. Give several to choose among them in the page.",
)
@config_option.config_option
@config_option.root_option
@click.option("--port", default=8420, show_default=True, type=click.IntRange(0, 65535))
@click.option("--no-open", is_flag=True, help="Print the URL as the only line, open no browser.")
@click.option(
    "--engine",
    type=click.Choice(["agent", "graph"]),
    default="agent",
    show_default=True,
    help="The engine that runs the loop of model and tools: interlock or LangGraph.",
)
@click.option("--no-tools", is_flag=True, help="Start no servers.")
@tool_search_option
@click.option("--link", is_flag=True, help="Print another one-time URL of a chat that is running.")
def web(
    model: tuple[str, ...],
    config: Path | None,
    roots: tuple[Path, ...],
    port: int,
    no_open: bool,
    no_tools: bool,
    tool_search: str | None,
    engine: str,
    link: bool,
) -> None:
    """Open the chat in the browser, for you alone on this machine.

    Prints a URL that opens the page once, within ten minutes; Enter prints another one. Port 0
    picks a free port. The page shows the conversations of `interlock chat`. Ends on Ctrl-C.

    \b
    Example:
      interlock web
      interlock web --model local --port 0
      interlock web --link
    """
    if not (find_spec("websockets") and find_spec("sqlalchemy")):
        raise MissingExtra("the chat in the browser", "web,chat")
    if link:
        run(_print_link(port))
        return
    found = None if no_tools else inputs.answered(config_option.load(config, roots=roots))
    wishes = settings.wishes(tool_search=tool_search)
    run(_serve(found, model, port, wishes, opens=not no_open, engine=engine))


async def _serve(
    config: Config | None,
    models: tuple[str, ...],
    port: int,
    wishes: ModelWishes,
    *,
    opens: bool,
    engine: str,
) -> None:
    from interlock.web.local_site import open_local_site

    names = await _models(models, wishes)
    # A program that happens to answer on the port of a model server must not get the user's key.
    opens_model = partial(wishes.open, remembered=not models)
    site_of_user = open_local_site(
        config, names, port, opens=opens_model, settings=wishes.settings, engine=engine
    )
    async with site_of_user as site:
        open_log(logging.WARNING)  # for example, errors of models
        url = await site.link()
        emit(url)
        sys.stdout.flush()
        if opens:
            await open_browser(url)
            warn_of_broken(site.status)
        async with more_links(site):
            await site.served()


async def _models(given: tuple[str, ...], wishes: ModelWishes) -> list[str]:
    """Return the names of the models that the page offers, the default model first."""
    from interlock.models import choosing

    if given:
        return [wishes.settings.name_of(each) for each in given]
    chosen = await wishes.preferred()
    await chosen.close()
    others = [each.name for each in await choosing.available() if not each.problem]
    return [chosen.name, *(name for name in others if name != chosen.name)]


async def open_browser(url: str) -> None:
    """Open a one-time URL, or tell the user to open it."""
    import webbrowser

    from interlock.aio import in_thread

    # This process made the URL, so it skips the check of servers' URLs, which would refuse "#".
    if not await in_thread(lambda: webbrowser.open(url)):
        say("no browser could be opened: open the URL yourself; it is valid once, for 10 minutes")


@asynccontextmanager
async def more_links(site: LocalSite, page: str = "") -> AsyncIterator[None]:
    """Print another one-time URL whenever the user presses Enter in the terminal."""
    if not is_terminal(sys.stdin):
        yield
        return
    say("press Enter for another one-time URL, Ctrl-C to end")
    import asyncio

    loop = asyncio.get_running_loop()
    printing: set[asyncio.Task[None]] = set()

    async def another() -> None:
        try:
            emit(await site.link(page))
        except InterlockError as error:
            warn(f"no URL could be made: {error}")

    def pressed() -> None:
        if not sys.stdin.readline():
            loop.remove_reader(sys.stdin)
            return
        task = loop.create_task(another())
        printing.add(task)
        task.add_done_callback(printing.discard)

    loop.add_reader(sys.stdin, pressed)
    try:
        yield
    finally:
        loop.remove_reader(sys.stdin)


async def _print_link(port: int) -> None:
    from interlock.web.local_site import link_to

    emit(await link_to(port))


__all__ = ["ModelUnavailable", "web"]
