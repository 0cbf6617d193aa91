"""The settings in the member `gateway` of a configuration. Credentials appear in no repr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from interlock.config.tool_search import ToolSearch

if TYPE_CHECKING:
    from interlock.schema.condition import Condition

Effect = Literal["allow", "ask", "deny"]
Risk = Literal["read", "write"]
Kind = Literal["tools", "resources", "prompts"]
Record = Literal["hash", "full", "none"]
Accepts = Literal["id-jag", "workload"]

CALLER = "caller"  # in `Rule.approvers`: the caller may approve the call
EVERYBODY = "*"  # in `Rule.who`: any caller
GROUP = "group:"  # in `Rule.who`: the prefix of a group's name


class Address(Struct, frozen=True):
    """An address to listen on; port 0 chooses a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Rate(Struct, frozen=True):
    """A rate limit: at most `calls` calls within `seconds` seconds."""

    calls: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.calls}/{UNIT_OF[self.seconds]}"


UNIT_OF = {1: "s", 60: "min", 3_600: "h", 86_400: "day"}


class ViewSearch(Struct, frozen=True, kw_only=True):
    """Whether the clients of a view list all tools, or search for them.

    Attributes:
        is_on: Whether they search.
        always: Patterns of addresses whose tools are listed all the same, such as "crm:find".
        calls: The risks of the tools that can be called by way of interlock's own tools. Tools of
            another risk are listed.
    """

    is_on: bool = False
    always: tuple[str, ...] = ()
    calls: tuple[Risk, ...] = ("read", "write")


class View(Struct, frozen=True, kw_only=True):
    """A named subset of the tools, served at `/mcp/NAME`.

    Attributes:
        servers: The names of the view's servers, as in the file; None for all servers.
        allow: Patterns of the addresses of the view's tools; None for all tools of the view's
            servers.
        deny: Patterns of the addresses of tools to leave out, even if `allow` matches them.
        names: Whether tools have wire names, or the names that their servers use.
        schemas: Whether input schemas have the form that all models' providers accept, or the one
            that their servers use.
        search: Whether clients list all tools, or search for them.
    """

    servers: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    names: Literal["wire", "plain"] = "wire"
    schemas: Literal["portable", "original"] = "portable"
    search: ViewSearch = ViewSearch()


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server whose tokens the gateway accepts.

    Attributes:
        issuer: The exact value of `iss` in the issuer's tokens.
        audience: The accepted values of `aud`; a token must contain one of them. With (), the
            issuer only logs people in, and its own tokens are not accepted.
        jwks_url: The URL of the issuer's public keys; "" if the issuer's metadata names it.
        groups: The name of the claim that lists a user's groups; "" if tokens lack such a claim.
        name: The issuer's name, for "group:NAME/GROUP" in `Rule.who`; "" if it has none.
        is_only: Whether no other issuer gives groups, so that "group:GROUP" is clear.
        scopes: The scopes that each group gets, and that everybody gets under "*". A token that
            also states scopes has only the granted scopes that it states. With {}, a token has the
            scopes that it states.
        client_id: The gateway's client id for logins on its pages; "" to offer no logins.
        client_secret: The gateway's client secret; "" if the client has no secret.
        people: Conditions on the claims of people who may sign in, keyed by the claim's name.
        accepts: The kinds of signed statements that the front door accepts from this issuer.
    """

    issuer: str
    audience: tuple[str, ...] = ()
    jwks_url: str = ""
    groups: str = ""
    name: str = ""
    is_only: bool = True
    scopes: dict[str, tuple[str, ...]] = {}
    client_id: str = ""
    client_secret: str = ""
    people: dict[str, Condition] = {}
    accepts: tuple[Accepts, ...] = ()

    def __repr__(self) -> str:
        return f"Issuer({self.issuer!r})"


# The reserved server names in addresses of Claude Code's own tools, and of interlock's own tools.
BUILT_IN = "claude-built-in"
OWN = "interlock"


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of the policy. It applies to a call if all of its conditions are met.

    Attributes:
        id: The rule's id in records and answers, which is unique in the policy.
        effect: The decision. Among the rules that apply, "deny" precedes "ask", and "ask" "allow".
        who: The callers: "*", principals such as "user:anna" or "ISSUER#SUBJECT", or "group:NAME".
        kind: The kind of items whose addresses the patterns match.
        patterns: Shell patterns of addresses, such as "SERVER:NAME".
        risk: The risk of the tools that the rule applies to; None for any risk.
        view: The name of the view through which the call is made; "" for any view.
        arguments: Conditions on the call's arguments, keyed by the argument's name.
        claims: Conditions on the claims in the caller's token, keyed by the claim's name.
        approvers: Who may approve, if the effect is "ask": as in `who`, or "caller".
        expires: The seconds for which an approval is valid, if the effect is "ask"; None for the
            default in `ApprovalSettings`.
        record: How the audit trail records arguments; None for the default in `Audit`.
    """

    id: str
    effect: Effect
    who: tuple[str, ...]
    kind: Kind
    patterns: tuple[str, ...]
    risk: Risk | None = None
    view: str = ""
    arguments: dict[str, Condition] = {}
    claims: dict[str, Condition] = {}
    approvers: tuple[str, ...] = (CALLER,)
    expires: float | None = None
    record: Record | None = None


class PolicyRules(Struct, frozen=True, kw_only=True):
    """The rules that decide which callers may call which tools.

    Attributes:
        rules: The rules; their order has no meaning. A call that no rule allows is denied.
        read_only: Whether all tools with the risk "write" are denied.
    """

    rules: tuple[Rule, ...] = ()
    read_only: bool = False


class KeyLimits(Struct, frozen=True, kw_only=True):
    """Limits on each API key, and on each user who calls with a token."""

    rate: Rate | None = None
    burst: int | None = None  # calls allowed at once; None for as many as in `rate`
    concurrent: int = 16
    per_day: int | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on all calls together."""

    per_key: KeyLimits = KeyLimits()
    tools: dict[str, Rate] = {}  # rate limits per principal, keyed by a pattern of addresses
    concurrent: int = 512
    queue: int = 1_024  # the most calls that may wait for one server


class ServerLimits(Struct, frozen=True, kw_only=True):
    """Limits on the calls to one server."""

    concurrent: int | None = None  # simultaneous calls; None for the server's `concurrency`
    queue: int | None = None  # waiting calls; None for `Limits.queue`
    rate: Rate | None = None


class Results(Struct, frozen=True, kw_only=True):
    """Limits on the size of results that a model receives, and on kept copies of larger results.

    Attributes:
        max: The size of the largest result, in bytes; 0 for no limit at all.
        tools: Limits in bytes that replace `max`, keyed by patterns of addresses; the smallest
            limit among the matching patterns is used.
        views: Limits in bytes, keyed by a view's name, which apply if they are smaller.
        per_user: The most bytes that are kept for one user.
        total: The most bytes that are kept for all users.
    """

    max: int = 65_536
    tools: dict[str, int] = {}
    views: dict[str, int] = {}
    per_user: int = 64 * 1024 * 1024
    total: int = 4 * 1024 * 1024 * 1024


class Keep(Struct, frozen=True, kw_only=True):
    """How long the rows of each table are kept, in seconds; None to keep them forever.

    Attributes:
        audit: The age at which an audit record is deleted.
        approvals: The time from an approval's expiry until it is deleted.
        conversations: The time from a user's last message until the conversation is deleted.
        files: The age at which an uploaded file is deleted that no conversation uses.
        results: The age at which a large result is deleted.
        sessions: The age at which a session of the web pages ends, even if it is used.
    """

    audit: float = 400 * 86_400.0
    approvals: float = 30 * 86_400.0
    conversations: float | None = None
    files: float = 7 * 86_400.0
    results: float = 3_600.0
    sessions: float = 7 * 86_400.0


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """How long an approval is valid, and how long a call waits for an approval, in seconds."""

    expires: float = 900.0
    wait: float = 0.0


class Drain(Struct, frozen=True, kw_only=True):
    """How a gateway shuts down.

    Attributes:
        delay: The seconds for which a gateway is still served after it says that it is not ready,
            so that a load balancer stops sending requests to it.
        calls: The seconds that running calls then have to finish.
    """

    delay: float = 0.0
    calls: float = 30.0


PREFIX = "whsec_"  # before the Base64 of a secret of Standard Webhooks


class Notify(Struct, frozen=True, kw_only=True):
    """The receiver of messages about calls that wait for an approval.

    Attributes:
        url: The URL to which each message is sent, which may be secret.
        secret: The secret that signs messages, as in Standard Webhooks; "" to sign none.
        format: The form of the messages.
    """

    url: str
    secret: str = ""
    format: Literal["standard", "slack", "teams"] = "standard"

    def __repr__(self) -> str:
        return f"Notify({self.format!r})"


class Lock(Struct, frozen=True, kw_only=True):
    """The lock, which decides which definitions of tools are accepted automatically.

    Attributes:
        mode: "first" accepts each server's first list, "strict" accepts the definitions in `file`,
            and "off" accepts every definition.
        file: The file of accepted definitions; "" for no file.
    """

    mode: Literal["first", "strict", "off"] = "first"
    file: str = ""


class Audit(Struct, frozen=True, kw_only=True):
    """The settings of the audit trail.

    Attributes:
        mode: "strict" refuses calls that cannot be recorded; "lenient" allows them and marks the
            gap.
        reads: "overlap" starts a tool of risk "read" while its intent is still being written.
        arguments: How arguments are recorded.
        copy: The folder of the files that receive a copy of each record; with "", the folder
            `audit-copy` beside the database receives the signed ends of the chains only.
    """

    mode: Literal["strict", "lenient", "off"] = "strict"
    reads: Literal["overlap", "before"] = "overlap"
    arguments: Record = "hash"
    copy: str = ""


class Telemetry(Struct, frozen=True, kw_only=True):
    """The settings of traces; the variables OTEL_* have all others.

    Attributes:
        trust: The callers whose traces continue in the gateway and at its servers, as in
            `Rule.who`. The trace of any other caller is only linked.
        link: The URL of a trace in the operator's tracing tool, with `{trace_id}`; "" for none.
    """

    trust: tuple[str, ...] = ()
    link: str = ""


class PluginSettings(Struct, frozen=True, kw_only=True):
    """Settings of plugins: manifests in a folder, whose tools call one server's operations."""

    folder: str
    server: str


class ChatLimits(Struct, frozen=True, kw_only=True):
    """Limits on each user of the chat page."""

    turns: int = 4  # simultaneous turns
    messages: Rate = Rate(30, 60)
    turn: float = 600.0  # the longest turn, in seconds


class ByteQuota(Struct, frozen=True, kw_only=True):
    """The most bytes that one user, and all users, may store."""

    per_user: int
    total: int


class ChatQuotas(Struct, frozen=True, kw_only=True):
    """Limits on the bytes that the users of the chat page store."""

    conversations: ByteQuota = ByteQuota(per_user=256 * 1024 * 1024, total=16 * 1024 * 1024 * 1024)
    files: ByteQuota = ByteQuota(per_user=256 * 1024 * 1024, total=16 * 1024 * 1024 * 1024)


class ChatPage(Struct, frozen=True, kw_only=True):
    """Settings of the chat page. Users can choose among `models`; the first is the default."""

    models: tuple[str, ...]
    engine: Literal["agent", "graph"] = "agent"
    system: str = ""
    tool_search: ToolSearch = ToolSearch()
    apps_origin: str = ""
    limits: ChatLimits = ChatLimits()
    quotas: ChatQuotas = ChatQuotas()


class FrontDoorSettings(Struct, frozen=True, kw_only=True):
    """Settings of the OAuth front door, which logs people in with the gateway's URL only.

    Attributes:
        clients: The places of clients that may ask people: hosts, "localhost" for programs on a
            person's computer, and "SCHEME:" for apps; None for all.
        registration: Whether clients can register themselves.
        sign_in: The seconds after which a person must sign in again.
        recheck: The age in seconds at which the issuer is asked again about a person.
    """

    clients: tuple[str, ...] | None = None
    registration: bool = True
    sign_in: float = 30 * 86_400.0
    recheck: float = 3_600.0


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of `interlock serve`, and the policy that all commands apply.

    Attributes:
        listen: The address to listen on; None for 127.0.0.1:8080.
        public_url: The URL that clients use; "" for the URL of the address in `listen`.
        hosts: Additional values that are accepted in the Host header.
        proxies: The addresses and networks of reverse proxies whose headers are believed.
        cors: Origins whose pages may call the endpoint; "*" allows any page.
        headers: Names, in lower case, of the headers that `${header:NAME}` may refer to.
        sse: Whether to also serve the transport HTTP+SSE of 2024-11-05.
        database: A file or a `postgresql://` URL; "" for the database that `interlock chat` uses.
        views: The views, keyed by name.
        issuers: The authorization servers whose tokens are accepted besides API keys.
        oauth: The OAuth front door; None for none.
        groups: The principals in each group, keyed by the group's name.
        policy: The rules; None if callers may call everything that their scopes allow.
        admin: The address of the admin API; None to serve it at `listen` if that is on loopback,
            and otherwise not at all.
        notify: The receiver of messages about calls that wait for an approval; None for no
            messages.
        instructions: The text for clients; "servers" to pass on the servers' texts, "catalogue" for
            a line about each server, "" for none, or for "catalogue" where clients search.
        search: Whether clients at `/mcp` list all tools, or search for them.
        telemetry: Whose traces continue, and where operators look at traces.
    """

    listen: Address | None = None
    public_url: str = ""
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    sse: bool = True
    database: str = ""
    views: dict[str, View] = {}
    issuers: tuple[Issuer, ...] = ()
    oauth: FrontDoorSettings | None = None
    groups: dict[str, tuple[str, ...]] = {}
    policy: PolicyRules | None = None
    limits: Limits = Limits()
    results: Results = Results()
    approvals: ApprovalSettings = ApprovalSettings()
    drain: Drain = Drain()
    keep: Keep = Keep()
    lock: Lock = Lock()
    audit: Audit = Audit()
    plugins: PluginSettings | None = None
    admin: Address | None = None
    chat: ChatPage | None = None
    notify: Notify | None = None
    instructions: str = ""
    search: ViewSearch = ViewSearch()
    telemetry: Telemetry = Telemetry()

    def __repr__(self) -> str:
        rules = "no policy" if self.policy is None else f"{len(self.policy.rules)} rules"
        return f"GatewaySettings({self.listen or ''!s}, views {sorted(self.views)}, {rules})"
