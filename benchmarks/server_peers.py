"""What server.py compares with: plain servers that do the least that is possible.

    python server_peers.py grpc     answers each call at once and only counts the bytes of streams
    python server_peers.py events   sends each line of standard input to all WebSockets

Both print their port.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
from websockets.asyncio.server import ServerConnection, broadcast, serve

from tensight.wire import debugger_pb2 as pb
from tensight.wire import run_step, version_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CALLS = ("WaitCMD", "SendMetadata", "SendGraph", "SendTensors")


async def plain_grpc() -> None:
    replies = {"WaitCMD": run_step().SerializeToString(), "SendMetadata": version_reply(True).SerializeToString()}
    fine = pb.EventReply().SerializeToString()
    counted = 0

    async def count(pieces: AsyncIterator[bytes], _: Any) -> bytes:
        nonlocal counted
        async for piece in pieces:
            counted += len(piece)
        return fine

    def at_once(reply: bytes) -> Any:
        async def answer(_: bytes, __: Any) -> bytes:
            return reply

        return grpc.unary_unary_rpc_method_handler(answer)

    handlers = {name: at_once(replies[name]) for name in replies}
    handlers |= {name: grpc.stream_unary_rpc_method_handler(count) for name in CALLS if name not in replies}
    server = grpc.aio.server(
        handlers=[grpc.method_handlers_generic_handler("debugger.EventListener", handlers)],
        options=[("grpc.max_receive_message_length", 8 * 2**20)],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def plain_events() -> None:
    connections: set[ServerConnection] = set()

    async def keep(connection: ServerConnection) -> None:
        connections.add(connection)
        await connection.wait_closed()
        connections.discard(connection)

    loop = asyncio.get_running_loop()
    async with serve(keep, "127.0.0.1", 0, compression=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            event = json.loads(line)
            event["time"] = time.time()
            broadcast(connections, json.dumps(event))


if __name__ == "__main__":
    asyncio.run({"grpc": plain_grpc, "events": plain_events}[sys.argv[1]]())
