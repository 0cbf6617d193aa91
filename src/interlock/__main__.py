"""`python -m interlock`: the same as the command `interlock`, for when it is not on the PATH."""

from __future__ import annotations

from interlock.cli import main

if __name__ == "__main__":
    main()
