"""Reading the member `gateway` of a configuration.

Unknown keys are warned of, but refused where ignoring one would permit more than is meant: in
policy, rules and views.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import msgspec

from interlock import urls
from interlock.config import variables
from interlock.config.gateway import (
    BUILT_IN,
    CALLER,
    EVERYBODY,
    GROUP,
    OWN,
    UNIT_OF,
    Address,
    Approvals,
    Audit,
    ChatLimits,
    ChatPage,
    Effect,
    Gateway,
    Issuer,
    KeyLimits,
    Kind,
    Limits,
    Lock,
    Plugins,
    PolicyRules,
    Rate,
    Record,
    Results,
    Risk,
    Rule,
    ServerLimits,
    View,
)
from interlock.config.section import Section, nearest
from interlock.errors import SchemaError

if TYPE_CHECKING:
    from interlock.schema.condition import Condition

MAX_RULES = 10_000
MAX_CALLS = 1_000_000_000
MAX_BYTES = 1 << 40
MAX_LONG = 10 * 365 * 86_400  # seconds that anything is kept
MAX_WAIT = 600  # seconds that a call waits for an approval
MAX_PORT = 65_535

_RATE = re.compile(r"([0-9]{1,9})/(s|min|h|day)")
_SECONDS_OF = {unit: seconds for seconds, unit in UNIT_OF.items()}
RATE_FORM = 'a rate such as "20/s", "600/min", "100/h" or "10000/day"'
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_VIEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PATHS = ("sse", "message", "messages")  # at /mcp, so they cannot be names of views
_RULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUBJECT = re.compile(r"https?://[^\s#]+#.+")
_USER = re.compile(r"user:[^*\s]+")
_KINDS = get_args(Kind)
_RULE_KEYS = ("id", "effect", "who", *_KINDS, "risk", "view", "arguments", "claims", "record")
_ASK_KEYS = ("approvers", "expires")
_SCOPE = re.compile(r"mcp:(?:\*|read|[^:\s]+:\S+)|admin:(?:read|approve|write)")

_Value = TypeVar("_Value")


def read(gateway: Section, servers: Collection[str]) -> Gateway:
    """Read the member `gateway`.

    Args:
        gateway: The member.
        servers: The names of the servers, as they are in addresses.

    Raises:
        ConfigError: Something in it is wrong. The text names file, line and member.
    """
    gateway.warn_unknown(_GATEWAY_KEYS)
    table = gateway.within("views")
    views = {name: _view(table, name, servers) for name in table.members}
    auth = gateway.within("auth")
    auth.warn_unknown(("issuers",))
    issuers = _issuers(auth)
    groups = _groups(gateway.within("groups"))
    policy = None
    if "policy" in gateway.members:
        policy = _policy(gateway.within("policy"), views, servers)
        if not any(issuer.groups for issuer in issuers):
            _warn_of_groups(gateway.within("policy"), policy, groups)
    return Gateway(
        listen=_address(gateway, "listen"),
        public_url=_url(gateway, "publicUrl") if "publicUrl" in gateway.members else "",
        hosts=_hosts(gateway),
        sse=gateway.flag("sse", True),
        database=gateway.optional("database"),
        views=views,
        issuers=issuers,
        groups=groups,
        policy=policy,
        limits=_limits(gateway.within("limits"), servers),
        results=_results(gateway.within("results"), servers, views),
        approvals=_approvals(gateway.within("approvals")),
        lock=_lock(gateway.within("lock")),
        audit=_audit(gateway.within("audit")),
        plugins=_plugins(gateway, servers),
        admin=_admin(gateway.within("admin")),
        chat=_chat(gateway),
        instructions=gateway.optional("instructions"),
    )


_GATEWAY_KEYS = (
    "listen",
    "publicUrl",
    "hosts",
    "sse",
    "database",
    "views",
    "auth",
    "groups",
    "policy",
    "limits",
    "results",
    "approvals",
    "lock",
    "audit",
    "plugins",
    "admin",
    "chat",
    "instructions",
)


def resolve(gateway: Gateway, environ: Mapping[str, str]) -> Gateway:
    """Return the settings with `${VAR}` replaced in the database and in client secrets.

    Raises:
        ConfigError: A variable is not set and has no default.
    """
    issuers = tuple(
        msgspec.structs.replace(
            issuer,
            client_secret=variables.fill(
                issuer.client_secret, f"gateway.auth.issuers[{index}].clientSecret", environ
            ),
        )
        for index, issuer in enumerate(gateway.issuers)
    )
    database = variables.fill(gateway.database, "gateway.database", environ)
    return msgspec.structs.replace(gateway, database=database, issuers=issuers)


# Listening


def _address(section: Section, key: str) -> Address | None:
    if key not in section.members:
        return None
    match = _LISTEN.fullmatch(section.text(key))
    if match is None or int(match[3]) > MAX_PORT:
        section.refuse('must be "HOST:PORT", such as "127.0.0.1:8080" or "[::1]:8080"', key)
    return Address(match[1] or match[2], int(match[3]))


def _admin(admin: Section) -> Address | None:
    admin.warn_unknown(("listen",))
    return _address(admin, "listen")


def _hosts(gateway: Section) -> tuple[str, ...]:
    hosts = gateway.texts("hosts")
    for index, host in enumerate(hosts):
        if not _HOST.fullmatch(host):
            gateway.refuse('must be a host name such as "tools.example.com"', "hosts", index)
    return hosts


def _url(section: Section, key: str, *, secure: bool = False) -> str:
    url = section.filled(key)
    try:
        parts = urls.split(url)
    except ValueError:
        section.refuse("must be a URL with a valid host and port", key)
    if parts.scheme not in ("http", "https"):
        section.refuse("must start with https:// or http://", key)
    if secure and parts.scheme == "http" and not urls.is_loopback(parts.hostname or ""):
        section.refuse("must be https://, or http:// on loopback", key)
    if "@" in parts.netloc or "#" in url or "?" in url or url.split() != [url]:
        section.refuse("must not have a user, a query, a fragment or blanks", key)
    return url


# Views, issuers and groups


def _view(views: Section, name: str, servers: Collection[str]) -> View:
    if not _VIEW_NAME.fullmatch(name) or name in _PATHS:
        views.refuse("is not a valid name of a view: use 1 to 64 of A-Z, a-z, 0-9, _ and -", name)
    view = views.within(name)
    view.refuse_unknown(("servers", "tools", "names"))
    named = view.texts("servers") if "servers" in view.members else None
    for index, server in enumerate(named or ()):
        if server not in servers:
            view.refuse(f"is not a server of this file{nearest(server, servers)}", "servers", index)
    tools = view.within("tools")
    tools.refuse_unknown(("allow", "deny"))
    return View(
        servers=named,
        allow=_patterns(tools, "allow", servers) if "allow" in tools.members else None,
        deny=_patterns(tools, "deny", servers),
        names=_choice(view, "names", ("wire", "plain")),
    )


def _patterns(section: Section, key: str, servers: Collection[str]) -> tuple[str, ...]:
    patterns = section.texts(key)
    for index, pattern in enumerate(patterns):
        _check_pattern(section, pattern, servers, key, index)
    return patterns


def _check_pattern(
    section: Section, pattern: str, servers: Collection[str], *steps: str | int
) -> None:
    server, colon, name = pattern.partition(":")
    if not (server and colon and name and pattern.isprintable()):
        section.refuse('must be "SERVER:NAME", and may have *: "crm:*", "*:get_*"', *steps)
    known = server in servers or server in (BUILT_IN, OWN)
    if not any(char in server for char in "*?[") and not known:
        section.warn(f"names a server that this file lacks{nearest(server, servers)}", *steps)


def _issuers(auth: Section) -> tuple[Issuer, ...]:
    issuers: list[Issuer] = []
    for section in auth.each("issuers"):
        issuer = _issuer(section)
        if any(issuer.issuer == other.issuer for other in issuers):
            section.refuse("is an issuer that stands there twice", "issuer")
        issuers.append(issuer)
    return tuple(issuers)


def _issuer(section: Section) -> Issuer:
    section.warn_unknown(
        ("issuer", "audience", "jwksUrl", "groups", "scopes", "clientId", "clientSecret")
    )
    section.need("issuer", "audience", "jwksUrl")
    if isinstance(section.members["audience"], str):
        audience: tuple[str, ...] = (section.filled("audience"),)
    else:
        audience = section.texts("audience")
    if not audience or not all(each.strip() for each in audience):
        section.refuse("must not be empty: tokens for others would be accepted", "audience")
    if "clientSecret" in section.members and "clientId" not in section.members:
        section.refuse('needs a "clientId" beside it', "clientSecret")
    return Issuer(
        issuer=_url(section, "issuer", secure=True),
        audience=audience,
        jwks_url=_url(section, "jwksUrl", secure=True),
        groups=section.optional("groups"),
        scopes=_group_scopes(section.within("scopes")),
        client_id=section.optional("clientId"),
        client_secret=section.optional("clientSecret"),
    )


def _group_scopes(section: Section) -> dict[str, tuple[str, ...]]:
    scopes = {group: section.texts(group) for group in section.members}
    for group, each in scopes.items():
        for index, scope in enumerate(each):
            if problem := scope_problem(scope):
                section.refuse(problem, group, index)
    return scopes


def scope_problem(scope: str) -> str | None:
    """Return what is wrong with a scope, or None."""
    if _SCOPE.fullmatch(scope):
        return None
    return (
        'must be "mcp:*", "mcp:read", "mcp:SERVER:*", "mcp:SERVER:PATTERN", "admin:read", '
        '"admin:approve" or "admin:write"'
    )


def _groups(section: Section) -> dict[str, tuple[str, ...]]:
    groups = {name: section.texts(name) for name in section.members}
    for name, members in groups.items():
        if not name.strip() or not name.isprintable():
            section.refuse("must be a name without control characters", name)
        for index, member in enumerate(members):
            if not _is_principal(member):
                section.refuse('must be "user:NAME" or "ISSUER#SUBJECT"', name, index)
    return groups


def _is_principal(text: str) -> bool:
    return bool(_USER.fullmatch(text) or _SUBJECT.fullmatch(text))


# Policy


def _policy(section: Section, views: Collection[str], servers: Collection[str]) -> PolicyRules:
    section.refuse_unknown(("readOnly", "rules"))
    rules: dict[str, Rule] = {}
    for entry in section.each("rules"):
        rule = _rule(entry, views, servers)
        if rule.id in rules:
            entry.refuse("is the id of another rule, too", "id")
        rules[rule.id] = rule
    if len(rules) > MAX_RULES:
        section.refuse(f"has {len(rules):,} rules, over the limit of {MAX_RULES:,}", "rules")
    return PolicyRules(rules=tuple(rules.values()), read_only=section.flag("readOnly", False))


def _rule(section: Section, views: Collection[str], servers: Collection[str]) -> Rule:
    section.refuse_unknown((*_RULE_KEYS, *_ASK_KEYS))
    section.need("id", "effect", "who")
    if not _RULE_ID.fullmatch(section.text("id")):
        section.refuse("must be 1 to 64 of A-Z, a-z, 0-9, . _ and -", "id")
    effect: Effect = _choice(section, "effect", get_args(Effect))
    kind = _kind(section)
    for key, of in (("risk", ("tools",)), ("arguments", ("tools", "prompts"))):
        if key in section.members and kind not in of:
            section.refuse(f"is for {' and '.join(of)} only", key)
    for key in _ASK_KEYS:
        if key in section.members and effect != "ask":
            section.refuse('is for a rule with "effect": "ask" only', key)
    if "view" in section.members and section.text("view") not in views:
        section.refuse(f"is not a view of this file{nearest(section.text('view'), views)}", "view")
    return Rule(
        id=section.text("id"),
        effect=effect,
        who=_who(section, "who"),
        kind=kind,
        patterns=_patterns(section, kind, servers),
        risk=_optional(section, "risk", get_args(Risk)),
        view=section.optional("view"),
        arguments=_conditions(section.within("arguments")),
        claims=_conditions(section.within("claims")),
        approvers=_approvers(section),
        expires=section.duration("expires", 1, MAX_LONG) if "expires" in section.members else None,
        record=_optional(section, "record", get_args(Record)),
    )


def _approvers(section: Section) -> tuple[str, ...]:
    return _who(section, "approvers", CALLER) if "approvers" in section.members else (CALLER,)


def _kind(section: Section) -> Kind:
    kinds = [kind for kind in _KINDS if kind in section.members]
    if len(kinds) != 1:
        section.refuse(f"needs one of {', '.join(_KINDS)}")
    if not section.texts(kinds[0]):
        section.refuse('must not be empty: write ["*:*"] for all', kinds[0])
    return cast("Kind", kinds[0])


def _who(section: Section, key: str, *words: str) -> tuple[str, ...]:
    who = section.texts(key)
    if not who:
        section.refuse('must not be empty: write ["*"] for everybody', key)
    for index, each in enumerate(who):
        is_group = each.startswith(GROUP) and len(each) > len(GROUP)
        if not (each in (EVERYBODY, *words) or is_group or _is_principal(each)):
            allowed = ", ".join(f'"{word}"' for word in (EVERYBODY, *words))
            section.refuse(
                f'must be one of {allowed}, "user:NAME", "ISSUER#SUBJECT" or "group:NAME"',
                key,
                index,
            )
    return who


def _warn_of_groups(section: Section, policy: PolicyRules, groups: Collection[str]) -> None:
    """Warn of groups without members; called where no token can name a group."""
    for index, rule in enumerate(policy.rules):
        for key, principals in (("who", rule.who), ("approvers", rule.approvers)):
            for place, each in enumerate(principals):
                name = each.removeprefix(GROUP)
                if each.startswith(GROUP) and name not in groups:
                    section.warn(
                        f'names a group that "groups" lacks{nearest(name, groups)}',
                        *("rules", index, key, place),
                    )


def _conditions(section: Section) -> dict[str, Condition]:
    conditions: dict[str, Condition] = {}
    if not section.members:
        return conditions
    from interlock.schema import condition  # loads the validation engine

    for name, document in section.members.items():
        if not name.isprintable():
            section.refuse("must be a name without control characters", name)
        try:
            conditions[name] = condition.compile(document)
        except SchemaError as error:
            section.refuse(str(error), name)
    return conditions


# Limits and budgets


def _choice(section: Section, key: str, choices: tuple[_Value, ...]) -> _Value:
    return cast("_Value", section.choice(key, cast("tuple[str, ...]", choices)))


def _optional(section: Section, key: str, choices: tuple[_Value, ...]) -> _Value | None:
    return _choice(section, key, choices) if key in section.members else None


def _rate(section: Section, key: str) -> Rate | None:
    if key not in section.members:
        return None
    text = section.members[key]
    rate = parse_rate(text) if isinstance(text, str) else None
    if rate is None:
        section.refuse(f"must be {RATE_FORM}", key)
    return rate


def parse_rate(text: str) -> Rate | None:
    """Return the rate of "20/s"; None for other text."""
    match = _RATE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        return None
    return Rate(int(match[1]), _SECONDS_OF[match[2]])


def key_limits_problem(limits: Mapping[str, Any]) -> str:
    """Return what is wrong with the limits of a single key; "" if nothing is."""
    for name, value in limits.items():
        if name == "rate":
            if not isinstance(value, str) or parse_rate(value) is None:
                return f"rate must be {RATE_FORM}"
        elif name not in ("burst", "concurrent", "perDay"):
            return f"unknown limit {name!r}; the limits are rate, burst, concurrent and perDay"
        elif type(value) is not int or not 1 <= value <= MAX_CALLS:
            return f"{name} must be a whole number from 1 to {MAX_CALLS:,}"
    return ""


def key_limits(limits: Mapping[str, Any], common: KeyLimits) -> KeyLimits:
    """Return the limits of a single key: its own, and the common ones where it has none.

    A rate of its own comes without the common burst. A member that is not valid, as a newer
    version of this program may have stored it, is ignored.
    """
    own = {name: value for name, value in limits.items() if not key_limits_problem({name: value})}
    has_rate = "rate" in own
    return KeyLimits(
        rate=parse_rate(own["rate"]) if has_rate else common.rate,
        burst=own.get("burst", None if has_rate else common.burst),
        concurrent=own.get("concurrent", common.concurrent),
        per_day=own.get("perDay", common.per_day),
    )


def _count(section: Section, key: str) -> int | None:
    return section.count(key, 1, MAX_CALLS) if key in section.members else None


def _limits(section: Section, servers: Collection[str]) -> Limits:
    section.warn_unknown(("perKey", "tools", "concurrent", "queue"))
    key, default = section.within("perKey"), Limits()
    key.warn_unknown(("rate", "burst", "concurrent", "perDay"))
    if "burst" in key.members and "rate" not in key.members:
        key.refuse('needs a "rate" beside it', "burst")
    tools = section.within("tools")
    rates: dict[str, Rate] = {}
    for pattern in tools.members:
        _check_pattern(tools, pattern, servers, pattern)
        rate = _rate(tools, pattern)
        if rate is not None:
            rates[pattern] = rate
    return Limits(
        per_key=KeyLimits(
            rate=_rate(key, "rate"),
            burst=_count(key, "burst"),
            concurrent=key.count("concurrent", default.per_key.concurrent, MAX_CALLS),
            per_day=_count(key, "perDay"),
        ),
        tools=rates,
        concurrent=section.count("concurrent", default.concurrent, MAX_CALLS),
        queue=section.count("queue", default.queue, MAX_CALLS, least=0),
    )


def server_limits(section: Section) -> ServerLimits:
    """Read the limits of one server."""
    section.warn_unknown(("concurrent", "queue", "rate"))
    return ServerLimits(
        concurrent=_count(section, "concurrent"),
        queue=section.count("queue", 0, MAX_CALLS, least=0) if "queue" in section.members else None,
        rate=_rate(section, "rate"),
    )


def _results(section: Section, servers: Collection[str], known: Collection[str]) -> Results:
    section.warn_unknown(("max", "tools", "views", "keep", "perUser"))
    tools, views, default = section.within("tools"), section.within("views"), Results()
    for pattern in tools.members:
        _check_pattern(tools, pattern, servers, pattern)
    for view in views.members:
        if view not in known:
            views.refuse(f"is not a view; the views are {', '.join(known) or 'none'}", view)
    return Results(
        max=section.count("max", default.max, MAX_BYTES, least=0),
        tools={each: tools.count(each, 1, MAX_BYTES) for each in tools.members},
        views={each: views.count(each, 1, MAX_BYTES) for each in views.members},
        keep=section.duration("keep", default.keep, MAX_LONG),
        per_user=section.count("perUser", default.per_user, MAX_BYTES),
    )


def server_results(section: Section) -> int | None:
    """Read how large a result of one server may be, in bytes."""
    section.warn_unknown(("max",))
    return section.count("max", 1, MAX_BYTES) if "max" in section.members else None


def _approvals(section: Section) -> Approvals:
    section.warn_unknown(("expires", "wait"))
    default = Approvals()
    waits = type(section.members.get("wait", 0)) is not int or section.members.get("wait", 0) != 0
    return Approvals(
        expires=section.duration("expires", default.expires, MAX_LONG),
        wait=section.duration("wait", default.wait, MAX_WAIT) if waits else 0.0,
    )


def _lock(section: Section) -> Lock:
    section.warn_unknown(("mode", "file"))
    lock = Lock(
        mode=_choice(section, "mode", ("first", "strict", "off")), file=section.optional("file")
    )
    if lock.mode == "strict" and not lock.file:
        section.refuse('is "strict", which needs a "file" with what is accepted', "mode")
    return lock


def _audit(section: Section) -> Audit:
    section.warn_unknown(("mode", "reads", "arguments", "keep", "copy"))
    return Audit(
        mode=_choice(section, "mode", ("strict", "lenient", "off")),
        reads=_choice(section, "reads", ("overlap", "before")),
        arguments=_choice(section, "arguments", get_args(Record)),
        keep=section.duration("keep", Audit().keep, MAX_LONG),
        copy=section.optional("copy"),
    )


def _plugins(gateway: Section, servers: Collection[str]) -> Plugins | None:
    if "plugins" not in gateway.members:
        return None
    section = gateway.within("plugins")
    section.warn_unknown(("folder", "server"))
    section.need("folder", "server")
    if section.text("server") not in servers:
        close = nearest(section.text("server"), servers)
        section.refuse(f"is not a server of this file{close}", "server")
    return Plugins(folder=section.filled("folder"), server=section.text("server"))


def _chat(gateway: Section) -> ChatPage | None:
    if "chat" not in gateway.members:
        return None
    section = gateway.within("chat")
    section.warn_unknown(("models", "engine", "system", "limits"))
    section.need("models")
    models = section.texts("models")
    if not models or not all(model.strip() for model in models):
        section.refuse("must name at least one model", "models")
    limits, default = section.within("limits"), ChatLimits()
    limits.warn_unknown(("turns", "messages", "turn"))
    return ChatPage(
        models=models,
        engine=_choice(section, "engine", ("agent", "graph")),
        system=section.optional("system"),
        limits=ChatLimits(
            turns=limits.count("turns", default.turns, MAX_CALLS),
            messages=_rate(limits, "messages") or default.messages,
            turn=limits.duration("turn", default.turn, 86_400),
        ),
    )


def check_user_variables(entry: Section, *, is_shared: bool) -> None:
    """Refuse `${user:NAME}` where no credential of a user can stand for it.

    Raises:
        ConfigError: It stands outside of `env`, `headers` and `openapi.auth`, or in them while
            all users share the server's connection.
    """
    for place, text in _texts(entry.members):
        if "${user:" not in text:
            continue
        if place[0] not in ("env", "headers") and place[:2] != ("openapi", "auth"):
            entry.refuse("has ${user:…}, which only env, headers and openapi.auth may have", *place)
        if is_shared:
            entry.refuse(
                "has ${user:…}, but all users share this server: add "
                '"sharing": "per_user", "per_session" or "per_call"',
                *place,
            )


def _texts(value: Any, *place: str | int) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        return [(place, value)]
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return []
    return [found for step, each in parts for found in _texts(each, *place, step)]
