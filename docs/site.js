// A table that is wider than the screen can be scrolled by keyboard.
const focusable = () => {
  for (const each of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    each.tabIndex = 0;
  }
};
new MutationObserver(focusable).observe(document.documentElement, { childList: true, subtree: true });
focusable();
