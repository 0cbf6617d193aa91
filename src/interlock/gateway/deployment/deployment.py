"""All checks of a gateway's deployment, in their order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

from interlock.aio import in_thread
from interlock.config import Config
from interlock.errors import InterlockError
from interlock.gateway.deployment.addresses import check_listeners, check_url
from interlock.gateway.deployment.check_result import CheckResult, error, ok, warning
from interlock.gateway.deployment.front_door import check_front_door
from interlock.gateway.deployment.machine import check_files, check_key, check_user, check_volume
from interlock.gateway.deployment.stored import check_audit, check_keys, check_owner, look_at
from interlock.gateway.parts import Parts, make_parts
from interlock.store.database import location
from interlock.telemetry.checking import check_signals
from interlock.toolbox import Toolbox

IDLE_TIMEOUT = 10.0  # seconds without any news of the servers


async def examine(load: Callable[[], Config], environ: Mapping[str, str]) -> list[CheckResult]:
    """Examine the deployment of a gateway, which may be running; its servers are started briefly.

    Args:
        load: Loads the configuration.
        environ: The environment variables of the gateway.
    """
    try:
        config = load()
        parts = make_parts(config, environ)
        place = location.find(parts.settings.database or None)
    except InterlockError as found:
        return [check_user(), check_files(), error("configuration", str(found))]
    return [each async for each in _results(config, parts, place, environ)]


async def _results(
    config: Config, parts: Parts, place: str | Path, environ: Mapping[str, str]
) -> AsyncIterator[CheckResult]:
    settings = parts.settings
    folder = location.folder_beside(place)
    yield check_user()
    yield check_files()
    yield _check_configuration(config)
    yield check_key(folder, environ, is_shared=isinstance(place, str))
    for each in check_volume(folder):
        yield each
    stored = await look_at(place)
    for each in (*stored.results, *check_owner(stored, folder)):
        yield each
    has_callers = not stored.is_read or bool(stored.keys) or parts.issuers is not None
    for each in check_listeners(settings, has_callers=has_callers):
        yield each
    yield check_url(settings)
    async for each in check_front_door(settings):
        yield each
    for each in check_keys(stored):
        yield each
    yield check_audit(settings.audit, stored, settings.database)
    async for each in _check_servers(parts):
        yield each
    for each in await in_thread(lambda: [*_check_telemetry(environ)]):
        yield each


def _check_configuration(config: Config) -> CheckResult:
    shown = str(config.path or config.variable or "no file: the defaults")
    ignored = tuple(config.ignored.values())
    unknown = [each for each in config.warnings if not any(why in each for why in ignored)]
    if ignored or unknown:
        result = error if ignored else warning
        problems = "; ".join((*ignored, *(each.removeprefix(f"{shown}, ") for each in unknown)))
        return result("configuration", f"{shown}: {problems}")
    return ok("configuration", shown)


async def _check_servers(parts: Parts) -> AsyncIterator[CheckResult]:
    toolbox = Toolbox(parts.servers)
    try:
        await toolbox.open(idle_timeout=IDLE_TIMEOUT)
        for each in toolbox.status.values():
            if each.state == "ok":
                tools = "1 tool" if each.tools == 1 else f"{each.tools} tools"
                yield ok("server", f"{each.name}: {tools}")
            elif each.state == "starting":
                text = f"{each.name} has not answered within {IDLE_TIMEOUT:.0f} s"
                yield error("server", text)
            elif each.state != "disabled":
                yield error("server", f"{each.name} {each.state}: {each.reason}")
    except InterlockError as found:
        yield error("server", str(found))
    finally:
        await toolbox.close()


def _check_telemetry(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check that the collector answers; yield nothing if nothing is exported."""
    try:
        for each in check_signals(environ, "serve"):
            text = f"not exported to {each.target}: {each.problem}" if each.problem else each.target
            yield error(each.name, text) if each.problem else ok(each.name, text)
    except InterlockError as found:
        yield error("traces", str(found))
