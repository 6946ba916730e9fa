// Keeps the place in a page for Back: how far it was scrolled, and the link that was followed.

/** Stores the place in the entry of the history that is about to be left. */
export function keepPlace(link = null) {
  history.replaceState({ y: window.scrollY, link: link?.getAttribute("href") ?? null }, "");
}

document.addEventListener(
  "click",
  (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (link) keepPlace(link);
  },
  { capture: true },
);

/** The place that was stored for the current entry; `null` for a new one. */
export const placeOf = () => history.state;

/** Shows the place again, with the focus on the link that was followed. */
export function showPlace(root, { y, link }) {
  window.scrollTo(0, y);
  if (link) root.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
}
