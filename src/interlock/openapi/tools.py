"""The tools of a server, made from the operations of an OpenAPI document."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock.config import variables
from interlock.config.openapi import ApiDocument
from interlock.context import Context
from interlock.errors import InterlockError, InvalidArguments, ToolError
from interlock.openapi.document import Document
from interlock.openapi.drift import Drift
from interlock.openapi.failures import Help, failure
from interlock.openapi.identity import Identity, UserStores, mask
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.results import Shape, success
from interlock.openapi.selection import ToolSelection
from interlock.openapi.sending import Planned, Sender, effect
from interlock.openapi.stated import Statements
from interlock.types import CallToolResult, JsonObject

LOGIN = "interlock servers login"


class ApiTool:
    """A `ServedTool` that sends requests for one operation.

    Args:
        plan: The tool's definition, and how its calls become requests.
        sender: Sends the requests.
        identity: Finds the credentials for requests.
        drift: Counts answers that differ from the document.
        login: The command with which a user logs in, for messages.
    """

    def __init__(
        self,
        plan: Plan,
        sender: Sender,
        identity: Identity,
        drift: Drift,
        login: str,
    ) -> None:
        self._login = login
        self.plan = plan
        self.definition: JsonObject = plan.definition
        self._sender = sender
        self._identity = identity
        self._drift = drift
        self._hints = plan.definition["annotations"]
        names = {(place["in"], place["name"] or ""): name for name, place in plan.arguments.items()}
        self._shape = Shape(
            plan.operation,
            plan.definition.get("outputSchema"),
            plan.selection.output != "none",
            names,
        )

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult:
        """Send the request for a call, and return the API's answer as a tool result.

        Raises:
            InvalidArguments: The arguments do not match the document; nothing was sent.
            ToolError: The API did not answer.
        """
        given = {} if arguments is None else msgspec.json.decode(arguments)
        if given in (None, []):  # some clients write this for missing arguments
            given = {}
        if not isinstance(given, dict):
            raise InvalidArguments("the arguments must be an object")
        owner = context.principal.owner if context.principal is not None else ""
        planned = self.planned(given)
        try:
            answer = await self._sender.send(planned, self._identity, owner)
        except InterlockError as error:
            text = str(error).replace(LOGIN, self._login)
            raise ToolError(mask(text, self._identity.secrets(owner))) from None
        secrets = self._identity.secrets(owner)
        if answer.status >= 400:
            return failure(answer, self._shape, secrets, self._help(planned, owner))
        drifts: list[str] = []
        result = success(answer, self._shape, secrets, drifts)
        if drifts:
            self._drift.note(self.plan.name, drifts)
        return result

    def planned(self, given: JsonObject) -> Planned:
        """Return the request for a call, without credentials.

        Raises:
            InvalidArguments: The arguments do not match the document.
        """
        request = self.plan.request(given)
        operation = self.plan.operation
        return Planned(
            request.method,
            request.target,
            request.headers,
            request.body,
            operation.security,
            bool(self._hints["idempotentHint"]),
            self.plan.selection.max_answer_bytes,
            f"{operation.method} {operation.path}",
        )

    async def preview(self, given: JsonObject) -> JsonObject:
        """Return the request for a call, with masked credentials, without sending it.

        Raises:
            InvalidArguments: The arguments do not match the document.
        """
        planned = self.planned(given)
        credentials = self._identity.places(planned.security)
        request = self._sender.request(planned, credentials, masked=True)
        secrets = self._identity.secrets()
        body = None if request.body is None else request.body.decode("utf-8", "replace")
        return {
            "method": request.method,
            "url": mask(request.url, secrets),
            "headers": [[name, mask(value, secrets)] for name, value in request.headers],
            "body": None if body is None else mask(body, secrets),
        }

    @property
    def lacks(self) -> str:
        """The credentials that the operation lacks, in words; "" if none is missing."""
        return self._identity.missing(self.plan.operation.security)

    async def check_user(self, owner: str) -> None:
        """Raise an error if a call would lack a user's credential; see `Identity.check`."""
        await self._identity.check(self.plan.operation.security, owner)

    def _help(self, planned: Planned, owner: str) -> Help:
        chosen = self._identity.chosen(planned.security) or {}
        has_login = any(name in self._identity.logins for name in chosen)
        login = self._login if has_login else ""
        if url := self._identity.connect_url(planned.security, owner):
            login = f"connect again at {url}"
        return Help(
            missing=self.lacks,
            used=self._identity.names(planned.security),
            login=login,
            scopes=tuple(scope for scopes in chosen.values() for scope in scopes),
            effect=effect(planned).capitalize() + ".",
        )


class ApiTools(Struct, frozen=True):
    """The tools made from a document in its current state.

    Attributes:
        by_name: The tools by name, in the order of the configuration.
        stated: A hash of the document's statements about each tool, by the tool's name.
        missing: Why each missing tool is missing, keyed by the tool's name.
        identity: Finds the credentials for requests.
        fingerprint: A hash that changes if a tool's definition or requests change.
        warnings: One line for each dubious part of the document.
        title: The title of the document.
    """

    by_name: dict[str, ApiTool]
    stated: dict[str, JsonObject | None]
    missing: dict[str, str]
    identity: Identity
    fingerprint: str
    warnings: tuple[str, ...]
    title: str


def build(
    document: Document,
    selections: Mapping[str, ToolSelection],
    settings: ApiDocument,
    headers: Mapping[str, str],
    sender: Sender,
    drift: Drift,
    server: str = "",
    users: UserStores | None = None,
) -> ApiTools:
    """Make the tools of a document.

    Args:
        document: The document.
        selections: The operator's configuration of each tool, keyed by the tool's name.
        settings: The base URL and the credentials.
        headers: The operator's headers for each request.
        sender: Sends the requests.
        drift: Counts answers that differ from the document.
        server: The server's name, for login commands in messages.
        users: The credentials of users; None if the local user is the only one.

    Raises:
        ConfigError: A credential does not match the document.
    """
    plans, missing = compile_tools(document, selections, schemes=settings.auth)
    schemes = document.security_schemes
    identity = Identity(
        schemes,
        settings.auth,
        settings.base_url,
        _scopes(plans.values()),
        users=users,
        server=server,
        headers=user_headers(headers),
        secrets=_header_secrets(headers),
    )
    login = f"{LOGIN} {shlex.quote(server)}" if server else LOGIN
    tools = {name: ApiTool(plan, sender, identity, drift, login) for name, plan in plans.items()}
    statements = Statements(document)
    return ApiTools(
        tools,
        {name: statements.of(plan.operation.key, plan.selection) for name, plan in plans.items()},
        missing,
        identity,
        _fingerprint(plans, missing, schemes),
        tuple(document.warnings),
        document.title,
    )


def _scopes(plans: Iterable[Plan]) -> dict[str, tuple[str, ...]]:
    """Return the scopes that operations need, keyed by the security scheme's name."""
    scopes: dict[str, dict[str, None]] = {}
    for plan in plans:
        for alternative in plan.operation.security:
            for name, wanted in alternative.items():
                scopes.setdefault(name, {}).update(dict.fromkeys(wanted))
    return {name: tuple(wanted) for name, wanted in scopes.items()}


def user_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values differ from user to user."""
    return {name: value for name, value in headers.items() if variables.user_names(value)}


def _header_secrets(headers: Mapping[str, str]) -> list[str]:
    values = list(headers.values())
    return [*values, *(part for value in values for part in value.split()[1:])]  # "abc" of "X abc"


def _fingerprint(
    plans: Mapping[str, Plan], missing: Mapping[str, str], schemes: Mapping[str, Any]
) -> str:
    parts = [
        [plan.definition, plan.input_schema, plan.operation.key, plan.operation.security]
        for plan in plans.values()
    ]
    text = msgspec.json.encode([parts, dict(missing), dict(schemes)], order="deterministic")
    return sha256(text).hexdigest()
