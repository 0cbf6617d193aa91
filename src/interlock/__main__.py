"""Lets `python -m interlock` run the command `interlock`, which may not be on the PATH."""

from __future__ import annotations

from interlock.cli import main

if __name__ == "__main__":
    main()
