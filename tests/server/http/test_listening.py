"""The socket on which a server listens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from interlock.config.gateway import Address
from interlock.errors import ConfigError
from interlock.server import Server
from interlock.server.http.listening import bound, listen


async def test_small_packets_are_sent_without_delay():
    """Else each reply that has two parts takes 40 ms more."""
    with bound(Address("127.0.0.1", 0)) as listener:
        connected: asyncio.Future[asyncio.StreamWriter] = asyncio.Future()
        server = await asyncio.start_server(
            lambda _, writer: connected.set_result(writer), sock=listener
        )
        _, client = await asyncio.open_connection(*listener.getsockname())
        writer = await connected
        connection = writer.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for each in (client, writer):
            each.close()
            await each.wait_closed()
        server.close()


def test_address_in_use_is_an_error():
    with bound(Address("127.0.0.1", 0)) as listener:
        listener.listen()
        address = Address(*listener.getsockname())
        with pytest.raises(ConfigError, match=f"cannot listen on {address}"), bound(address):
            pass


def test_port_that_another_program_has_bound_and_listens_on_first_is_an_error():
    with bound(Address("127.0.0.1", 0)) as first:
        address = Address(*first.getsockname())
        with bound(address) as second:  # possible on Linux while neither socket listens
            listen(first)
            with pytest.raises(ConfigError, match=f"cannot listen on {address}: .*another port$"):
                listen(second)


def test_run_http_at_an_address_in_use_names_it_and_the_remedy():
    with bound(Address("127.0.0.1", 0)) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        refusal = f"^cannot listen on 127.0.0.1:{port}: .*; choose another port$"
        with pytest.raises(ConfigError, match=refusal):
            Server("x").run_http(port=port)
