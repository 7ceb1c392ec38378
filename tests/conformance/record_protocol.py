"""Records the conversation of `protocol_conversation` with the original's generated stubs.

    python record_protocol.py --fixtures tests/fixtures --golden tests/conformance/golden           # original's server
    python record_protocol.py --fixtures tests/fixtures --golden ... --url URL --debugger ADDRESS   # ours, compared

Runs in the environment with mindinsight 2.0.0. Without an address it starts the original's server and writes the
golden replies; with one it plays the same conversation with ours and fails on every reply that differs. The calls that
the conversation does not need (several graphs, base and statistics of tensors) are made at the end.
"""

import argparse
import base64
import gzip
import json
import os
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile

import grpc
import mindinsight.domain.graph.proto.ms_graph_pb2 as graph_messages
from mindinsight.debugger.proto import debug_grpc_pb2 as messages
from mindinsight.debugger.proto import debug_grpc_pb2_grpc as stubs
from protocol_conversation import Conversation, OriginalControl, TensightControl, as_dictionary

PIECE = 3 * 1024 * 1024
PARAMETER_VALUE = [0.5, -1.0, 2.0]
GOLDEN = "protocol.json.gz"


def sent_graph(fixtures):
    """The graph of the sick network, as MindSpore sends it."""
    with tarfile.open(os.path.join(fixtures, "sick-2.0.0.tar.xz")) as tar:
        name = next(n for n in sorted(tar.getnames()) if "ms_output_trace_code_graph" in n and n.endswith(".pb"))
        model = graph_messages.ModelProto()
        model.ParseFromString(tar.extractfile(name).read())
    return model.graph


def facts_of(graph):
    operators = [node for node in graph.node if node.op_type in ("Conv2D", "BiasAdd", "ReLU", "MatMul", "Log")]
    biases = [parameter.name for parameter in graph.parameters if parameter.name.endswith("bias")]
    return {
        "graph": graph.name,
        "parameter": biases[0],
        "target": operators[3].full_name,
        "other": operators[1].full_name,
        "operator": operators[0].full_name,
    }


def metadata(step, node=""):
    return messages.Metadata(device_name="0:0", cur_step=step, backend="GPU", cur_node=node)


def requests_of(graph, facts):
    """{what: the messages that are sent}."""
    first = messages.Metadata(device_name="0:0", cur_step=0, backend="GPU", ms_version="2.0.0", graph_num=1)
    data = graph.SerializeToString()
    parts = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    hit = messages.WatchpointHit(id=3, error_code=0)
    hit.tensor.node_name, hit.tensor.slot, hit.tensor.finished = facts["operator"], "0", True
    hit.watch_condition.condition = 21
    parameters = ("range_start_inclusive", -1), ("range_end_inclusive", 2.5), ("range_percentage_gt", 12.5)
    for name, value in parameters:
        hit.watch_condition.params.add(name=name, value=value, hit=name.endswith("gt"), actual_value=50.0)
    array = struct.pack("<3f", *PARAMETER_VALUE)
    value = {"node_name": facts["parameter"], "slot": "0", "dims": [3], "data_type": 11, "truncate": True}
    return {
        "metadata": [first],
        "heartbeat": [messages.Heartbeat(message="Debugger is alive", period=30)],
        "heartbeat too slow": [messages.Heartbeat(message="Debugger is alive", period=4000)],
        "graph": [messages.Chunk(buffer=part) for part in parts],
        "graphs": [messages.Chunk(buffer=part, finished=part is parts[-1]) for part in parts],
        "value of the parameter": [
            graph_messages.TensorProto(tensor_content=array[:8], finished=False, **value),
            graph_messages.TensorProto(tensor_content=array[8:], finished=True, **value),
        ],
        "hit": [hit],
        "step 2 at another node": [metadata(2, facts["other"])],
        "step 2 at the target": [metadata(2, facts["target"])],
        **{f"step {step}": [metadata(step)] for step in range(6)},
        "base": [messages.TensorBase(data_type=11, shape=[3], data_size=12)],
        "statistics": [
            messages.TensorSummary(
                tensor_base=messages.TensorBase(data_type=11, shape=[3], data_size=12),
                statistics=messages.Statistics(max_value=2, min_value=-1, avg_value=0.5, count=3, neg_zero_count=1),
            )
        ],
    }


class Process:
    """A training process that speaks through the original's stubs."""

    def __init__(self, address, requests):
        self.stub = stubs.EventListenerStub(grpc.insecure_channel(address))
        self.requests = requests

    def call(self, rpc, what, times=1):
        sent = self.requests[what] * times
        method = getattr(self.stub, rpc)
        unary = rpc in ("WaitCMD", "SendMetadata", "SendHeartbeat")
        return as_dictionary(method(sent[0] if unary else iter(sent), timeout=120))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def with_the_original(requests, facts):
    """The conversation with the original's server, which is started and stopped here."""
    port, debugger = free_port(), free_port()
    with tempfile.TemporaryDirectory() as home:
        command = os.path.join(os.path.dirname(sys.executable), "mindinsight")
        environment = dict(os.environ, HOME=home, PATH=os.path.dirname(sys.executable) + ":" + os.environ["PATH"])
        options = ["--port", str(port), "--debugger-port", str(debugger), "--workspace", home + "/w"]
        options += ["--summary-base-dir", home, "--enable-debugger", "True"]
        subprocess.run([command, "start", *options], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            control = OriginalControl(f"http://127.0.0.1:{port}")
            control.ask("POST", "/v1/mindinsight/debugger/sessions", {"session_type": "ONLINE", "dump_dir": ""})
            return Conversation(Process(f"127.0.0.1:{debugger}", requests), control, facts).run()
        finally:
            stop = [command, "stop", "--port", str(port)]
            subprocess.run(stop, env=environment, check=False, stdout=subprocess.DEVNULL)


def remaining_calls(address, requests):
    """The calls that the conversation has no place for: our server must answer them all."""
    process = Process(address, requests)
    for rpc, what in (("SendMetadata", "metadata"), ("SendMultiGraphs", "graphs")):
        if process.call(rpc, what)["status"] != 0:
            raise SystemExit(f"{rpc} failed")
    for rpc, what in (("SendTensorBase", "base"), ("SendTensorStats", "statistics")):
        process.call(rpc, what)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixtures", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--url")
    parser.add_argument("--debugger")
    options = parser.parse_args()
    graph = sent_graph(options.fixtures)
    facts = facts_of(graph)
    requests = requests_of(graph, facts)
    path = os.path.join(options.golden, GOLDEN)
    if options.url is None:
        said = with_the_original(requests, facts)
        encoded = {
            what: [base64.b64encode(one.SerializeToString()).decode() for one in sent]
            for what, sent in requests.items()
        }
        content = json.dumps({"facts": facts, "requests": encoded, "said": said}, indent=0, sort_keys=True)
        with open(path, "wb") as file:
            file.write(gzip.compress(content.encode(), mtime=0))
        print("recorded", len(said), "calls")
        return
    said = Conversation(Process(options.debugger, requests), TensightControl(options.url), facts).run()
    with gzip.open(path) as file:
        golden = json.load(file)["said"]
    wrong = [(ours, theirs) for ours, theirs in zip(said, golden) if ours != theirs]  # noqa: B905 - Python 3.9
    for ours, theirs in wrong:
        print(f"original: {json.dumps(theirs)}\nours:     {json.dumps(ours)}\n")
    remaining_calls(options.debugger, requests)
    if wrong or len(said) != len(golden):
        raise SystemExit(f"{len(wrong)} of {len(golden)} replies differ from the original's")
    print("all", len(said), "replies are the original's")


if __name__ == "__main__":
    main()
