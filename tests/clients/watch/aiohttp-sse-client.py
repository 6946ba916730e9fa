"""Prints each event of the watch of URL, with aiohttp-sse-client, which does not reconnect after a cut."""

import asyncio
import json
import os

import aiohttp
from aiohttp_sse_client.client import EventSource


async def main() -> None:
    url, token = os.environ["URL"], os.environ["TOKEN"]
    last = ""
    # Without a total, which ends a stream after 300 s.
    timeout = aiohttp.ClientTimeout(total=None, sock_read=30)
    while True:
        headers = {"Authorization": f"Bearer {token}"} | ({"Last-Event-ID": last} if last else {})
        try:
            async with EventSource(url, headers=headers, timeout=timeout) as events:
                async for event in events:
                    last, change = event.last_event_id, json.loads(event.data)
                    print(event.type, change.get("resource", {}).get("uid", ""), flush=True)
                    if event.type == "closing" and not change["retryable"]:
                        return
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError):
            await asyncio.sleep(1)


asyncio.run(main())
