#!/bin/sh
# eventsource 5.1.5 (npm): the timer after which it reconnects does not keep the process alive. A Node.js program that does
# nothing but follow a stream ends with status 0 and without a message when the server ends or cuts the stream.
#
# It looks as if the stream were over. Needs Node.js and the npm registry.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"; kill "$server" 2>/dev/null || true' EXIT
cd "$work"
npm install --silent --no-fund --no-audit eventsource@5.1.5
cat > server.mjs <<'JS'
import { createServer } from "node:http";
const server = createServer((request, reply) => {
  console.error("request");
  reply.writeHead(200, { "content-type": "text/event-stream" });
  reply.end("retry: 100\ndata: 1\nid: 1\n\n");
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
JS
node server.mjs > port 2> requests &
server=$!
until [ -s port ]; do sleep 0.1; done
cat > client.mjs <<'JS'
import { EventSource } from "eventsource";
const events = new EventSource(process.argv[2]);
events.addEventListener("error", () => console.log("state", events.readyState));
JS
timeout 20 node client.mjs "http://127.0.0.1:$(cat port)/" > states
cat states requests
[ "$(cat states)" = "state 0" ] && [ "$(wc -l < requests)" = 1 ]
