// Notifications of the browser that something waits for a decision, while the page is not in view.

import { ApiError, get } from "./api.js";
import { page } from "./page.js";
import { go } from "./route.js";
import { may, me } from "./session.js";
import { t } from "./text.js";
import { effect, html, signal } from "./view.js";

const EVERY = 30_000; // milliseconds between two looks at the approvals of a gateway
const isPossible = "Notification" in window;

const isOn = signal(isPossible && Notification.permission === "granted" && localStorage.getItem("notify") === "on");
const isDenied = signal(false);

/** The switch for notifications; the browser asks the person the first time. */
export function Bell() {
  if (!isPossible) return null;
  const label = t(isDenied.value ? "notify.denied" : "notify");
  return html`<button type="button" class="button plain only" aria-pressed=${String(isOn.value)} aria-label=${label} title=${label} onClick=${toggle}>
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d="M6 16v-5a6 6 0 0 1 12 0v5l2 2H4zM10 21h4" fill=${isOn.value ? "currentColor" : "none"} />
    </svg>
  </button>`;
}

async function toggle() {
  const wanted = !isOn.value && (await Notification.requestPermission()) === "granted";
  isDenied.value = !isOn.value && !wanted;
  isOn.value = wanted;
  if (wanted) localStorage.setItem("notify", "on");
  else localStorage.removeItem("notify");
}

/**
 * Show that something waits, unless the person sees the page.
 * @param {string} what
 * @param {string} to Where it is decided.
 */
function tell(what, to) {
  if (!isOn.value || (!document.hidden && document.hasFocus())) return;
  const shown = new Notification(t("notify.title"), { body: what, tag: to });
  shown.onclick = () => {
    focus();
    go(to);
    shown.close();
  };
}

addEventListener("waiting", (event) => tell(t("notify.chat"), `/c/${/** @type {CustomEvent} */ (event).detail}`));

/** @type {Set<string> | null} The approvals that waited at the last look. */
let known = null;

async function look() {
  try {
    /** @type {{id: string, call: string, tool: string, user: string}[]} */
    const waiting = await get("/admin/api/v1/approvals?state=pending&limit=100");
    const before = known;
    known = new Set(waiting.map((each) => each.id));
    for (const each of before ? waiting : []) {
      if (!before?.has(each.id)) tell(t("notify.call", { tool: each.tool, user: each.user }), `/calls/${each.call}`);
    }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // the next look tries again
  }
}

effect(() => {
  known = null;
  if (!isOn.value || !page.board || !me.value || !may("admin:approve")) return undefined;
  void look();
  const timer = setInterval(look, EVERY);
  return () => clearInterval(timer);
});
