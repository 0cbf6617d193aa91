"""Checks of the machine: the user, the limit on open files, the gateway's key and its volume."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey
from interlock.errors import ConfigError
from interlock.gateway.deployment.check_result import CheckResult, error, ok, warning
from interlock.store.database.disk_reserve import RESERVE, free_bytes

MIN_FILES = 4_096  # open files: each client and each server needs one or more
MIN_FREE = 8 * RESERVE  # bytes
_MOUNTS = Path("/proc/self/mountinfo")
# On these, SQLite's locks and its shared memory do not work, or not between machines.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs")
_FUSE = "fuse."


def check_user() -> CheckResult:
    """Check that the gateway, and the servers that it starts, do not run as root."""
    user = os.geteuid()
    if user == 0:
        return warning("user", "root runs the gateway and its servers; use another user")
    return ok("user", f"uid {user}")


def check_files() -> CheckResult:
    """Check the limit on open files."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < MIN_FILES:
        text = f"open files are limited to {limit:,}; set at least {MIN_FILES:,} (ulimit -n)"
        return warning("files", text)
    return ok("files", "no limit" if limit == resource.RLIM_INFINITY else f"limit {limit:,}")


def check_key(folder: Path, environ: Mapping[str, str], *, is_shared: bool) -> CheckResult:
    """Check that the gateway's key is valid and that only its owner can read it.

    Args:
        folder: The folder of the key's file.
        environ: The environment variables.
        is_shared: Whether several gateways share the database, and so need one key.
    """
    path = folder / FILE_NAME
    if not environ.get(VARIABLE, "").strip():
        try:
            owner = path.stat().st_uid
        except FileNotFoundError:
            return _missing_key(path, is_shared)
        except OSError as found:
            return error("key", f"{path} cannot be read: {found.strerror}")
        if owner != os.geteuid():
            text = f"{path} belongs to uid {owner}; the gateway runs as uid {os.geteuid()}"
            return error("key", f"{text}: change the owner, or run this as the gateway's user")
    try:
        key = GatewayKey.load(folder)
    except ConfigError as found:
        return error("key", str(found))
    place = VARIABLE if environ.get(VARIABLE, "").strip() else str(path)
    if is_shared and place != VARIABLE:
        text = f"{path} is a file of this machine; set the same {VARIABLE} for all gateways"
        return warning("key", text)
    return ok("key", f"{key.id} in {place}")


def _missing_key(path: Path, is_shared: bool) -> CheckResult:
    if is_shared:
        text = f"{VARIABLE} is not set; set the same one for all gateways: openssl rand -hex 32"
        return error("key", text)
    return ok("key", f"{path} is missing; the first start of a new database creates it")


def check_volume(folder: Path) -> Iterator[CheckResult]:
    """Check the folder of a SQLite file, and of the files beside it."""
    place = folder
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        text = f"{place} cannot be written by uid {os.geteuid()}; change its owner or the mount"
        yield error("volume", text)
    elif is_network(kind := file_system_of(place)):
        text = f"{folder} is on a network file system ({kind}), on which SQLite loses data"
        yield error("volume", f"{text}; use a local disk, or PostgreSQL")
    elif place == folder and place.stat().st_mode & 0o022:
        yield warning("volume", f"{folder} can be written by other users; run `chmod 700 {folder}`")
    else:
        yield ok("volume", f"{folder} ({kind})" if kind else str(folder))
    free = free_bytes(place)
    shown = f"{free:,} bytes are free in {folder}"
    if free < RESERVE:
        yield error("space", f"{shown}; the audit trail needs {RESERVE:,}: free some")
    elif free < MIN_FREE:
        yield warning("space", f"{shown}; free some, or enlarge the volume")
    else:
        yield ok("space", shown)


def file_system_of(folder: Path) -> str:
    """Return the type of the file system of an existing folder; "" if it is not known."""
    found, longest = "", -1
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:  # not Linux
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        place = before.split()[4].encode().decode("unicode_escape")  # \040 is a space
        if folder.resolve().is_relative_to(place) and len(place) >= longest:
            found, longest = after.split()[0], len(place)
    return found


def is_network(kind: str) -> bool:
    """Return whether a type of file system keeps its files on another machine."""
    local = ("fuse.fuseblk", "fuse.ext4")
    return kind in _NETWORK or (kind.startswith(_FUSE) and kind not in local)
