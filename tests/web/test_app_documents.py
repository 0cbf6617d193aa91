"""What servers declare about their apps."""

from __future__ import annotations

from typing import Any

from interlock.types import ReadResourceResult, ResourceContents
from interlock.web.app_documents import MIME, AppDocument, app_policy
from tests.support.rows import each_row


def rules(declared: Any) -> dict[str, str]:
    parts = app_policy(declared).decode().split("; ")
    return {name: rest for name, _, rest in (each.partition(" ") for each in parts)}


def test_app_without_declaration_connects_to_nothing():
    found = rules(None)

    assert found["default-src"] == found["connect-src"] == found["frame-src"] == "'none'"
    assert found["form-action"] == found["base-uri"] == "'none'"
    assert found["sandbox"] == "allow-scripts allow-forms"
    assert found["script-src"] == "'unsafe-inline'"


def test_declared_public_hosts_are_allowed_for_the_declared_purpose_only():
    found = rules(
        {
            "connectDomains": ["https://api.example.com", "wss://live.example.com:8443"],
            "resourceDomains": ["https://*.cdn.example.com/"],
        }
    )

    assert found["connect-src"] == "https://api.example.com wss://live.example.com:8443"
    assert found["img-src"] == "data: blob: https://*.cdn.example.com"
    assert "api" not in found["script-src"]


@each_row(
    "host",
    [
        "http://api.example.com",
        "https://127.0.0.1:8080",
        "https://2130706433",
        "https://127.1",
        "https://[::1]",
        "https://localhost",
        "https://app.localhost",
        "https://db.internal",
        "https://printer.local",
        "https://*",
        "*",
        "'unsafe-eval'",
        "data:",
        "https://a.example; script-src *",
        "https://a.example\nx: y",
        "https://a.example 'self'",
        "https://a.example/path",
        "https://user@a.example",
        7,
        None,
    ],
)
def test_host_that_is_not_public_or_would_change_the_policy_is_left_out(host: Any):
    declared = {"connectDomains": [host], "resourceDomains": [host], "frameDomains": [host]}
    assert app_policy(declared) == app_policy(None)


def document(uri: str, meta: Any, listed: Any) -> AppDocument:
    content = ResourceContents(uri, mime_type=MIME, text="<p>app", meta=meta)
    result = ReadResourceResult(contents=[content])
    return AppDocument.of(result, uri, [{"uri": uri, "_meta": listed}, {"uri": "ui://other"}])


def test_metadata_of_a_document_overrides_metadata_in_the_list():
    bare = {"ui": {"prefersBorder": False}}

    assert document("ui://a", None, bare).has_border is False
    assert document("ui://a", {"ui": {}}, bare).has_border is True
    assert document("ui://a", None, {"ui": "no object"}).has_border is True
