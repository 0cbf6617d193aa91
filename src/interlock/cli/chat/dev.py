"""`interlock dev`: open the inspector on the server of a Python file."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
import msgspec

from interlock.cli.chat.web import more_links, open_browser
from interlock.cli.servers import server_file, server_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, safe
from interlock.errors import MissingExtra

if TYPE_CHECKING:
    from interlock.config import Config


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@click.option("--port", default=8421, show_default=True, type=click.IntRange(0, 65535))
@click.option("--no-open", is_flag=True, help="Print the URL as the only line, open no browser.")
def dev(source: str, port: int, no_open: bool) -> None:
    """Open the inspector on the server of a Python FILE while you write it.

    The page calls tools, reads resources and shows every message. When the file changes, the server
    is started again and the page stays connected. Errors that calls return contain the exception
    and the line, and stderr of the server is printed here. Ends on Ctrl-C.

    \b
    Example:
      interlock dev notes.py
      interlock dev notes.py:server --port 0
    """
    if not (find_spec("websockets") and find_spec("sqlalchemy")):
        raise MissingExtra("the inspector", "web,chat")
    path, name = server_file.checked(source)
    key, config = server_option.only(f"{path.resolve()}:{name}" if name else str(path), None)
    program = server_option.of_file(path, name, "--reload", INTERLOCK_DEBUG="1")
    # The inspector starts the server itself; the chat of the same site does not.
    only = {key: msgspec.structs.replace(program, enabled=False)}
    run(_serve(msgspec.structs.replace(config, servers=only), key, port, opens=not no_open))


async def _serve(config: Config, server: str, port: int, *, opens: bool) -> None:
    from interlock.web.local_site import open_local_site

    async with open_local_site(config, [], port, on_stderr=_show) as site:
        page = f"inspect/{server}"
        url = await site.link(page)
        emit(url)
        sys.stdout.flush()
        if opens:
            await open_browser(url)
        async with more_links(site, page):
            await site.served()


def _show(text: str) -> None:
    print(safe(text), end="", file=sys.stderr, flush=True)
