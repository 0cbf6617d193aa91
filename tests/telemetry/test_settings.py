"""The variables OTEL_*, as OpenTelemetry specifies them."""

from __future__ import annotations

import pytest

from interlock.errors import ConfigError
from interlock.telemetry.settings import Export, TracingSettings, read_settings
from tests.support.rows import each_row

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}


def tracing(variables: dict[str, str]) -> TracingSettings:
    found = read_settings(variables, "serve").tracing
    assert found is not None
    return found


@each_row(
    ("variables", "url"),
    [
        ({}, ""),
        (ENDPOINT, "http://otel:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://o/base/"}, "https://o/base/v1/traces"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://own/x"}, "http://own/x"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""),
        ({"OTEL_SERVICE_NAME": "x"}, ""),
    ],
)
def test_an_endpoint_or_an_exporter_switches_traces_on(variables: dict[str, str], url: str):
    settings = read_settings(variables, "chat").tracing

    assert (settings.export.url if settings is not None else "") == url


@each_row(
    ("variables", "url"),
    [
        (ENDPOINT, "http://otel:4318/v1/metrics"),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, "http://otel:4318/v1/metrics"),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://own/x"}, "http://own/x"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://own/x"}, ""),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "http://localhost:4318/v1/metrics"),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, ""),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_a_gateway_exports_metrics_if_an_endpoint_or_an_exporter_is_set(
    variables: dict[str, str], url: str
):
    settings = read_settings(variables, "serve").metering

    assert (settings.export.url if settings is not None else "") == url
    assert read_settings(variables, "chat").metering is None


def test_each_signal_has_variables_of_its_own_and_both_have_one_resource():
    settings = read_settings(
        {
            **ENDPOINT,
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "a=2",
            "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "500",
            "OTEL_METRIC_EXPORT_INTERVAL": "15000",
        },
        "serve",
    )
    assert settings.tracing is not None
    assert settings.metering is not None
    metrics = settings.metering.export
    assert (metrics.headers, metrics.timeout, metrics.delay) == ({"a": "2"}, 0.5, 15.0)
    assert settings.tracing.export.headers == {"a": "1"}
    assert settings.metering.resource == settings.tracing.resource


def test_the_exporter_and_the_resource_are_read_from_their_variables():
    settings = tracing(
        {
            **ENDPOINT,
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20canary, x-b = 2",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
            "OTEL_BSP_MAX_QUEUE_SIZE": "100",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=a%2Cb",
            "OTEL_SERVICE_NAME": "gateway",
            "OTEL_PROPAGATORS": "tracecontext,baggage",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "64",
        }
    )
    assert settings.export == Export(
        "http://otel:4318/v1/traces",
        {"authorization": "Bearer canary", "x-b": "2"},
        1.5,
        True,
        queue=100,
        batch=100,
        delay=0.01,
    )
    assert "canary" not in repr(settings)
    resource = settings.resource
    assert (resource["service.name"], resource["team"]) == ("gateway", "a,b")
    assert (settings.propagates, settings.max_text) == (True, 64)
    named = tracing(ENDPOINT)
    assert named.resource["service.name"] == "interlock-serve"
    assert named.resource["service.instance.id"] != resource["service.instance.id"]


@each_row(
    ("variable", "value", "problem"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "otel:4317", "is not a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://o:99999", "is not a URL"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://canary:pw@o", "has a user name"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "thrift", "use http/json, http/protobuf or grpc"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "is not gzip or none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "canary", "is not a list such as"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=canary%0d%0ab", "is not a list such as"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "is not a whole number"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/absent.pem", "cannot be read"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "is not a whole number from 1 to 2147483647"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "9" * 5000, "from 1 to 2147483647"),
        ("OTEL_TRACES_SAMPLER", "xray", "is unknown; use always_on"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "is not supported; use otlp"),
        ("OTEL_PROPAGATORS", "b4", "use tracecontext"),
        ("OTEL_METRICS_EXPORTER", "prometheus", "is not supported; use otlp or none"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "is not a whole number"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
            "delta",
            "is not supported; use cumulative",
        ),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x", "is not a list such as"),
    ],
)
def test_an_invalid_variable_is_named_without_a_secret(variable: str, value: str, problem: str):
    with pytest.raises(ConfigError, match=problem) as refused:
        read_settings({**ENDPOINT, variable: value}, "serve")

    assert variable in str(refused.value)
    assert "canary" not in str(refused.value)


@each_row("ratio", ["-0.1", "1.1", "nan", "half"])
def test_a_sampler_needs_a_ratio_from_0_to_1(ratio: str):
    sampler = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": ratio}
    with pytest.raises(ConfigError, match="is not a ratio"):
        read_settings({**ENDPOINT, **sampler}, "serve")
