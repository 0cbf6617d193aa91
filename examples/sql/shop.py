"""A database as tools: each call has a transaction of its own."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from interlock import Depends, Server

server = Server("shop", version="1.0.0")


@dataclass
class Order:
    """An order of a customer."""

    number: int
    customer: str
    item: str


def connection() -> Iterator[sqlite3.Connection]:
    """Open the database for one call; commit if the call succeeds."""
    opened = sqlite3.connect("shop.db")
    try:
        with opened:
            opened.execute("CREATE TABLE IF NOT EXISTS orders (customer TEXT, item TEXT)")
            yield opened
    finally:
        opened.close()


@server.tool(read_only=True)
def orders(customer: str, database: sqlite3.Connection = Depends(connection)) -> list[Order]:
    """List the orders of a customer."""
    rows = database.execute(
        "SELECT rowid, customer, item FROM orders WHERE customer = ?", [customer]
    )
    return [Order(*row) for row in rows]


@server.tool
def order(customer: str, item: str, database: sqlite3.Connection = Depends(connection)) -> Order:
    """Add an order."""
    number = database.execute("INSERT INTO orders VALUES (?, ?)", [customer, item]).lastrowid
    return Order(number or 0, customer, item)
