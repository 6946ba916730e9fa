"""Prints each event of the watch of URL, with requests-sse."""

import json
import os
import time

import requests
from requests_sse import EventSource, InvalidStatusCodeError

url, token = os.environ["URL"], os.environ["TOKEN"]
last, is_over = None, False
while not is_over:
    headers = {"Authorization": f"Bearer {token}"}
    try:
        # It reconnects by itself, until the server refuses it or is away for long.
        with EventSource(url, headers=headers, timeout=30, latest_event_id=last) as events:
            for event in events:
                if not event.data:
                    continue
                last, change = event.last_event_id, json.loads(event.data)
                print(event.type, change.get("resource", {}).get("uid", ""), flush=True)
                if event.type == "closing" and not change["retryable"]:
                    is_over = True
                    break
    except InvalidStatusCodeError as error:
        if error.status_code < 500 and error.status_code != 429:
            raise
    except requests.RequestException:
        pass
    time.sleep(1)
