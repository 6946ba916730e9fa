// Prints each event of the watch of URL, with eventsource-client, which reconnects by itself.
import { createEventSource } from "eventsource-client";

const events = createEventSource({
  url: process.env.URL,
  headers: { Authorization: `Bearer ${process.env.TOKEN}` },
  onMessage({ event, data }) {
    const change = JSON.parse(data);
    console.log(event, change.resource?.uid ?? "");
    if (event === "closing" && !change.retryable) events.close();
  },
});
