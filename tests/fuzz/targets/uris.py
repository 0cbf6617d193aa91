"""URI templates: `match` reads what `fill` wrote, and no URI takes long."""

from __future__ import annotations

from interlock.errors import SignatureError
from interlock.server.uri_templates import UriTemplate
from tests.fuzz.choices import Choices

TOKENS = [b"{a}", b"{+b}", b"{", b"}", b"://", b"%2F", b"%", b"/", b"{a}/{b}", b"%00"]


def target(data: bytes) -> None:
    choices = Choices(data)
    text = choices.bytes(60).decode(errors="replace")
    value = choices.text()
    rest = choices.rest().decode(errors="replace")
    try:
        template = UriTemplate(text)
    except SignatureError:
        return
    template.match(rest * (1 + 60_000 // (len(rest) + 1)))
    found = template.match(rest)
    if found is not None:
        assert found.keys() == set(template.variables)
        again = template.match(template.fill(found))
        assert again is None or again.keys() == found.keys()
    if value and len(template.variables) == 1:
        values = {template.variables[0]: value}
        assert template.match(template.fill(values)) == values
