// Receives events with the JavaScript SDK. Output: tests/clients/receivers.py.

import http from "node:http";
import { HTTP } from "cloudevents";

const server = http.createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  let decoded;
  try {
    const event = HTTP.toEvent({ headers: request.headers, body: Buffer.concat(parts).toString() });
    event.validate();
    const { id, source, type, subject, datacontenttype, group, bodytype, data } = event;
    const millis = Date.parse(event.time);
    decoded = { id, source, type, subject, millis, datacontenttype, group, bodytype, data, url: request.url };
    response.statusCode = 200;
  } catch (error) {
    decoded = { error: String(error) };
    response.statusCode = 400;
  }
  console.log(JSON.stringify(decoded));
  response.end();
});
server.listen(0, "127.0.0.1", () => console.log("port", server.address().port));
