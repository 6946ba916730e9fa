// Asks before text that was typed into a form is lost.

import { changes, h, openDialog } from "./dom.js";

/** The form that may have changes, and its values when it was shown. */
let watched = null;

/** Watches a form until it is saved or left. */
export function watch(form) {
  watched = { form, hasChanged: null };
  // Names of resources appear in it first.
  form.addEventListener("focusin", () => (watched.hasChanged ??= changes(form)), { once: true });
}

/** Stops watching: what was typed is saved, or its user has decided to drop it. */
export const release = () => (watched = null);

const hasUnsaved = () => Boolean(watched?.hasChanged?.());

window.addEventListener("beforeunload", (event) => hasUnsaved() && event.preventDefault());

/** Runs `leave`, after a question if that would lose changes. `stay` restores the address first. */
export function askBefore(leave, stay) {
  if (!hasUnsaved()) {
    release();
    leave();
    return;
  }
  stay();
  openDialog("Leave without saving?", [h("p", null, "What you have typed on this page is not saved.")], {
    action: "Leave",
    danger: true,
    cancel: "Stay",
    submit: async () => {
      release();
      leave();
    },
  });
}
