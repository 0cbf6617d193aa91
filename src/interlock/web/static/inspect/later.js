// Components whose modules are loaded when they are first drawn.

import { html, useEffect, useState } from "../shared/view.js";

/** @param {() => Promise<{default: any}>} load */
export function later(load) {
  return (/** @type {any} */ props) => {
    const [found, setFound] = useState(/** @type {any} */ (null));
    useEffect(() => void load().then((loaded) => setFound({ One: loaded.default })), []);
    return found && html`<${found.One} ...${props} />`;
  };
}
