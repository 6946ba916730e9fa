// Deliveries of events: what waits, what an attempt sent and what came back, test events, and redelivery.

import { h, card, copyButton, dataTable, openDialog, toast } from "./dom.js";
import { call, target } from "./api.js";
import { number, relative } from "./format.js";
import { actionNamed, itemAddress, kindNamed, listAddress, nameOf, parentOf } from "./kinds.js";
import { may } from "./me.js";

/** How often and how long the page looks for the result of a test event. */
const [EVERY, FOR] = [400, 15_000];

const seconds = (duration) => `${Number.parseFloat(duration)} s`;

/** Returns what became of an event, in words. */
function outcome(row) {
  const took = row.duration ? ` after ${seconds(row.duration)}` : "";
  const nth = row.attempts > 1 ? ` at attempt ${row.attempts}` : "";
  if (row.state === "DELIVERED") return `The sink acknowledged the event${row.httpStatus ? ` with status ${row.httpStatus}` : ""}${took}${nth}.`;
  const why = row.error ? `: ${row.error}${took}` : "";
  if (row.state === "DEAD") return `The event was given up${row.attempts ? ` after ${row.attempts} ${row.attempts === 1 ? "attempt" : "attempts"}` : ""}${why}.`;
  return `Attempt ${row.attempts} failed${why}. ${row.nextAttemptTime ? `The next one is due ${relative(row.nextAttemptTime)}.` : "Delivery is paused."}`;
}

/** Returns how many events of a subscription wait for delivery; nothing for the uid of anything else. */
function backlogOf(uid) {
  const action = actionNamed("GetBacklog");
  if (!action || !may(action.capabilities, uid)) return null;
  const shown = h("span");
  const say = ({ waiting, since }) => (Number(waiting) ? `${number(Number(waiting))} ${Number(waiting) === 1 ? "event waits" : "events wait"} for delivery${since ? `, the first since ${relative(since)}` : ""}.` : "No events wait for delivery.");
  call("GET", target(action.path, { uid })).then((backlog) => (shown.textContent = say(backlog)), () => {});
  return h("div", { class: "facts", role: "status" }, shown);
}

/** What is special to lists of deliveries; see `list.js`. */
export const deliveryList = { facts: backlogOf };

/** Returns what the head of a screen says about an event or its subscription; `null` for other kinds. */
export function eventFacts(kind, item) {
  if (kind.name === "Subscription" && kind.domain === "events") return backlogOf(item.uid);
  const log = kindNamed("Delivery");
  if (kind.name === "Delivery") return h("div", { class: "facts" }, h("span", null, outcome(item)));
  if (kind.name === "DeadLetter" && log) return h("div", { class: "facts" }, h("a", { href: listAddress(log, { under: parentOf(item.uid), "f.eventId": item.eventId }) }, "What was sent, and what came back"));
  return null;
}

/** Returns the cards of a delivery: the request and the response of its last attempt. */
export function attemptOf(kind, item) {
  if (kind.name !== "Delivery") return null;
  return [message("Request", item.request, "Nothing was sent."), message("Response", item.response, "There was no response.")];
}

function message(title, { headers = {}, body = "", truncated } = {}, none) {
  const rows = Object.entries(headers).map(([name, value]) => h("tr", null, h("th", { scope: "row" }, h("code", null, name)), h("td", null, value)));
  if (rows.length === 0 && !body) return card(title, null, h("div", { class: "body" }, h("p", { class: "muted" }, none)));
  return card(
    title,
    body ? copyButton(body, "Copy body") : null,
    rows.length ? dataTable(`Headers of the ${title.toLowerCase()}`, ["Header", "Value"], rows) : null,
    h("div", { class: "body" }, body ? h("pre", { class: "json", tabindex: 0 }, indented(body)) : h("p", { class: "muted" }, "No body."), truncated ? h("p", { class: "muted small" }, "There is more: only the beginning is kept.") : null),
  );
}

/** Returns JSON with line breaks, and any other text as it is. */
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Returns the button that delivers an event again, as long as it is stored: not after its delivery. */
export function redeliverButton(kind, item, changed) {
  const action = actionNamed("RedeliverEvent");
  const subscription = parentOf(item.uid);
  if (kind.name !== "Delivery" || item.state === "DELIVERED" || !action || !may(action.capabilities, subscription)) return null;
  const now = item.state === "DEAD" ? "The dead letter is delivered again, after the events that are pending." : "The event is attempted again now, and so are those before it.";
  const ask = () =>
    openDialog("Redeliver the event", h("p", null, now), {
      action: "Redeliver",
      submit: async () => {
        await call("POST", target(action.path, { uid: subscription }), { eventId: item.eventId });
        toast("The event is delivered again");
        changed();
      },
    });
  return h("button", { type: "button", onclick: ask }, "Redeliver");
}

/** Asks to send a test event, and shows what became of it. */
export function sendTestEvent(subscription, action) {
  const log = kindNamed("Delivery");
  const status = h("p", { role: "status", class: "muted" });
  openDialog("Send a test event", [h("p", null, "One event is sent to ", h("strong", null, nameOf(kindNamed("Subscription"), subscription)), ", after those that are pending."), status], {
    action: "Send",
    submit: async () => {
      const { eventId } = await call("POST", target(action.path, { uid: subscription.uid }), {});
      status.textContent = "Sent. Waiting for the result …";
      const query = target(log.methods.list.path, {}, [["uidp.children_of", subscription.uid], ["eventId", eventId]]);
      for (const end = Date.now() + FOR; Date.now() < end; ) {
        const [row] = (await call("GET", query))[log.plural] ?? [];
        if (row) {
          location.hash = itemAddress(log, row.uid);
          return;
        }
        await new Promise((done) => setTimeout(done, EVERY));
      }
      toast("The test event waits for the events before it, or for the next attempt");
    },
  });
}
