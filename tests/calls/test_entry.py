from __future__ import annotations

from interlock.calls.entry import Item
from tests.support.rows import each_row


@each_row(
    ("server", "name", "address"),
    [("git", "log", "git:log"), ("notes", "notes://travel", "notes:notes://travel")],
)
def test_address_of_an_item_is_its_server_and_name(server: str, name: str, address: str):
    assert Item("resources", server, name).address == address
