"""Whether a server stays quick and small, whatever numbers it is sent.

Starts a server with a limited address space (as ``ulimit -v`` does) and sends it messages whose numbers have extreme
values: every number of both gRPC services, found in their descriptors, every parameter and body of the HTTP API, found
in its OpenAPI document, and frames over its WebSocket. Prints the worst time of an answer with its message, the time
that requests of another client took meanwhile, and the peak memory of the server.

    python benchmarks/hostile_numbers.py [--messages 100000] [--seed 1] [--limit-mb 8192] [--minutes 60]

Only a server of its own on this machine is contacted. The exit code is 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import httpx
import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from tensight.graph import ms_graph_pb2 as graph_pb
from tensight.wire import PROCESS_KEY_METADATA, debugger_pb2, telemetry_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.protobuf.message import Message

WITHIN_S = 0.5
MOST_MB = 1024
GIVEN_UP_AFTER_S = 20.0
"""An answer that takes longer is none."""

GRAPH, NODE, WEIGHT = b"kernel_graph_0", b"Default/network/Dense-op1", b"dense.weight"
MOST_TRAININGS = 12
CONTENT = np.arange(4, dtype="<f4").tobytes()

_INT32 = (0, -1, 1, 2, 64, 65, 30_000_000, 2**31 - 2, 2**31 - 1, -(2**31))
_INT64 = (*_INT32, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_UINT64 = (*(value for value in _INT64 if value >= 0), 2**63, 2**64 - 1)
_FLOAT = (0.0, -0.0, -1.0, 0.5, 1e30, 3.4e38, -3.4e38, 1e-45, math.nan, math.inf, -math.inf)
_DOUBLE = (*_FLOAT, 1.7e308, -1.7e308, 5e-324)
EXTREMES: Mapping[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_INT32: _INT32,
    FieldDescriptor.TYPE_INT64: _INT64,
    FieldDescriptor.TYPE_UINT64: _UINT64,
    FieldDescriptor.TYPE_FIXED64: _UINT64,
    FieldDescriptor.TYPE_FLOAT: _FLOAT,
    FieldDescriptor.TYPE_DOUBLE: _DOUBLE,
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_ENUM: (0, 1, 7, 2**31 - 1, -(2**31)),
}
"""Values by the type of a number; a type of field that is missing here, and holds no text, is an error."""

INSIDE: Mapping[str, Any] = {
    "debugger.Chunk.buffer": graph_pb.GraphProto,
    "tensight.graph.NodeProto.attribute": graph_pb.AttributeProto,
    "tensight.graph.NodeProto.output_type": graph_pb.TypeProto,
    "tensight.graph.ParameterProto.type": graph_pb.TypeProto,
    "tensight.graph.ParameterProto.default_val": graph_pb.ValueProto,
    "tensight.graph.NamedValueProto.value": graph_pb.ValueProto,
}
"""Messages that are fields of bytes."""

ARRAYS = {
    "tensight.v1.StatisticsBlock.counts": ("<i8", _INT64),
    "tensight.v1.StatisticsBlock.numbers": ("<f8", _DOUBLE),
}
"""Numbers that are fields of bytes."""

DIGITS = (b"", b"0", b"1", b"-1", b"30000000", b"2147483647", b"999999999", b"9999999999", b"9" * 18, b"9" * 400)
TEXTS = {
    "debugger.TensorProto.slot": b"%s",
    "debugger.TensorProto.iter": b"%s",
    "debugger.Metadata.device_name": b"0:%s",
    "tensight.graph.GraphProto.name": b"kernel_graph_%s",
    "tensight.graph.GraphProto.root_name": b"%s",
    "tensight.graph.NodeProto.name": b"%s",
    "tensight.graph.InputProto.name": b"%s",
    "tensight.graph.TensorProto.slot": b"%s",
    "tensight.graph.TensorProto.iter": b"%s",
}
"""Texts that hold a number."""

_SCALAR_TEXTS = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


@dataclass(frozen=True)
class Number:
    """A number of a message: the fields that lead to it, and its extreme values."""

    path: tuple[FieldDescriptor, ...]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ".".join(field.name for field in self.path)


def numbers_of(
    descriptor: Any, path: tuple[FieldDescriptor, ...] = (), above: tuple[str, ...] = ()
) -> Iterator[Number]:
    """Yield every number of a type of messages; those within a type that contains itself once."""
    above = (*above, descriptor.full_name)
    for each in descriptor.fields:
        here = (*path, each)
        inside = INSIDE.get(each.full_name)
        inner = each.message_type if each.message_type is not None else inside and inside.DESCRIPTOR
        if inner is not None:
            if inner.full_name not in above:
                yield from numbers_of(inner, here, above)
        elif each.full_name in ARRAYS:
            yield Number(here, ARRAYS[each.full_name][1])
        elif each.full_name in TEXTS:
            yield Number(here, tuple(TEXTS[each.full_name] % digits for digits in DIGITS))
        elif each.type not in _SCALAR_TEXTS:
            yield Number(here, EXTREMES[each.type])


def put(message: Any, path: tuple[FieldDescriptor, ...], value: Any, rng: random.Random) -> None:
    """Set a number of a message; what leads to it is created where the message lacks it."""
    first, *rest = path
    held = getattr(message, first.name)
    if not rest and first.full_name in ARRAYS:
        array = np.frombuffer(held, ARRAYS[first.full_name][0]).copy()
        array[rng.randrange(len(array)) if len(array) else slice(None)] = value
        setattr(message, first.name, array.tobytes())
    elif not rest and first.is_repeated:
        if held and rng.random() < 0.7:
            held[rng.randrange(len(held))] = value
        else:
            held.append(value)
    elif not rest:
        setattr(message, first.name, value)
    elif first.message_type is not None:
        if first.is_repeated:
            at = held[rng.randrange(len(held))] if held else held.add()
        else:
            at = held
            at.SetInParent()
        put(at, tuple(rest), value, rng)
    else:
        raw = (held[0] if held else b"") if first.is_repeated else held
        inside = INSIDE[first.full_name].FromString(raw)
        put(inside, tuple(rest), value, rng)
        if not first.is_repeated:
            setattr(message, first.name, inside.SerializeToString())
        elif held:
            held[0] = inside.SerializeToString()
        else:
            held.append(inside.SerializeToString())


# --- valid messages, in which one number after another becomes hostile ---


def network() -> Any:
    kind = graph_pb.TypeProto(data_type=14)
    kind.tensor_type.elem_type = 11
    kind.tensor_type.shape.dim.add(size=4)
    attribute = graph_pb.AttributeProto(name=b"axis", value=graph_pb.ValueProto(dtype=4, int_val=1))
    value = graph_pb.ValueProto(dtype=14)
    value.tensor_val.dims.append(4)
    value.tensor_val.data_type, value.tensor_val.tensor_content = 11, CONTENT
    graph = graph_pb.GraphProto(name=GRAPH, root_name=b"0")
    graph.parameters.add(name=WEIGHT, type=kind.SerializeToString())
    graph.const_vals.add(key=b"cst1", full_name=b"Default--data-3", value=value.SerializeToString())
    node = graph.node.add(
        name=b"1",
        op_type=b"Dense",
        scope=b"Default/network",
        full_name=NODE,
        output_type=kind.SerializeToString(),
        attribute=[attribute.SerializeToString()],
    )
    node.input.add(name=WEIGHT)
    node.input.add(name=b"cst1")
    return graph


def summary() -> Any:
    made = debugger_pb2.TensorSummary()
    made.tensor_base.data_type, made.tensor_base.data_size = 11, 16
    made.tensor_base.shape.append(4)
    numbers = made.statistics
    numbers.count, numbers.pos_zero_count, numbers.zero_count, numbers.complete = 4, 3, 1, True
    numbers.max = numbers.max_value = 3
    return made


def block() -> Any:
    made = telemetry_pb2.StatisticsRows(iteration=1)
    for number, node in enumerate((WEIGHT, NODE)):
        made.block.declared.add(number=number, graph=GRAPH, node=node, position=number)
    made.block.declared.add(number=2, graph=b"tensight.scalars", node=b"loss")
    made.block.tensors.extend((0, 1, 2))
    made.block.data_types.extend((11, 11, 12))
    made.block.dimensions.extend((1, 1, 0))
    made.block.dims.extend((4, 4))
    made.block.counts = np.array([[4, 0, 0, 0, 1, 0, 3]] * 2 + [[1, 0, 0, 0, 0, 0, 1]], "<i8").tobytes()
    made.block.numbers = np.ones((3, 6), "<f8").tobytes()
    made.block.hashes.extend((1, 2, 3))
    return made


def rows() -> Any:
    made = telemetry_pb2.StatisticsRows(iteration=1)
    row = made.rows.add(graph=GRAPH, node=NODE)
    row.summary.CopyFrom(summary())
    return made


def hit() -> Any:
    made = debugger_pb2.WatchpointHit(id=1, graph=GRAPH)
    made.tensor.node_name, made.tensor.slot, made.tensor.iter = NODE, b"0", b"1"
    made.watch_condition.condition = 2
    made.watch_condition.params.add(name=b"param", value=1, hit=True, actual_value=2)
    return made


def tensor() -> Any:
    return debugger_pb2.TensorProto(
        node_name=NODE, slot=b"0", tensor_content=CONTENT, dims=[4], data_type=11, finished=True, graph=GRAPH
    )


def view() -> Any:
    made = telemetry_pb2.ViewPiece(data_type=11, dims=[2, 2], content=CONTENT, finished=True, slice=b"[:]")
    made.tensor.data_type, made.counts[:], made.edges[:] = 11, [1, 2], [0, 1, 2]
    made.tensor.shape.append(4)
    made.summary.CopyFrom(summary())
    return made


def position(step: int = 1) -> Any:
    made = debugger_pb2.Metadata(device_name=b"0:0", cur_step=step, backend=b"CPU", ms_version=b"2.3.0", graph_num=1)
    made.hashes.add(node=WEIGHT, hash=1, watchpoint=1)
    made.oldest_iteration = 0
    return made


def introduction(key: str, rng: random.Random) -> Any:
    made = position(0)
    process = made.process
    process.key, process.job = key.encode(), f"job-{rng.randrange(4)}".encode()
    process.rank, process.world_size, process.protocol = rng.randrange(3), 1, 1
    process.framework, process.agent_version = b"torch", b"0.1.0"
    process.run_at_start, process.recommended = rng.random() < 0.7, rng.random() < 0.5
    for ability in process.abilities.DESCRIPTOR.fields:
        setattr(process.abilities, ability.name, rng.random() < 0.8)
    return made


def chunk() -> Any:
    made = debugger_pb2.Chunk(buffer=network().SerializeToString(), finished=True, execution_order=[NODE])
    made.sources.add(file=b"train.py", text=b"import torch\n")
    return made


MESSAGES: Mapping[str, Any] = {
    "WaitCMD": position,
    "SendMetadata": position,
    "SendHeartbeat": lambda: debugger_pb2.Heartbeat(period=30, message=b"notice: slow"),
    "SendGraph": chunk,
    "SendMultiGraphs": chunk,
    "SendTensors": tensor,
    "SendTensorBase": lambda: summary().tensor_base,
    "SendTensorStats": summary,
    "SendWatchpointHits": hit,
    "SendStatistics": block,
    "SendViews": view,
    "Poll": lambda: telemetry_pb2.PollRequest(step=2),
}
"""A valid message for every call; a call without one is an error."""

INTRODUCTION = "SendMetadata of a new process"


def methods() -> dict[str, Any]:
    """Return the calls of both services by name."""
    files = (debugger_pb2.DESCRIPTOR, telemetry_pb2.DESCRIPTOR)
    services = [service for file in files for service in file.services_by_name.values()]
    return {method.name: method for service in services for method in service.methods}


@dataclass
class Training:
    """A process, as far as the server can tell."""

    key: str
    channel: grpc.Channel
    waiting: Any = None
    calls: dict[str, Any] = field(default_factory=dict)

    def call(self, name: str, message: Message) -> str:
        """Send a message and wait for the answer; return what went wrong."""
        if name not in self.calls:
            method = methods()[name]
            make = self.channel.stream_unary if method.client_streaming else self.channel.unary_unary
            path = f"/{method.containing_service.full_name}/{name}"
            self.calls[name] = make(path), method.client_streaming
        call, is_stream = self.calls[name]
        data = message.SerializeToString()
        metadata = ((PROCESS_KEY_METADATA, self.key),)
        try:
            if name == "WaitCMD":
                # It is answered when there is a command, which may be never.
                self.waiting = call.future(data, timeout=600, metadata=metadata)
                with suppress(grpc.FutureTimeoutError):
                    self.waiting.result(0.01)
            else:
                call(iter([data]) if is_stream else data, timeout=GIVEN_UP_AFTER_S, metadata=metadata)
        except grpc.RpcError as error:
            return "" if error.code() is grpc.StatusCode.INVALID_ARGUMENT else f"{error.code()}: {error.details()}"
        return ""


class Calls:
    """Sends hostile messages over gRPC.

    Parameters
    ----------
    address : str
    rng : random.Random
    """

    def __init__(self, address: str, rng: random.Random) -> None:
        self._address, self._rng = address, rng
        self._channels = [grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(3)]
        self._trainings: list[Training] = []
        self._made = 0
        self.numbers = {name: list(numbers_of(method.input_type)) for name, method in methods().items()}
        self.numbers[INTRODUCTION] = self.numbers["SendMetadata"]

    def message(self, name: str, changes: list[tuple[Number, Any]]) -> tuple[str, Training, Any, str]:
        """Return a call, the process that makes it, its message, and a description."""
        if not self._trainings:
            name, changes = INTRODUCTION, []
        is_new = name == INTRODUCTION
        training = self._new() if is_new else self._rng.choice(self._trainings)
        made = introduction(training.key, self._rng) if is_new else MESSAGES[name]()
        if name == "SendStatistics" and any(str(number).startswith("rows") for number, _ in changes):
            made = rows()
        name = "SendMetadata" if is_new else name
        for number, value in changes:
            with suppress(ValueError):  # a number that this type of field cannot hold
                put(made, number.path, value, self._rng)
        return name, training, made, f"{name} {', '.join(f'{number}={value!r:.40}' for number, value in changes)}"

    def drawn(self) -> tuple[str, list[tuple[Number, Any]]]:
        """Draw a call and the numbers that become hostile."""
        names = [*(name for name in self.numbers if name not in (INTRODUCTION, "SendMetadata")), "SendTensors", "Poll"]
        name = self._rng.choice(names)
        draw = self._rng.random()
        name = INTRODUCTION if draw < 0.015 else "SendMetadata" if draw < 0.03 else name
        amount = self._rng.choice((0, 1, 1, 1, 2, 3))
        chosen = self._rng.choices(self.numbers[name], k=amount) if self.numbers[name] else []
        return name, [(number, self._rng.choice(number.values)) for number in chosen]

    def _new(self) -> Training:
        self._made += 1
        training = Training(f"hostile-{os.getpid()}-{self._made}", self._rng.choice(self._channels))
        self._trainings.append(training)
        if len(self._trainings) > MOST_TRAININGS:
            gone = self._trainings.pop(0)
            if gone.waiting is not None:
                gone.waiting.cancel()
            gone.call("SendMetadata", debugger_pb2.Metadata(training_done=True, cur_step=self._rng.choice(_INT32)))
        return training

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


class Requests:
    """Sends hostile requests over HTTP.

    Parameters
    ----------
    url : str
    rng : random.Random
    """

    LEFT_OUT = ("/login", "/dumps", "/searches", "/comparisons")
    """No numbers, or they read what lies in the folder of the server."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self._rng = rng
        self.client = httpx.Client(base_url=f"{url}/api/v1", timeout=GIVEN_UP_AFTER_S, trust_env=False)
        document = self.client.get("/openapi.json").json()
        self._schemas = document["components"]["schemas"]
        self.operations = [
            (method.upper(), path.partition("/api/v1")[2], operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if not path.partition("/api/v1")[2].startswith(self.LEFT_OUT)
        ]
        self._sessions = ["1"]

    def drawn(self) -> tuple[str, str, dict[str, Any], Any]:
        """Draw a request: method, path, parameters and body."""
        if self._rng.random() < 0.05:
            self._sessions = [each["id"] for each in self.client.get("/sessions").json()] or ["1"]
        # A session is closed rarely, or nothing would be left to ask for.
        method, path, operation = self._rng.choice(self.operations)
        while (method == "DELETE" and "watchpoints" not in path and self._rng.random() < 0.9) or path == "/sessions":
            method, path, operation = self._rng.choice(self.operations)
        query: dict[str, Any] = {}
        for parameter in operation.get("parameters", ()):
            value = self._value(parameter["schema"], parameter["name"])
            if parameter["in"] == "path":
                path = path.replace("{" + parameter["name"] + "}", str(value))
            elif parameter["in"] == "query" and (parameter.get("required") or self._rng.random() < 0.5):
                query[parameter["name"]] = value
        if "wait_s" in {parameter["name"] for parameter in operation.get("parameters", ())}:
            query["wait_s"] = self._rng.choice((0, -1, "nan", "inf", 1e300))
        body = operation.get("requestBody")
        return method, path, query, body and self._value(body["content"]["application/json"]["schema"], "")

    def send(self, method: str, path: str, query: dict[str, Any], body: Any) -> str:
        content = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if content else {}
        asks = "/tensor" in path or path.endswith("/command")
        timeout = WITHIN_S / 2 if asks else GIVEN_UP_AFTER_S
        try:
            answer = self.client.request(method, path, params=query, content=content, headers=headers, timeout=timeout)
        except httpx.ReadTimeout:
            # The server waits for the training, which answers nothing; that it did not work is measured.
            return "" if asks else "no answer"
        except httpx.HTTPError as error:
            return f"{type(error).__name__}: {error}"
        return f"status {answer.status_code}: {answer.text[:300]}" if answer.status_code >= 500 else ""

    def _value(self, schema: dict[str, Any], name: str) -> Any:
        rng = self._rng
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rpartition("/")[2]], name)
        if "anyOf" in schema or "oneOf" in schema:
            return self._value(rng.choice(schema.get("anyOf") or schema["oneOf"]), name)
        if "const" in schema or "enum" in schema:
            return rng.choice(schema.get("enum") or [schema["const"]])
        kind = schema.get("type")
        if kind == "integer":
            bounds = [schema[key] for key in ("minimum", "maximum", "default") if key in schema]
            small = (0, 1, 2, 3)
            return rng.choice((*bounds, *small) if rng.random() < 0.7 else (*_UINT64, -1, -(2**63), 10**400))
        if kind == "number":
            return rng.choice((0.0, 0.01, 1.0) if rng.random() < 0.6 else _DOUBLE)
        if kind == "object":
            chosen = [
                key for key in schema.get("properties", {}) if key in schema.get("required", ()) or rng.random() < 0.5
            ]
            return {key: self._value(schema["properties"][key], key) for key in chosen}
        if kind == "array":
            return [self._value(schema.get("items", {}), name) for _ in range(rng.choice((0, 1, 1, 2)))]
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "string":
            return self._text(name, schema)
        return None

    def _text(self, name: str, schema: dict[str, Any]) -> str:
        rng = self._rng
        step, slot = rng.choice((0, 1, 2, 2**31 - 1, 2**31, 10**30)), rng.choice((0, 0, 1, 2**31 - 1, 10**9))
        node, graphs = rng.choice((NODE, WEIGHT)).decode(), ("", GRAPH.decode())
        texts = {
            "session_id": lambda: rng.choice(self._sessions),
            "address": lambda: (
                f"{rng.choice((0, 0, 1, 2**31))}/{rng.choice(('', GRAPH.decode()))}/{node}:{slot}@{step}"
            ),
            "node": lambda: node,
            "name": lambda: node,
            "graph": lambda: rng.choice(graphs),
            "slice": lambda: rng.choice(("", "[:]", "[0:9999999999999999999999]", "[::1]", "[-1]", f"[{10**30}]")),
            "query": lambda: "",
            "scope": lambda: rng.choice(("", "Default", "Default/network")),
        }
        if name in texts:
            return texts[name]()
        return str(rng.choice(schema.get("examples") or [schema.get("default", "1")]))

    def frames(self, url: str, session: str = "1") -> str:
        """Open a WebSocket, send frames that nobody asked for, and close it."""
        import socket

        rng = self._rng
        host, _, port = url.removeprefix("http://").partition(":")
        after = rng.choice((0, -1, 2**31, 2**63, 10**30))
        key = base64.b64encode(bytes(16)).decode()
        text = rng.choice((f"/api/v1/sessions/{session}/events/stream", "/api/v1/events/stream"))
        lengths = (
            b"\x81\xfe\xff\xff",
            b"\x81\xff" + b"\x7f" + b"\xff" * 7,
            b"\x82\xff" + b"\xff" * 8,
            b"\x89\x80",
            b"\x88\x82",
        )
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.settimeout(0.2)
            head = f"GET {text}?after={after} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            connection.sendall(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
            with suppress(OSError):
                answer = connection.recv(65536)
                if answer.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5")):
                    return answer[:200].decode(errors="replace")
                connection.sendall(rng.choice(lengths) + rng.randbytes(rng.randrange(64)))
        return ""


class Server:
    """A server of its own, with limited address space.

    Parameters
    ----------
    folder : Path
    limit_mb : int
    """

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self._folder = folder
        workspace = folder / "workspace"
        command = [sys.executable, "-m", "tensight", "start", "--port", "0", "--debugger-port", "0"]
        command += ["--workspace", str(workspace), "--summary-base-dir", str(folder)]

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_mb * 2**20, limit_mb * 2**20))

        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=limit)
        record = workspace / "server.json"
        end = time.monotonic() + 60
        while not record.exists():
            assert self.process.poll() is None, self.log[-2000:]
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.05)
        data = json.loads(record.read_text())
        self.url: str = data["http"]
        self.debugger: str = data["debugger"]

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    @property
    def peak_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1024

    @property
    def processor_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def disk_mb(self) -> float:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file()) / 2**20

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class OtherClient:
    """Asks the server for its sessions over and over, as a page does, and keeps how long that took."""

    def __init__(self, url: str) -> None:
        self.waits: list[float] = []
        self.problems: list[str] = []
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with httpx.Client(timeout=GIVEN_UP_AFTER_S, trust_env=False) as client:
            while not self._over.wait(0.1):
                begin = time.perf_counter()
                try:
                    answer = client.get(f"{self._url}/api/v1/server")
                    if answer.status_code != 200:
                        self.problems.append(f"status {answer.status_code}")
                except httpx.HTTPError as error:
                    self.problems.append(f"{type(error).__name__}: {error}")
                self.waits.append(time.perf_counter() - begin)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)


@dataclass
class Result:
    """What was measured.

    Attributes
    ----------
    messages : int
    worst : list of (float, float, str)
        The longest answers: seconds, seconds of the server's processor, and the message.
    busiest : (float, str)
        The most seconds of the server's processor from a message to its answer, and the message.
    other_s : float
        The longest answer that another client waited for.
    peak_mb, disk_mb : float
    largest : (float, str)
        By how many MB the peak grew with one message at most, and the message.
    problems : list of str
        Calls that failed, or that the server could not answer.
    """

    messages: int
    worst: list[tuple[float, float, str]]
    busiest: tuple[float, str]
    other_s: float
    peak_mb: float
    disk_mb: float
    largest: tuple[float, str]
    problems: list[str]


def every_number(calls: Calls) -> Iterator[tuple[str, list[tuple[Number, Any]]]]:
    """Yield each number of the protocol at its extremes, one after another, then each call with none."""
    for name, numbers in calls.numbers.items():
        yield INTRODUCTION, []
        yield name, []
        for number in numbers:
            values = [value for value in number.values if not isinstance(value, float) or value == value]
            extremes = (min(values), max(values)) if not isinstance(values[0], bytes) else (number.values[-2],)
            for value in extremes:
                yield name, [(number, value)]


def attack(server: Server, *, messages: int | None, seed: int, minutes: float = 60, report: bool = False) -> Result:
    """Send hostile messages, and measure.

    Parameters
    ----------
    server : Server
    messages : int or None
        How many to draw; None for each number once at its extremes.
    seed : int
    minutes : float
        It ends after this time.
    report : bool
        Print the progress.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    calls, requests, other = Calls(server.debugger, rng), Requests(server.url, rng), OtherClient(server.url)
    worst: list[tuple[float, float, str]] = []
    problems: list[str] = []
    busiest, largest, peak_mb = (0.0, ""), (0.0, ""), server.peak_mb
    sent, end = 0, time.monotonic() + 60 * minutes
    once = every_number(calls) if messages is None else None
    try:
        while time.monotonic() < end and (messages is None or sent < messages):
            draw = rng.random()
            processor = server.processor_s
            if once is not None:
                drawn = next(once, None)
                if drawn is None:
                    break
                name, training, message, text = calls.message(*drawn)
                begin = time.perf_counter()
                problem = training.call(name, message)
            elif draw < 0.75:
                name, training, message, text = calls.message(*calls.drawn())
                begin = time.perf_counter()
                problem = training.call(name, message)
            elif draw < 0.998:
                request = requests.drawn()
                text = " ".join(map(str, request))[:300]
                begin = time.perf_counter()
                problem = requests.send(*request)
            else:
                text, begin = "WebSocket", time.perf_counter()
                problem = requests.frames(server.url)
            took = time.perf_counter() - begin
            sent += 1
            worst.append((took, server.processor_s - processor, text))
            busiest = max(busiest, (worst[-1][1], text))
            with suppress(FileNotFoundError, StopIteration):  # the process may have ended
                before_mb, peak_mb = peak_mb, server.peak_mb
                largest = max(largest, (peak_mb - before_mb, text))
                if report and peak_mb - before_mb > 200:
                    print(f"the peak grew by {peak_mb - before_mb:,.0f} MB with {text}", flush=True)
            if problem:
                problems.append(f"{text}: {problem}")
            if server.process.poll() is not None:
                problems.append(f"the server ended with {server.process.returncode} after {text}")
                break
            if len(worst) > 1000:
                worst = sorted(worst, reverse=True)[:10]
            if report and sent % 5000 == 0:
                print(f"{sent:,} messages, peak {server.peak_mb:,.0f} MB, {len(problems)} problems", flush=True)
        is_alive = server.process.poll() is None
        peak_mb, disk_mb = (server.peak_mb if is_alive else math.inf), server.disk_mb
    finally:
        other.stop()
        calls.close()
        requests.client.close()
    return Result(
        messages=sent,
        worst=sorted(worst, reverse=True)[:10],
        busiest=busiest,
        other_s=max(other.waits, default=math.inf),
        peak_mb=peak_mb,
        disk_mb=disk_mb,
        largest=largest,
        problems=problems + other.problems,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit-mb", type=int, default=8192, help="address space of the server")
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder:
        server = Server(Path(folder), options.limit_mb)
        begin = time.monotonic()
        try:
            result = attack(server, messages=options.messages, seed=options.seed, minutes=options.minutes, report=True)
            log = server.log
        finally:
            server.stop()
    print(f"{result.messages:,} messages with seed {options.seed} in {time.monotonic() - begin:,.0f} s")
    for took, processor, text in result.worst:
        print(f"  {took * 1000:8.0f} ms, {processor * 1000:6.0f} ms of its processor: {text[:160]}")
    for problem in result.problems[:20]:
        print(f"  problem: {problem[:400]}")
    tracebacks = log.count("Traceback")
    if tracebacks:
        print(log[log.index("Traceback") :][:4000])
    is_quick, is_small = max(result.worst[0][0], result.other_s) <= WITHIN_S, result.peak_mb < MOST_MB
    print(f"worst answer          {result.worst[0][0]:8.3f} s    bar {WITHIN_S} s")
    print(f"worst of another      {result.other_s:8.3f} s    bar {WITHIN_S} s    {'yes' if is_quick else 'NO'}")
    print(f"worst of its processor{result.busiest[0]:8.3f} s    {result.busiest[1][:100]}")
    print(f"largest growth of its peak {result.largest[0]:,.0f} MB    {result.largest[1][:300]}")
    print(f"peak memory           {result.peak_mb:8.0f} MB   bar {MOST_MB} MB   {'yes' if is_small else 'NO'}")
    print(f"on its disk           {result.disk_mb:8.0f} MB")
    print(f"failed calls          {len(result.problems):8}      bar 0         {'NO' if result.problems else 'yes'}")
    print(f"tracebacks in its log {tracebacks:8}      bar 0         {'NO' if tracebacks else 'yes'}")
    return 0 if is_quick and is_small and not result.problems and not tracebacks else 1


if __name__ == "__main__":
    sys.exit(main())
