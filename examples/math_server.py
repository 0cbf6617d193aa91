"""The smallest server: one function.

Run: interlock run examples/math_server.py      (with --http 127.0.0.1:8000 for HTTP)
"""

from interlock import Server

server = Server("math", version="1.0.0")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
