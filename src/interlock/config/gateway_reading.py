"""Reads the member `gateway` of a configuration.

Unknown keys cause a warning. In the policy, in rules and in views they are refused, and so is a
misspelled name of a member that restricts callers, because ignoring it would allow more than the
operator meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast, get_args

import msgspec

from interlock.config import variables
from interlock.config.gateway import (
    Accepts,
    Address,
    ApprovalSettings,
    Audit,
    ChatLimits,
    ChatPage,
    Drain,
    FrontDoorSettings,
    GatewaySettings,
    Issuer,
    Lock,
    PluginSettings,
    Record,
    Telemetry,
    View,
    ViewSearch,
)
from interlock.config.limits_reading import (
    MAX_CALLS,
    read_keep,
    read_limits,
    read_quotas,
    read_rate,
    read_results,
    refuse_moved,
)
from interlock.config.notify_reading import filled_notify, read_notify
from interlock.config.patterns import read_patterns
from interlock.config.policy_reading import (
    check_groups,
    check_listed_groups,
    is_principal,
    read_conditions,
    read_policy,
    read_who,
)
from interlock.config.section import MAX_LONG, Section, nearest
from interlock.config.servers import Config
from interlock.config.tool_search import tool_search_in
from interlock.text import urls
from interlock.text.networks import network

MAX_DRAIN = 3_600  # seconds; the longest time that a part of the shutdown can be set to take
MAX_WAIT = 600  # seconds; the longest time that a call can be set to wait for an approval
MAX_PORT = 65_535
DATABASES = ("postgresql", "postgres")  # accepted URL schemes for the database

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_VIEW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_CREDENTIALS = (
    "authorization",
    "x-api-key",
    "cookie",
    "proxy-authorization",
    "mcp-session-id",
    "x-interlock-key",
)
_PATHS = ("sse", "message", "messages")  # paths below /mcp that no view may use as its name
_SCOPE = re.compile(r"mcp:(?:\*|read|[^:\s]+:\S+)|admin:(?:read|approve|write)")


def read(gateway: Section, servers: Collection[str]) -> GatewaySettings:
    """Return the settings in the member `gateway`.

    Args:
        gateway: The section of the member.
        servers: The servers' names, as in tool addresses.

    Raises:
        ConfigError: The member is not valid. The text names the file, line and member.
    """
    _check_members(gateway)
    table = gateway.within("views")
    views = {name: _view(table, name, servers) for name in table.members}
    issuers = _issuers(gateway.within("auth"))
    has_url = "publicUrl" in gateway.members
    groups = _groups(gateway.within("groups"))
    policy = None
    if "policy" in gateway.members:
        policy = read_policy(gateway.within("policy"), views, servers)
        check_groups(gateway.within("policy"), policy, groups, issuers)
    return GatewaySettings(
        listen=_address(gateway, "listen"),
        public_url=_url(gateway, "publicUrl", secure=True) if has_url else "",
        hosts=_hosts(gateway),
        proxies=_proxies(gateway),
        cors=_cors(gateway),
        headers=header_names(gateway),
        sse=gateway.flag("sse", True),
        database=_database(gateway),
        views=views,
        issuers=issuers,
        oauth=_front_door(gateway),
        groups=groups,
        policy=policy,
        limits=read_limits(gateway.within("limits"), servers),
        results=read_results(gateway.within("results"), servers, views),
        approvals=_approvals(gateway.within("approvals")),
        drain=_drain(gateway.within("drain")),
        keep=read_keep(gateway.within("keep")),
        lock=_lock(gateway.within("lock")),
        audit=_audit(gateway.within("audit")),
        plugins=_plugins(gateway, servers),
        admin=_admin(gateway.within("admin")),
        chat=_chat(gateway),
        notify=read_notify(gateway),
        instructions=gateway.optional("instructions"),
        search=_search(gateway, servers),
        telemetry=_telemetry(gateway.within("telemetry"), groups, issuers),
    )


def _check_members(gateway: Section) -> None:
    for member in ("rules", "readOnly"):  # ignoring them would allow more than the operator meant
        if member in gateway.members:
            gateway.refuse(f'belongs into "policy": {{"{member}": …}}', member)
    gateway.warn_unknown(KEYS, restricting=_RESTRICTING)


_RESTRICTING = ("auth", "limits", "lock", "policy", "views")
KEYS = (
    "listen",
    "publicUrl",
    "hosts",
    "proxies",
    "cors",
    "headers",
    "sse",
    "database",
    "views",
    "auth",
    "groups",
    "policy",
    "limits",
    "results",
    "approvals",
    "drain",
    "keep",
    "lock",
    "audit",
    "plugins",
    "admin",
    "chat",
    "notify",
    "instructions",
    "toolSearch",
    "telemetry",
)


def resolve(config: Config, environ: Mapping[str, str]) -> GatewaySettings:
    """Return the settings after replacing `${VAR}` in the database, client secrets and `notify`.

    Relative paths of the database and of the audit copy start at the configuration file's folder,
    so that a command finds the same files from any working directory.

    Raises:
        ConfigError: A variable is not set and has no default, or `notify` is not valid with it.
    """
    gateway = config.gateway or GatewaySettings()
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
    audit = msgspec.structs.replace(gateway.audit, copy=_beside(config.path, gateway.audit.copy))
    notify = None if gateway.notify is None else filled_notify(gateway.notify, environ)
    return msgspec.structs.replace(
        gateway,
        database=_beside(config.path, database),
        issuers=issuers,
        audit=audit,
        notify=notify,
    )


def _beside(file: Path | None, path: str) -> str:
    if file is None or not path or "://" in path or path == ":memory:":
        return path
    return str(file.absolute().parent / Path(path).expanduser())


def _database(gateway: Section) -> str:
    database = gateway.optional("database")
    scheme, is_url, _ = database.partition("://")
    if is_url and not scheme.startswith("${") and scheme not in DATABASES:
        gateway.refuse("must be the path of a SQLite file, or a postgresql:// URL", "database")
    return database


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


def _proxies(gateway: Section) -> tuple[str, ...]:
    proxies = gateway.texts("proxies")
    for index, proxy in enumerate(proxies):
        try:
            network(proxy)
        except ValueError as error:
            gateway.refuse(str(error), "proxies", index)
    return proxies


def _cors(gateway: Section) -> tuple[str, ...]:
    origins: list[str] = []
    for index, text in enumerate(gateway.texts("cors")):
        origin = text if text == "*" else urls.page_origin(text)
        if origin is None:
            gateway.refuse('must be an origin such as "https://app.example.com"', "cors", index)
        origins.append(origin)
    return tuple(origins)


def header_names(gateway: Section) -> tuple[str, ...]:
    """Return the names in the member `headers`, in lower case."""
    names = gateway.texts("headers")
    for index, name in enumerate(names):
        if not urls.HTTP_TOKEN.fullmatch(name):
            gateway.refuse('must be a header\'s name, such as "X-Tenant"', "headers", index)
        if name.lower() in _CREDENTIALS:
            gateway.refuse(
                "is the caller's credential for this gateway, which no server may see",
                "headers",
                index,
            )
    return tuple(name.lower() for name in names)


def _url(section: Section, key: str, *, secure: bool = False) -> str:
    url = section.filled(key)
    try:
        parts = urls.split(url)
    except ValueError:
        section.refuse(
            "must be a URL with a valid host, such as https://tools.example.com/mcp", key
        )
    if parts.scheme not in ("http", "https"):
        section.refuse("must start with https:// or http://", key)
    if secure and parts.scheme == "http" and not urls.is_loopback(parts.hostname or ""):
        section.refuse("must be https://, or http:// on loopback", key)
    if "@" in parts.netloc or "#" in url or "?" in url or url.split() != [url]:
        section.refuse("must not contain a user name, a query, a fragment or blanks", key)
    return url


# Views, issuers and groups


def _view(views: Section, name: str, servers: Collection[str]) -> View:
    if not _VIEW_NAME.fullmatch(name) or name in _PATHS:
        views.refuse("is not a valid name of a view: use 1 to 64 of A-Z, a-z, 0-9, _ and -", name)
    view = views.within(name)
    view.refuse_unknown(("servers", "tools", "names", "schemas", "toolSearch"))
    named = view.texts("servers") if "servers" in view.members else None
    for index, server in enumerate(named or ()):
        if server not in servers:
            view.refuse(f"is not a server of this file{nearest(server, servers)}", "servers", index)
    tools = view.within("tools")
    tools.refuse_unknown(("allow", "deny"))
    return View(
        servers=named,
        allow=read_patterns(tools, "allow", servers) if "allow" in tools.members else None,
        deny=read_patterns(tools, "deny", servers),
        names=view.choice("names", ("wire", "plain")),
        schemas=view.choice("schemas", ("portable", "original")),
        search=_search(view, servers),
    )


def _search(section: Section, servers: Collection[str]) -> ViewSearch:
    """Read the member `toolSearch` of the gateway or of a view: "on", "off" or an object."""
    if not isinstance(section.members.get("toolSearch"), dict):
        return ViewSearch(is_on=section.choice("toolSearch", ("off", "on")) == "on")
    search = section.within("toolSearch")
    search.refuse_unknown(("mode", "always", "calls"))
    default = ViewSearch()
    calls = search.texts("calls") if "calls" in search.members else default.calls
    risks = tuple(risk for risk in default.calls if risk in calls)
    if len(risks) < len(set(calls)) or not risks:
        search.refuse('must be ["read"], ["write"] or both', "calls")
    return ViewSearch(
        is_on=search.choice("mode", ("on", "off")) == "on",
        always=read_patterns(search, "always", servers),
        calls=risks,
    )


def _issuers(auth: Section) -> tuple[Issuer, ...]:
    auth.warn_unknown(("issuers", "oauth"))
    issuers: list[Issuer] = []
    for section in auth.each("issuers"):
        issuer = _issuer(section)
        if any(issuer.issuer == other.issuer for other in issuers):
            section.refuse("is an issuer that is listed twice", "issuer")
        if issuer.name and any(issuer.name == other.name for other in issuers):
            section.refuse("is the name of another issuer", "name")
        if "/" in issuer.name:
            section.refuse('must not have a "/", which separates it from a group', "name")
        issuers.append(issuer)
    giving = [each for each in issuers if each.groups]
    if len(giving) > 1 and not all(each.name for each in giving):
        auth.refuse(
            'has several issuers with "groups"; give each a "name", so that a rule can say '
            '"group:NAME/GROUP"',
            "issuers",
        )
    return tuple(msgspec.structs.replace(each, is_only=len(giving) < 2) for each in issuers)


def _issuer(section: Section) -> Issuer:
    section.warn_unknown(
        (
            *("issuer", "name", "audience", "jwksUrl", "groups", "scopes", "clientId"),
            *("clientSecret", "people", "accepts"),
        )
    )
    logs_in = "clientId" in section.members or "accepts" in section.members
    section.need("issuer") if logs_in else section.need("issuer", "audience", "jwksUrl")
    if isinstance(section.members.get("audience"), str):
        audience: tuple[str, ...] = (section.filled("audience"),)
    else:
        audience = section.texts("audience")
    is_empty = not audience or not all(each.strip() for each in audience)
    if is_empty and not (logs_in and "audience" not in section.members):
        section.refuse("must not be empty: tokens for others would be accepted", "audience")
    if "clientSecret" in section.members and "clientId" not in section.members:
        section.refuse('needs a "clientId" beside it', "clientSecret")
    return Issuer(
        issuer=_url(section, "issuer", secure=True),
        audience=audience,
        jwks_url=_url(section, "jwksUrl", secure=True) if "jwksUrl" in section.members else "",
        groups=section.optional("groups"),
        name=section.optional("name"),
        scopes=_group_scopes(section.within("scopes")),
        client_id=section.optional("clientId"),
        client_secret=section.optional("clientSecret"),
        people=read_conditions(section.within("people")),
        accepts=_accepts(section),
    )


def _accepts(section: Section) -> tuple[Accepts, ...]:
    for index, each in enumerate(section.texts("accepts")):
        if each not in get_args(Accepts):
            section.refuse(f"must be one of {', '.join(get_args(Accepts))}", "accepts", index)
    return cast("tuple[Accepts, ...]", section.texts("accepts"))


_PLACE = re.compile(r"[a-z0-9.\-]+|[a-z][a-z0-9+.\-]*:")
_LONGEST_SIGN_IN, _LONGEST_RECHECK = 366 * 86_400, 86_400  # seconds


def _front_door(gateway: Section) -> FrontDoorSettings | None:
    auth = gateway.within("auth")
    if "oauth" not in auth.members:
        return None
    listen = _address(gateway, "listen")
    public_url = gateway.optional("publicUrl")
    section = auth.within("oauth")
    section.refuse_unknown(("clients", "registration", "signIn", "recheck"))
    if not public_url and listen is not None and not urls.is_loopback(listen.host):
        auth.refuse(f"needs gateway.publicUrl, as {listen.host} can be reached by others", "oauth")
    if public_url and urls.split(public_url).path != "/mcp":
        auth.refuse(
            "needs a gateway.publicUrl that ends with the host and /mcp, because clients look for"
            f" the login at the root of {urls.origin(public_url)}",
            "oauth",
        )
    clients = section.texts("clients") if "clients" in section.members else None
    for index, place in enumerate(clients or ()):
        if not _PLACE.fullmatch(place.lower()):
            section.refuse('must be a host, "localhost", or "SCHEME:" for apps', "clients", index)
    return FrontDoorSettings(
        clients=clients,
        registration=section.flag("registration", True),
        sign_in=section.duration("signIn", 30 * 86_400.0, _LONGEST_SIGN_IN),
        recheck=section.duration("recheck", 3_600.0, _LONGEST_RECHECK),
    )


def _group_scopes(section: Section) -> dict[str, tuple[str, ...]]:
    scopes = {group: section.texts(group) for group in section.members}
    for group, each in scopes.items():
        for index, scope in enumerate(each):
            if problem := scope_problem(scope):
                section.refuse(problem, group, index)
    return scopes


def scope_problem(scope: str) -> str | None:
    """Return what is wrong with a scope; None if it is valid."""
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
            if not is_principal(member):
                section.refuse('must be "user:NAME" or "ISSUER#SUBJECT"', name, index)
    return groups


# Other members


def _approvals(section: Section) -> ApprovalSettings:
    section.warn_unknown(("expires", "wait"))
    default = ApprovalSettings()
    return ApprovalSettings(
        expires=section.duration("expires", default.expires, MAX_LONG),
        wait=section.duration("wait", default.wait, MAX_WAIT, zero=True),
    )


def _drain(section: Section) -> Drain:
    section.warn_unknown(("delay", "calls"))
    default = Drain()
    return Drain(
        delay=section.duration("delay", default.delay, MAX_DRAIN, zero=True),
        calls=section.duration("calls", default.calls, MAX_DRAIN),
    )


def _lock(section: Section) -> Lock:
    section.warn_unknown(("mode", "file"))
    lock = Lock(
        mode=section.choice("mode", ("first", "strict", "off")), file=section.optional("file")
    )
    if lock.mode == "strict" and not lock.file:
        section.refuse('is "strict", which needs a "file" with what is accepted', "mode")
    return lock


def _telemetry(section: Section, groups: Collection[str], issuers: Sequence[Issuer]) -> Telemetry:
    section.warn_unknown(("trust", "link"))
    trust = read_who(section, "trust") if "trust" in section.members else ()
    check_listed_groups(section, trust, groups, issuers, "trust")
    link = section.optional("link")
    if link and not (link.startswith("https://") and "{trace_id}" in link):
        section.refuse('must begin with https:// and contain "{trace_id}"', "link")
    return Telemetry(trust=trust, link=link)


def _audit(section: Section) -> Audit:
    refuse_moved(section, "audit")
    section.warn_unknown(("mode", "reads", "arguments", "copy"))
    return Audit(
        mode=section.choice("mode", ("strict", "lenient", "off")),
        reads=section.choice("reads", ("overlap", "before")),
        arguments=section.choice("arguments", get_args(Record)),
        copy=section.optional("copy"),
    )


def _plugins(gateway: Section, servers: Collection[str]) -> PluginSettings | None:
    if "plugins" not in gateway.members:
        return None
    section = gateway.within("plugins")
    section.warn_unknown(("folder", "server"))
    section.need("folder", "server")
    if section.text("server") not in servers:
        close = nearest(section.text("server"), servers)
        section.refuse(f"is not a server of this file{close}", "server")
    return PluginSettings(folder=section.filled("folder"), server=section.text("server"))


_CHAT = ("models", "engine", "system", "toolSearch")


def _chat(gateway: Section) -> ChatPage | None:
    if "chat" not in gateway.members:
        return None
    section = gateway.within("chat")
    section.warn_unknown((*_CHAT, "appsOrigin", "limits", "quotas"))
    section.need("models")
    models = section.texts("models")
    if not models or not all(model.strip() for model in models):
        section.refuse("must name at least one model", "models")
    limits, default = section.within("limits"), ChatLimits()
    limits.warn_unknown(("turns", "messages", "turn"))
    return ChatPage(
        models=models,
        engine=section.choice("engine", ("agent", "graph")),
        system=section.optional("system"),
        tool_search=tool_search_in(section),
        apps_origin=section.optional("appsOrigin"),
        limits=ChatLimits(
            turns=limits.count("turns", default.turns, MAX_CALLS),
            messages=read_rate(limits, "messages") or default.messages,
            turn=limits.duration("turn", default.turn, 86_400),
        ),
        quotas=read_quotas(section.within("quotas")),
    )
