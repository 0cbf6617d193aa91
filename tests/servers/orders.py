"""A server with the tools of a shop, for the pages that show forms and results.

python orders.py
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from msgspec import Meta, Struct

from interlock import Server

server = Server("orders", version="1.4", instructions="Prices are taken from the catalogue.")


class Line(Struct):
    sku: Annotated[str, Meta(description="As in the catalogue.")]
    quantity: Annotated[int, Meta(ge=1, le=100, description="How many.")]


class Invoice(Struct, tag="invoice"):
    vat: str = ""


class Card(Struct, tag="card"):
    number: str


class Placed(Struct):
    order: str
    total: float
    items: list[Line]


@server.tool
def place_order(
    customer: Annotated[str, Meta(pattern="^C-[0-9]{5}$", description="Number of the customer.")],
    items: Annotated[list[Line], Meta(max_length=50, description="What is ordered.")],
    pay_with: Annotated[Invoice | Card, Meta(description="How it is paid.")],
    delivery: Annotated[
        Literal["standard", "express", "pick-up"], Meta(description="How it is sent.")
    ] = "standard",
) -> Placed:
    """Place an order and return its number. Prices are taken from the catalogue."""
    print(f"placed an order of {customer}", file=sys.stderr)
    return Placed("O-88213", 241.5, items)


@server.tool
def cancel_order(order: str) -> str:
    """Cancel an order that was not sent yet."""
    return f"cancelled {order}"


@server.tool
def list_orders(customer: str, limit: int = 20) -> list[str]:
    """List the orders of a customer, newest first."""
    return ["O-88213"][:limit]


@server.resource("orders://{id}")
def order(id: str) -> str:
    """One order."""
    return f"order {id}"


@server.prompt
def dunning_letter(customer: str) -> str:
    """A letter to a customer who has not paid."""
    return f"Write to {customer}."


if __name__ == "__main__":
    print("loaded catalogue (2,114 items)", file=sys.stderr)
    server.run()
