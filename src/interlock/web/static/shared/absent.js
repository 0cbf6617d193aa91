// The page of an address that nothing serves.

import { Icon } from "./icons.js";
import { page } from "./page.js";
import { t } from "./text.js";
import { html, mount } from "./view.js";

document.title = `${t("absent")} – interlock`;
mount(html`<main class="login">
  <div class="box">
    <div class="brand"><${Icon} name="logo" />interlock</div>
    <h1>${t("absent")}</h1>
    <p>${t("absent.why")}</p>
    ${page.chat && html`<p><a href="/">${t("absent.chat")}</a></p>`}
    ${page.board && html`<p><a href="/gateway">${t("absent.board")}</a></p>`}
  </div>
</main>`);
