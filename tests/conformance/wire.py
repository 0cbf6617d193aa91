"""Check messages of a protocol revision against the specification's own schemas.

The schemas leave every object open, so a field that a revision does not know passes them. What our
side writes is therefore also held against closed copies: a field from another revision is a fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"


class Schema:
    """One revision's definitions, by method and direction.

    Attributes:
        requests: For "client" and "server", the definition of each request it may send, by method.
        notifications: Likewise for notifications.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self._key = "$defs" if "$defs" in document else "definitions"
        self._document = document
        self._closed = {**document, self._key: _closed(document[self._key])}
        self._definitions: dict[str, Any] = document[self._key]
        self._validators: dict[tuple[str, bool], jsonschema_rs.Validator] = {}
        self.requests = {
            side: self._by_method(f"{side.title()}Request") for side in ("client", "server")
        }
        self.notifications = {
            side: self._by_method(f"{side.title()}Notification") for side in ("client", "server")
        }

    def result_of(self, request: str, result: object) -> str:
        """Return the name of the definition for `result`, an answer to definition `request`."""
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            return "InputRequiredResult"
        name = request.removesuffix("Request") + "Result"
        return name if name in self._definitions else "EmptyResult"

    def faults(self, definition: str, value: object, *, closed: bool) -> Iterator[str]:
        """Yield the faults of `value`; `closed` also refuses unknown fields."""
        if "jsonrpc" not in self._definitions[definition].get("properties", {}) and (
            isinstance(value, dict) and "method" in value
        ):
            # The older schemas describe requests without their envelope.
            value = {key: value[key] for key in value if key not in {"jsonrpc", "id"}}
        for error in self._validator(definition, closed).iter_errors(value):
            place = "/".join(map(str, error.instance_path))
            yield f"{definition}: {place or 'message'}: {error.message}"

    def envelope(self, message: dict[str, Any]) -> str:
        """Return the name of the JSON-RPC definition for `message`."""
        if "method" in message:
            return "JSONRPCRequest" if "id" in message else "JSONRPCNotification"
        newer = "JSONRPCResultResponse" in self._definitions
        if "error" in message:
            return "JSONRPCErrorResponse" if newer else "JSONRPCError"
        return "JSONRPCResultResponse" if newer else "JSONRPCResponse"

    def _validator(self, definition: str, closed: bool) -> jsonschema_rs.Validator:
        if (definition, closed) not in self._validators:
            document = self._closed if closed else self._document
            schema = {**document, "$ref": f"#/{self._key}/{definition}"}
            if self._key == "definitions":  # draft-07 ignores what stands beside a $ref
                schema = {**document, "allOf": [{"$ref": schema.pop("$ref")}]}
            self._validators[definition, closed] = jsonschema_rs.validator_for(
                schema, validate_formats=True
            )
        return self._validators[definition, closed]

    def _by_method(self, union: str) -> dict[str, str]:
        definition = self._definitions.get(union, {})
        members = [ref["$ref"].rsplit("/", 1)[1] for ref in definition.get("anyOf", [])]
        if "properties" in definition:  # a union of one is written out
            members = [f"Cancelled{union.removeprefix('Client')}"]
        return {self._definitions[name]["properties"]["method"]["const"]: name for name in members}


def load(folder: Path) -> dict[str, Schema]:
    """Read the schema of every revision from the folder that extract_schemas.mjs wrote."""
    documents = {name: json.loads((folder / f"{name}.json").read_bytes()) for name in REVISIONS[1:]}
    documents["2024-11-05"] = _first_revision(documents["2025-03-26"])
    return {name: Schema(documents[name]) for name in REVISIONS}


class Exchange:
    """Checks the messages of one connection in the order in which they were sent.

    Args:
        schemas: Those of all revisions.
        revision: What the two have agreed on.
        ours: The side that must name no unknown field: "client" or "server".

    Attributes:
        sent: Methods, by side.
    """

    def __init__(self, schemas: dict[str, Schema], revision: str, ours: str) -> None:
        self.ours = ours
        self._schemas = schemas
        self._revision = revision
        self._open: dict[tuple[str, str], tuple[Schema, str]] = {}  # (asker, id) -> definition
        self.sent: dict[str, set[str]] = {"client": set(), "server": set()}

    @property
    def schema(self) -> Schema:
        """The schema of the negotiated revision."""
        return self._schemas[self._revision]

    @property
    def unanswered(self) -> list[str]:
        """Requests without answer, as "sender id definition".

        Listening is not among them: it lasts as long as the connection.
        """
        return [
            f"{asker} {id} {name}"
            for (asker, id), (_, name) in self._open.items()
            if name != "SubscriptionsListenRequest"
        ]

    def faults(self, sender: str, line: str) -> list[str]:
        """Check the next message.

        Args:
            sender: "client" or "server".
            line: The message as it was on the wire, without its newline.

        Returns:
            What is wrong with it, a line each.
        """
        try:
            message = json.loads(
                line, parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates
            )
        except ValueError as error:
            return [f"not JSON: {error}"]
        if not isinstance(message, dict):
            return ["not an object"]
        schema = self._schema_for(message)
        faults = list(schema.faults(schema.envelope(message), message, closed=False))
        return faults or list(self._content_faults(schema, sender, message))

    def _content_faults(
        self, schema: Schema, sender: str, message: dict[str, Any]
    ) -> Iterator[str]:
        closed = sender == self.ours
        method = message.get("method")
        if method is None:
            yield from self._answer_faults(sender, message)
            return
        self.sent[sender].add(method)
        kinds = schema.requests if "id" in message else schema.notifications
        if method not in kinds[sender]:
            yield f"{method} is not for a {sender} to send"
            return
        if "id" in message:
            key = (sender, json.dumps(message["id"]))
            if key in self._open:
                yield f"id {message['id']!r} is in use"
            self._open[key] = (schema, kinds[sender][method])
        elif method == "notifications/cancelled":
            # The answer to a cancelled request may come or not.
            self._open.pop((sender, json.dumps(message["params"].get("requestId"))), None)
        yield from schema.faults(kinds[sender][method], message, closed=closed)

    def _answer_faults(self, sender: str, message: dict[str, Any]) -> Iterator[str]:
        asker = "server" if sender == "client" else "client"
        request = self._open.pop((asker, json.dumps(message.get("id"))), None)
        if request is None:
            yield f"answers {message.get('id')!r}, which is not open"
        elif "result" in message:
            schema, name = request
            result = message["result"]
            definition = schema.result_of(name, result)
            yield from schema.faults(definition, result, closed=sender == self.ours)

    def _schema_for(self, message: dict[str, Any]) -> Schema:
        # A first message is written before there is an agreement: it names its revision itself.
        params = message.get("params")
        if not isinstance(params, dict) or "id" not in message:
            return self.schema
        meta = params.get("_meta")
        stated = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if message.get("method") == "initialize":
            stated = params.get("protocolVersion")
        return self._schemas.get(str(stated), self.schema)


def _first_revision(document: dict[str, Any]) -> dict[str, Any]:
    """Derive the schema of 2024-11-05, which the suite lacks, from its successor's.

    2025-03-26 added audio, annotations of tools, the text of a progress notification, the
    capability `completions`, and batches; nothing was taken away.
    """
    document = json.loads(json.dumps(document))
    definitions = document["definitions"]
    for definition in definitions.values():
        for part in (definition, *definition.get("properties", {}).values()):
            _drop_audio(part)
    del definitions["AudioContent"]
    del definitions["Tool"]["properties"]["annotations"]
    del definitions["ProgressNotification"]["properties"]["params"]["properties"]["message"]
    del definitions["ServerCapabilities"]["properties"]["completions"]
    del definitions["JSONRPCMessage"], definitions["ToolAnnotations"]
    del definitions["JSONRPCBatchRequest"], definitions["JSONRPCBatchResponse"]
    return document


def _drop_audio(part: dict[str, Any]) -> None:
    for holder in (part, part.get("items", {})):
        if isinstance(holder, dict) and "anyOf" in holder:
            holder["anyOf"] = [
                item for item in holder["anyOf"] if item.get("$ref") != "#/definitions/AudioContent"
            ]


def _closed(schema: Any, name: str = "") -> Any:
    """Return a copy of `schema` whose objects refuse unknown fields.

    Metadata and the schemas of tools stay open.
    """
    if isinstance(schema, list):
        return [_closed(item, name) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _closed(item, key) for key, item in schema.items()}
    is_open = name in ("_meta", "inputSchema", "outputSchema") or name.endswith("MetaObject")
    is_map = name == "properties"  # of members, one of which may be called "properties"
    if isinstance(schema.get("properties"), dict) and not (
        is_open or is_map or "additionalProperties" in schema
    ):
        copy["additionalProperties"] = False
        if name == "params":  # every request and notification may carry metadata
            copy["properties"].setdefault("_meta", {})
    return copy


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"a key occurs twice: {keys}")
    return dict(pairs)
