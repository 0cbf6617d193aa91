"""`python -m interlock`: the command `interlock`, wherever its script is."""

from __future__ import annotations

from interlock.cli import main

if __name__ == "__main__":
    main()
