"""Subscribers for server.py: many WebSockets that note when each event arrives.

    python server_subscribers.py URL COUNT

Prints ``ready``; at the end of standard input a line of JSON: for each number of an event how many subscribers got it,
and the seconds from when it happened until the last of them had it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from websockets.asyncio.client import connect


async def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    arrivals: dict[int, list[float]] = {}

    async def subscribe(ready: asyncio.Future[None]) -> None:
        async with connect(url, compression=None, proxy=None, max_queue=None) as connection:
            ready.set_result(None)
            async for message in connection:
                now = time.time()
                event = json.loads(message)
                arrivals.setdefault(event["number"], []).append(now - event["time"])

    loop = asyncio.get_running_loop()
    openings = [loop.create_future() for _ in range(count)]
    tasks = [asyncio.create_task(subscribe(opening)) for opening in openings]
    first = asyncio.gather(*openings)
    await asyncio.wait([first, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
    await first
    print("ready", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(json.dumps({number: [len(times), max(times)] for number, times in arrivals.items()}), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
