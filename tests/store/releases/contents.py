"""The content of the databases that are kept of each release, and what reads it.

To keep the databases of a release, run this file: `python -m tests.store.releases.contents 0.2.0`.
"""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.config.gateway import Audit
from interlock.messages import AssistantMessage, UserMessage
from interlock.openapi import OpenApiServer
from interlock.store import AuditRecord, ConversationStore, KeyStore, open_trail
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.authorizations import AuthorizationStore
from interlock.store.credentials import CredentialStore, Place
from interlock.store.database.key_owner import open_owned
from interlock.store.oauth_clients import OAuthClientStore, StoredClient
from interlock.store.pin import PROMPT_KINDS, TOOL_KINDS, Offered
from interlock.store.pins import PinStore
from interlock.store.plugins import PluginStore
from interlock.store.quotas import QuotaStore
from interlock.store.signed_in import SignedInStore
from interlock.toolbox.pins import offered_prompts, offered_server, offered_tool
from tests.servers.postgres import Postgres, client_programs

FOLDER = Path(__file__).parent
KEY = GatewayKey(bytes(range(32)))
# The place of a credential that is the API key itself, as the database has only its hash.
SECRET = Place("user:anna", "crm", "KEY")
FOREVER = 2**53
APPROVAL = Approval(
    id="a_1",
    call="c_1",
    state="pending",
    tenant="default",
    user="user:anna",
    key="k1",
    server="crm",
    tool="crm:refund",
    arguments={"amount": 80},
    hash="h",
    rule="refunds",
    policy="p",
    pin="d",
    approvers=("group:leads",),
    created=1_000,
    expires=FOREVER,
)
PERSON = StoredPerson(
    user="https://id.example.com#anna",
    scopes=("mcp:*",),
    groups=("leads",),
    claims={"name": "Anna"},
    is_asked=True,
)
AUTHORIZATION = StoredAuthorization(
    id="AAAAAAAAAAAA",
    user=PERSON.user,
    client="https://client.example.com/client.json",
    name="Client",
    verified="client.example.com",
    scopes=("mcp:read",),
    salt=bytes(16),
    rotated=1_000,
    created=1_000,
    last_used=1_000,
    expires=FOREVER,
)
BLOCKED = StoredClient(id="evil.example.com", state="blocked", created_by="user:root", created=1)
TOOL = {
    "name": "refund",
    "description": "Refund an order.",
    "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}},
    "annotations": {"destructiveHint": True},
}
PROMPT = {"name": "greet", "description": "Greet a person.", "arguments": [{"name": "person"}]}
LAUNCH = {"command": "crm-server", "args": ["--stdio"]}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Orders", "version": "1"},
    "paths": {
        "/orders/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "schema": {"$ref": "#/components/schemas/Id"}}
            ],
            "get": {
                "operationId": "getOrder",
                "summary": "Return an order.",
                "parameters": [{"name": "full", "in": "query", "schema": {"type": "boolean"}}],
                "responses": {
                    "200": {
                        "description": "The order",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Order"}}
                        },
                    }
                },
            },
        }
    },
    "components": {
        "schemas": {
            "Id": {"type": "string", "format": "uuid"},
            "Order": {
                "type": "object",
                "properties": {
                    "id": {"$ref": "#/components/schemas/Id"},
                    "total": {"type": "number"},
                },
            },
        }
    },
}


async def offered() -> dict[str, list[Offered]]:
    """Return the definitions that two servers offer, as this version of interlock writes them."""
    api = OpenApiServer(
        document=DOCUMENT,
        base_url="https://orders.example.com",
        tools={"get_order": {"operation": "getOrder", "title": "Order"}},
    )
    await api.load()
    tool = api.tools.by_name["get_order"].definition
    launch = {"openapi": "https://orders.example.com/openapi.json"}
    return {
        "crm": [offered_server(LAUNCH, "Be careful."), offered_tool(TOOL, None)],
        "orders": [
            offered_server(launch, None),
            offered_tool(tool, api.behind("get_order"), api.stated("get_order")),
        ],
    }


async def fill(place: str) -> None:
    """Fill a new database with some of everything."""
    async with ConversationStore.open(place) as conversations:
        made = await conversations.create("a model")
        await conversations.append(
            made.id, UserMessage("Refund order 7, please."), AssistantMessage("Done.")
        )
    database = await open_owned(place, KEY)
    try:
        keys = KeyStore(database)
        stored, secret = await keys.create("anna", name="laptop", lifetime=None)
        await CredentialStore(database, KEY).set(SECRET, secret)
        approvals, pins = ApprovalStore(database, KEY), PinStore(database)
        for server, definitions in (await offered()).items():
            await pins.check(server, definitions, TOOL_KINDS)
        await pins.check("crm", offered_prompts([PROMPT]), PROMPT_KINDS)
        await SignedInStore(database, KEY).put(PERSON, "issuer's token")
        authorizations = AuthorizationStore(database)
        await authorizations.add(AUTHORIZATION)
        await authorizations.add_code(bytes(32), "{}", FOREVER, PERSON, 1_000)
        await authorizations.use_id(bytes(32), FOREVER, 1_000)
        await OAuthClientStore(database).put(BLOCKED)
        await PluginStore(database).install("orders", "user:anna", by="user:root")
        await QuotaStore(database).add(20_000, {stored.id: 3})
        async with open_trail(place, KEY, Audit()) as trail:
            await trail.append(AuditRecord("asked", APPROVAL.call), approvals.insertion(APPROVAL))
            decision = approvals.decision(APPROVAL, "approved", "user:berta", "ticket 4711", 2_000)
            await trail.append(AuditRecord("decided", APPROVAL.call), decision)
            for kind in ("intent", "outcome"):
                called = AuditRecord(kind, "c_2", "user:anna", stored.id, "crm", "crm:refund")
                await trail.append(called)
    finally:
        await database.close()


# Keeping


async def _keep_sqlite(release: str, folder: Path) -> None:
    place = folder / "kept.db"
    await fill(str(place))
    (FOLDER / f"{release}.db.gz").write_bytes(gzip.compress(place.read_bytes(), mtime=0))


def _keep_postgres(release: str) -> None:
    server = Postgres()
    server.start()
    try:
        asyncio.run(fill(server.url))
        dump = subprocess.run(
            [client_programs() / "pg_dump", "--inserts", "--no-owner", server.url],
            check=True,
            capture_output=True,
        )
    finally:
        server.close()
    # Without the commands for psql, and without settings that an older server does not know.
    lines = [each for each in dump.stdout.splitlines(keepends=True) if each[:1] not in b"\\"]
    script = b"".join(each for each in lines if not each.startswith((b"SET ", b"--")))
    (FOLDER / f"{release}.sql.gz").write_bytes(gzip.compress(script, mtime=0))


def keep(release: str) -> None:
    """Make the databases of a release, of both kinds."""
    with TemporaryDirectory() as folder:
        asyncio.run(_keep_sqlite(release, Path(folder)))
    _keep_postgres(release)


if __name__ == "__main__":
    keep(*sys.argv[1:])
