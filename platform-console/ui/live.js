// Follows a list by a watch of the names of its resources, while it is in the page and the page is in sight.

import { events } from "./api.js";

/** The time before another attempt after an end, in milliseconds, if the server does not say otherwise. */
const PAUSE = 1000;

/** The time in milliseconds after which a list no longer waits for the watch: a proxy may keep back the first event. */
const PATIENCE = 1000;

/**
 * Calls `show` with each event of a watch, for as long as `isShown` returns true. A page that is out of sight ends the
 * stream, which goes on after the last event when it is in sight again. Where the server refuses the watch, nothing is followed.
 * Returns a function that ends it, and a promise that is fulfilled when changes from then on are followed, or none are, or after `PATIENCE`.
 */
export function follow(path, isShown, show) {
  let last = "";
  let current = null;
  let begin;
  const begun = new Promise((done) => (begin = done));
  setTimeout(begin, PATIENCE);
  const end = () => {
    document.removeEventListener("visibilitychange", look);
    current?.abort();
    begin();
  };
  const start = () => run((current = new AbortController()).signal);
  function look() {
    current?.abort();
    if (!isShown()) end();
    else if (!document.hidden) start();
  }
  async function run(signal) {
    let pause = PAUSE;
    while (!signal.aborted) {
      try {
        for await (const event of events(path, last, signal)) {
          // The server sends a line every 3 seconds, also when nothing has changed.
          if (!isShown()) return end();
          pause = event.retry ?? pause;
          if (!event.data) continue;
          last = event.id;
          begin();
          if (event.data.type === "closing" && !event.data.retryable) return end();
          show(event.data);
        }
      } catch (error) {
        if (!signal.aborted && error.status < 500 && error.status !== 429) return end();
      }
      begin();
      await new Promise((done) => setTimeout(done, pause));
      if (!isShown()) end();
    }
  }
  document.addEventListener("visibilitychange", look);
  // A screen is put into the page after it is made, and a page that is not in sight has no need to wait.
  if (document.hidden) begin();
  else start();
  return { end, begun };
}
