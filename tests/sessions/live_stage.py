"""A stage for attached processes: real messages on a real event loop, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tensight import wire
from tensight.sessions.live import Attachments, Caller, LiveSettings
from tensight.sessions.live.session import LiveSession
from tensight.sessions.records import Command, SessionRecord, State, WatchpointRecord, WatchpointSpec
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tensight.tensors import statistics
from tensight.wire import debugger_pb2 as pb
from tests.dumps.dump_writer import GraphWriter, part

PATIENCE_S = 20.0
CONV = "Default/network/conv1-Conv2d/Conv2D-op1"
RELU = "Default/network/ReLU-op2"
WEIGHT = "conv1.weight"
GRAPH = "kernel_graph_0"

_T = TypeVar("_T")


Scene = Callable[["Stage"], Coroutine[Any, Any, None]]


class Play(Protocol):
    """Plays a scene, and closes the server afterwards; `settings` are those of `LiveSettings`."""

    def __call__(self, scene: Scene, **settings: Any) -> None: ...


def play(scene: Scene, folder: Path, **settings: Any) -> None:
    async def whole() -> None:
        stage = Stage(folder, **settings)
        try:
            await scene(stage)
        finally:
            await stage.close()

    asyncio.run(asyncio.wait_for(whole(), 3 * PATIENCE_S))


async def stream(items: Iterable[_T]) -> AsyncIterator[_T]:
    for item in items:
        yield item


def network(name: str = GRAPH, root: str = "0") -> GraphWriter:
    graph = GraphWriter(name, root)
    graph.parameter(WEIGHT).parameter("inputs0").constant("cst1", "Default--data-3")
    graph.operator(CONV, inputs=("inputs0", WEIGHT)).operator(RELU, inputs=("1",))
    return graph


def proto(writer: GraphWriter) -> bytes:
    return writer.body + part(2, writer.name) + part(6, writer.root)


class Stage:
    """A server without its sockets."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.workspace = Workspace(folder)
        self.sessions = Sessions(self.workspace, None)
        self.attachments = Attachments(self.workspace, self.sessions, settings=LiveSettings(**settings))
        self._ports = iter(range(40_000, 50_000))

    def process(self, **options: Any) -> OldProcess:
        return OldProcess(self, next(self._ports), **options)

    def agent(self, **options: Any) -> Agent:
        return Agent(self, next(self._ports), **options)

    def session(self, place: int = -1) -> LiveSession:
        found = self.sessions.all()[place]
        assert isinstance(found, LiveSession)
        return found

    async def close(self) -> None:
        await self.attachments.close("the test is over")
        await self.sessions.close_all("the test is over")


async def until(session: LiveSession, holds: Callable[[], bool] | State) -> None:
    """Wait for something that an event of the session tells, or for a state."""

    def seen() -> bool:
        return session.state is holds if isinstance(holds, State) else holds()

    last = session.events.last
    while not seen():
        page = await session.events.wait_after(last, PATIENCE_S)
        assert page.events or seen(), f"not within {PATIENCE_S} s; the session is {session.record()}"
        last = page.last


def kind(reply: pb.EventReply) -> str:
    """A reply in a few words."""
    if reply.status != pb.EventReply.OK:
        return "failed"
    command = reply.WhichOneof("cmd")
    if command == "run_cmd":
        run = reply.run_cmd
        level = f"back {run.run_level.decode()}" if run.back else run.run_level.decode()
        return " ".join(["run", level, str(run.run_steps or run.node_name.decode())]).strip(" 0")
    if command == "set_cmd":
        return f"delete {reply.set_cmd.id}" if reply.set_cmd.delete else f"set {reply.set_cmd.id}"
    if command == "view_cmd":
        return "views" if reply.view_cmd.views else f"view {pb.ViewCMD.Level.Name(reply.view_cmd.level)}"
    return command or "nothing"


class OldProcess:
    """MindSpore's own client, played by the test."""

    def __init__(
        self, stage: Stage, port: int, *, device: str = "0", backend: str = "Ascend", host: str = "127.0.0.1"
    ) -> None:
        self.stage = stage
        self.calls = stage.attachments
        self.device = device
        self.backend = backend
        self.host = host
        self.caller = Caller(f"ipv4:{host}:{port}")
        self._session: LiveSession | None = None

    @property
    def session(self) -> LiveSession:
        process = self.calls._lookup(self.caller)
        # With a new connection it is only known again when it asks for a command.
        self._session = process.session if process is not None else self._session
        assert self._session is not None
        return self._session

    def metadata(self, step: int = 0, node: str = "", root: int = 0, **more: Any) -> pb.Metadata:
        return pb.Metadata(
            device_name=f"{self.device}:{root}".encode(),
            cur_step=step,
            backend=self.backend.encode(),
            cur_node=node.encode(),
            **more,
        )

    async def announce(self, version: str = "2.0.0", **more: Any) -> pb.EventReply:
        message = self.metadata(ms_version=version.encode(), **{"graph_num": 1, **more})
        return await self.calls.send_metadata(self.caller, message)

    async def done(self) -> pb.EventReply:
        return await self.calls.send_metadata(self.caller, self.metadata(training_done=True))

    async def send_graphs(self, *writers: GraphWriter) -> pb.EventReply:
        chunks = [
            pb.Chunk(buffer=piece, finished=piece is pieces[-1])
            for writer in writers
            for pieces in [list(map(bytes, wire.chunks(proto(writer), 100)))]
            for piece in pieces
        ]
        return await self.calls.send_graph(self.caller, stream(chunks), len(writers) > 1)

    async def attach(self, *writers: GraphWriter) -> LiveSession:
        """Go through the whole beginning; returns when the session can be commanded, the process not yet waiting."""
        assert kind(await self.announce()) == "version_matched"
        assert kind(await self.send_graphs(*(writers or (network(),)))) == "nothing"
        return self.session

    def ask(self, step: int = 0, node: str = "", **more: Any) -> asyncio.Task[pb.EventReply]:
        """Ask for a command; the call goes on until there is one."""
        return asyncio.create_task(self.calls.wait_cmd(self.caller, self.metadata(step, node, **more)))

    async def told(self, step: int = 0, node: str = "", **more: Any) -> str:
        """Ask for a command and return it in a few words; there must be one soon."""
        return kind(await asyncio.wait_for(self.ask(step, node, **more), PATIENCE_S))

    async def stand(self, step: int = 0, node: str = "", **more: Any) -> asyncio.Task[pb.EventReply]:
        """Ask for a command, and see that the session is paused."""
        asking = self.ask(step, node, **more)
        await until(self.session, lambda: self.session.state is State.PAUSED or asking.done())
        assert not asking.done(), asking
        return asking

    async def run(self, step: int = 0) -> LiveSession:
        """Attach, stand at a step, and be told to go on until the training ends."""
        session = await self.attach()
        asking = await self.stand(step)
        await command(session, "continue")
        await asking
        return session

    async def report(self, *hits: tuple[str, int], error_code: int = 0, **more: Any) -> pb.EventReply:
        """Report hits: each the name of a node, and the watchpoint."""
        messages = [
            pb.WatchpointHit(
                tensor=pb.TensorProto(node_name=node.encode(), slot=b"0", finished=True),
                watch_condition=pb.WatchCondition(
                    condition=15, params=[{"name": b"max_gt", "value": 3, "hit": not error_code, "actual_value": 7.5}]
                ),
                id=watchpoint,
                error_code=error_code,
                **more,
            )
            for node, watchpoint in hits
        ]
        return await self.calls.send_watchpoint_hits(self.caller, stream(messages))

    async def answer(
        self, reply: pb.EventReply, tensors: dict[str, np.ndarray[Any, Any]], piece_bytes: int = 10
    ) -> pb.EventReply:
        """Answer a request for tensors; previous values are called ``name:prev``."""
        pieces: list[bytes] = []
        summaries: list[pb.TensorSummary] = []
        for asked in reply.view_cmd.tensors:
            request = wire.received_request(asked)
            array = tensors.get(request.node + (":prev" if request.previous else ""))
            summaries.append(wire.missing_summary() if array is None else wire.summary_of(statistics(array), False))
            pieces += value_pieces(asked, array, piece_bytes)
        if reply.view_cmd.level == pb.ViewCMD.statistics:
            return await self.calls.send_tensor_stats(self.caller, stream(summaries))
        return await self.calls.send_tensors(self.caller, stream(pieces))

    def breaks(self) -> None:
        """Let the connection break, and come back with another one."""
        host, _, port = self.caller.peer.rpartition(":")
        self.caller = Caller(f"{host}:{int(port) + 10_000}", self.caller.process_key)


def value_pieces(asked: pb.TensorProto, array: np.ndarray[Any, Any] | None, piece_bytes: int = 10) -> list[bytes]:
    """The serialized pieces of a tensor, or the one that says that there is none."""
    echo = {"node_name": asked.node_name, "slot": asked.slot, "iter": asked.iter, "truncate": asked.truncate}
    if array is None:
        return [pb.TensorProto(**echo, finished=True).SerializeToString()]
    content = list(wire.chunks(array.tobytes(), piece_bytes))
    data_type = wire.data_type_of(array.dtype)
    return [
        pb.TensorProto(
            **echo,
            tensor_content=bytes(piece),
            dims=array.shape,
            data_type=data_type,
            finished=number == len(content),
        ).SerializeToString()
        for number, piece in enumerate(content, 1)
    ]


class Agent(OldProcess):
    """One of Tensight's agents, played by the test."""

    def __init__(
        self,
        stage: Stage,
        port: int,
        *,
        key: str = "",
        job: str = "job",
        rank: int = 0,
        world_size: int = 1,
        abilities: tuple[str, ...] = (),
        run_at_start: bool = False,
        recommended: bool = False,
        script: str = "",
        **options: Any,
    ) -> None:
        super().__init__(stage, port, device=str(rank), **options)
        self.key = key or f"key-{port}"
        self.caller = Caller(self.caller.peer, self.key)
        self.who = pb.Process(
            key=self.key.encode(),
            job=job.encode(),
            rank=rank,
            world_size=world_size,
            framework=b"torch",
            framework_version=b"2.7",
            protocol=1,
            process_id=77,
            host=b"node1",
            abilities=pb.Abilities(**dict.fromkeys(abilities, True)),
            run_at_start=run_at_start,
            recommended=recommended,
            script=script.encode(),
        )

    def ask(self, step: int = 0, node: str = "", **more: Any) -> asyncio.Task[pb.EventReply]:
        """Ask for a command, and again where there is nothing to do but to stay stopped."""

        async def asked() -> pb.EventReply:
            reply = wire.held()
            while reply == wire.held():
                reply = await self.calls.wait_cmd(self.caller, self.metadata(step, node, **more))
            return reply

        return asyncio.create_task(asked())

    async def announce(self, version: str = "", **more: Any) -> pb.EventReply:
        return await super().announce(version, process=self.who, **more)


async def command(session: LiveSession, action: str, **more: Any) -> SessionRecord:
    return await session.command(Command(action=action, **more))  # type: ignore[arg-type]


async def watch(session: LiveSession, condition: str = "tensor_too_large", **more: Any) -> WatchpointRecord:
    parameters = more.pop("parameters", {"max_gt": 3} if condition == "tensor_too_large" else {})
    return await session.create_watchpoint(WatchpointSpec(condition=condition, parameters=parameters, **more))
