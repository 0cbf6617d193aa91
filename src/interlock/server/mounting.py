"""Servers that are part of another server.

The items of a mounted server are copied into the parent's tables when it is mounted, and updated
with each change, so that a call finds them in one step::

    child.tool(...) -> LocalCatalogue.put -> Mount.check, Mount.update -> the parent's tables
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from interlock import schema
from interlock.context import Context
from interlock.errors import InterlockError, InvalidArguments, LocalProtocolError
from interlock.protocol.envelope import encode, encode_large
from interlock.schema.signature import at_caller
from interlock.server.catalogue import Kind, ServedTool, input_schema
from interlock.server.subscribers import ListKind, Subscribers
from interlock.server.tool_edits import ArgumentEdits, ToolEdit, ToolEdits, check_edits
from interlock.server.tools import FunctionTool
from interlock.types import CallToolResult, JsonObject, Tool

Table = Kind | Literal["completions"]
_LISTS: dict[Table, ListKind] = {"tools": "tools", "prompts": "prompts"}
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
_TABLES: tuple[Table, ...] = ("tools", "resources", "resourceTemplates", "prompts", "completions")
_NO_EDIT: ToolEdit = {}


class Mountable:
    """The items of a server, which can be part of those of another server.

    Args:
        subscribers: The clients that are notified of changes.

    Attributes:
        version: The number of changes so far.
        tables: The items by table and key: a name, a URI, or the name or URI and an argument.
        mounts: The servers that are mounted here.
        parents: The mounts of this server in others.
    """

    def __init__(self, subscribers: Subscribers) -> None:
        self.version = 0
        self.tables: dict[Table, dict[Any, Any]] = {table: {} for table in _TABLES}
        self.mounts: list[Mount] = []
        self.parents: list[Mount] = []
        self._subscribers = subscribers

    def add(self, table: Table, key: Any, item: Any) -> None:
        """Add an item, here and in the servers of which this one is a part.

        Raises:
            LocalProtocolError: The key is already used.
            SignatureError: A server of which this one is a part cannot have the item.
        """
        self.check(table, key, item)
        self.put(table, key, item)
        self.changed(table, key)

    def check(self, table: Table, key: Any, item: Any) -> None:
        """Raise the errors of `add`."""
        if key in self.tables[table]:
            noun = "resource" if table == "resourceTemplates" else table.removesuffix("s")
            raise LocalProtocolError(f"the server has a {noun} {key!r} already; remove it first")
        for mount in self.parents:
            mount.check(table, key, item)

    def remove(self, table: Table, key: Any, unknown: InterlockError) -> None:
        """Remove an item, here and in the servers of which this one is a part.

        Args:
            table, key: The item.
            unknown: The error to raise if the item does not exist.

        Raises:
            LocalProtocolError: The item is one of a mounted server.
        """
        if key not in self.tables[table]:
            raise unknown
        if any((table, key) in each.added for each in self.mounts):
            raise LocalProtocolError(f"{key!r} is an item of a mounted server; remove it there")
        self.drop(table, key)
        self.changed(table, key)

    def put(self, table: Table, key: Any, item: Any) -> None:
        """Add an item that was checked; `changed` must follow."""
        self.tables[table][key] = item

    def drop(self, table: Table, key: Any) -> None:
        """Remove an item; `changed` must follow."""
        del self.tables[table][key]

    def changed(self, table: Table, key: Any) -> None:
        """Notify the clients, and the servers of which this one is a part, of one item."""
        self.version += 1
        if table != "completions":
            self._subscribers.list_changed(_LISTS.get(table, "resources"))
        for mount in self.parents:
            mount.update(table, key)

    def mount(self, prefix: str, child: Mountable, edits: ToolEdits) -> None:
        """Add the items of another server, now and whenever it changes; see `Mount`.

        Raises:
            SignatureError: An item clashes, an edit cannot be made, or the child contains this.
        """
        if child is self or child.contains(self):
            raise at_caller("a server cannot be mounted in itself")
        mount = Mount(prefix, self, child, edits)
        self.mounts.append(mount)
        child.parents.append(mount)
        mount.update_all()

    def contains(self, other: Mountable) -> bool:
        return any(each.child is other or each.child.contains(other) for each in self.mounts)

    def resource_updated(self, uri: str) -> None:
        """Notify the clients of this server, and of those that it is part of."""
        self._subscribers.resource_updated(uri)
        for mount in self.parents:
            mount.parent.resource_updated(uri)

    def list_changed(self, kind: ListKind) -> None:
        """Notify the clients of this server, and of those that it is part of."""
        self._subscribers.list_changed(kind)
        for mount in self.parents:
            mount.parent.list_changed(kind)


class Mount:
    """A server that is part of another one.

    Args:
        prefix: The prefix of the child's tools and prompts, to which "_" is added; "" for none.
        parent: The server that gets the items.
        child: The mounted server.
        edits: Changes to the child's tools.

    Attributes:
        added: The child's items that the parent has, by the parent's table and key.

    Raises:
        SignatureError: A name is not valid or is already used, or an edit cannot be made.
    """

    def __init__(self, prefix: str, parent: Mountable, child: Mountable, edits: ToolEdits) -> None:
        if prefix and not _NAME.fullmatch(prefix):
            raise at_caller(f"prefix {prefix!r} must be letters, digits, _, ., / and -")
        check_edits(edits, child.tables["tools"])
        self._prefix = f"{prefix}_" if prefix else ""
        self.parent = parent
        self.child = child
        self._edits = edits
        self.added: dict[tuple[Table, Any], Any] = {}
        self._places: dict[tuple[Table, Any], tuple[Table, Any]] = {}  # by the child's
        taken: set[tuple[Table, Any]] = set()
        for table, key, item in self._items():
            place = table, self._key(table, key)
            if place in taken and place[1] is not None:
                raise at_caller(f"two tools would be {place[1]!r}; rename one of them")
            taken.add(place)
            self.check(table, key, item)

    def _items(self) -> Iterator[tuple[Table, Any, Any]]:
        for table, items in self.child.tables.items():
            for key, item in items.items():
                yield table, key, item

    def _key(self, table: Table, key: Any) -> Any:
        """Return the parent's key for an item of the child; None if an edit leaves it out."""
        if table == "tools":
            edit = self._edits.get(key, _NO_EDIT)
            return None if edit is False else self._prefix + edit.get("name", key)
        if table == "prompts":
            return self._prefix + key
        if table == "completions" and key[0] in self.child.tables["prompts"]:
            return self._prefix + key[0], key[1]
        return key

    def check(self, table: Table, key: Any, item: Any) -> None:
        """Check that the parent can add an item of the child, even before the child has it.

        Raises:
            SignatureError: The parent has another item of this name, or an edit cannot be made.
        """
        name = self._key(table, key)
        if name is None:
            return
        if table in ("tools", "prompts") and not _NAME.fullmatch(name):
            raise at_caller(f"invalid name {name!r}; use 1 to 128 letters, digits, _, ., / and -")
        if name in self.parent.tables[table]:
            what = table.removesuffix("s")
            raise at_caller(
                f"{what} {key!r} of the mounted server would be {name!r}, which the server has "
                "already; mount it with another prefix, or rename one of them"
            )
        self.parent.check(table, name, self._copy(table, key, name, item))

    def update_all(self) -> None:
        """Give the parent all items of the child."""
        for table, key, _ in list(self._items()):
            self._update(table, key)

    def update(self, table: Table, key: Any) -> None:
        """Make an item of the parent equal to the child's, which was added or removed."""
        self._update(table, key)
        if table == "prompts":  # the names of completions depend on the prompts that exist
            for each in [*self.child.tables["completions"]]:
                if each[0] == key:
                    self._update("completions", each)

    def _update(self, table: Table, key: Any) -> None:
        item = self.child.tables[table].get(key)
        name = None if item is None else self._key(table, key)
        place = None if name is None else (table, name)
        before = self._places.pop((table, key), None)
        if before is not None:
            if before == place and self.added[before] is item:
                self._places[table, key] = before
                return
            del self.added[before]
            self.parent.drop(*before)
            if before != place:
                self.parent.changed(*before)
        if place is not None:
            self._places[table, key] = place
            self.added[place] = item
            self.parent.put(*place, self._copy(table, key, name, item))
            self.parent.changed(*place)

    def _copy(self, table: Table, key: Any, name: Any, item: Any) -> Any:
        if table == "prompts":
            item = copy.copy(item)
            item.definition = replace(item.definition, name=name)
        elif table == "tools":
            edit = self._edits.get(key) or _NO_EDIT
            if name != key or edit:
                item = _edited_tool(item, key, name, edit)
        return item


def _edited_tool(tool: ServedTool, own: str, name: str, edit: ToolEdit) -> ServedTool:
    changes = edit.get("arguments", {})
    own_schema = input_schema(tool.definition)
    edits = ArgumentEdits(own, own_schema, changes) if changes else None
    members: dict[str, Any] = {"name": name}
    members |= {key: edit[key] for key in ("title", "description") if key in edit}
    definition = tool.definition
    if isinstance(definition, dict):
        if edits is not None:
            members["inputSchema"] = edits.schema
        return EditedObject(tool, {**definition, **members}, edits)
    if edits is not None:
        members["input_schema"] = edits.schema
    definition = replace(definition, **members)
    if isinstance(tool, FunctionTool):
        return tool.with_definition(definition, edits)
    return EditedObject(tool, definition, edits)


class EditedObject:
    """A tool that is not a function, with another definition.

    Args:
        definition: The definition that clients see.
        edits: The changes to its arguments; None if they are unchanged.
    """

    def __init__(
        self, tool: ServedTool, definition: Tool | JsonObject, edits: ArgumentEdits | None
    ) -> None:
        self.definition = definition
        self._tool = tool
        self._edits = edits
        self._validator = None if edits is None else schema.compile(encode(edits.schema))

    async def call(self, arguments: Raw | None, context: Context) -> CallToolResult | Raw:
        if self._edits is None or self._validator is None:
            return await self._tool.call(arguments, context)
        given = {} if arguments is None else msgspec.json.decode(arguments)
        problems = self._validator.errors(given, echo=False)
        if problems:
            raise InvalidArguments("; ".join(problems))
        return await self._tool.call(Raw(encode_large(self._edits.restore(given))), context)
