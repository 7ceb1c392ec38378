"""Training processes for server.py: they follow MindSpore's protocol and compute nothing, many in one real process.

    python server_training.py HOST:PORT KIND [--count N] [--first K] [--job NAME] [--world N] [--nodes N] [--mib N]

What they are told on standard input: ``stop``, or ``stream HOST:PORT`` (send the large tensor to that server, which
asked for nothing). What they measured they write as lines of JSON. Times are those of `time.monotonic`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import grpc
from graph_parse import make_graph

from tensight.wire import CHUNK_BYTES, PROCESS_KEY_METADATA, chunks
from tensight.wire import debugger_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

ROW = 8192
BIG = "big.weight"
FLOAT32 = 11


def report(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def each(messages: Iterable[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message


class Link:
    """The calls of one process, on a channel of its own; messages travel as bytes, serialized before the clock runs."""

    def __init__(self, address: str, key: str) -> None:
        # Without its own pool of connections gRPC would give all processes here one connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.aio.insecure_channel(address, options)
        self._metadata = ((PROCESS_KEY_METADATA, key),)
        self._wait = self._channel.unary_unary("/debugger.EventListener/WaitCMD")
        self.once = self._channel.unary_unary("/debugger.EventListener/SendMetadata")

    async def metadata(self, message: bytes) -> pb.EventReply:
        return pb.EventReply.FromString(await self.once(message, metadata=self._metadata, wait_for_ready=True))

    async def wait(self, message: bytes) -> pb.EventReply:
        return pb.EventReply.FromString(await self._wait(message, metadata=self._metadata))

    async def stream(self, name: str, messages: Iterable[bytes]) -> pb.EventReply:
        call = self._channel.stream_unary(f"/debugger.EventListener/{name}")
        return pb.EventReply.FromString(await call(each(messages), metadata=self._metadata))

    async def close(self) -> None:
        await self._channel.close()


class Training:
    """One process: announces itself and its graph, then obeys."""

    def __init__(self, address: str, options: argparse.Namespace, number: int, graph: bytes) -> None:
        key = f"bench-{os.getpid()}-{number}"
        self._link = Link(address, key)
        self._process = pb.Process(
            key=key.encode(),
            job=(options.job or f"bench-{number}").encode(),
            rank=number if options.world > 1 else 0,
            world_size=options.world,
            framework=b"mindspore",
            process_id=os.getpid(),
            protocol=1,
        )
        self._graph = graph
        self._hits = options.kind == "hits"
        self._mib = options.mib
        self._condition = pb.SetCMD()
        self._step = 0
        self.stopping = False
        self.waits: list[tuple[float, float]] = []

    async def run(self) -> None:
        first = pb.Metadata(device_name=b"0:0", backend=b"Ascend", graph_num=1, ms_version=b"2.0.0")
        first.process.CopyFrom(self._process)
        reply = await self._link.metadata(first.SerializeToString())
        assert reply.version_matched, reply
        messages = [pb.Chunk(buffer=bytes(piece)).SerializeToString() for piece in chunks(self._graph)]
        begin = time.monotonic()
        report(kind="sending", begin=begin)
        reply = await self._link.stream("SendGraph", messages)
        assert reply.status == pb.EventReply.OK, reply
        report(kind="graph", begin=begin, end=time.monotonic(), bytes=len(self._graph))
        while not self.stopping and await self._obey():
            pass
        done = pb.Metadata(device_name=b"0:0", backend=b"Ascend", cur_step=self._step, training_done=True)
        await self._link.metadata(done.SerializeToString())
        await self._link.close()

    async def _obey(self) -> bool:
        message = pb.Metadata(device_name=b"0:0", backend=b"Ascend", cur_step=self._step).SerializeToString()
        begin = time.monotonic()
        reply = await self._link.wait(message)
        end = time.monotonic()
        kind = reply.WhichOneof("cmd")
        if kind == "set_cmd":
            self._condition = reply.set_cmd
        elif kind == "view_cmd":
            pieces = tensor_messages(self._mib, reply.view_cmd.tensors[0])
            await stream_tensor(self._link, pieces, self._mib)
        elif kind == "run_cmd" and reply.run_cmd.run_level != b"recheck":
            self._step += 1
            self.waits.append((end, end - begin))
            if self._hits:
                await self._send_hits()
        # A server that ends says so by an answer that is none.
        return kind != "exit" and reply.status == pb.EventReply.OK

    async def _send_hits(self) -> None:
        messages = [self._hit(node.node_name) for node in self._condition.watch_nodes]
        begin = time.monotonic()
        reply = await self._link.stream("SendWatchpointHits", messages)
        assert reply.status == pb.EventReply.OK, reply
        report(kind="hits", begin=begin, end=time.monotonic(), count=len(messages))

    def _hit(self, node: bytes) -> bytes:
        hit = pb.WatchpointHit(id=self._condition.id, watch_condition=self._condition.watch_condition)
        hit.tensor.node_name, hit.tensor.slot, hit.tensor.finished = node, b"0", True
        for parameter in hit.watch_condition.params:
            parameter.hit, parameter.actual_value = not parameter.disabled, 2.5
        return hit.SerializeToString()


def tensor_messages(mib: int, asked: pb.TensorProto) -> list[bytes]:
    """Return the pieces of a tensor; the same object many times over, so that they cost no memory and no time."""
    size = mib * 2**20
    content = bytes(CHUNK_BYTES)
    header = {"data_type": FLOAT32, "dims": [size // (4 * ROW), ROW]}
    header |= {name: getattr(asked, name) for name in ("node_name", "slot", "iter", "truncate", "graph", "io")}
    middle = pb.TensorProto(tensor_content=content, **header).SerializeToString()
    whole, rest = divmod(size, CHUNK_BYTES)
    last = pb.TensorProto(tensor_content=content[: rest or CHUNK_BYTES], finished=True, **header).SerializeToString()
    return [middle] * (whole if rest else whole - 1) + [last]


async def stream_tensor(link: Link, pieces: list[bytes], mib: int) -> None:
    begin = time.monotonic()
    reply = await link.stream("SendTensors", pieces)
    report(kind="tensor", begin=begin, end=time.monotonic(), bytes=mib * 2**20, status=reply.status)


def graph_for(options: argparse.Namespace) -> bytes:
    """Return a graph: of many nodes, or of one parameter that holds the large tensor and an operator that reads it."""
    from tensight.graph import ms_graph_pb2

    if options.kind == "bare":
        # Operators that say nothing of themselves have two bytes each.
        return ms_graph_pb2.GraphProto(name=b"kernel_graph0").SerializeToString() + b"\x0a\x00" * options.nodes
    graph = make_graph(options.nodes)
    if options.mib:
        tensor = ms_graph_pb2.TypeProto(data_type=14, tensor_type=ms_graph_pb2.TypeProto.Tensor(elem_type=FLOAT32))
        for size in (options.mib * 2**20 // (4 * ROW), ROW):
            tensor.tensor_type.shape.dim.add(size=size)
        graph.parameters.add(name=BIG.encode(), type=tensor.SerializeToString())
        graph.node[0].input.add(name=BIG.encode())
    data: bytes = graph.SerializeToString()
    return data


async def follow_orders(trainings: list[Training], options: argparse.Namespace) -> None:
    """Do what standard input says, until it says stop."""
    loop = asyncio.get_running_loop()
    while order := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if order[0] == "stop":
            break
        link = Link(order[1], "bench-plain")
        await stream_tensor(link, tensor_messages(options.mib, pb.TensorProto(node_name=BIG.encode())), options.mib)
        await link.close()
    for training in trainings:
        training.stopping = True


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address")
    parser.add_argument("kind", choices=("steps", "hits", "tensor", "graph", "bare"))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--job", default="")
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--mib", type=int, default=0)
    options = parser.parse_args()
    graph = graph_for(options)
    numbers = range(options.first, options.first + options.count)
    trainings = [Training(options.address, options, number, graph) for number in numbers]
    orders = asyncio.create_task(follow_orders(trainings, options))
    running = [asyncio.create_task(training.run()) for training in trainings]
    await asyncio.wait([*running, orders], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait(running, timeout=5)
    for task in running:
        if task.done() and (error := task.exception()) is not None:
            print(f"a training process failed: {error!r}", file=sys.stderr)
    report(kind="waits", waits=[wait for training in trainings for wait in training.waits])
    # Whoever still waits for a command is left waiting: a process that dies tells nobody.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
