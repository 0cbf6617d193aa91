"""Traces and metrics by OpenTelemetry: spans, their sampling, and the export by OTLP over HTTP.

It needs no package of OpenTelemetry. The commands switch it on; see `running`.
"""
