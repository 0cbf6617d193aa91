"""A gateway on its listeners, until a signal ends it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial

from msgspec import Struct

from interlock import urls
from interlock.aio import beside
from interlock.config import GatewaySettings
from interlock.config.gateway import Address
from interlock.errors import AuditFailed, ConfigError
from interlock.gateway.admin.operations import BASE
from interlock.gateway.assembly import Assembly
from interlock.gateway.endpoint import PATH, Endpoint, MakeChat, MakeInspector, MakePages
from interlock.gateway.process import bound, on_signals, only_gateway
from interlock.server.http.serve import UvicornServer

LISTEN = Address("127.0.0.1", 8080)


class Served(Struct, frozen=True):
    """Where a gateway is served.

    Attributes:
        url: Of the endpoint.
        key: A key that is valid for this run only; None if there are stored ones.
        admin: The URL of the admin API; "" for none.
        chat: The URL of the chat; "" for none.
    """

    url: str
    key: str | None = None
    admin: str = ""
    chat: str = ""


async def serve_http(
    assembly: Assembly,
    address: Address | None = None,
    *,
    view: str = "",
    announce: Callable[[Served], None],
    announce_servers: Callable[[], None] = lambda: None,
    reload: Callable[[], None] = lambda: None,
    board: MakePages | None = None,
    chat: MakeChat | None = None,
    inspector: MakeInspector | None = None,
) -> None:
    """Serve over HTTP until SIGTERM or SIGINT; calls under way then get 30 s.

    Args:
        assembly: The gateway.
        address: Where to listen; None: as configured.
        view: The only view to serve; "" for all.
        announce: Called once the gateway is served.
        announce_servers: Called once the servers that were still starting then are up or failed.
        reload: Called on SIGHUP.
        board: Makes the application that serves the operators' pages.
        chat: Makes the chat, which is served if it is configured.
        inspector: Makes the inspector.

    Raises:
        ConfigError: The address cannot be used, or other machines can reach it without a key.
        StoreLocked: Another gateway uses the same SQLite file.
        AuditFailed: The disk lost audit records, so the gateway ended itself.
    """
    settings = assembly.parts.settings
    address = address or settings.listen or LISTEN
    if settings.audit.mode == "off":
        raise ConfigError('gateway.audit.mode is "off", which is for --stdio only')
    with _listeners(settings, address) as (listener, admin):
        key = _first_key(assembly, address.host)
        endpoint = Endpoint(
            assembly,
            settings.public_url or _loopback(listener),
            view=view,
            address=_address_of(listener),
            board=board,
            chat=chat,
            inspector=inspector,
        )
        served = _served(endpoint, listener, admin, key)
        announce_all = partial(announce, served), announce_servers
        await _serve(assembly, endpoint, listener, admin, reload, *announce_all)
    if assembly.has_failed:
        raise AuditFailed("calls cannot be recorded any more; start the gateway again")


@contextmanager
def _listeners(
    settings: GatewaySettings, address: Address
) -> Iterator[tuple[socket.socket, socket.socket | None]]:
    """Return the sockets of the gateway and of its operators, unless another gateway runs."""
    with ExitStack() as stack:
        stack.enter_context(only_gateway(settings.database))
        listener = stack.enter_context(bound(address))
        admin = None if settings.admin is None else stack.enter_context(bound(settings.admin))
        yield listener, admin


async def _serve(
    assembly: Assembly,
    endpoint: Endpoint,
    listener: socket.socket,
    admin: socket.socket | None,
    reload: Callable[[], None],
    announce: Callable[[], None],
    announce_servers: Callable[[], None],
) -> None:
    server = UvicornServer(
        endpoint.app,
        *listener.getsockname()[:2],
        handles_signals=False,
        refuses_while_draining=True,
        takes_sockets=endpoint.chat is not None,
    )

    def end() -> None:
        endpoint.drain()
        server.end()

    async with assembly.gateway.running(), _admin_listener(admin, endpoint):
        listener.listen()  # so that no client is refused once the address is printed
        serving = asyncio.create_task(server.serve([listener]))
        assembly.on_failed = end
        with on_signals(end, reload):
            announce()
            async with beside(_announce_later(assembly, announce_servers)):
                await serving
        await endpoint.close()


async def _announce_later(assembly: Assembly, announce_servers: Callable[[], None]) -> None:
    if await assembly.gateway.toolbox.finish_starting():
        announce_servers()


def _served(
    endpoint: Endpoint, listener: socket.socket, admin: socket.socket | None, key: str | None
) -> Served:
    url = f"http://{_address_of(listener)}"
    operators = admin or (listener if endpoint.serves_operators else None)
    api = f"http://{_address_of(operators)}{BASE}" if operators else ""
    return Served(url + PATH, key, api, "" if endpoint.chat is None else f"{url}/")


@asynccontextmanager
async def _admin_listener(
    listener: socket.socket | None, endpoint: Endpoint
) -> AsyncIterator[None]:
    """Serve the admin listener, if there is one."""
    if listener is None:
        yield
        return
    host, port = listener.getsockname()[:2]
    app = endpoint.admin_app(Address(host, port))
    server = UvicornServer(app, host, port, handles_signals=False)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.end()
        await serving


def _first_key(assembly: Assembly, host: str) -> str | None:
    """Return a key for this run, on loopback, unless another credential exists.

    Raises:
        ConfigError: Other machines can reach the address, and no key exists.
    """
    if urls.is_loopback(host):
        return assembly.key_for_this_run()
    if not assembly.has_callers:
        raise ConfigError(
            f"{host} can be reached by others: make a key first: interlock keys create NAME"
        )
    return None


def _loopback(listener: socket.socket) -> str:
    """Return the URL that challenges name if no public one is configured."""
    address = _address_of(listener)
    if not urls.is_loopback(address.host):
        address = Address("127.0.0.1", address.port)
    return f"http://{address}{PATH}"


def _address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()[:2]
    return Address(host, port)
