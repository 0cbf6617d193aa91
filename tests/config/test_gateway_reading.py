"""Reading the "gateway" member: values, and errors with line and place."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import config
from interlock.config import GatewaySettings, PythonServer
from interlock.config.gateway import (
    Address,
    ApprovalSettings,
    Audit,
    ByteQuota,
    ChatLimits,
    ChatPage,
    ChatQuotas,
    Drain,
    Issuer,
    Keep,
    KeyLimits,
    Limits,
    Lock,
    PluginSettings,
    PolicyRules,
    Rate,
    Results,
    Rule,
    ServerLimits,
    View,
    ViewSearch,
)
from interlock.config.servers import ToolOverride, ToolRisk
from interlock.errors import ConfigError
from interlock.schema import condition
from tests.config.support import WHOLE, check_refusal, gateway, issuer, rule
from tests.support.rows import each_row

# Reading


@each_row(
    "given, expected",
    [
        ("off", ViewSearch()),
        ("on", ViewSearch(is_on=True)),
        ({}, ViewSearch(is_on=True)),
        ({"mode": "off"}, ViewSearch()),
        (
            {"always": ["crm:find_*"], "calls": ["read"]},
            ViewSearch(is_on=True, always=("crm:find_*",), calls=("read",)),
        ),
        ({"calls": ["write", "read"]}, ViewSearch(is_on=True)),
    ],
)
def test_tool_search_is_a_word_or_an_object(given: Any, expected: ViewSearch):
    found = gateway({"toolSearch": given, "views": {"v": {"toolSearch": given}}}).gateway
    assert found is not None
    assert found.search == found.views["v"].search == expected


def test_every_member_of_gateway_is_read():
    assert config.loads(WHOLE).gateway == GatewaySettings(
        listen=Address("127.0.0.1", 8080),
        public_url="https://tools.example.com/mcp",
        hosts=("tools.example.com",),
        proxies=("10.0.0.0/8", "::1"),
        cors=("https://app.example.com", "*"),
        headers=("x-tenant",),
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
        results=Results(
            max=1024,
            tools={"crm:list_*": 4096},
            views={"support": 512},
            per_user=2048,
            total=4096,
        ),
        approvals=ApprovalSettings(expires=300.0, wait=10.0),
        drain=Drain(delay=5.0, calls=10.0),
        keep=Keep(
            audit=90 * 86_400.0,
            approvals=7 * 86_400.0,
            conversations=365 * 86_400.0,
            files=86_400.0,
            results=7_200.0,
            sessions=12 * 3_600.0,
        ),
        lock=Lock(mode="strict", file="lock.json"),
        audit=Audit(
            mode="lenient",
            reads="before",
            arguments="none",
            copy="audit.jsonl",
        ),
        plugins=PluginSettings(folder="plugins", server="crm"),
        admin=Address("::1", 0),
        chat=ChatPage(
            models=("local",),
            limits=ChatLimits(turns=1, messages=Rate(9, 3_600), turn=60.0),
            quotas=ChatQuotas(
                conversations=ByteQuota(per_user=5, total=6),
                files=ByteQuota(per_user=ChatQuotas().files.per_user, total=7),
            ),
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
    assert list(loaded.servers) == ["time", "crm", "notes", "github"]
    assert loaded.servers["notes"] == PythonServer(object="company.notes:server", timeout=20.0)


def test_empty_gateway_member_has_the_defaults():
    defaults = gateway().gateway

    assert defaults == GatewaySettings()
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


@each_row(
    ("tool", "risk"),
    [("get_a", "read"), ("get_x", "write"), ("delete", None), ("Get_a", None)],
)
def test_tool_risk_is_read_from_the_configuration(tool: str, risk: str | None):
    assert ToolRisk(read=("get_*",), write=("get_x",)).of(tool) == risk


@each_row(
    ("asks", "read"),
    [("auto", ("elicitation", "roots")), ("never", ()), (["roots"], ("roots",)), ([], ())],
)
def test_asks_accepts_a_word_or_a_list(asks: Any, read: tuple[str, ...]):
    assert gateway(crm={"command": "crm", "asks": asks}).servers["crm"].asks == read


ISSUER = "auth.issuers[0]"
OAUTH: dict[str, Any] = {"auth": {"oauth": {}}}


WRONG: list[tuple[Any, str, str]] = [
    ([], "", "must be an object, not a list"),
    ({"rules": []}, "rules", 'belongs into "policy": {"rules": …}'),
    ({"readOnly": True}, "readOnly", 'belongs into "policy": {"readOnly": …}'),
    ({"listen": 8080}, "listen", "must be a string, not a number: put it in quotes"),
    ({"listen": "8080"}, "listen", 'must be "HOST:PORT"'),
    ({"listen": "localhost:99999"}, "listen", 'must be "HOST:PORT"'),
    ({"listen": "::1:8080"}, "listen", 'must be "HOST:PORT"'),
    ({"publicUrl": "tools.example"}, "publicUrl", "must be a URL with a valid host, such as"),
    ({"publicUrl": "ftp://a.example"}, "publicUrl", "must start with https:// or http://"),
    ({"publicUrl": "https://a.example/?q=1"}, "publicUrl", "must not contain a user name, a query"),
    ({"publicUrl": "https://u:p@a.example"}, "publicUrl", "must not contain a user name, a query"),
    ({"hosts": "tools.example"}, "hosts", "must be a list of strings, not a string"),
    ({"hosts": ["https://tools.example"]}, "hosts[0]", "must be a host name"),
    ({"proxies": ["*"]}, "proxies[0]", "must be an address or a network, such as 10.0.0.0/8"),
    ({"proxies": ["nginx"]}, "proxies[0]", "must be an address or a network"),
    ({"proxies": ["10.1.0.0/8"]}, "proxies[0]", "write 10.1.0.0 or 10.0.0.0/8"),
    ({"cors": ["app.example.com"]}, "cors[0]", 'must be an origin such as "https://app.example'),
    ({"cors": ["https://app.example.com/a"]}, "cors[0]", "must be an origin such as"),
    ({"headers": ["X Tenant"]}, "headers[0]", "must be a header's name"),
    ({"headers": ["Authorization"]}, "headers[0]", "is the caller's credential for this gateway"),
    ({"headers": ["x-api-key"]}, "headers[0]", "is the caller's credential for this gateway"),
    ({"sse": "yes"}, "sse", "must be true or false, not a string"),
    ({"publicUrl": "http://a.example"}, "publicUrl", "must be https://, or http:// on loopback"),
    ({"database": " "}, "database", "must not be empty"),
    ({"database": "mysql://u:p@h/d"}, "database", "must be the path of a SQLite file, or a"),
    ({"instructions": 5}, "instructions", "must be a string"),
    ({"views": {"a/b": {}}}, "views['a/b']", "is not a valid name of a view"),
    ({"views": {"sse": {}}}, "views.sse", "is not a valid name of a view"),
    ({"views": {"v": {"server": []}}}, "views.v.server", "is unknown (did you mean 'servers'?)"),
    ({"views": {"v": {"servers": ["crn"]}}}, "views.v.servers[0]", "is not a server of this file"),
    ({"views": {"v": {"tools": {"deny": ["refund"]}}}}, "views.v.tools.deny[0]", 'be "SERVER:NAME'),
    ({"views": {"v": {"tools": {"denny": []}}}}, "views.v.tools.denny", "is unknown"),
    ({"views": {"v": {"names": "short"}}}, "views.v.names", "must be one of wire, plain"),
    ({"toolSearch": "auto"}, "toolSearch", "must be one of off, on"),
    ({"views": {"v": {"toolSearch": True}}}, "views.v.toolSearch", "must be one of off, on"),
    ({"toolSearch": {"call": ["read"]}}, "toolSearch.call", "is unknown (did you mean 'calls'?)"),
    (
        {"toolSearch": {"calls": ["reed"]}},
        "toolSearch.calls",
        'must be ["read"], ["write"] or both',
    ),
    ({"toolSearch": {"calls": []}}, "toolSearch.calls", 'must be ["read"], ["write"] or both'),
    ({"toolSearch": {"always": ["find"]}}, "toolSearch.always[0]", 'must be "SERVER:NAME"'),
    (issuer(issuer=None), ISSUER, 'needs "issuer"'),
    (issuer(accepts=["saml"]), f"{ISSUER}.accepts[0]", "must be one of id-jag, workload"),
    (issuer(people={"hd": {"minimum": "x"}}), f"{ISSUER}.people.hd", ""),
    (OAUTH | {"listen": "0.0.0.0:80"}, "auth.oauth", "needs gateway.publicUrl, as 0.0.0.0 can"),
    (OAUTH | {"publicUrl": "https://a.example/x/mcp"}, "auth.oauth", "ends with the host and /mcp"),
    ({"auth": {"oauth": {"clients": ["https://x"]}}}, "auth.oauth.clients[0]", "must be a host"),
    ({"auth": {"oauth": {"signin": "1d"}}}, "auth.oauth.signin", ""),
    ({"auth": {"oauth": {"recheck": "2d"}}}, "auth.oauth.recheck", ""),
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
    ({"approvals": {"wait": 601}}, "approvals.wait", "must be at least 0 and at most 600"),
    ({"drain": {"delay": -1}}, "drain.delay", "must be at least 0 and at most 3,600 seconds"),
    ({"drain": {"calls": 0}}, "drain.calls", "must be more than 0 and at most 3,600 seconds"),
    ({"drain": {"delay": "soon"}}, "drain.delay", "must be a number of seconds, or text"),
    ({"approvals": {"wait": False}}, "approvals.wait", "must be a number of seconds, or text"),
    ({"lock": {"mode": "last"}}, "lock.mode", "must be one of first, strict, off"),
    ({"telemetry": {"trust": ["anna"]}}, "telemetry.trust[0]", 'must be one of "*", "user:NAME"'),
    ({"telemetry": {"trust": []}}, "telemetry.trust", "must not be empty"),
    ({"telemetry": {"link": "http://x/{trace_id}"}}, "telemetry.link", "must begin with https://"),
    ({"lock": {"mode": "strict"}}, "lock.mode", 'needs a "file"'),
    ({"audit": {"mode": "none"}}, "audit.mode", "must be one of strict, lenient, off"),
    ({"audit": {"keep": "90d"}}, "audit.keep", 'is now "gateway": {"keep": {"audit": …}}'),
    ({"results": {"keep": "1h"}}, "results.keep", 'is now "gateway": {"keep": {"results": …}}'),
    ({"keep": {"audit": 0}}, "keep.audit", "must be more than 0 and at most"),
    ({"keep": {"audit": "never"}}, "keep.audit", "must be a number of seconds"),
    ({"keep": {"autid": "1d"}}, "keep.autid", "is unknown"),
    ({"chat": {"models": ["local"], "quotas": {"files": 1}}}, "chat.quotas.files", "must be"),
    ({"plugins": {"folder": "plugins"}}, "plugins", 'needs "server"'),
    ({"plugins": {"folder": "p", "server": "crn"}}, "plugins.server", "is not a server of this"),
    ({"admin": {"listen": "public"}}, "admin.listen", 'must be "HOST:PORT"'),
    ({"chat": {}}, "chat", 'needs "models"'),
    ({"chat": {"models": []}}, "chat.models", "must name at least one model"),
    ({"chat": {"models": ["m"], "engine": "x"}}, "chat.engine", "must be one of agent, graph"),
    ({"chat": {"models": ["m"], "toolSearch": 1}}, "chat.toolSearch", "must be one of auto, on"),
]


# Wrong files

GOOD = {"command": "good"}


@each_row(("section", "place", "problem"), WRONG)
def test_invalid_gateway_member_is_refused_with_line_and_place(
    section: Any, place: str, problem: str
):
    check_refusal(section, place, problem)


@each_row(
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


@each_row(
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
        ({"roots": ["https://x"]}, ".roots[0]", "must be a folder or a file:// URI"),
        ({"roots": "."}, ".roots", "must be a list of strings"),
        ({"required": 1}, ".required", "must be true or false"),
        ({"type": "python"}, "", 'needs "object"'),
        ({"type": "python", "object": "notes"}, ".object", 'must be "package.module:name"'),
    ],
)
def test_invalid_server_is_refused_with_line_and_place(
    entry: dict[str, Any], place: str, problem: str
):
    loaded = gateway(rule(tools=["crm:*", "good:*"]), crm={"command": "crm"} | entry, good=GOOD)

    assert list(loaded.servers) == ["good"]
    assert f"line 1: mcpServers.crm{place} " in loaded.ignored["crm"]
    assert problem in loaded.ignored["crm"]


def test_a_required_server_that_cannot_be_used_refuses_the_file():
    with pytest.raises(ConfigError, match=r"mcpServers\.crm\.timeout must be a number"):
        gateway(crm={"command": "crm", "timeout": [], "required": True}, good=GOOD)


def test_a_python_server_has_no_command():
    loaded = gateway(notes={"type": "stdio", "object": "notes:server"})

    assert "must be python" in loaded.ignored["notes"]
