"""Where the browser of the tests is."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNPACKED = ROOT / "build/browser"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]
_INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class NoBrowser(Exception):
    """No browser was found."""


def find() -> tuple[str, dict[str, str]]:
    """Return the path of a browser, and the variables that it needs.

    On x86-64 Linux an installed browser is never used: the tests must pass without one.
    """
    if chosen := os.environ.get("INTERLOCK_CHROMIUM"):
        return chosen, {}
    if (UNPACKED / "chromium").exists():
        folders = {"LD_LIBRARY_PATH": UNPACKED / "lib", "FONTCONFIG_PATH": UNPACKED}
        return str(UNPACKED / "chromium"), {name: str(each) for name, each in folders.items()}
    has_package = sys.platform == "linux" and platform.machine() == "x86_64"
    installed = None if has_package else next(filter(None, map(shutil.which, _INSTALLED)), None)
    if installed is None:
        remedy = "run `make build/browser/.stamp`" if has_package else "install Chromium"
        raise NoBrowser(f"no browser for the tests; {remedy}, or set INTERLOCK_CHROMIUM")
    return installed, {}
