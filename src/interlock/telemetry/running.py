"""Switches traces on while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from interlock import observing
from interlock.observing import environment_context
from interlock.telemetry.settings import read_settings


@contextmanager
def running(command: str, environ: Mapping[str, str], *, timeout: float) -> Iterator[None]:
    """Record and export traces within this context, if the environment switches them on.

    Args:
        command: The command's name, for the name of the service.
        environ: The environment variables.
        timeout: The most seconds that the last export may take.

    Raises:
        ConfigError: A variable is not valid.
    """
    settings = read_settings(environ, command)
    if settings is None:
        yield
        return
    from interlock.telemetry.exporter import Exporter
    from interlock.telemetry.tracer import Tracer

    exporter = Exporter(settings.export, settings.resource)
    observing.observer = Tracer(settings, exporter.add, environment_context())
    try:
        yield
    finally:
        observing.observer = None
        exporter.close(timeout)
