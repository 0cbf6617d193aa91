"""Other processes of Python."""

from __future__ import annotations

import os
import subprocess
import sys


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in another process."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
