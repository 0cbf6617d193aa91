"""All routes of the JSON API. Its documentation and the tests of rights use these tables."""

from __future__ import annotations

from interlock.gateway.admin import (
    approvals,
    audit,
    calls,
    credentials,
    explain,
    keys,
    lock,
    me,
    oauth_clients,
    overview,
    plugins,
    reload,
    status,
    tools,
)

# Served by the admin listener; without one, by the public listener if only this machine can reach
# it.
ADMIN_ROUTES = (
    *overview.ROUTES,
    *status.ROUTES,
    *reload.ROUTES,
    *tools.ROUTES,
    *explain.ROUTES,
    *keys.ROUTES,
    *approvals.ROUTES,
    *lock.ROUTES,
    *audit.ROUTES,
    *credentials.ROUTES,
    *oauth_clients.ROUTES,
    *plugins.ROUTES,
)
# Served by every listener.
USER_ROUTES = (*me.ROUTES, *tools.OWN_ROUTES, *credentials.OWN_ROUTES, *calls.ROUTES)
