"""Forms for 200 schemas: fields or an honest JSON field, valid arguments, no freeze."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock import schema
from interlock.errors import SchemaError
from interlock.web.files import files_of_package
from tests.browser.conftest import OpenPage
from tests.browser.inspect import inspecting

pytestmark = pytest.mark.slow
Json = dict[str, Any]
ZOO: dict[str, Any] = {
    each["name"]: each["schema"]
    for each in map(
        json.loads, (Path(__file__).parent / "schema_zoo.jsonl").read_text().splitlines()
    )
}
FROZEN = 5_000.0  # milliseconds for one form, far beyond what a busy machine needs

# Render the form of each schema; fill in its example; read the controls.
RENDER = """async ([folder, text]) => {
  const zoo = JSON.parse(text);
  const { html, render } = await import(folder + "shared/view.js");
  const { Form } = await import(folder + "inspect/form.js");
  const { example, initial } = await import(folder + "inspect/model.js");
  const found = {};
  for (const [name, schema] of Object.entries(zoo)) {
    const box = document.createElement("div");
    document.body.append(box);
    const problems = new Map();
    const began = performance.now();
    let value = initial(schema, schema) ?? {};
    let sets = 0;
    const draw = () => render(html`<${Form} schema=${schema} value=${value} problems=${problems}
      set=${(next) => { sets += 1; value = next; if (sets < 200) draw(); }} />`, box);
    draw();
    const filled = example(schema, schema) ?? {};
    render(null, box);
    value = filled;
    draw();
    await new Promise((done) => setTimeout(done));
    found[name] = {
      ms: performance.now() - began,
      value,
      sets,
      fields: box.querySelectorAll("[data-field]").length,
      json: box.querySelectorAll("[data-shape=json]").length,
      failed: box.querySelectorAll("[role=alert]").length,
      labels: [...box.querySelectorAll("input, textarea, select")].filter((each) =>
        !each.labels?.length && !each.ariaLabel && !each.hasAttribute("aria-labelledby")).length,
    };
    render(null, box);
    box.remove();
  }
  return JSON.stringify(found);
}"""

# No value fits these, or the server has to be asked: their example need not be valid.
WITHOUT_EXAMPLE = {
    "never",
    "required recursion",
    "reference to itself",
    "reference in a circle",
    "nested 60 deep",
    "not null",
    "old tuple",
}


async def test_every_schema_of_the_zoo_has_a_form_that_sends_valid_arguments(
    open_page: OpenPage, tmp_path: Path
):
    assert len(ZOO) >= 200
    async with inspecting(tmp_path, open_page) as served:
        page = await served.open("/inspect")
        folder = f"{served.url}/static/{files_of_package().version}/"
        found: dict[str, Json] = json.loads(await page.evaluate(RENDER, [folder, json.dumps(ZOO)]))

    invalid = {}
    for name, each in found.items():
        assert each["failed"] == 0, name
        assert each["ms"] < FROZEN, (name, each["ms"])
        assert each["sets"] < 50, (name, "the form changes its value again and again")
        assert each["labels"] == 0, (name, "a control has no name")
        problems = _problems(ZOO[name], each["value"])
        if problems and name not in WITHOUT_EXAMPLE:
            invalid[name] = (problems, each["value"])
    assert invalid == {}
    shown_as_json = [name for name, each in found.items() if each["fields"] <= each["json"]]
    assert len(shown_as_json) < 15, shown_as_json


def _problems(document: Json, value: Any) -> list[str]:
    try:
        return schema.compile(json.dumps(document).encode()).errors(value)
    except SchemaError:
        return []
