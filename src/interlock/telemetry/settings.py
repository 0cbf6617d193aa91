"""Reads the environment variables OTEL_* that interlock supports.

Specification: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from secrets import token_hex
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from interlock import __version__
from interlock.errors import ConfigError, MissingExtra
from interlock.telemetry import names
from interlock.telemetry.sampling import Sampler, is_known, sampler
from interlock.telemetry.span import Value

PORT = 4318  # of a collector on this machine, for OTLP over HTTP
GRPC_PORT = 4317
JSON, PROTOBUF, GRPC = "http/json", "http/protobuf", "grpc"  # protocols
MAX_QUEUE = 1_000_000  # spans
MAX_NUMBER = 2**31 - 1  # of a variable
METERED = frozenset(("serve", "doctor"))  # commands that export metrics, or check their export

_PROPAGATORS = {"tracecontext", "baggage", "none"}
_OWN = {  # what the base install has
    "OTEL_PROPAGATORS": "tracecontext or none",
    "OTEL_TRACES_SAMPLER": "always_on, always_off or traceidratio, each also with the prefix "
    "parentbased_",
}
_ONLY = {  # variables of metrics, and the only value that is supported
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "cumulative",
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": "explicit_bucket_histogram",
}


class Export(Struct, frozen=True):
    """A collector, and how a signal is sent to it. Headers are secrets, so no repr shows them.

    Attributes:
        url: The URL of the collector, for this signal.
        headers: The headers of each request.
        timeout: Seconds for each request.
        is_compressed: Whether requests are compressed by gzip.
        certificate: The file of the trusted certificates; "" for those of the system.
        client_certificate, client_key: The files that identify this client; "" for none.
        queue: The most spans that wait; further spans are dropped.
        batch: The most spans of one request.
        delay: The longest time, in seconds, that a span waits for a full batch; or the time between
            two exports of metrics.
        protocol: `JSON`, or a protocol that needs the extra `otel`.
    """

    url: str
    headers: Mapping[str, str] = {}
    timeout: float = 10.0
    is_compressed: bool = False
    certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""
    queue: int = 2_048
    batch: int = 512
    delay: float = 5.0
    protocol: str = JSON

    def __repr__(self) -> str:
        return f"Export({urlsplit(self.url).hostname!r})"


class TracingSettings(Struct, frozen=True):
    """The settings of traces.

    Attributes:
        export: The collector, and how spans are sent to it.
        sampler: Decides which traces are recorded.
        propagates: Whether requests to servers carry the trace.
        max_text: The most characters of an attribute; None for no limit.
        resource: The attributes of this process.
        needs_sdk: Whether the SDK of OpenTelemetry makes the spans, as it has a sampler, a
            propagator or a protocol that the base install lacks.
    """

    export: Export
    sampler: Sampler
    propagates: bool = True
    max_text: int | None = None
    resource: dict[str, Value] = field(default_factory=dict)
    needs_sdk: bool = False


class MeteringSettings(Struct, frozen=True):
    """The settings of metrics.

    Attributes:
        export: The collector, and how metrics are sent to it.
        resource: The attributes of this process.
    """

    export: Export
    resource: dict[str, Value] = field(default_factory=dict)


class TelemetrySettings(Struct, frozen=True):
    """The settings of traces and of metrics; None for a signal that is off."""

    tracing: TracingSettings | None = None
    metering: MeteringSettings | None = None


def read_settings(environ: Mapping[str, str], command: str) -> TelemetrySettings:
    """Return the settings in the environment.

    Args:
        environ: The environment variables. An empty variable counts as unset.
        command: The name of the service is "interlock-" and this command, if no variable has it.
            Only `METERED` commands have metrics.

    Raises:
        ConfigError: A variable is not valid, or needs what interlock does not have.
    """
    traces, metrics = _Variables(environ, "TRACES"), _Variables(environ, "METRICS")
    is_traced, is_metered = traces.are_on, command in METERED and metrics.are_on
    if not (is_traced or is_metered):
        return TelemetrySettings()
    resource = traces.resource(command)
    return TelemetrySettings(
        _tracing(traces, resource) if is_traced else None,
        _metering(metrics, resource) if is_metered else None,
    )


def _tracing(variables: _Variables, resource: dict[str, Value]) -> TracingSettings:
    wanted = {each.strip() for each in variables.get("OTEL_PROPAGATORS").split(",")} - {""}
    name = variables.get("OTEL_TRACES_SAMPLER")
    for propagator in sorted(wanted - _PROPAGATORS):
        _check_plugin("OTEL_PROPAGATORS", propagator, "opentelemetry_propagator")
    if name and not is_known(name):
        _check_plugin("OTEL_TRACES_SAMPLER", name, "opentelemetry_traces_sampler")
    limit = variables.get("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
    queue = variables.number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048)
    export = variables.export(
        queue=min(queue, MAX_QUEUE),
        batch=min(variables.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512), queue),
        delay=variables.number("OTEL_BSP_SCHEDULE_DELAY", 5_000) / 1_000,
    )
    is_known_sampler = not name or is_known(name)
    argument = variables.get("OTEL_TRACES_SAMPLER_ARG") if is_known_sampler else ""
    return TracingSettings(
        export=export,
        sampler=sampler(name if is_known_sampler else "", argument),
        propagates=not wanted or wanted != {"none"},
        max_text=variables.number("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", 0, 0) if limit else None,
        resource=resource,
        needs_sdk=export.protocol != JSON or bool(wanted - _PROPAGATORS) or not is_known_sampler,
    )


def _check_plugin(variable: str, name: str, group: str) -> None:
    """Raise an error if no installed package has a sampler or propagator with this name.

    Raises:
        ConfigError: No package has it.
        MissingExtra: The extra `otel` is not installed.
    """
    _check_extra(f"{variable} {name!r}")
    from importlib.metadata import entry_points

    if not entry_points(group=group, name=name):
        raise ConfigError(
            f"{variable} {name!r} is unknown; use {_OWN[variable]}, or install the package of "
            "OpenTelemetry that has it"
        )


def _check_extra(what: str) -> None:
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise MissingExtra(what, "otel")


def _metering(variables: _Variables, resource: dict[str, Value]) -> MeteringSettings:
    for name, only in _ONLY.items():
        if (given := variables.get(name)) and given.lower() != only:
            raise ConfigError(f"{name} {given!r} is not supported; use {only}")
    interval = variables.number("OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1_000
    return MeteringSettings(variables.export(delay=interval), resource)


class _Variables:
    """The variables of one signal, "TRACES" or "METRICS"."""

    def __init__(self, environ: Mapping[str, str], signal: str) -> None:
        self._environ = environ
        self._signal = signal

    def get(self, name: str) -> str:
        return self._environ.get(name, "").strip()

    def otlp(self, name: str) -> str:
        """Return a variable of the exporter; its form for the signal precedes the general one."""
        return self.get(self._name(name))

    def _name(self, name: str) -> str:
        own = f"OTEL_EXPORTER_OTLP_{self._signal}_{name}"
        return own if self.get(own) else f"OTEL_EXPORTER_OTLP_{name}"

    @property
    def are_on(self) -> bool:
        if self.get("OTEL_SDK_DISABLED").lower() == "true":
            return False
        exporter = self.get(f"OTEL_{self._signal}_EXPORTER")
        if exporter in ("", "otlp"):
            return bool(exporter or self.otlp("ENDPOINT"))
        if exporter != "none":
            text = f"OTEL_{self._signal}_EXPORTER {exporter!r} is not supported; use otlp or none"
            raise ConfigError(text)
        return False

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.get(name)
        if not text:
            return default
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_NUMBER))
        if not is_number or not least <= int(text) <= MAX_NUMBER:
            raise ConfigError(f"{name} {text!r} is not a whole number from {least} to {MAX_NUMBER}")
        return int(text)

    def export(self, *, queue: int = 0, batch: int = 0, delay: float) -> Export:
        protocol = self.otlp("PROTOCOL") or JSON
        if protocol not in (JSON, PROTOBUF, GRPC):
            raise ConfigError(
                f"OTEL_EXPORTER_OTLP_PROTOCOL {protocol!r} is unknown; use {JSON}, {PROTOBUF} or "
                f"{GRPC}"
            )
        if protocol != JSON:
            _check_extra(f"OTEL_EXPORTER_OTLP_PROTOCOL {protocol!r}")
        compression = self.otlp("COMPRESSION")
        if compression not in ("", "none", "gzip"):
            raise ConfigError(f"OTEL_EXPORTER_OTLP_COMPRESSION {compression!r} is not gzip or none")
        return Export(
            self._url(protocol),
            self._headers(),
            self.number(self._name("TIMEOUT"), 10_000) / 1_000,
            compression == "gzip",
            self._file("CERTIFICATE"),
            self._file("CLIENT_CERTIFICATE"),
            self._file("CLIENT_KEY"),
            queue,
            batch,
            delay,
            protocol,
        )

    def _url(self, protocol: str) -> str:
        name = self._name("ENDPOINT")
        url = self.get(name) or f"http://localhost:{GRPC_PORT if protocol == GRPC else PORT}"
        if name == "OTEL_EXPORTER_OTLP_ENDPOINT" and protocol != GRPC:
            url = f"{url.rstrip('/')}/v1/{self._signal.lower()}"
        try:
            parts = urlsplit(url)
            is_http = parts.scheme in ("http", "https")
            is_valid = is_http and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_valid = False
        if not is_valid or url.split() != [url] or not url.isascii():
            raise ConfigError(f"{name} is not a URL; write one such as http://localhost:{PORT}")
        if parts.username is not None or parts.password is not None:
            raise ConfigError(f"{name} has a user name; put it into OTEL_EXPORTER_OTLP_HEADERS")
        return url

    def _headers(self) -> dict[str, str]:
        try:
            return _pairs(self.otlp("HEADERS"))
        except ValueError:
            text = "OTEL_EXPORTER_OTLP_HEADERS is not a list such as name=value,name=value"
            raise ConfigError(text) from None

    def _file(self, name: str) -> str:
        path = self.otlp(name)
        if path and not os.access(path, os.R_OK):
            raise ConfigError(f"OTEL_EXPORTER_OTLP_{name} {path!r} cannot be read")
        return path

    def resource(self, command: str) -> dict[str, Value]:
        try:
            given = _pairs(self.get("OTEL_RESOURCE_ATTRIBUTES"))
        except ValueError:
            text = "OTEL_RESOURCE_ATTRIBUTES is not a list such as key=value,key=value"
            raise ConfigError(text) from None
        service = self.get("OTEL_SERVICE_NAME") or given.get(names.SERVICE)
        return {
            names.INSTANCE: token_hex(16),
            names.VERSION: __version__,
            **given,
            names.SERVICE: service or f"interlock-{command}",
            names.PROCESS: os.getpid(),
        }


def _pairs(text: str) -> dict[str, str]:
    """Return the members of a list such as "key=value,key=value", which is percent-encoded.

    Raises:
        ValueError: The list is malformed.
    """
    found = {}
    for member in filter(None, (each.strip() for each in text.split(","))):
        key, separator, value = member.partition("=")
        key, value = unquote(key.strip()), unquote(value.strip())
        if not separator or not key or not (key + value).isprintable():
            raise ValueError
        found[key] = value
    return found
