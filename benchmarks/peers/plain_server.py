"""The bare server over HTTP without a web server: what is left to measure is the client.

    python plain_server.py port=PORT

It reads and writes sockets in one thread, and understands of HTTP what the clients here send.
"""

from __future__ import annotations

import socket
import sys
from selectors import EVENT_READ, DefaultSelector

from bare_server import Bare

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
EMPTY = b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n"


def serve(bare: Bare, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening, DefaultSelector() as selector:
        selector.register(listening, EVENT_READ)
        received: dict[socket.socket, bytes] = {}
        while True:
            for key, _ in selector.select():
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, EVENT_READ)
                    received[connection] = b""
                    continue
                connection = key.fileobj
                try:
                    data = connection.recv(1 << 18)
                    received[connection] = answer(bare, connection, received[connection] + data)
                except ConnectionError:
                    data = b""
                if not data:
                    selector.unregister(connection)
                    del received[connection]
                    connection.close()


def answer(bare: Bare, connection: socket.socket, data: bytes) -> bytes:
    """Answer the requests that are complete; give the rest."""
    while True:
        head, end, rest = data.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"\r\ncontent-length:")
        size = int(length.partition(b"\r\n")[0] or 0)
        if not end or len(rest) < size:
            return data
        data = rest[size:]
        if not head.startswith(b"POST"):
            connection.sendall(EMPTY % b"405 Method Not Allowed")
        elif said := bare.answer(rest[:size]):
            connection.sendall(ANSWER % (len(said), said))
        else:
            connection.sendall(EMPTY % b"202 Accepted")


if __name__ == "__main__":
    told = dict(argument.split("=") for argument in sys.argv[1:])
    serve(Bare(0), int(told["port"]))
