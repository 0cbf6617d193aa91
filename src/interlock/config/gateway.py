"""The member `gateway` of a configuration. No repr contains a credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from interlock.schema.condition import Condition

Effect = Literal["allow", "ask", "deny"]
Risk = Literal["read", "write"]
Kind = Literal["tools", "resources", "prompts"]
Record = Literal["hash", "full", "none"]

CALLER = "caller"  # the approver who makes the call
EVERYBODY = "*"
GROUP = "group:"  # the prefix of the name of a group


class Address(Struct, frozen=True):
    """An address to listen on; port 0 selects a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Rate(Struct, frozen=True):
    """A rate: at most `calls` within `seconds`."""

    calls: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.calls}/{UNIT_OF[self.seconds]}"


UNIT_OF = {1: "s", 60: "min", 3_600: "h", 86_400: "day"}


class View(Struct, frozen=True, kw_only=True):
    """A named part of the tools, at `/mcp/NAME`.

    Attributes:
        servers: The names of its servers in the file; None for all.
        allow: Patterns of the addresses of its tools; None for all tools of these servers.
        deny: Patterns of the addresses of excluded tools, stronger than `allow`.
        names: Whether tools have their wire names, or the names that their servers use.
    """

    servers: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    names: Literal["wire", "plain"] = "wire"


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server whose tokens are accepted.

    Attributes:
        issuer: The exact value of `iss` in its tokens.
        audience: The values of which `aud` of a token must have one.
        jwks_url: The URL of its public keys.
        groups: The claim that lists a user's groups; "" for none.
        scopes: The scopes of each group, for tokens and logins without scopes.
        client_id: The client's id for logins on the gateway's pages; "" for no logins.
        client_secret: The client's secret; "" for none.
    """

    issuer: str
    audience: tuple[str, ...]
    jwks_url: str
    groups: str = ""
    scopes: dict[str, tuple[str, ...]] = {}
    client_id: str = ""
    client_secret: str = ""

    def __repr__(self) -> str:
        return f"Issuer({self.issuer!r})"


# Names of servers in addresses: of Claude Code's own tools, and of interlock's own tools.
BUILT_IN = "claude-built-in"
OWN = "interlock"


class Rule(Struct, frozen=True, kw_only=True):
    """A rule of the policy. It holds for a call if all of its parts hold.

    Attributes:
        id: The id of the rule in records and answers, unique in the policy.
        effect: The decision. A denial beats a question, and a question beats an allowance.
        who: "*", principals such as "user:anna" and "ISSUER#SUBJECT", or "group:NAME".
        kind: The kind of items that the patterns match.
        patterns: Addresses as shell patterns, "SERVER:NAME".
        risk: The risk of the tools; None for both risks.
        view: The view of the callers; "" for all callers.
        arguments: Conditions on arguments, by their name.
        claims: Conditions on claims of the caller's token, by their name.
        approvers: The approvers of an `ask`, written as in `who`, or "caller".
        expires: The seconds for which an approval of an `ask` is valid; None for the value of
            `ApprovalSettings`.
        record: The form in which arguments are recorded; None for that of `Audit`.
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
    """The rules that decide who may call which tools.

    Attributes:
        rules: The rules, in any order. A call that no rule allows is denied.
        read_only: Whether every tool of risk `write` is denied.
    """

    rules: tuple[Rule, ...] = ()
    read_only: bool = False


class KeyLimits(Struct, frozen=True, kw_only=True):
    """Limits of each API key, and of each user of a token."""

    rate: Rate | None = None
    burst: int | None = None  # calls allowed before `rate` applies; None: as many as in `rate`
    concurrent: int = 16
    per_day: int | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on calls."""

    per_key: KeyLimits = KeyLimits()
    tools: dict[str, Rate] = {}  # the rate of each principal, by a pattern of addresses
    concurrent: int = 512
    queue: int = 1_024  # the most calls that wait for one server


class ServerLimits(Struct, frozen=True, kw_only=True):
    """Limits on calls of one server."""

    concurrent: int | None = None  # concurrent calls; None: `concurrency` of the server
    queue: int | None = None  # waiting calls; None: `Limits.queue`
    rate: Rate | None = None


class Results(Struct, frozen=True, kw_only=True):
    """Limits on the results that a model receives, and on the kept copies of larger ones.

    Attributes:
        max: The largest result in bytes; 0 for no budget at all.
        tools: Other limits in bytes, by patterns of addresses; the smallest matching one replaces
            `max`.
        views: Limits in bytes by the name of a view, which apply where they are smaller.
        keep: The seconds for which a result is kept.
        per_user: The bytes of all kept results of a user.
    """

    max: int = 65_536
    tools: dict[str, int] = {}
    views: dict[str, int] = {}
    keep: float = 3_600.0
    per_user: int = 64 * 1024 * 1024


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """The validity of an approval, and the time that a call waits for one, in seconds."""

    expires: float = 900.0
    wait: float = 0.0


class Lock(Struct, frozen=True, kw_only=True):
    """The lock, which decides which definitions of tools are accepted.

    Attributes:
        mode: "first" accepts the first list of a server, "strict" the definitions in `file`, and
            "off" all.
        file: The file of accepted definitions; "" for none.
    """

    mode: Literal["first", "strict", "off"] = "first"
    file: str = ""


class Audit(Struct, frozen=True, kw_only=True):
    """The settings of the record of calls.

    Attributes:
        mode: "strict" allows no call without its record; "lenient" continues and marks the gap.
        reads: "overlap" lets a tool of risk read run while its intent is being written.
        arguments: The form in which arguments are recorded.
        keep: The seconds until a record is deleted.
        copy: A file that receives a copy of each record; "" for none.
    """

    mode: Literal["strict", "lenient", "off"] = "strict"
    reads: Literal["overlap", "before"] = "overlap"
    arguments: Record = "hash"
    keep: float = 400 * 86_400.0
    copy: str = ""


class PluginSettings(Struct, frozen=True, kw_only=True):
    """Tools that users install: manifests in a folder, for operations of one server."""

    folder: str
    server: str


class ChatLimits(Struct, frozen=True, kw_only=True):
    """Limits of each user of the chat."""

    turns: int = 4  # concurrent turns
    messages: Rate = Rate(30, 60)
    turn: float = 600.0  # the longest turn, in seconds


class ChatPage(Struct, frozen=True, kw_only=True):
    """The chat in the browser. Users choose among `models`; the first is the default."""

    models: tuple[str, ...]
    engine: Literal["agent", "graph"] = "agent"
    system: str = ""
    apps_origin: str = ""
    limits: ChatLimits = ChatLimits()


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of `interlock serve`, and the policy of every surface.

    Attributes:
        listen: The address to listen on; None for 127.0.0.1:8080.
        public_url: The URL that clients use; "" for the address of `listen`.
        hosts: Further accepted names in the Host header.
        sse: Whether to serve the transport of 2024-11-05 as well.
        database: A file or a `postgresql://` URL; "" for the database of `interlock chat`.
        views: The views by name.
        issuers: The issuers whose tokens are accepted beside API keys.
        groups: The principals of each group, by its name.
        policy: The rules; with None, a caller may call all that its scopes cover.
        admin: The address of the admin API; None for that of the rest on loopback, else nowhere.
        instructions: The text for clients; "servers" for the texts of the servers, "" for none.
    """

    listen: Address | None = None
    public_url: str = ""
    hosts: tuple[str, ...] = ()
    sse: bool = True
    database: str = ""
    views: dict[str, View] = {}
    issuers: tuple[Issuer, ...] = ()
    groups: dict[str, tuple[str, ...]] = {}
    policy: PolicyRules | None = None
    limits: Limits = Limits()
    results: Results = Results()
    approvals: ApprovalSettings = ApprovalSettings()
    lock: Lock = Lock()
    audit: Audit = Audit()
    plugins: PluginSettings | None = None
    admin: Address | None = None
    chat: ChatPage | None = None
    instructions: str = ""

    def __repr__(self) -> str:
        rules = "no policy" if self.policy is None else f"{len(self.policy.rules)} rules"
        return f"GatewaySettings({self.listen or ''!s}, views {sorted(self.views)}, {rules})"
