"""Servers' resources and prompts, as the gateway offers them to clients."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from interlock.calls import Item
from interlock.calls.call import new_call_id
from interlock.context import Context
from interlock.errors import (
    InputRequired,
    InterlockError,
    MalformedAnswer,
    RemoteError,
    UnknownResource,
)
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.refusals import refused
from interlock.gateway.forwarding.uris import Uris
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode_large
from interlock.revisions import INVALID_PARAMS, RESOURCE_NOT_FOUND
from interlock.toolbox.upstream import Upstream
from interlock.types import (
    CompleteParams,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)


class ForwardedResource:
    """A resource that a server lists, links to in a result, or serves through a template.

    Args:
        item: The resource, with its URI at the server.
        uris: Converts a server's URIs to the URIs that clients use.
        forwarder: Sends the requests.
    """

    def __init__(self, item: Item, uris: Uris, forwarder: Forwarder) -> None:
        self.item = item
        self._uris = uris
        self._forwarder = forwarder

    async def read(self, uri: str, context: Context) -> Raw:
        """Read the resource; return the server's result, with the URIs that clients use.

        Raises:
            UnknownResource: The server has no resource with this URI.
            RemoteError: The request was refused, or failed.
        """
        id = new_call_id()
        try:
            result = await self._forwarder.forward(self.item, {}, context, id)
        except (InputRequired, MalformedAnswer):
            raise
        except InterlockError as error:
            if isinstance(error, UnknownResource):
                raise
            if isinstance(error, RemoteError) and error.code in (
                RESOURCE_NOT_FOUND,
                INVALID_PARAMS,
            ):
                raise UnknownResource(uri) from None
            raise refused(self.item, error, id) from None
        if not self._uris.is_prefixed(self.item.server):
            return result
        return _with_prefixes(result, self.item.server, self._uris)


def _with_prefixes(result: Raw, server: str, uris: Uris) -> Raw:
    members = decode(dict[str, Raw], result, "resources/read result")
    contents = decode(list[dict[str, Any]], members.get("contents", Raw(b"[]")), "contents")
    for each in contents:
        if isinstance(each.get("uri"), str):
            each["uri"] = uris.shown(server, each["uri"])
    return Raw(encode_large(members | {"contents": contents}))


class ForwardedPrompt:
    """A server's prompt.

    Args:
        item: The prompt, with its name at the server.
        forwarder: Sends the requests.
    """

    def __init__(self, item: Item, forwarder: Forwarder) -> None:
        self.item = item
        self._forwarder = forwarder

    async def get(self, arguments: dict[str, str], context: Context) -> Raw:
        """Request the prompt's messages; return the server's result unchanged.

        Raises:
            RemoteError: The request was refused, or failed.
        """
        id = new_call_id()
        try:
            return await self._forwarder.forward(self.item, dict(arguments), context, id)
        except (InputRequired, MalformedAnswer):
            raise
        except InterlockError as error:
            raise refused(self.item, error, id) from None


class ForwardedCompletion:
    """A server's completions for an argument.

    Args:
        item: The prompt, or the resource template with its URI template at the server.
        argument: The argument's name.
        upstream: The server that offers the completions.
    """

    def __init__(self, item: Item, argument: str, upstream: Upstream) -> None:
        self._item = item
        self._argument = argument
        self._upstream = upstream

    async def complete(self, value: str, arguments: dict[str, str], context: Context) -> Raw:
        """Request completions for `value`; return the server's result unchanged.

        Raises:
            RemoteError: The request failed.
        """
        name = self._item.name
        is_prompt = self._item.kind == "prompts"
        params = CompleteParams(
            ref=PromptReference(name=name) if is_prompt else ResourceTemplateReference(uri=name),
            argument=CompletionArgument(name=self._argument, value=value),
            context=CompletionContext(arguments=arguments) if arguments else UNSET,
        )
        try:
            return await self._upstream.calls.complete(caller_of(context), params)
        except InterlockError as error:
            raise refused(self._item, error) from None
