"""The receiver of messages about waiting calls: its URL, its secret, and its form."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from interlock.config.gateway_reading import resolve
from interlock.errors import ConfigError
from tests.config.support import gateway
from tests.support.rows import each_row

SECRET = "whsec_" + b64encode(bytes(32)).decode()
SLACK = "https://hooks.slack.com/services/T0/B0/canary"
WORKFLOW = "https://prod-1.westeurope.logic.azure.com:443/workflows/x/triggers/manual/paths/invoke"
ENVIRON = {"HOOK": SLACK, "SECRET": SECRET, "PLAIN": "http://canary.example/", "SHORT": "canary"}


@each_row(
    "written, form",
    [
        ({"url": "https://ops.example/hook?x=1", "secret": SECRET}, "standard"),
        ({"url": "http://127.0.0.1:9/", "secret": SECRET.removeprefix("whsec_")}, "standard"),
        (SLACK, "slack"),
        ({"url": "${HOOK}", "secret": "${SECRET}"}, "slack"),
        (f"{WORKFLOW}?sig=x", "teams"),
        ("https://o.webhook.office.com/webhookb2/x", "teams"),
        ({"url": "https://chat.example/hooks/x", "format": "slack"}, "slack"),
    ],
)
def test_form_of_messages_follows_from_the_host_unless_it_is_stated(written: Any, form: str):
    notify = resolve(gateway({"notify": written}), ENVIRON).notify

    assert notify is not None
    assert notify.format == form
    assert "canary" not in repr(notify)


@each_row(
    "written, problem",
    [
        ("https://ops.example/canary", 'needs a "secret" beside "url"'),
        ({"secret": SECRET}, 'needs "url"'),
        ({"url": "http://canary.example/", "secret": SECRET}, "must be https://"),
        ({"url": "ftp://canary.example/", "secret": SECRET}, "must be a URL with a valid host"),
        ({"url": "https://u:canary@ops.example/", "secret": SECRET}, "must not contain a user"),
        ({"url": "https://ops.example/", "secret": "canary"}, "24 to 64 random bytes"),
        ({"url": "https://ops.example/", "secret": "whsec_canary!"}, "24 to 64 random bytes"),
        ({"url": SLACK, "format": "discord"}, "format"),
        ({"url": "${PLAIN}", "secret": SECRET}, "gateway.notify must be https://"),
        ({"url": "https://ops.example/", "secret": "${SHORT}"}, "24 to 64 random bytes"),
        ({"url": "${MISSING}", "secret": SECRET}, "gateway.notify.url uses"),
        (7, "must be an object"),
    ],
)
def test_receiver_that_cannot_be_used_is_refused_without_its_secrets(written: Any, problem: str):
    with pytest.raises(ConfigError) as caught:
        resolve(gateway({"notify": written}), ENVIRON)

    assert problem in str(caught.value)
    assert "canary" not in str(caught.value)
