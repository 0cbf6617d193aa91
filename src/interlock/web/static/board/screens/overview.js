// The overview: what is broken, for whom, and why.

import { html } from "../../shared/view.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

export default function Overview() {
  return html`<${Screen} title=${t("nav.overview")} />`;
}
