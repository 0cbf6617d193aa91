// The board: who is signed in, and which screen the address names.

import { html, mount, useEffect, useState } from "../shared/view.js";
import { Guarded } from "../shared/frame.js";
import { Problem } from "../shared/load.js";
import { page } from "../shared/page.js";
import { follow, match, place } from "../shared/route.js";
import { begin, Login, may, me } from "../shared/session.js";
import { Absent, countWaiting } from "./side.js";

/** @typedef {{default: (props: any) => any}} Screen */

const overview = () => import("./screens/overview.js");
const servers = () => import("./screens/servers.js");
const tools = () => import("./screens/tools.js");
const keys = () => import("./screens/keys.js");
const call = () => import("./screens/call.js"); // users may see their own calls
/** @type {[string, () => Promise<Screen>][]} */
const SCREENS = [
  ["/gateway", overview],
  ["/login", overview],
  ["/gateway/servers", servers],
  ["/gateway/servers/:name", servers],
  ["/gateway/tools", tools],
  ["/gateway/tools/:address", tools],
  ["/gateway/keys", keys],
  ["/gateway/keys/:id", keys],
  ["/gateway/clients", () => import("./screens/clients.js")],
  ["/gateway/approvals", () => import("./screens/approvals.js")],
  ["/gateway/audit", () => import("./screens/audit.js")],
  ["/gateway/pins", () => import("./screens/pins.js")],
  ["/gateway/limits", () => import("./screens/limits.js")],
  ["/calls/:id", call],
];

const ME = "/me";

function Board() {
  const { path, query } = place.value;
  const found = SCREENS.map(([pattern, load]) => ({ values: match(pattern, path), load })).find((each) => each.values);
  const [screen, setScreen] = useState(/** @type {{load: unknown, module: Screen} | null} */ (null));
  useEffect(() => {
    let current = true;
    void found?.load().then((module) => current && setScreen({ load: found.load, module }));
    return () => {
      current = false;
    };
  }, [found?.load]);

  useEffect(() => {
    const isOverview = found?.load === overview; // which says it itself
    if (me.value && may("admin:read") && !isOverview) void countWaiting();
  }, [me.value, path]);

  if (me.value === null) return null;
  if (me.value === false) return html`<${Login} path=${ME} />`;
  if (!found || (found.load !== call && !may("admin:read"))) return html`<${Absent} />`;
  if (screen?.load !== found.load) return null;
  return html`<${Guarded} key=${path}>
    <${screen.module.default} ...${found.values} query=${new URLSearchParams(query)} />
  <//>`;
}

follow((path) => SCREENS.some(([pattern, load]) => match(pattern, path) && (load !== call || !page.chat)));
begin(ME).then(
  () => mount(html`<${Board} />`),
  (error) => mount(html`<main class="login"><${Problem} error=${error} again=${() => location.reload()} /></main>`),
);
