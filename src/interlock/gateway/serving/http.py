"""Serves a gateway over HTTP until a signal ends it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial

from msgspec import Struct

from interlock.aio import beside
from interlock.config.gateway import Address
from interlock.errors import AuditFailed
from interlock.gateway.admin.operations import BASE
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import PATH, Endpoint, MakeChat, MakeInspector, MakePages
from interlock.gateway.serving.handed import HandedServer
from interlock.gateway.serving.listeners import Listeners, address_of
from interlock.gateway.serving.process import on_signals
from interlock.gateway.serving.service_manager import ServiceManager
from interlock.gateway.serving.worker import Worker
from interlock.gateway.serving.worker_metrics import WorkerMetrics
from interlock.server.http.listening import listen
from interlock.server.http.serve import UvicornServer
from interlock.text import urls
from interlock.toolbox import Toolbox


class Served(Struct, frozen=True):
    """The URLs of a served gateway.

    Attributes:
        url: The endpoint's URL on this machine.
        client_url: The endpoint's URL for clients.
        key: A key that is valid for this run only; None if stored keys exist.
        admin: The admin API's URL; "" if it is not served.
        chat: The chat's URL; "" if it is not served.
        issuers: The issuers that people log in at for their OAuth clients; None without a front
            door.
    """

    url: str
    client_url: str
    key: str | None = None
    admin: str = ""
    chat: str = ""
    issuers: tuple[str, ...] | None = None


async def serve_http(
    assembly: Assembly,
    listeners: Listeners,
    *,
    view: str = "",
    manager: ServiceManager,
    announce: Callable[[Served], None],
    announce_servers: Callable[[], None] = lambda: None,
    reload: Callable[[], None] = lambda: None,
    board: MakePages | None = None,
    chat: MakeChat | None = None,
    inspector: MakeInspector | None = None,
) -> None:
    """Serve over HTTP until SIGTERM or SIGINT; running calls then have time to finish.

    Args:
        assembly: The gateway.
        listeners: The sockets to serve on.
        view: The only view to serve; "" for all views.
        manager: The service manager, which is notified of the gateway's state.
        announce: Called once the gateway is served.
        announce_servers: Called after `announce`, once the remaining servers are connected or have
            failed.
        reload: Called on SIGHUP.
        board: Makes the application that serves the operators' pages; None for no pages.
        chat: Makes the chat, which is served if it is configured.
        inspector: Makes the inspector; None for no inspector.

    Raises:
        AuditFailed: Audit records could not be written, so the gateway stopped.
    """
    endpoint = Endpoint(
        assembly,
        assembly.parts.settings.public_url or _loopback(listeners.address),
        view=view,
        address=listeners.address,
        board=board,
        chat=chat,
        inspector=inspector,
    )
    served = _served(endpoint, listeners, assembly.parts.settings.public_url)
    announced = partial(announce, served), announce_servers
    async with _shared_metrics(endpoint, listeners.worker):
        await _serve(assembly, endpoint, listeners, manager, reload, *announced)
    if assembly.failed.is_set():
        raise AuditFailed("calls cannot be recorded any more; start the gateway again")


async def _serve(
    assembly: Assembly,
    endpoint: Endpoint,
    listeners: Listeners,
    manager: ServiceManager,
    reload: Callable[[], None],
    announce: Callable[[], None],
    announce_servers: Callable[[], None],
) -> None:
    make = UvicornServer if listeners.channel is None else partial(HandedServer, listeners.channel)
    server = make(
        endpoint.app,
        listeners.address.host,
        listeners.address.port,
        handles_signals=False,
        refuses_while_draining=True,
        takes_sockets=endpoint.chat is not None,
        proxies=assembly.parts.settings.proxies,
    )

    leaving = Leaving(endpoint, server, manager)

    async with assembly.server.running(), _admin_listener(listeners.admin, endpoint):
        own = [] if listeners.public is None else [listeners.public]
        for each in own:
            listen(each)  # before the URL is printed, so that clients can connect at once
        serving = asyncio.create_task(server.serve(own))
        with on_signals(leaving.begin, reload):
            announce()
            announcing = _announce_later(assembly.server.toolbox, announce_servers)
            following = manager.follow(endpoint.health.is_ready)
            failing = _end_after(assembly.failed, leaving.end)
            async with beside(announcing), beside(failing), beside(following):
                await serving
        await endpoint.close()


class Leaving:
    """The end of an endpoint: it is not ready any more, then it drains, then its server ends.

    Args:
        endpoint: The endpoint, whose settings state the times.
        server: The server of the endpoint.
        manager: The service manager, which is notified.
    """

    def __init__(self, endpoint: Endpoint, server: UvicornServer, manager: ServiceManager) -> None:
        self._endpoint = endpoint
        self._server = server
        self._manager = manager

    def begin(self) -> None:
        """Serve for `gateway.drain.delay` before the drain; on the second call, end immediately."""
        self._manager.leaving()
        drain = self._endpoint.settings.drain
        self._server.drain = drain.calls
        if self._endpoint.is_leaving:
            self.end()  # of the delay, or of the drain
            self.end()
        elif drain.delay:
            self._endpoint.is_leaving = True
            asyncio.get_running_loop().call_later(drain.delay, self._end_delay)
        else:
            self.end()

    def _end_delay(self) -> None:
        if not self._server.should_exit:
            self.end()

    def end(self) -> None:
        """Drain on the first call; end immediately on the second call."""
        self._manager.leaving()
        self._endpoint.is_leaving = True
        self._endpoint.drain()
        self._server.end()


async def _announce_later(toolbox: Toolbox, announce_servers: Callable[[], None]) -> None:
    if await toolbox.finish_starting():
        announce_servers()


async def _end_after(failed: asyncio.Event, end: Callable[[], None]) -> None:
    await failed.wait()
    end()


def _served(endpoint: Endpoint, listeners: Listeners, public_url: str) -> Served:
    url = f"http://{listeners.address}"
    operators = listeners.address if endpoint.serves_operators else None
    if listeners.admin is not None:
        operators = address_of(listeners.admin)
    api = f"http://{operators}{BASE}" if operators else ""
    chat = "" if endpoint.chat is None else f"{url}/"
    issuers = None
    if endpoint.settings.oauth is not None:
        issuers = tuple(each.issuer for each in endpoint.settings.issuers if each.client_id)
    return Served(url + PATH, public_url or url + PATH, listeners.key, api, chat, issuers)


def _shared_metrics(endpoint: Endpoint, worker: Worker | None) -> AbstractAsyncContextManager[None]:
    """Show the metrics of all workers during a block; only those of this process without others."""
    if worker is None:
        return nullcontext()
    metrics = WorkerMetrics(worker, endpoint.families)
    endpoint.families = metrics.families
    return metrics.serving()


@asynccontextmanager
async def _admin_listener(
    listener: socket.socket | None, endpoint: Endpoint
) -> AsyncIterator[None]:
    if listener is None:
        yield
        return
    listen(listener)
    host, port = listener.getsockname()[:2]
    app = endpoint.admin_app(Address(host, port))
    server = UvicornServer(app, host, port, handles_signals=False)
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.end()
        await serving


def _loopback(address: Address) -> str:
    """Return the URL that challenges state if no public URL is configured."""
    if not urls.is_loopback(address.host):
        address = Address("127.0.0.1", address.port)
    return f"http://{address}{PATH}"
