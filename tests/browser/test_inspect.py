"""The inspector in a browser: tools called by a form, the wire, restarts, texts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import expect

from interlock import Context, Server
from interlock.types import ToolAnnotations
from interlock.web.files import files_of_package
from interlock.web.inspector.inspector_page import INSPECTOR
from tests.browser.apps import app, box
from tests.browser.board import board
from tests.browser.conftest import (
    TIMERS,
    OpenPage,
    Watch,
    expect_idle,
    violations,
    violations_everywhere,
)
from tests.browser.inspect import inspecting, program
from tests.browser.test_chat_loading import compressed
from tests.browser.trace import traced

pytestmark = pytest.mark.slow


def shop() -> Server:
    """Return a server with a tool for each thing that the inspector shows."""
    server = Server("shop", instructions="Prices are in euros.")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def price(article: str, quantity: int = 1) -> dict[str, float]:
        """Return a price."""
        return {"total": 2.5 * quantity}

    @server.tool
    async def cancel(order: str, context: Context) -> str:
        """Cancel an order."""
        schema = {"type": "object", "properties": {"why": {"type": "string"}}, "required": ["why"]}
        answer = await context.elicit("Why?", schema)
        return f"{order}: {answer.content}"

    @server.resource("shop://hours")
    def hours() -> str:
        """The opening hours."""
        return "9 to 5"

    @server.resource("shop://{day}/hours")
    def hours_of(day: str) -> str:
        """The opening hours of a day."""
        return f"closed on {day}"

    @server.prompt
    def reminder(customer: str) -> str:
        """A reminder."""
        return f"Write to {customer}"

    return server


async def test_tool_is_called_by_its_form_and_the_result_is_checked(
    open_page: OpenPage, tmp_path: Path
):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect")
        await page.get_by_role("link", name="shop").click()
        await page.get_by_role("link", name="price").click()
        await expect(page.get_by_text("required", exact=True)).to_be_visible()
        await page.get_by_label("article").fill("pen")
        await page.get_by_label("quantity").fill("3")
        await expect(page.get_by_text("required", exact=True)).to_have_count(0)

        await page.get_by_role("button", name="Call", exact=True).click()

        card = page.locator("[data-call]")
        await expect(card).to_have_attribute("data-state", "ran")
        await expect(card).to_contain_text("total: 7.5")
        await card.get_by_role("tab", name="Schema check").click()
        await expect(card).to_contain_text("fits the outputSchema")
        line = page.locator("[data-entry]", has_text="tools/call price").first
        await line.click()
        await expect(page.get_by_role("group", name="Message")).to_contain_text("quantity: 3")


async def test_arguments_survive_a_reload_and_a_restart(open_page: OpenPage, tmp_path: Path):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect/shop/price")
        await page.get_by_label("article").fill("pen")
        await page.reload()
        await expect(page.get_by_label("article")).to_have_value("pen")
        await page.get_by_role("button", name="Restart").click()
        await expect(page.get_by_text("ready")).to_be_visible()
        await expect(page.get_by_label("article")).to_have_value("pen")


async def test_question_of_the_server_is_answered_by_a_form(open_page: OpenPage, tmp_path: Path):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect/shop/cancel")
        await page.get_by_label("order").fill("7")
        await page.keyboard.press("Control+Enter")
        question = page.get_by_role("article", name="The server asks")
        await question.get_by_label("why").fill("too late")
        await question.get_by_role("button", name="Answer").click()

        await expect(page.locator("[data-call]")).to_contain_text("7: {'why': 'too late'}")


async def test_template_resource_and_prompt_are_read(open_page: OpenPage, tmp_path: Path):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect/shop")
        await page.get_by_role("link", name="shop://{day}/hours").click()
        await page.get_by_label("day").fill("a Sunday")
        await page.get_by_role("button", name="Get", exact=True).click()
        await expect(page.locator("[data-call]")).to_contain_text("closed on a Sunday")

        await page.get_by_role("link", name="shop://hours").click()
        await page.get_by_role("button", name="Get", exact=True).click()
        await expect(page.locator("[data-call]")).to_contain_text("9 to 5")

        await page.get_by_role("link", name="reminder").click()
        await page.get_by_label("customer").fill("Ann")
        await page.get_by_role("button", name="Get", exact=True).click()
        await expect(page.locator("[data-call]")).to_contain_text("Write to Ann")


async def test_request_of_the_wire_is_edited_and_sent_again(open_page: OpenPage, tmp_path: Path):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect/shop/price")
        await page.get_by_label("article").fill("pen")
        await page.get_by_role("button", name="Call", exact=True).click()
        await page.locator("[data-kind=sent]", has_text="tools/call price").first.click()
        await page.get_by_role("button", name="Edit and send").click()
        dialog = page.get_by_role("dialog", name="Edit and send")
        await dialog.get_by_label("Params").fill('{"name": "price", "arguments": {"article": 5}}')
        await dialog.get_by_role("button", name="Send", exact=True).click()

        card = dialog.locator("article.call")
        await expect(card).to_have_attribute("data-state", "failed")


BIG = 9007199254740993123  # JavaScript would write ...3000
TOO_EXACT = "0.1234567890123456789"  # for a double


async def test_numbers_are_sent_and_shown_with_their_digits_or_not_sent(
    open_page: OpenPage, tmp_path: Path
):
    server, received = Server("calc"), []

    @server.tool
    def double(amount: int, rate: float = 0) -> dict[str, Any]:
        """Double an amount."""
        received.append((amount, rate))
        return {"amount": amount, "rate": rate}

    async with inspecting(tmp_path, open_page, calc=server) as served:
        page = await served.open("/inspect/calc/double")
        amount, rate = (page.get_by_role("textbox", name=each) for each in ("amount", "rate"))
        send = page.get_by_role("button", name="Call", exact=True)
        await amount.fill(f"{BIG}")
        problem = page.locator(".outcome").get_by_role("alert")
        for lost, other in ((TOO_EXACT, "0.12345678901234568"), ("1e400", "Infinity")):
            await rate.fill(lost)
            await send.click()
            why = f"rate: The number {lost} would become {other}, so nothing is sent."
            await expect(problem).to_have_text(why)
        await rate.fill("1.0")
        await send.click()
        result = page.locator(".outcome [data-state=ran]")
        await expect(result).to_contain_text(f"amount: {BIG}")
        await expect(result).to_contain_text("rate: 1.0")

        await page.reload()
        await expect(amount).to_have_value(f"{BIG}")
        await page.get_by_role("tab", name="JSON").first.click()
        field = page.locator("textarea")
        await expect(field).to_have_value(f'{{\n  "amount": {BIG},\n  "rate": 1.0\n}}')
        await field.fill(f'{{"amount": 1, "rate": {TOO_EXACT}}}')
        await send.click()
        await expect(problem).to_contain_text("nothing is sent")
        await field.fill(f'{{"amount": {BIG + 1}}}')
        await send.click()
        await expect(result).to_contain_text(f"amount: {BIG + 1}")

        sent = page.locator("[data-kind=sent]", has_text="tools/call double")
        await expect(sent).to_have_count(2)
        await sent.last.click()
        await expect(page.locator(".wire-detail")).to_contain_text(f"amount: {BIG + 1}")
        await page.get_by_role("button", name="Edit and send").click()
        dialog = page.get_by_role("dialog", name="Edit and send")
        params = f'{{"name": "double", "arguments": {{"amount": {BIG}, "rate": {TOO_EXACT}}}}}'
        await dialog.get_by_label("Params").fill(params)
        await dialog.get_by_role("button", name="Send", exact=True).click()
        await expect(dialog.get_by_role("alert")).to_contain_text("nothing is sent")
        await dialog.get_by_label("Params").fill(params.replace(TOO_EXACT, "0.5"))
        await dialog.get_by_role("button", name="Send", exact=True).click()
        await expect(dialog.locator("article.call")).to_contain_text(f"amount: {BIG}")
    assert received == [(BIG, 1.0), (BIG + 1, 0), (BIG, 0.5)]


async def test_result_of_fifteen_megabytes_opens_in_parts_without_a_long_task(
    open_page: OpenPage, tmp_path: Path
):
    server = Server("large")

    @server.tool
    def rows() -> list[dict[str, Any]]:
        """List many rows."""
        return [{"row": n, "text": "x" * 90} for n in range(65_000)]

    async with inspecting(tmp_path, open_page, large=server) as served:
        page = await served.open("/inspect/large/rows")
        send = page.get_by_role("button", name="Call", exact=True)
        await expect(send).to_be_enabled()
        result = page.locator(".outcome [data-state=ran]")
        async with traced(page.context.browser, page) as tasks:
            # Finding elements by their roles would cost the page more than the result.
            await send.click()
            more = result.locator("button.fold")
            await more.filter(has_text="load more, 64,800 are left").click()
            await more.filter(has_text="load more, 64,600 are left").wait_for()
            text = result.locator("[role=tab]", has_text="Text")
            await text.click()
            await more.click()
            await result.locator(".pieces[aria-busy=false]").wait_for()
        await expect(result).to_contain_text("14.")  # MB
        assert tasks.longest() < 0.1
        assert await violations_everywhere(page) == []

        await page.reload()  # a large result is not kept with the earlier calls
        await page.locator(".history-line").first.click()
        await expect(page.locator(".outcome [data-call]")).to_have_count(0)


@pytest.mark.slow("looks at three screens in each theme and width")
async def test_inspector_has_no_accessibility_violations_in_any_theme_and_width(
    open_page: OpenPage, tmp_path: Path
):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect")
        await expect(page.get_by_role("link", name="shop")).to_be_visible()
        found = await violations_everywhere(page)
        await page.get_by_role("link", name="shop").click()
        await page.get_by_role("link", name="price").click()
        await page.get_by_label("article").fill("pen")
        await page.get_by_role("button", name="Call").first.click()
        await expect(page.locator("[data-call]")).to_be_visible()
        await page.locator("[data-kind=sent]").first.click()
        found += await violations_everywhere(page)
        await page.set_viewport_size({"width": 360, "height": 900})
        await page.get_by_role("button", name="Wire", exact=True).click()
        await expect(page.get_by_role("group", name="Lines of the wire")).to_be_visible()
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            found += await violations(page)
        await page.add_init_script(TIMERS)
        await page.reload()
        await expect(page.get_by_text("Earlier calls")).to_be_visible()
        await expect_idle(page)

    assert found == []


async def test_server_that_does_not_start_is_shown_with_the_reason(
    open_page: OpenPage, tmp_path: Path
):
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no database')")
    async with inspecting(tmp_path, open_page, broken=program(script)) as served:
        page = await served.open("/inspect/broken")
        await expect(page.get_by_role("alert")).to_contain_text("no database")
        await expect(page.locator("[data-kind=stderr]").first).to_contain_text("no database")


async def test_page_without_a_session_shows_no_server(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await open_page(f"{served.url}/inspect/shop")
        await expect(page.get_by_role("heading", name="Open this page with a link")).to_be_visible()


async def test_compressed_modules_of_the_inspector_are_within_their_budget():
    files = files_of_package()
    own = [each for each in files.modules(INSPECTOR.entry) if each.startswith("inspect/")]

    assert compressed(*own) <= 30 * 1024


NOISY = """
import json, sys
print("warming up", file=sys.stderr, flush=True)
print("Hello from a print", flush=True)
TOOL = {"name": "add", "description": "DESCRIPTION", "inputSchema": {
    "type": "object", "properties": {"a": {"type": "integer", "description": "A number."}}}}
RESULTS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "noisy", "version": "1"}},
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        found = RESULTS.get(asked["method"])
        error = {"code": -32601, "message": "no such method"}
        answer = {"error": error} if found is None else {"result": found}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


async def test_wire_shows_invalid_lines_and_stderr_and_can_be_filtered_and_paused(
    open_page: OpenPage, tmp_path: Path
):
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    async with inspecting(tmp_path, open_page, noisy=program(script)) as served:
        page = await served.open("/inspect/noisy/add")
        lines = page.get_by_role("group", name="Lines of the wire")
        await expect(lines).to_contain_text("stderr: warming up")
        await expect(lines).to_contain_text("not a message: Hello from a print")
        await expect(page.get_by_text("breaks revision 2025-11-25")).to_be_visible()

        await page.get_by_label("Filter").select_option("errors and invalid lines")
        await expect(lines).not_to_contain_text("warming up")
        await expect(lines).to_contain_text("Hello from a print")
        await page.get_by_label("Filter").select_option("all")

        await page.get_by_role("button", name="Pause").click()
        await page.get_by_role("button", name="Call").first.click()
        await expect(page.get_by_text("2 new lines since the pause")).to_be_visible()
        await expect(lines).not_to_contain_text("tools/call")
        await page.get_by_role("button", name="Continue").click()
        await expect(lines).to_contain_text("result of tools/call add")

        async with page.expect_download() as saving:
            await page.get_by_role("button", name="Save").click()
        saved = tmp_path / "wire.jsonl"
        await (await saving.value).save_as(saved)
        assert '"text":"Hello from a print"' in saved.read_text()


async def test_changed_program_is_started_again_and_the_form_stays(
    open_page: OpenPage, tmp_path: Path
):
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    async with inspecting(tmp_path, open_page, noisy=program(script)) as served:
        page = await served.open("/inspect/noisy/add")
        await page.get_by_label("a", exact=True).fill("41")
        script.write_text(NOISY.replace("DESCRIPTION", "Changed."))

        await expect(page.get_by_text("Changed.")).to_be_visible()
        await expect(page.get_by_label("a", exact=True)).to_have_value("41")


async def test_stdio_command_must_be_typed_and_no_link_starts_a_program(
    open_page: OpenPage, tmp_path: Path
):
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    command = shlex.join([sys.executable, str(script)])
    async with inspecting(tmp_path, open_page) as served:
        page = await served.open(f"/inspect?command={quote(command)}")
        field = page.get_by_label("Another server: a command or a URL")
        await expect(field).to_have_value("")

        await field.fill(command)
        await page.get_by_role("button", name="Inspect").click()
        await page.get_by_role("link", name="add").click()
        await page.reload()
        await expect(page.get_by_role("button", name="Call").first).to_be_enabled()
        assert len(served.inspector.found) == 1


async def test_earlier_call_fills_the_form_in_and_its_texts_are_shown(
    open_page: OpenPage, tmp_path: Path
):
    async with inspecting(tmp_path, open_page, shop=shop()) as served:
        page = await served.open("/inspect/shop/price")
        for article in ("pen", "ink"):
            await page.get_by_label("article").fill(article)
            await page.get_by_role("button", name="Call").first.click()
            await expect(page.locator("[data-call]")).to_have_attribute("data-state", "ran")
        await page.get_by_role("region", name="Earlier calls").get_by_role("button").click()
        await expect(page.get_by_label("article")).to_have_value("pen")

        await page.get_by_role("button", name="As Python").click()
        await expect(page.get_by_role("dialog")).to_contain_text("not in a configuration file")


async def test_gateway_has_the_inspector_for_administrators_only(
    open_page: OpenPage, tmp_path: Path
):
    async with board(tmp_path, open_page, shop=shop()) as gateway:
        page = await gateway.open("/gateway")
        await page.get_by_role("link", name="Inspector").click()
        await page.get_by_role("link", name="shop").click()
        await page.get_by_role("link", name="price").click()
        await page.get_by_label("article").fill("pen")
        await page.get_by_role("button", name="Call").first.click()
        await expect(page.locator("[data-call]")).to_have_attribute("data-state", "ran")

        other = await gateway.open("/inspect/shop", "admin:read")
        await expect(other.get_by_role("heading", name="Nothing here")).to_be_visible()


DELETES = """(async () => {
  await begin();
  const { arguments: { year } } = await told("ui/notifications/tool-input");
  const { structuredContent: { orders } } = await told("ui/notifications/tool-result");
  await ask("ui/message", {role: "user", content: [{type: "text", text: "Pay order 3"}]});
  const found = await ask("tools/call", {name: "delete", arguments: {name: "draft"}});
  const secret = await ask("tools/call", {name: "secret", arguments: {}});
  say([year, orders, found.content[0].text, secret.message].join(" | "));
})();"""


async def test_app_of_a_tool_runs_with_its_result_and_asks_before_it_changes_something(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected += ["404", "localStorage", "Failed to execute 'postMessage'"]
    server, deleted = Server("desk"), []
    app(DELETES)(server)

    @server.tool
    def delete(name: str) -> str:
        """Delete a note."""
        deleted.append(name)
        return f"deleted {name}"

    async with inspecting(tmp_path, open_page, desk=server) as served:
        page = await served.open("/inspect/desk/orders")
        await page.get_by_label("year").fill("2025")
        await page.get_by_role("button", name="Call").first.click()

        asked = page.get_by_role("article", name="desk:delete")
        await expect(asked).to_contain_text("The server's app wants to make this call")
        assert deleted == []
        await asked.get_by_role("button", name="Approve once").click()
        said = "2025 | 7 | deleted draft | the app's server has no such tool for apps"
        await expect(box(page).locator("#said")).to_have_text(said)
        await expect(page.get_by_role("tab", name="App")).to_be_visible()
        await page.get_by_text("The app writes this message").click()
        await expect(page.get_by_text("Pay order 3")).to_be_visible()
        wire = page.get_by_role("region", name="Wire")
        await expect(wire.get_by_text("resources/read ui://desk/orders").first).to_be_visible()
        await expect(wire.get_by_text("tools/call delete").first).to_be_visible()
        found = await violations(page)
        await page.set_viewport_size({"width": 360, "height": 900})
        assert found + await violations(page) == []


async def test_rights_of_a_key_are_chosen_and_stay_in_the_address(
    open_page: OpenPage, tmp_path: Path
):
    policy = {
        "rules": [{"id": "people", "who": ["user:mara"], "tools": ["*:*"], "effect": "allow"}]
    }
    async with board(tmp_path, open_page, {"policy": policy}, shop=shop()) as gateway:
        await gateway.key("ci", "mcp:*", name="ci-bot")
        page = await gateway.open("/inspect/shop/price")
        denied = page.get_by_text("Denied", exact=True)
        await expect(page.get_by_role("heading", name="price")).to_be_visible()
        await expect(denied).to_have_count(0)

        rights = page.get_by_label("With the rights of")
        await rights.select_option(label="rights of ci-bot (ci)")
        await expect(denied).to_be_visible()
        await page.get_by_role("link", name="price").click()
        assert "?as=" in page.url
        await page.reload()
        await expect(denied).to_be_visible()

        await rights.select_option(label="your own rights")
        await expect(denied).to_have_count(0)
        assert "?as=" not in page.url
