"""Receives events with the Python SDK. Output: tests/clients/receivers.py."""

import http.server
import json

from cloudevents.core.bindings.http import HTTPMessage, from_http_event


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            # The SDK validates the attributes where it creates an event.
            event = from_http_event(HTTPMessage(headers=headers, body=body))
            decoded = {
                "id": event.get_id(),
                "source": event.get_source(),
                "type": event.get_type(),
                "subject": event.get_subject(),
                "millis": round(event.get_time().timestamp() * 1000),
                "datacontenttype": event.get_datacontenttype(),
                "group": event.get_extension("group"),
                "bodytype": event.get_extension("bodytype"),
                "data": event.get_data(),
                "url": self.path,
            }
            status = 200
        except Exception as error:
            decoded, status = {"error": repr(error)}, 400
        print(json.dumps(decoded), flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Suppresses the log."""


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
