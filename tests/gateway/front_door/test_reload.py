"""A reload changes who may ask and sign in, and ends nothing that may go on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.conftest import RESOURCE, offering
from tests.gateway.front_door.test_people import organisation, sign_in
from tests.gateway.front_door.visitor import Visitor

__all__ = ["organisation"]

pytestmark = pytest.mark.slow("fills a database")


async def test_reload_changes_clients_views_and_issuers_and_ends_nothing_else(organisation):
    async with organisation("keycloak") as (visitor, person, issuer):
        gateway, crm = visitor.gateway, offering("x")
        await sign_in(visitor, person)
        of_person = await visitor.log_in()
        by_key = Visitor(gateway)
        await by_key.register()
        await by_key.sign_in(await gateway.key("bob"))
        of_key = await by_key.log_in()

        async def reload(oauth: dict[str, Any], *issuers: dict[str, Any], **more: Any) -> None:
            auth = {"oauth": oauth, "issuers": [*issuers]}
            settings = {"publicUrl": RESOURCE, "auth": auth, "lock": {"mode": "off"}, **more}
            fixed = await gateway.reload(settings, crm=crm)
            assert fixed == []

        await reload({"clients": ["claude.ai"]}, issuer.entry(), views={"one": {}})
        assert (await visitor.call(of_person["access_token"])).text == "done"
        assert (await visitor.authorize(visitor.query())).code == 400
        await reload({}, issuer.entry(), views={"one": {}})
        one = await by_key.log_in(by_key.query(resource=f"{RESOURCE}/one"))
        assert (await visitor.call(one["access_token"], "/mcp/one")).text == "done"
        assert (await visitor.refresh(of_person["refresh_token"])).code == 200

        narrow = issuer.entry(scopes={"support": ["mcp:read"]})
        await reload({}, narrow, views={"one": {}})
        assert "done" not in (await visitor.call(of_person["access_token"])).body.decode()
        await reload({}, issuer.entry(), views={"one": {}})
        assert (await visitor.call(of_person["access_token"])).text == "done"
        others = {"email": {"const": "bob@example.com"}}
        await reload({}, issuer.entry(people=others), views={"one": {}})
        assert (await visitor.call(of_person["access_token"])).code == 401
        refused = await visitor.refresh(of_person["refresh_token"])
        assert refused.json["error"] == "invalid_grant"
        await reload({}, issuer.entry(), views={"one": {}})
        assert (await visitor.call(of_person["access_token"])).text == "done"

        await reload({})
        assert (await visitor.call(of_key["access_token"])).text == "done"
        assert (await visitor.call(one["access_token"], "/mcp/one")).code == 404
        assert (await visitor.call(of_person["access_token"])).code == 401


async def test_front_door_that_leaves_the_configuration_is_closed_at_once(door):
    async with door() as visitor:
        tokens, gateway = await visitor.log_in(), visitor.gateway
        assert (await visitor.call(tokens["access_token"])).text == "done"
        crm = offering("x", "y")
        off = {"publicUrl": RESOURCE, "lock": {"mode": "off"}}
        assert await gateway.reload(off, crm=crm) == ["auth.oauth"]
        assert (await visitor.call(tokens["access_token"])).code == 401
        assert (await visitor.refresh(tokens["refresh_token"])).code == 404
        assert (await visitor.authorize(visitor.query())).code == 404
        assert await gateway.reload(off | {"auth": {"oauth": {}}}, crm=crm) == []
        assert (await visitor.refresh(tokens["refresh_token"])).code == 200
        assert (await visitor.call(tokens["access_token"])).text == "done"
