"""A server that is an object of a Python module."""

from __future__ import annotations

import importlib
from typing import Any

from interlock.errors import ConfigError
from interlock.transports import Transport


def connect(name: str) -> Transport:
    """Import an object, if that was not done before, and connect to it.

    Args:
        name: "package.module:name".

    Raises:
        ConfigError: It cannot be imported, or is not a server.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module raises
        raise ConfigError(f"{name} cannot be imported: {error}") from error
    if not callable(getattr(found, "connect", None)):
        raise ConfigError(f"{name} is not a server; it has no method connect()")
    transport: Transport = found.connect()
    return transport
