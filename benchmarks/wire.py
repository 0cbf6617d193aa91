"""The least that can ask a server: bytes written, ends of answers looked for, nothing decoded."""

from __future__ import annotations

import os
import socket
from selectors import EVENT_READ, DefaultSelector
from time import perf_counter

from benchmarks.harness import HttpServer, Program, server

PATIENCE = 30.0  # seconds for a server to answer

META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}'
)
REQUEST = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b' + META + b"}}"
ADD = b'"name":"add","arguments":{"a":1,"b":1},'


def text(size: int) -> bytes:
    """Params of a call that fetches a text."""
    return b'"name":"text","arguments":{"size":%d},' % size


class StdioAsker(Program):
    """A server on stdio, and who asks it."""

    def __init__(self, name: str, **told: int) -> None:
        super().__init__(server(name, **told))
        self._source, self._target = self.process.stdout.fileno(), self.process.stdin.fileno()
        self._last = 0
        self.ask(b"server/discover", b"")
        self.first_answer = perf_counter() - self.started

    def ask(self, method: bytes, params: bytes, width: int = 1) -> bytes:
        """Send requests together and wait for as many lines; give the last of the bytes."""
        requests = [
            REQUEST % (id, method, params) for id in range(self._last + 1, self._last + width + 1)
        ]
        self._last += width
        os.write(self._target, b"\n".join([*requests, b""]))
        while width:
            data = os.read(self._source, 1 << 20)
            if not data:
                raise self.failed()
            width -= data.count(b"\n")
        return data

    def rate(self, width: int, seconds: float) -> float:
        """Call for some seconds, `width` at once; give the calls a second."""
        done, started = 0, perf_counter()
        while perf_counter() < started + seconds:
            self.ask(b"tools/call", ADD, width)
            done += width
        return done / (perf_counter() - started)

    def times(self, calls: int) -> list[float]:
        """Call one after another; return the seconds of each call."""
        times = []
        for _ in range(calls):
            started = perf_counter()
            self.ask(b"tools/call", ADD)
            times.append(perf_counter() - started)
        return times

    def text(self, size: int) -> float:
        started = perf_counter()
        self.ask(b"tools/call", text(size))
        return perf_counter() - started

    def list(self) -> float:
        """Ask for all pages; give the seconds."""
        started = perf_counter()
        params = b""
        while True:
            page = self.ask(b"tools/list", params)
            _, more, rest = page.partition(b'"nextCursor":"')
            if not more:
                return perf_counter() - started
            params = b'"cursor":"%b",' % rest[: rest.index(b'"')]


class HttpAsker:
    """Who asks a server over HTTP, each of many at once on a connection of its own."""

    def __init__(self, server: HttpServer, path: str = "/mcp") -> None:
        self._address = ("127.0.0.1", server.port)
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
        ).encode()

    def request(self, params: bytes, name: bytes, id: int = 1) -> bytes:
        body = REQUEST % (id, b"tools/call", params)
        return self._head + b"Mcp-Name: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            name,
            len(body),
            body,
        )

    def renewed(self, request: bytes) -> bytes:
        """Return a request as it is sent once more."""
        return request

    def connect(self) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rate(self, width: int, seconds: float) -> float:
        """Call for some seconds, `width` at once; return the calls a second."""
        calls, taken = self.count(width, seconds)
        return calls / taken

    def count(self, width: int, seconds: float) -> tuple[int, float]:
        """Call for some seconds, `width` at once; return the number of answers and the seconds.

        It takes longer if the server needs longer for the first `width` answers.
        """
        requests = {self.connect(): self.request(ADD, b"add", id) for id in range(1, width + 1)}
        replies, done = dict.fromkeys(requests, b""), 0
        with DefaultSelector() as selector:
            started = perf_counter()
            for connection in replies:
                selector.register(connection, EVENT_READ)
                connection.sendall(requests[connection])
            while perf_counter() < started + seconds or done < width:
                ready = selector.select(PATIENCE)
                if not ready:
                    raise TimeoutError(f"no answer within {PATIENCE:g} s, after {done} calls")
                for key, _ in ready:
                    connection = key.fileobj
                    replies[connection] += received(connection)
                    if is_complete(replies[connection]):
                        replies[connection] = b""
                        done += 1
                        connection.sendall(self.renewed(requests[connection]))
            taken = perf_counter() - started
        for connection in replies:
            connection.close()
        return done, taken

    def times(self, calls: int) -> list[float]:
        """Call one after another; give the seconds of each call."""
        request, times = self.request(ADD, b"add"), []
        with self.connect() as connection:
            for _ in range(calls):
                times.append(fetch(connection, request))
        return times

    def text(self, size: int) -> float:
        with self.connect() as connection:
            return fetch(connection, self.request(text(size), b"text"))


def fetch(connection: socket.socket, request: bytes) -> float:
    """Send a request and read the whole reply; give the seconds."""
    started = perf_counter()
    exchange(connection, request)
    return perf_counter() - started


def exchange(connection: socket.socket, request: bytes) -> bytearray:
    """Send a request and return the whole reply."""
    connection.sendall(request)
    reply = bytearray()
    while not is_complete(reply):
        reply += received(connection)
    return reply


def received(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 20)
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data


def is_complete(reply: bytes | bytearray) -> bool:
    end = reply.find(b"\r\n\r\n", 0, 4096)
    if end < 0:
        return False
    assert reply.startswith(b"HTTP/1.1 200"), bytes(reply[:500])
    head = reply[:end].lower()
    if b"content-length: " not in head:  # chunks
        return reply.endswith(b"0\r\n\r\n")
    return len(reply) - end - 4 >= int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
