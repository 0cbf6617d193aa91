"""Where Firefox is, and the one command that it lacks.

Playwright starts this file as a program in place of Firefox, and speaks WebDriver BiDi with it. All
messages are passed on, except those that set the colour scheme: Firefox 153 does not implement
`emulation.setMediaFeaturesOverride`, without which Playwright opens no page. The program sets
a preference of Firefox instead, which applies to all its pages.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

APP_SCHEMES = ("cursor", "claude")  # of URLs that the system opens with an app
PREFERENCES: dict[str, str | float | bool] = {
    "ui.prefersReducedMotion": 1,
    # URLs of apps are handed over to the system at once, without a dialog.
    "security.external_protocol_requires_permission": False,
    **{f"network.protocol-handler.external.{each}": True for each in APP_SCHEMES},
}
LISTENING = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
PREFERENCE = "layout.css.prefers-color-scheme.content-override"
SCHEMES = {"dark": 0, "light": 1}  # values of this preference
# The app writes the URL to the file `opened`.
APP = """#!/bin/sh
printf %s "$1" > {home}/new && mv {home}/new {home}/opened
"""
APP_ENTRY = "[Desktop Entry]\nType=Application\nName=App\nExec={home}/app %u\n"


def prepare(home: Path) -> Path:
    """Return the program to start as Firefox, with the files it needs in a home directory."""
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if found is None:
        text = "no Firefox for the tests; run `make build/firefox/.stamp`, or install Firefox"
        raise FileNotFoundError(text)
    entries = home / ".local/share/applications"
    entries.mkdir(parents=True)
    (entries / "app.desktop").write_text(APP_ENTRY.format(home=home))
    opens = "".join(f"x-scheme-handler/{each}=app.desktop\n" for each in APP_SCHEMES)
    (entries / "mimeapps.list").write_text(f"[Default Applications]\n{opens}")
    # -P: modules of this folder have names of standard ones.
    command = shlex.join((sys.executable, "-P", __file__, found))
    program(home / "app", APP.format(home=home))
    return program(home / "firefox", f'#!/bin/sh\nexec {command} "$@"\n')


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o700)
    return path


async def main(*command: str) -> int:
    """Run Firefox until it exits; print the URL of this program in place of Firefox's."""
    firefox = await asyncio.create_subprocess_exec(
        *command, "--remote-allow-system-access", stderr=asyncio.subprocess.PIPE
    )
    assert firefox.stderr
    async for line in firefox.stderr:
        text = line
        if found := LISTENING.search(line):
            relay = partial(pass_on, url=f"{found[1].decode()}/session")
            server = await serve(relay, "127.0.0.1", 0, max_size=None)
            port = server.sockets[0].getsockname()[1]
            text = b"WebDriver BiDi listening on ws://127.0.0.1:%d\n" % port
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()
    return await firefox.wait()


async def pass_on(playwright: ServerConnection, url: str) -> None:
    """Pass messages on between Playwright and Firefox until one of them closes."""
    schemes: dict[int, int] = {}  # by the id of the command that sets it

    async with connect(url, max_size=None, proxy=None) as firefox:

        async def send(id: int, method: str, params: dict[str, Any]) -> None:
            await firefox.send(json.dumps({"id": id, "method": method, "params": params}))

        async def answer() -> None:
            async for text in firefox:
                message = json.loads(text)
                scheme = schemes.pop(message.get("id"), None)
                if scheme is None or message["type"] == "error":
                    await playwright.send(text)
                    continue
                window = message["result"]["contexts"][0]["context"]
                code = f"Services.prefs.setIntPref({PREFERENCE!r}, {scheme})"
                params = {"expression": code, "target": {"context": window}, "awaitPromise": False}
                await send(message["id"], "script.evaluate", params)
            await playwright.close()

        answering = asyncio.create_task(answer())
        async for text in playwright:
            message = json.loads(text)
            if message["method"] == "emulation.setMediaFeaturesOverride":
                wanted = message["params"]["features"].get("prefers-color-scheme")
                schemes[message["id"]] = SCHEMES.get(wanted, SCHEMES["light"])
                await send(message["id"], "browsingContext.getTree", {"moz:scope": "chrome"})
            else:
                await firefox.send(text)
        answering.cancel()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
