"""The member `gateway`, and the members of servers that only the gateway needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import config
from interlock.config import Config, Gateway, PythonServer, StdioServer, ToolFilter, gateway_reading
from interlock.config.gateway import (
    Address,
    Approvals,
    Audit,
    ChatLimits,
    ChatPage,
    Issuer,
    KeyLimits,
    Limits,
    Lock,
    Plugins,
    PolicyRules,
    Rate,
    Results,
    Rule,
    ServerLimits,
    View,
)
from interlock.config.servers import HttpServer, ToolOverride, ToolRisk
from interlock.errors import ConfigError
from interlock.schema import condition

WHOLE = b"""{
  "mcpServers": {
    "time":    {"command": "mcp-server-time", "tools": {"risk": {"read": ["*"]}}},
    "crm":     {"command": "crm"},
    "notes":   {"type": "python", "object": "company.notes:server", "timeout": 20},
    "github":  {"url": "https://api.github.example/mcp", "sharing": "per_user", "auth": "oauth",
                "tools": {"deny": ["delete_*"], "risk": {"read": ["get_*"], "write": ["get_x"]},
                          "override": {"search_code": {"description": "Search our code."}}},
                "limits": {"concurrent": 32, "queue": 128, "rate": "50/s"},
                "results": {"max": 32768}, "asks": ["sampling"], "required": true}
  },
  "gateway": {
    "listen": "127.0.0.1:8080", "publicUrl": "https://tools.example.com/mcp",
    "hosts": ["tools.example.com"], "sse": false,
    "database": "postgresql://gateway:canary-d4@db/gateway",
    "views":  {"support": {"servers": ["crm", "time"], "tools": {"deny": ["crm:refund"]},
                           "names": "plain"}},
    "auth":   {"issuers": [{"issuer": "https://id.example.com",
                            "audience": "https://tools.example.com/mcp",
                            "jwksUrl": "https://id.example.com/jwks", "groups": "groups",
                            "scopes": {"leads": ["mcp:*", "admin:approve"]},
                            "clientId": "gateway", "clientSecret": "canary-s3"}]},
    "groups": {"support": ["user:anna", "https://id.example.com#4711"], "leads": ["user:berta"]},
    "policy": {"readOnly": false, "rules": [  // any order
      {"id": "everybody-reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
      {"id": "refunds", "effect": "ask", "who": ["group:support"], "tools": ["crm:refund"],
       "arguments": {"amount": {"exclusiveMinimum": 50}}, "view": "support",
       "claims": {"country": {"const": "de"}},
       "approvers": ["group:leads"], "expires": "15m", "record": "full"}]},
    "limits":  {"perKey": {"rate": "20/s", "burst": 60, "concurrent": 8, "perDay": 20000},
                "tools": {"crm:refund": "5/min"}, "concurrent": 256, "queue": 0},
    "results": {"max": 1024, "keep": "2h", "perUser": 2048},
    "approvals": {"expires": "5m", "wait": 10}, "lock": {"mode": "strict", "file": "lock.json"},
    "audit":   {"mode": "lenient", "reads": "before", "arguments": "none", "keep": "90d",
                "copy": "audit.jsonl"},
    "plugins": {"folder": "plugins", "server": "crm"}, "admin": {"listen": "[::1]:0"},
    "chat":    {"models": ["local"], "limits": {"turns": 1, "messages": "9/h", "turn": "1m"}},
    "instructions": "servers"
  }
}
"""


def gateway(section: dict[str, Any] | None = None, **servers: Any) -> Config:
    servers = servers or {"crm": {"command": "crm"}}
    return config.loads(json.dumps({"mcpServers": servers, "gateway": section or {}}).encode())


# Reading


def test_every_member_of_gateway_is_read():
    assert config.loads(WHOLE).gateway == Gateway(
        listen=Address("127.0.0.1", 8080),
        public_url="https://tools.example.com/mcp",
        hosts=("tools.example.com",),
        sse=False,
        database="postgresql://gateway:canary-d4@db/gateway",
        views={"support": View(servers=("crm", "time"), deny=("crm:refund",), names="plain")},
        issuers=(
            Issuer(
                issuer="https://id.example.com",
                audience=("https://tools.example.com/mcp",),
                jwks_url="https://id.example.com/jwks",
                groups="groups",
                scopes={"leads": ("mcp:*", "admin:approve")},
                client_id="gateway",
                client_secret="canary-s3",
            ),
        ),
        groups={
            "support": ("user:anna", "https://id.example.com#4711"),
            "leads": ("user:berta",),
        },
        policy=PolicyRules(
            rules=(
                Rule(
                    id="everybody-reads",
                    effect="allow",
                    who=("*",),
                    kind="tools",
                    patterns=("*:*",),
                    risk="read",
                ),
                Rule(
                    id="refunds",
                    effect="ask",
                    who=("group:support",),
                    kind="tools",
                    patterns=("crm:refund",),
                    view="support",
                    arguments={"amount": condition.compile({"exclusiveMinimum": 50})},
                    claims={"country": condition.compile({"const": "de"})},
                    approvers=("group:leads",),
                    expires=900.0,
                    record="full",
                ),
            )
        ),
        limits=Limits(
            per_key=KeyLimits(rate=Rate(20, 1), burst=60, concurrent=8, per_day=20_000),
            tools={"crm:refund": Rate(5, 60)},
            concurrent=256,
            queue=0,
        ),
        results=Results(max=1024, keep=7_200.0, per_user=2048),
        approvals=Approvals(expires=300.0, wait=10.0),
        lock=Lock(mode="strict", file="lock.json"),
        audit=Audit(
            mode="lenient",
            reads="before",
            arguments="none",
            keep=90 * 86_400.0,
            copy="audit.jsonl",
        ),
        plugins=Plugins(folder="plugins", server="crm"),
        admin=Address("::1", 0),
        chat=ChatPage(
            models=("local",), limits=ChatLimits(turns=1, messages=Rate(9, 3_600), turn=60.0)
        ),
        instructions="servers",
    )
    assert config.loads(WHOLE).warnings == ()


def test_gateway_members_of_servers_are_read():
    loaded = config.loads(WHOLE)

    github = loaded.servers["github"]
    assert github.tools.risk == ToolRisk(read=("get_*",), write=("get_x",))
    assert github.tools.override == {"search_code": ToolOverride("Search our code.")}
    assert github.limits == ServerLimits(concurrent=32, queue=128, rate=Rate(50, 1))
    assert (github.max_result_bytes, github.asks, github.required) == (32768, ("sampling",), True)
    assert list(loaded.servers) == ["time", "crm", "github"]
    assert loaded.python == {"notes": PythonServer(object="company.notes:server", timeout=20.0)}


def test_empty_gateway_member_has_the_defaults():
    defaults = gateway().gateway

    assert defaults == Gateway()
    assert defaults.policy is None
    assert (defaults.limits.concurrent, defaults.limits.queue) == (512, 1024)
    assert defaults.limits.per_key == KeyLimits(rate=None, burst=None, concurrent=16, per_day=None)
    assert (defaults.results.max, defaults.audit.mode, defaults.lock.mode) == (
        65_536,
        "strict",
        "first",
    )


def test_file_without_gateway_member_has_no_gateway():
    assert config.loads(b'{"mcpServers": {}}').gateway is None


def test_empty_rules_are_kept_as_a_policy():
    assert gateway({"policy": {"rules": []}}).gateway.policy == PolicyRules()


@pytest.mark.parametrize(
    ("text", "rate"),
    [("20/s", (20, 1)), ("600/min", (600, 60)), ("9/h", (9, 3_600)), ("1/day", (1, 86_400))],
)
def test_rate_is_parsed_with_its_unit(text: str, rate: tuple[int, int]):
    limits = gateway({"limits": {"perKey": {"rate": text}}}).gateway.limits

    assert limits.per_key.rate == Rate(*rate)
    assert str(limits.per_key.rate) == text


@pytest.mark.parametrize(
    ("tool", "risk"),
    [("get_a", "read"), ("get_x", "write"), ("delete", None), ("Get_a", None)],
)
def test_tool_risk_is_what_the_operator_states(tool: str, risk: str | None):
    assert ToolRisk(read=("get_*",), write=("get_x",)).of(tool) == risk


@pytest.mark.parametrize(
    ("asks", "read"),
    [("auto", ("elicitation", "roots")), ("never", ()), (["roots"], ("roots",)), ([], ())],
)
def test_asks_accepts_a_word_or_a_list(asks: Any, read: tuple[str, ...]):
    assert gateway(crm={"command": "crm", "asks": asks}).servers["crm"].asks == read


# Warnings


@pytest.mark.parametrize(
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


# Wrong files


def rule(**members: Any) -> dict[str, Any]:
    """A rule with other members; None leaves one out."""
    whole = {"id": "r", "effect": "allow", "who": ["*"], "tools": ["*:*"]} | members
    return {
        "policy": {
            "rules": [{key: value for key, value in whole.items() if value is not None}],
        }
    }


def argument(**keywords: Any) -> dict[str, Any]:
    return rule(arguments={"path": keywords})


def issuer(**members: Any) -> dict[str, Any]:
    whole = {
        "issuer": "https://id.example",
        "audience": "https://tools.example",
        "jwksUrl": "https://id.example/keys",
    } | members
    issuer = {key: value for key, value in whole.items() if value is not None}
    return {"auth": {"issuers": [issuer]}}


RULE = "policy.rules[0]"
ISSUER = "auth.issuers[0]"
WRONG: list[tuple[Any, str, str]] = [
    ([], "", "must be an object, not a list"),
    ({"listen": 8080}, "listen", "must be a string, not a number: put it in quotes"),
    ({"listen": "8080"}, "listen", 'must be "HOST:PORT"'),
    ({"listen": "localhost:99999"}, "listen", 'must be "HOST:PORT"'),
    ({"listen": "::1:8080"}, "listen", 'must be "HOST:PORT"'),
    ({"publicUrl": "tools.example"}, "publicUrl", "must be a URL with a valid host and port"),
    ({"publicUrl": "ftp://a.example"}, "publicUrl", "must start with https:// or http://"),
    ({"publicUrl": "https://a.example/?q=1"}, "publicUrl", "must not have a user, a query"),
    ({"publicUrl": "https://u:p@a.example"}, "publicUrl", "must not have a user, a query"),
    ({"hosts": "tools.example"}, "hosts", "must be a list of strings, not a string"),
    ({"hosts": ["https://tools.example"]}, "hosts[0]", "must be a host name"),
    ({"sse": "yes"}, "sse", "must be true or false, not a string"),
    ({"database": " "}, "database", "must not be empty"),
    ({"instructions": 5}, "instructions", "must be a string"),
    ({"views": {"a/b": {}}}, "views['a/b']", "is not a valid name of a view"),
    ({"views": {"sse": {}}}, "views.sse", "is not a valid name of a view"),
    ({"views": {"v": {"server": []}}}, "views.v.server", "is unknown (did you mean 'servers'?)"),
    ({"views": {"v": {"servers": ["crn"]}}}, "views.v.servers[0]", "is not a server of this file"),
    ({"views": {"v": {"tools": {"deny": ["refund"]}}}}, "views.v.tools.deny[0]", 'be "SERVER:NAME'),
    ({"views": {"v": {"tools": {"denny": []}}}}, "views.v.tools.denny", "is unknown"),
    ({"views": {"v": {"names": "short"}}}, "views.v.names", "must be one of wire, plain"),
    (issuer(issuer=None), ISSUER, 'needs "issuer"'),
    (issuer(audience=None), ISSUER, 'needs "audience"'),
    (issuer(jwksUrl=None), ISSUER, 'needs "jwksUrl"'),
    (issuer(issuer="http://id.example"), f"{ISSUER}.issuer", "must be https://, or http://"),
    (issuer(jwksUrl="http://id.example"), f"{ISSUER}.jwksUrl", "must be https://, or http://"),
    (issuer(audience=[]), f"{ISSUER}.audience", "must not be empty"),
    (issuer(audience=[""]), f"{ISSUER}.audience", "must not be empty"),
    (issuer(clientSecret="canary"), f"{ISSUER}.clientSecret", 'needs a "clientId" beside it'),
    (issuer(scopes={"a": ["mcp:crm"]}), f"{ISSUER}.scopes.a[0]", 'must be "mcp:*", "mcp:read"'),
    (issuer(scopes={"a": ["admin:*"]}), f"{ISSUER}.scopes.a[0]", 'must be "mcp:*", "mcp:read"'),
    ({"auth": {"issuers": {}}}, "auth.issuers", "must be a list of objects, not an object"),
    ({"auth": {"issuers": ["x"]}}, "auth.issuers[0]", "must be an object, not a string"),
    ({"groups": {"a": ["anna"]}}, "groups.a[0]", 'must be "user:NAME" or "ISSUER#SUBJECT"'),
    ({"groups": {"a": ["group:b"]}}, "groups.a[0]", 'must be "user:NAME" or "ISSUER#SUBJECT"'),
    ({"groups": {"a": ["user:*"]}}, "groups.a[0]", 'must be "user:NAME" or "ISSUER#SUBJECT"'),
    ({"groups": {"a": "user:anna"}}, "groups.a", "must be a list of strings"),
    ({"policy": None}, "policy", "must be an object, not null"),
    ({"policy": {"readonly": True}}, "policy.readonly", "is unknown (did you mean 'readOnly'?)"),
    ({"policy": {"readOnly": 1}}, "policy.readOnly", "must be true or false"),
    (rule(id=None), RULE, 'needs "id"'),
    (rule(effect=None), RULE, 'needs "effect"'),
    (rule(who=None), RULE, 'needs "who"'),
    (rule(tools=None), RULE, "needs one of tools, resources, prompts"),
    (rule(prompts=["*:*"]), RULE, "needs one of tools, resources, prompts"),
    (rule(argument={}), f"{RULE}.argument", "is unknown (did you mean 'arguments'?)"),
    (rule(id="a b"), f"{RULE}.id", "must be 1 to 64 of A-Z"),
    (rule(effect="permit"), f"{RULE}.effect", "must be one of allow, ask, deny"),
    (rule(who=[]), f"{RULE}.who", "must not be empty"),
    (rule(who=["anna"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["user:*"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["group:"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["caller"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(tools=[]), f"{RULE}.tools", "must not be empty"),
    (rule(tools=["*"]), f"{RULE}.tools[0]", 'must be "SERVER:NAME"'),
    (rule(tools=["crm:"]), f"{RULE}.tools[0]", 'must be "SERVER:NAME"'),
    (rule(risk="low"), f"{RULE}.risk", "must be one of read, write"),
    (rule(tools=None, prompts=["*:*"], risk="read"), f"{RULE}.risk", "is for tools only"),
    (
        rule(tools=None, resources=["*:*"], arguments={}),
        f"{RULE}.arguments",
        "is for tools and prompts only",
    ),
    (rule(view="support"), f"{RULE}.view", "is not a view of this file"),
    (rule(approvers=["*"]), f"{RULE}.approvers", 'is for a rule with "effect": "ask" only'),
    (rule(expires=60), f"{RULE}.expires", 'is for a rule with "effect": "ask" only'),
    (rule(effect="ask", approvers=["me"]), f"{RULE}.approvers[0]", 'one of "*", "caller"'),
    (rule(effect="ask", expires="soon"), f"{RULE}.expires", "must be a number of seconds, or"),
    (rule(record="all"), f"{RULE}.record", "must be one of hash, full, none"),
    (rule(arguments={"path": "/srv"}), f"{RULE}.arguments.path", "must be an object of JSON Sch"),
    (argument(maximun=3), f"{RULE}.arguments.path", "unknown keyword 'maximun' (did you mean 'max"),
    (argument(maximum="3"), f"{RULE}.arguments.path", "maximum: has another type than"),
    (argument(pattern="(a"), f"{RULE}.arguments.path", "pattern: is not a regular expression"),
    (argument(pattern="(?=a)b"), f"{RULE}.arguments.path", "pattern: is not a regular expression"),
    (argument(**{"$ref": "#"}), f"{RULE}.arguments.path", "unknown keyword '$ref'"),
    (argument(under="data"), f"{RULE}.arguments.path", "under: must be an absolute path"),
    (argument(under="/a/../b"), f"{RULE}.arguments.path", "under: must be an absolute path"),
    (argument(absent="yes"), f"{RULE}.arguments.path", "absent: must be true or false"),
    (argument(maximum=3, pattern="a"), f"{RULE}.arguments.path", "has keywords of different types"),
    (argument(items={"min": 3}), f"{RULE}.arguments.path", "items: unknown keyword 'min'"),
    (rule(claims={"team": []}), f"{RULE}.claims.team", "must be an object of JSON Schema"),
    ({"limits": {"perKey": {"rate": 20}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"rate": "0/s"}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"rate": "20/sec"}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"burst": 5}}}, "limits.perKey.burst", 'needs a "rate" beside it'),
    ({"limits": {"concurrent": 0}}, "limits.concurrent", "must be between 1 and 1,000,000,000"),
    ({"limits": {"queue": -1}}, "limits.queue", "must be between 0 and 1,000,000,000"),
    ({"limits": {"tools": {"refund": "1/s"}}}, "limits.tools.refund", 'must be "SERVER:NAME"'),
    ({"limits": {"tools": {"crm:x": 5}}}, "limits.tools['crm:x']", "must be a rate such as"),
    ({"results": {"max": "64k"}}, "results.max", "must be a whole number"),
    ({"results": {"keep": "1y"}}, "results.keep", "must be a number of seconds, or text"),
    ({"approvals": {"wait": 601}}, "approvals.wait", "must be more than 0 and at most 600"),
    ({"approvals": {"wait": False}}, "approvals.wait", "must be a number of seconds, or text"),
    ({"lock": {"mode": "last"}}, "lock.mode", "must be one of first, strict, off"),
    ({"lock": {"mode": "strict"}}, "lock.mode", 'needs a "file"'),
    ({"audit": {"mode": "none"}}, "audit.mode", "must be one of strict, lenient, off"),
    ({"audit": {"keep": 0}}, "audit.keep", "must be more than 0 and at most"),
    ({"plugins": {"folder": "plugins"}}, "plugins", 'needs "server"'),
    ({"plugins": {"folder": "p", "server": "crn"}}, "plugins.server", "is not a server of this"),
    ({"admin": {"listen": "public"}}, "admin.listen", 'must be "HOST:PORT"'),
    ({"chat": {}}, "chat", 'needs "models"'),
    ({"chat": {"models": []}}, "chat.models", "must name at least one model"),
    ({"chat": {"models": ["m"], "engine": "x"}}, "chat.engine", "must be one of agent, graph"),
]


@pytest.mark.parametrize(("section", "place", "problem"), WRONG)
def test_invalid_gateway_member_is_refused_with_line_and_place(
    section: Any, place: str, problem: str
):
    text = json.dumps({"mcpServers": {"crm": {"command": "crm"}}, "gateway": section}, indent=1)
    with pytest.raises(ConfigError) as caught:
        config.loads(text.encode(), Path("gateway.json"))

    found = re.fullmatch(r"gateway\.json, line (\d+): (\S+) (.*)", str(caught.value))
    assert found, str(caught.value)
    assert found[2] == f"gateway.{place}".removesuffix(".")
    assert problem in found[3]
    member = re.findall(r"[^\]\[.']+", found[2])[-1]
    line = text.splitlines()[int(found[1]) - 1]
    assert member.isdigit() or f'"{member}"' in line


@pytest.mark.parametrize(
    "section",
    [
        {"groups": {"": []}},
        {"groups": {"a\u202e": []}},
        rule(arguments={"\ud800": {}}),
        rule(claims={"a\n": {}}),
    ],
)
def test_a_name_with_control_characters_is_refused(section: dict[str, Any]):
    with pytest.raises(ConfigError, match="must be a name without control characters"):
        gateway(section)


@pytest.mark.parametrize(
    ("entry", "place", "problem"),
    [
        ({"tools": {"risk": []}}, ".tools.risk", "must be an object, not a list"),
        ({"tools": {"risk": {"read": "*"}}}, ".tools.risk.read", "must be a list of strings"),
        ({"tools": {"override": {"a": {}}}}, ".tools.override.a", 'needs "description"'),
        ({"limits": {"rate": "5"}}, ".limits.rate", "must be a rate such as"),
        ({"limits": {"concurrent": True}}, ".limits.concurrent", "must be a whole number"),
        ({"results": {"max": 0}}, ".results.max", "must be between 1 and"),
        ({"asks": "always"}, ".asks", 'must be "auto", "never" or a list'),
        ({"asks": ["files"]}, ".asks[0]", "must be one of elicitation, sampling, roots"),
        ({"required": 1}, ".required", "must be true or false"),
        ({"env": {"A": "${user:KEY}"}}, ".env.A", "but all users share this server"),
        ({"args": ["${user:KEY}"], "sharing": "per_user"}, ".args[0]", "which only env, headers"),
        ({"type": "python"}, "", 'needs "object"'),
        ({"type": "python", "object": "notes"}, ".object", 'must be "package.module:name"'),
    ],
)
def test_invalid_server_is_refused_with_line_and_place(
    entry: dict[str, Any], place: str, problem: str
):
    with pytest.raises(ConfigError) as caught:
        gateway(crm={"command": "crm"} | entry)

    assert f"line 1: mcpServers.crm{place} " in str(caught.value)
    assert problem in str(caught.value)


def test_a_python_server_has_no_command():
    with pytest.raises(ConfigError, match="must be one of python"):
        gateway(notes={"type": "stdio", "object": "notes:server"})


@pytest.mark.parametrize("sharing", ["per_user", "per_session", "per_call"])
def test_user_credential_is_accepted_unless_users_share_the_server(sharing: str):
    loaded = gateway(
        a={"command": "a", "env": {"KEY": "${user:KEY}"}, "sharing": sharing},
        b={"url": "https://b.example", "headers": {"X-Key": "${user:KEY}"}, "sharing": sharing},
    )

    assert loaded.servers["a"] == StdioServer(
        command="a", env={"KEY": "${user:KEY}"}, sharing=sharing
    )
    with pytest.raises(ConfigError, match="a credential of the calling user, which only"):
        config.resolve(loaded.servers["b"], {})


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
    resolved = gateway_reading.resolve(gateway(section).gateway, {"SECRET": "s", "PRICE": "1"})

    assert resolved.database == "gateway.db"
    assert resolved.issuers[0].client_secret == "s"
    assert resolved.instructions == "Costs ${PRICE}."
    with pytest.raises(ConfigError, match=r"gateway\.auth\.issuers\[0\]\.clientSecret uses"):
        gateway_reading.resolve(gateway(section).gateway, {})


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
    assert "notes" not in config.load(path).python
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
