"""Files that are replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


class NotSynced(Exception):
    """A file is the new one, but a power cut may bring the old one back. The text says so."""


def replace(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Give a file new content: it is the old one or the new one, also after a power cut.

    Args:
        path: The file; its folder is there. A symbolic link is replaced itself.
        content: All of it.
        mode: Permissions of the new file, whatever the umask is.

    Raises:
        OSError: It cannot be written, and is the old one.
        NotSynced: It is the new one, but the disk may not keep it.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        # The new file is in its place. Putting the old one back would be one more write that
        # nobody knows the end of.
        raise NotSynced(
            f"{path} is written, but the disk may not keep it ({error.strerror}): check the disk"
        ) from None
