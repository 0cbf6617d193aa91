// Tabs after the ARIA pattern: arrow keys move, one panel is shown.

import { html, useId, useRef } from "./view.js";

/**
 * @typedef {object} Tab
 * @property {string} id
 * @property {any} title
 * @property {string} [of] A count or remark beside the title.
 */

/**
 * @param {{label: string, tabs: Tab[], chosen: string, choose: (id: string) => void, children?: any}} props
 *   `children` is the content of the chosen tab.
 */
export function Tabs({ label, tabs, chosen, choose, children }) {
  const id = useId();
  const list = useRef(/** @type {HTMLElement | null} */ (null));

  /** @param {KeyboardEvent} event */
  function move(event) {
    const now = tabs.findIndex((each) => each.id === chosen);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    let next = step === undefined ? -1 : (now + step + tabs.length) % tabs.length;
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = tabs.length - 1;
    const tab = tabs[next];
    if (!tab) return;
    event.preventDefault();
    choose(tab.id);
    /** @type {HTMLElement | undefined} */ (list.current?.children[next])?.focus();
  }

  return html`
    <div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
      ${tabs.map(
        (tab) => html`<button
          type="button"
          role="tab"
          id=${`${id}-${tab.id}`}
          aria-selected=${String(tab.id === chosen)}
          aria-controls=${`${id}-panel`}
          tabindex=${tab.id === chosen ? 0 : -1}
          onClick=${() => choose(tab.id)}
        >
          ${tab.title}${tab.of && html`<span class="of">${tab.of}</span>`}
        </button>`,
      )}
    </div>
    <div role="tabpanel" id=${`${id}-panel`} aria-labelledby=${`${id}-${chosen}`}>${children}</div>
  `;
}
