"""The tables, their indexes, and the index of words; see `store.chat.conversation_search`.

They are those of version `REVISION`; see `schema_version` before you change them.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    event,
    text,
)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time. SQLite stores no time zone, so its columns are in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Convert a time in any zone to UTC."""
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Return an aware time; SQLite's are naive."""
        return value.replace(tzinfo=UTC) if value and not value.tzinfo else value


metadata = MetaData()

# Almost every outcome is "ok" without a reason. Indexes omit those: their intent leads to them.
_NOT_PLAIN = "status <> 'ok' OR reason <> ''"


def _with(table: str) -> ForeignKey:
    """Return a reference to a row of another table, with which this row is deleted."""
    return ForeignKey(f"{table}.id", ondelete="CASCADE")


def _partial_index(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, info={"where": text(where)})


def set_conditions(table: Table, connection: Connection, **_: object) -> None:
    """Set the conditions of a table's indexes for the database of a connection."""
    # `Index(sqlite_where=…, postgresql_where=…)` would load both dialects in every process.
    for index in table.indexes:
        index.dialect_options[connection.dialect.name]["where"] = index.info.get("where")


conversations = Table(
    "conversations",
    metadata,
    Column("id", String, primary_key=True),
    Column("title", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("updated", UtcDateTime, nullable=False),
    Column("owner", String, nullable=False, server_default=""),  # "" is the local user
    Column("settings", Text, nullable=False, server_default="{}"),  # JSON, of the chat page
    Column("parent", String, nullable=False, server_default=""),  # the copied conversation
    Column("forked_at", Integer),  # the number of copied messages
    # As counted in `stored_bytes`: of this row, its messages and its calls.
    Column("bytes", BigInteger, nullable=False, server_default=text("0")),
    Index("conversations_owner_updated", "owner", "updated"),
)

messages = Table(
    "messages",
    metadata,
    Column("conversation_id", String, _with("conversations"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),  # from 0, without gaps
    Column("role", String, nullable=False),
    Column("bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("content", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    # The columns below are JSON, or NULL where a message has no such part.
    Column("tool_calls", Text),  # of an assistant message: [{id, name, input, malformed?}]
    Column("tool_results", Text),  # of a tool message: [{tool_call_id, name, is_error, loads?}]
    Column("provider_data", Text),
    Column("content_json", Text),  # the exact content, where a text column cannot hold it
    Column("model", Text),  # the model that wrote it; NULL for others
    Column("attachments", Text),  # [{media_type, data, name?}], data in base64
    Column("usage", Text),  # of an assistant message: {input_tokens, output_tokens, ...}
    Column("unfinished", Text),  # of an assistant message: {reason?, detail?}; see `DRAFT`
)
# The column `unfinished` of an answer that is being written, or whose program was killed. Its text
# changes too often for the full-text index, and its size is counted once it has ended.
DRAFT = "{}"

# `message_words` gives each message a number that no VACUUM changes. '{}' is `DRAFT`.
_SQLITE_WORDS = (
    "CREATE TABLE message_words (id INTEGER PRIMARY KEY, conversation_id VARCHAR NOT NULL,"
    " position INTEGER NOT NULL, owner VARCHAR NOT NULL)",
    "CREATE UNIQUE INDEX message_words_message ON message_words (conversation_id, position)",
    "CREATE VIRTUAL TABLE message_index USING fts5(content, owner, content='',"
    " tokenize='unicode61 remove_diacritics 2')",
    "CREATE TRIGGER message_words_added AFTER INSERT ON messages"
    " WHEN new.role <> 'system' AND new.unfinished IS NOT '{}' BEGIN"
    " INSERT INTO message_words (conversation_id, position, owner)"
    " SELECT new.conversation_id, new.position, 'o' || lower(hex(owner)) FROM conversations"
    " WHERE id = new.conversation_id;"
    " INSERT INTO message_index (rowid, content, owner)"
    " SELECT id, new.content, owner FROM message_words"
    " WHERE conversation_id = new.conversation_id AND position = new.position; END",
    "CREATE TRIGGER message_words_deleted AFTER DELETE ON messages"
    " WHEN old.role <> 'system' AND old.unfinished IS NOT '{}' BEGIN"
    " INSERT INTO message_index (message_index, rowid, content, owner)"
    " SELECT 'delete', id, old.content, owner FROM message_words"
    " WHERE conversation_id = old.conversation_id AND position = old.position;"
    " DELETE FROM message_words"
    " WHERE conversation_id = old.conversation_id AND position = old.position; END",
)
_INDEXED = 100_000  # characters of a message that PostgreSQL indexes, as its limit is in bytes
# Only letters and digits are kept, so that PostgreSQL does not treat a path or a host as one word.
# The words are stored, because a search for a phrase reads the words of each candidate message.
_POSTGRES_WORDS = (
    "ALTER TABLE messages ADD COLUMN words tsvector GENERATED ALWAYS AS ("
    "CASE WHEN unfinished = '{}' THEN NULL"
    f" ELSE to_tsvector('simple'::regconfig, regexp_replace(left(content, {_INDEXED}),"
    r" '(\W|_)+', ' ', 'g')) END) STORED",
    "CREATE INDEX message_words ON messages USING gin (words)",
)


@event.listens_for(messages, "after_create")
def _index_words(_table: Table, connection: Connection, **_: object) -> None:
    is_sqlite = connection.dialect.name == "sqlite"
    for statement in _SQLITE_WORDS if is_sqlite else _POSTGRES_WORDS:
        connection.exec_driver_sql(statement)


# Calls of a chat as its page shows them.
chat_calls = Table(
    "chat_calls",
    metadata,
    Column("conversation_id", String, _with("conversations"), primary_key=True),
    Column("id", String, primary_key=True),  # the call's id in the audit trail
    Column("tool_call_id", String, nullable=False),  # the model's id of the call
    Column("tool", String, nullable=False),  # an address
    Column("arguments", Text, nullable=False),  # JSON
    Column("outcome", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("at", BigInteger, nullable=False),  # microseconds since 1970
    Column("bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("approval", Text),  # JSON: state, by, at, rule
    Column("result", LargeBinary),  # the server's result, compressed; NULL for none
    Index("chat_calls_id", "id"),
)

# The documents of apps that users have accepted.
chat_apps = Table(
    "chat_apps",
    metadata,
    Column("owner", String, primary_key=True),
    Column("server", String, primary_key=True),
    Column("uri", String, primary_key=True),
    Column("hash", String, nullable=False),
)

# Files that people attach to messages.
chat_files = Table(
    "chat_files",
    metadata,
    Column("id", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("name", Text, nullable=False),
    Column("type", String, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),  # microseconds since 1970
    Column("content", LargeBinary, nullable=False),
    Index("chat_files_owner_created", "owner", "created"),
)

# The files that conversations use.
chat_file_uses = Table(
    "chat_file_uses",
    metadata,
    Column("conversation_id", String, _with("conversations"), primary_key=True),
    Column("file_id", String, _with("chat_files"), primary_key=True),
    Index("chat_file_uses_file", "file_id"),
)

# Sums of what owners store; see `store.chat.space`. Of kept results, the sum of all users alone.
stored_bytes = Table(
    "stored_bytes",
    metadata,
    Column("kind", String, primary_key=True),  # conversations, files, results
    Column("owner", String, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("writer", String, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # from 1, without gaps
    Column("at", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("tenant", String, nullable=False),  # "" for the usual one, which takes no bytes
    Column("kind", String, nullable=False),
    Column("call", String, nullable=False),
    Column("user", String, nullable=False),
    Column("key", String, nullable=False),
    Column("server", String, nullable=False),
    Column("tool", String, nullable=False),
    Column("status", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("body", Text, nullable=False),  # JSON
    Column("hash", LargeBinary, nullable=False),
    Index("audit_call", "call"),
    _partial_index("audit_at", "at", where=_NOT_PLAIN),
    _partial_index("audit_user_at", "user", "at", where=_NOT_PLAIN),
    _partial_index("audit_tool_at", "tool", "at", where=_NOT_PLAIN),
    # Indexes of the few records other than successful calls.
    _partial_index("audit_kind_at", "kind", "at", where="kind NOT IN ('intent', 'outcome')"),
    _partial_index("audit_status_at", "status", "at", where="status NOT IN ('', 'ok')"),
    _partial_index("audit_reason_at", "reason", "at", where="reason <> ''"),
)


event.listen(audit, "before_create", set_conditions)

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("writer", String, primary_key=True),
    Column("started", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("ended", BigInteger),  # NULL: the writer is running or was killed
    Column("host", String, nullable=False),
    Column("seq", BigInteger, nullable=False),  # the last record at `ended` or `signed_at`
    Column("hash", LargeBinary, nullable=False),
    Column("signature", LargeBinary),  # over all columns but those of the purge
    Column("signed_at", BigInteger),
    Column("open_seq", BigInteger),  # every intent before it has an outcome
    # The last record that was purged; 0 and NULL if none was.
    Column("base_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("base_hash", LargeBinary),
    Column("base_signature", LargeBinary),
)

# The running gateways of a shared database; `audit_heads` states which of them have ended.
replicas = Table(
    "replicas",
    metadata,
    Column("writer", String, primary_key=True),  # of `audit_heads`
    Column("host", String, nullable=False),
    Column("version", String, nullable=False),
    Column("configuration", String, nullable=False),  # a keyed hash
    Column("loaded", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("reloaded", BigInteger, nullable=False),  # the last common reload; 0 for none
    Column("error", String, nullable=False),  # "" or the kind of error of the last reload
)

# One row, which states how many heads there are and what they contain: see `audit.heads`.
audit_register = Table(
    "audit_register",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("version", BigInteger, nullable=False),  # the number of changes
    Column("heads", BigInteger, nullable=False),
    Column("sum", LargeBinary, nullable=False),  # of the heads' keyed hashes
    Column("mac", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", LargeBinary, nullable=False, unique=True),  # SHA-256 of the whole key
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("name", String, nullable=False),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("view", String, nullable=False),  # "" for all views
    Column("limits", Text, nullable=False),  # JSON object
    Column("created", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("expires", BigInteger),  # NULL: never
    Column("last_used", BigInteger),  # to the minute
    Column("revoked", BigInteger),
    Column("replaced_by", String),  # id of the key that it was rotated to
    Column("created_by", String, nullable=False),
)

# One row for each write that running gateways must notice; see `database.changes`.
changes = Table(
    "changes",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("kind", String, nullable=False),
    Column("key", String, nullable=False),
    Column("at", BigInteger, nullable=False),  # microseconds since 1970
)


@event.listens_for(changes, "after_create")
def _add_transaction(_table: Table, connection: Connection, **_: object) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "ALTER TABLE changes ADD COLUMN txid bigint NOT NULL DEFAULT txid_current()"
        )
        connection.exec_driver_sql("CREATE INDEX changes_txid ON changes (txid)")


# One row: the gateway's key, with which all gateways of this database seal and sign.
gateway_key = Table(
    "gateway_key",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("fingerprint", String, nullable=False),
)

# Keys that were replaced, with what is still needed of them; see `database.retired_keys`.
retired_keys = Table(
    "retired_keys",
    metadata,
    Column("fingerprint", String, primary_key=True),
    Column("retired", BigInteger, nullable=False),  # microseconds since 1970
    Column("sealed", LargeBinary, nullable=False),  # with the present key
)

# Numbers that outlive a process, such as the calls of a key in a day.
counters = Table(
    "counters",
    metadata,
    Column("scope", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),  # days since 1970
    Column("value", BigInteger, nullable=False),
)

# Approvals of exact calls; each is used once. A call has at most one that is open.
approvals = Table(
    "approvals",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("call", String, nullable=False),  # the call that requested it
    Column("state", String, nullable=False),  # pending, approved, denied, expired, used
    Column("user", String, nullable=False),
    Column("key", String, nullable=False),
    Column("server", String, nullable=False),
    Column("tool", String, nullable=False),  # an address
    Column("arguments", LargeBinary, nullable=False),  # sealed
    Column("hash", String, nullable=False),  # hash of the arguments, as in audit records
    Column("rule", String, nullable=False),
    Column("policy", String, nullable=False),  # hash of the policy that demands it
    Column("pin", String, nullable=False),  # hash of the definition that was called
    Column("approvers", Text, nullable=False),  # JSON list
    Column("created", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("expires", BigInteger, nullable=False),
    Column("decided_by", String),
    Column("decided_at", BigInteger),
    Column("note", Text),
    Column("used_by_call", String),
    Column("binding", LargeBinary, nullable=False),  # keyed hash of all that it is bound to
    Column("told", BigInteger),  # when a gateway began to send the message to approvers
    Index("approvals_state_created", "state", "created"),
    Index("approvals_binding", "binding", "created"),
    Index("approvals_call", "call"),
    _partial_index(
        "approvals_open", "binding", where="state IN ('pending', 'approved')", unique=True
    ),
)

event.listen(approvals, "before_create", set_conditions)

# The definitions that an operator accepted, and what servers offer instead.
pins = Table(
    "pins",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("server", String, primary_key=True),
    Column("kind", String, primary_key=True),  # tool, prompt, or server: launch and instructions
    Column("name", String, primary_key=True),  # "" for a server
    Column("state", String, nullable=False),  # accepted, changed, new, gone
    Column("hash", String),  # hash of the accepted definition; NULL for none
    Column("definition", Text),
    Column("format", Integer, nullable=False, server_default=text("1")),  # of the definition
    Column("source", String),  # hash of what the server itself states; NULL if that is `hash`
    Column("seen_hash", String),  # hash of the server's definition, where it differs
    Column("seen_definition", Text),
    Column("seen_format", Integer, nullable=False, server_default=text("1")),
    Column("seen_source", String),
    Column("risk", String),  # as the operator stated it
    Column("decided_by", String),
    Column("decided_at", BigInteger),  # microseconds since 1970
    Column("since", BigInteger, nullable=False),  # the time since which it has had this state
)

# Results that were too large for a model. Their bytes are in files beside a SQLite database, but in
# `kept_chunks` of a PostgreSQL database, so that all its gateways can read them.
kept_results = Table(
    "kept_results",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("call", String, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("file", String, nullable=False),  # name in the folder `results`
    Column("created", BigInteger, nullable=False),  # microseconds since 1970
    Column("expires", BigInteger, nullable=False),
    Index("kept_results_user_created", "user", "created"),
    Index("kept_results_expires", "expires"),
)

kept_chunks = Table(
    "kept_chunks",
    metadata,
    Column("id", String, _with("kept_results"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # from 0
    Column("content", LargeBinary, nullable=False),
)

# Calls by the minute, for charts.
rollups = Table(
    "rollups",
    metadata,
    Column("minute", Integer, primary_key=True, autoincrement=False),  # minutes since 1970
    Column("writer", String, primary_key=True),  # the writer of the audit records
    Column("tenant", String, primary_key=True),  # as in the audit records
    Column("server", String, primary_key=True),
    Column("tool", String, primary_key=True),  # an address
    Column("key", String, primary_key=True),
    Column("outcome", String, primary_key=True),  # ran, failed, refused, limited, held, stopped
    Column("calls", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("ms", LargeBinary, nullable=False),  # 32 counts of a logarithmic histogram
    sqlite_with_rowid=False,
)

# The same for longer times, of all writers: sums of `rollups`.
rollup_sums = Table(
    "rollup_sums",
    metadata,
    Column("span", Integer, primary_key=True, autoincrement=False),  # minutes
    Column("minute", Integer, primary_key=True, autoincrement=False),  # the first minute
    Column("tenant", String, primary_key=True),
    Column("server", String, primary_key=True),
    Column("tool", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("outcome", String, primary_key=True),
    Column("calls", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("ms", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# Sessions of the web pages. Both halves are needed, and only hashes are kept.
page_sessions = Table(
    "page_sessions",
    metadata,
    Column("id_hash", LargeBinary, primary_key=True),  # SHA-256 of the cookie
    Column("page_key_hash", LargeBinary, nullable=False),  # SHA-256 of the page's own half
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("key", String, nullable=False),  # id of the API key that opened it; "" for none
    Column("scopes", Text, nullable=False),  # JSON list
    Column("view", String, nullable=False),  # "" for all views
    Column("groups", Text, nullable=False),  # JSON list, of the token that opened it
    Column("claims", Text, nullable=False),  # JSON object, of the token that opened it
    Column("created", BigInteger, nullable=False),  # microseconds since 1970, UTC
    Column("last_used", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Index("page_sessions_user", "user"),
)

# Codes that open a session of the web pages, once.
login_codes = Table(
    "login_codes",
    metadata,
    Column("hash", LargeBinary, primary_key=True),  # SHA-256 of the code
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("expires", BigInteger, nullable=False),  # microseconds since 1970
    Column("used", Integer, nullable=False),  # 1 after its use; the row stays until it expires
)

# Credentials of users for servers, sealed for the row.
credentials = Table(
    "credentials",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("server", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("kind", String, nullable=False),  # value, oauth
    Column("sealed", LargeBinary, nullable=False),
    Column("state", String, nullable=False),  # ok, expiring, needs_login, revoked
    Column("expires", BigInteger),  # microseconds since 1970
    Column("updated", BigInteger, nullable=False),
    Column("leased_by", String, nullable=False),  # the process that refreshes it; "" for none
    Column("leased_until", BigInteger, nullable=False),
)

# The plugins that users have installed.
plugin_installations = Table(
    "plugin_installations",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("plugin", String, primary_key=True),
    Column("by", String, nullable=False),
    Column("at", BigInteger, nullable=False),  # microseconds since 1970
)

# What people have allowed the clients of the OAuth front door. Their tokens are not stored.
authorizations = Table(
    "authorizations",
    metadata,
    Column("id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("client", Text, nullable=False),  # its client_id
    Column("name", Text, nullable=False),  # as the client calls itself
    Column("verified", String, nullable=False),  # the host of its document; "" for none
    Column("places", Text, nullable=False, server_default="[]"),  # JSON list, of its hosts
    Column("view", String, nullable=False),  # the resource; "" for all views
    Column("scopes", Text, nullable=False),  # JSON list
    Column("proven", Integer, nullable=False),  # 1 for a client that signs its requests
    Column("generation", BigInteger, nullable=False),  # how often it was refreshed
    Column("salt", LargeBinary, nullable=False),  # of its refresh tokens
    Column("rotated", BigInteger, nullable=False),  # microseconds since 1970, as all times below
    Column("seen", BigInteger, nullable=False),  # the newest generation that made a call
    Column("key", String, nullable=False),  # id of the API key that signed in; "" for none
    Column("created", BigInteger, nullable=False),
    Column("last_used", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("reason", String, nullable=False),  # why it ended
    Index("authorizations_user", "user"),
    Index("authorizations_expires", "expires"),
)

# What an issuer has last said about a person, for all of the person's authorizations.
people = Table(
    "people",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("scopes", Text, nullable=False),  # JSON list
    Column("groups", Text, nullable=False),  # JSON list
    Column("claims", Text, nullable=False),  # JSON object
    Column("sealed", LargeBinary),  # the issuer's refresh token; NULL for none
    Column("checked", BigInteger, nullable=False),  # microseconds since 1970
    Column("leased_by", String, nullable=False),  # the process that asks the issuer; "" for none
    Column("leased_until", BigInteger, nullable=False),
)

# Codes that clients exchange for tokens, once.
authorization_codes = Table(
    "authorization_codes",
    metadata,
    Column("hash", LargeBinary, primary_key=True),  # SHA-256 of the code
    Column("body", Text, nullable=False),  # JSON, of what the person has allowed
    Column("expires", BigInteger, nullable=False),  # microseconds since 1970
    Column("authorization", String, nullable=False),  # made from it; "" before its use
)

# Ids of signed statements that count once, such as the `jti` of a client's assertion.
used_ids = Table(
    "used_ids",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("expires", BigInteger, nullable=False),  # microseconds since 1970
)

# Clients that an operator has created, blocked or allowed.
oauth_clients = Table(
    "oauth_clients",
    metadata,
    Column("id", Text, primary_key=True),  # a client_id, or the host of clients
    Column("name", Text, nullable=False),
    Column("state", String, nullable=False),  # created, blocked, allowed
    Column("redirects", Text, nullable=False),  # JSON list
    Column("secret_hash", LargeBinary),
    Column("jwks_url", Text, nullable=False),
    Column("created_by", String, nullable=False),
    Column("created", BigInteger, nullable=False),  # microseconds since 1970
)

# One row, which states the oldest version whose programs can use these tables.
compatibility = Table(
    "schema_compatibility",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1
    Column("compatible_from", String(32), nullable=False),
)

# One row, the version of the tables. It is made as by Alembic, as checkouts before 0.2.0 read it.
versions = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
