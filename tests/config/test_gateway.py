"""The member `gateway`, and the members of servers that only the gateway needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import config
from interlock.config import StdioServer, ToolFilter, gateway_reading
from interlock.config.gateway import Rate, ServerLimits
from interlock.config.servers import HttpServer, ToolOverride, ToolRisk
from interlock.errors import ConfigError
from tests.config.support import WHOLE, gateway, issuer, rule
from tests.support.rows import each_row

# Warnings


@each_row(
    ("section", "warning"),
    [
        ({"listn": ""}, "gateway.listn is unknown and ignored (did you mean 'listen'?)"),
        ({"audit": {"moed": "off"}}, "gateway.audit.moed is unknown and ignored (did you mean"),
        ({"limits": {"perkey": {}}}, "gateway.limits.perkey is unknown and ignored (did you mean"),
        ({"auth": {"issuer": []}}, "gateway.auth.issuer is unknown and ignored"),
        ({"admin": {"lisen": ""}}, "gateway.admin.lisen is unknown and ignored"),
        (
            {"limits": {"tools": {"crn:refund": "5/s"}}},
            "['crn:refund'] names a server that this file lacks (did you mean 'crm'?)",
        ),
        (
            {
                "groups": {"leads": []},
                "policy": {
                    "rules": [
                        {"id": "a", "effect": "deny", "who": ["group:lead"], "tools": ["*:*"]}
                    ]
                },
            },
            'gateway.policy.rules[0].who[0] names a group that "groups" lacks (did you mean \'lea',
        ),
    ],
)
def test_unknown_member_server_or_group_causes_a_warning(section: dict[str, Any], warning: str):
    (line,) = gateway(section).warnings

    assert line.startswith("configuration, line 1: ")
    assert warning in line


def test_unknown_group_causes_no_warning_if_an_issuer_has_a_groups_claim():
    issuer = {
        "issuer": "https://id.example",
        "audience": "a",
        "jwksUrl": "https://id.example/keys",
        "groups": "roles",
    }
    rule = {"id": "a", "effect": "deny", "who": ["group:lead"], "tools": ["*:*"]}

    loaded = gateway({"auth": {"issuers": [issuer]}, "policy": {"rules": [rule]}})

    assert loaded.warnings == ()


def issuer_at(host: str, **members: str) -> dict[str, str]:
    url = f"https://{host}.example"
    return {"issuer": url, "audience": "a", "jwksUrl": f"{url}/keys", "groups": "roles", **members}


def test_a_group_that_two_issuers_can_give_needs_the_name_of_one():
    corp, lab = issuer_at("corp", name="corp"), issuer_at("lab", name="lab")

    def load(*issuers: object, who: str = "group:corp/lead") -> object:
        rule = {"id": "a", "effect": "deny", "who": [who], "tools": ["*:*"]}
        section = {"auth": {"issuers": issuers}, "groups": {"own": ["user:anna"]}}
        return gateway({**section, "policy": {"rules": [rule]}})

    load(corp, lab)
    load(corp, lab, who="group:own")
    load(issuer_at("corp"), who="group:lead")
    with pytest.raises(ConfigError, match='can give; write "group:corp/lead" or "group:lab/lead"'):
        load(corp, lab, who="group:lead")
    with pytest.raises(ConfigError, match='give each a "name"'):
        load(corp, issuer_at("lab"))
    with pytest.raises(ConfigError, match="is the name of another issuer"):
        load(corp, issuer_at("lab", name="corp"))


# Wrong files


# Secrets


def test_no_credential_appears_in_a_repr():
    loaded = config.loads(WHOLE)

    assert "canary" not in repr(loaded)
    assert "canary" not in str(loaded.gateway.issuers)


def test_no_credential_appears_in_an_error():
    sections = (
        issuer(clientSecret="canary-1"),
        issuer(clientId="a", clientSecret=["canary-2"]),
        {"database": ["canary-3"]},
        {"database": "mysql://canary-7@db/gateway"},
        {"publicUrl": "https://user:canary-4@a.example"},
        rule(arguments={"key": {"pattern": "canary-5("}}),
        rule(arguments={"key": {"minimum": "canary-6"}}),
    )
    for section in sections:
        with pytest.raises(ConfigError) as caught:
            gateway(section)
        assert "canary" not in str(caught.value)


def test_variables_are_replaced_in_the_database_and_in_secrets_only():
    section = issuer(clientId="a", clientSecret="${SECRET}") | {
        "database": "${DATABASE:-gateway.db}",
        "instructions": "Costs ${PRICE}.",
    }
    resolved = gateway_reading.resolve(gateway(section), {"SECRET": "s", "PRICE": "1"})

    assert resolved.database == "gateway.db"
    assert resolved.issuers[0].client_secret == "s"
    assert resolved.instructions == "Costs ${PRICE}."
    with pytest.raises(ConfigError, match=r"gateway\.auth\.issuers\[0\]\.clientSecret uses"):
        gateway_reading.resolve(gateway(section), {})


@each_row(
    ("written", "found"),
    [
        ("gateway.db", "/etc/tools/gateway.db"),
        ("../data/gateway.db", "/etc/tools/../data/gateway.db"),
        ("/srv/gateway.db", "/srv/gateway.db"),
        ("postgresql://db/gateway", "postgresql://db/gateway"),
    ],
)
def test_relative_paths_begin_at_the_folder_of_the_file(written: str, found: str):
    loaded = msgspec.structs.replace(
        gateway({"database": written, "audit": {"copy": written}}), path=Path("/etc/tools/mcp.json")
    )
    settings = gateway_reading.resolve(loaded, {})

    assert (settings.database, settings.audit.copy) == (found, found)


# Editing


def test_added_server_with_gateway_members_is_read_back_equal(tmp_path: Path):
    path = tmp_path / "mcp.json"
    path.write_bytes(WHOLE)
    added = HttpServer(
        url="https://b.example",
        tools=ToolFilter(risk=ToolRisk(read=("get_*",)), override={"a": ToolOverride("A tool.")}),
        limits=ServerLimits(queue=0, rate=Rate(5, 60)),
        max_result_bytes=100,
        asks=(),
        required=True,
    )

    config.add_server(path, "added", added)

    assert config.load(path).servers["added"] == added
    config.remove_server(path, "added")
    config.remove_server(path, "notes")
    assert "notes" not in config.load(path).servers
    assert config.load(path).gateway == config.loads(WHOLE).gateway


def test_added_server_with_the_name_of_a_python_server_is_refused(tmp_path: Path):
    path = tmp_path / "mcp.json"
    path.write_bytes(WHOLE)

    with pytest.raises(ConfigError, match="already has a server 'notes'"):
        config.add_server(path, "notes", StdioServer(command="a"))


def test_structs_are_frozen():
    with pytest.raises(AttributeError):
        config.loads(WHOLE).gateway.sse = True
    assert msgspec.structs.replace(config.loads(WHOLE).gateway, sse=True).sse
