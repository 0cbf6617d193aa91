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

CALLER = "caller"  # as an approver: the user who makes the call
EVERYBODY = "*"
GROUP = "group:"  # before the name of a group


class Address(Struct, frozen=True):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Rate(Struct, frozen=True):
    """So many calls in so many seconds."""

    calls: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.calls}/{UNIT_OF[self.seconds]}"


UNIT_OF = {1: "s", 60: "min", 3_600: "h", 86_400: "day"}


class View(Struct, frozen=True, kw_only=True):
    """A named part of the tools, at `/mcp/NAME`.

    Attributes:
        servers: By the names in the file; None: all.
        allow: Patterns of addresses; None: all tools of these servers.
        deny: Patterns of addresses, stronger than `allow`.
        names: Whether tools have their wire names, or the names that their servers use.
    """

    servers: tuple[str, ...] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    names: Literal["wire", "plain"] = "wire"


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server whose tokens are accepted.

    Attributes:
        issuer: Exactly what its tokens name as `iss`.
        audience: What `aud` of a token must name, one of them if several.
        jwks_url: Where its public keys are.
        groups: The claim that lists a user's groups; "" for none.
        scopes: By group, for tokens and logins that carry no scopes.
        client_id: For a login on the gateway's pages; "" for no login.
        client_secret: "" for none.
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


# In addresses, the server of the tools that Claude Code has itself, and of those of interlock.
BUILT_IN = "claude-built-in"
OWN = "interlock"


class Rule(Struct, frozen=True, kw_only=True):
    """A line of the policy. It holds for a call if all that it names holds.

    Attributes:
        id: Unique in the policy; in records and answers.
        effect: What follows. A denial beats a question, and that an allowance.
        who: "*", principals such as "user:anna" and "ISSUER#SUBJECT", or "group:NAME".
        kind: What the patterns are about.
        patterns: Addresses as shell patterns, "SERVER:NAME".
        risk: Tools of this risk only; None: of both.
        view: Callers in this view only; "" for all callers.
        arguments: Conditions by the name of an argument.
        claims: Conditions by the name of a claim in the caller's token.
        approvers: Of an `ask`: as `who`, and "caller".
        expires: Of an `ask`: seconds until an approval is void; None: as `ApprovalSettings` has it.
        record: How the arguments are recorded; None: as `Audit` has it.
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
    """Who may call what.

    Attributes:
        rules: In any order. What no rule allows is denied.
        read_only: Deny every tool of risk `write`.
    """

    rules: tuple[Rule, ...] = ()
    read_only: bool = False


class KeyLimits(Struct, frozen=True, kw_only=True):
    """Limits of each API key, and of each user of a token."""

    rate: Rate | None = None
    burst: int | None = None  # calls at once before `rate` holds; None: as many as in `rate`
    concurrent: int = 16
    per_day: int | None = None


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on calls."""

    per_key: KeyLimits = KeyLimits()
    tools: dict[str, Rate] = {}  # by a pattern of addresses, for each principal
    concurrent: int = 512
    queue: int = 1_024  # calls that wait for a server


class ServerLimits(Struct, frozen=True, kw_only=True):
    """Limits on calls of one server."""

    concurrent: int | None = None  # None: as `concurrency` of the server
    queue: int | None = None  # None: as `Limits.queue`
    rate: Rate | None = None


class Results(Struct, frozen=True, kw_only=True):
    """How large a result may be for a model, and how the whole of a larger one is kept.

    Attributes:
        max: Bytes; 0 for no budget at all.
        tools: Bytes by patterns of addresses; the smallest that fits holds instead of `max`.
        views: Bytes by the name of a view, where they are less.
        keep: Seconds.
        per_user: Bytes of all kept results of a user.
    """

    max: int = 65_536
    tools: dict[str, int] = {}
    views: dict[str, int] = {}
    keep: float = 3_600.0
    per_user: int = 64 * 1024 * 1024


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """How long an approval is valid, and how long a call waits for one, in seconds."""

    expires: float = 900.0
    wait: float = 0.0


class Lock(Struct, frozen=True, kw_only=True):
    """Which definitions of tools are accepted.

    Attributes:
        mode: "first": the first list of a server; "strict": what `file` holds; "off": all.
        file: Accepted definitions; "" for none.
    """

    mode: Literal["first", "strict", "off"] = "first"
    file: str = ""


class Audit(Struct, frozen=True, kw_only=True):
    """The record of calls.

    Attributes:
        mode: "strict": no call without its record; "lenient": serve on and mark the gap.
        reads: "overlap": a tool of risk read may run while its intent is being written.
        arguments: How arguments are recorded.
        keep: Seconds until a record is deleted.
        copy: A file that gets a copy of each record; "" for none.
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

    turns: int = 4  # at once
    messages: Rate = Rate(30, 60)
    turn: float = 600.0  # seconds


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
        listen: None: 127.0.0.1:8080.
        public_url: Where clients reach it; "" for where it listens.
        hosts: Further names in the Host header that are accepted.
        sse: Serve the transport of 2024-11-05 as well.
        database: A file or a `postgresql://` URL; "" for the database of `interlock chat`.
        views: By name.
        issuers: Whose tokens are accepted beside API keys.
        groups: Principals by the name of a group.
        policy: None: a caller may call all that its scopes cover.
        admin: Where the admin API listens; None: with the rest on loopback, else nowhere.
        instructions: Text for clients; "servers" for that of the servers, "" for none.
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
