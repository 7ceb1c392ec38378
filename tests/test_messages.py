"""Message classes made of descriptors: in C, and in pure Python, which old environments ask for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc
from google.protobuf.internal import api_implementation
from tensight.graph.ms_graph_pb2 import TypeProto, ValueProto
from tensight.wire.debugger_pb2 import DESCRIPTOR, EventReply, WatchCondition

gc.collect()
made = TypeProto(data_type=5)
made.tensor_type.shape.dim.add(size=3)
assert TypeProto.FromString(made.SerializeToString()) == made
assert TypeProto(tensor_type=TypeProto.Tensor(elem_type=7)).WhichOneof("value") == "tensor_type"
watched = WatchCondition(params=[WatchCondition.Parameter(name=b"rtol", value=0.5)])
assert WatchCondition.FromString(watched.SerializeToString()).params[0].value == 0.5
assert EventReply(status=EventReply.FAILED).status != EventReply.OK
assert DESCRIPTOR.package == "debugger"
print(api_implementation.Type())
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_messages_and_those_nested_in_them_can_be_made_and_read(implementation: str) -> None:
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == (f"{implementation}\n", 0), done.stderr


def test_a_framework_may_have_messages_of_the_same_names() -> None:
    script = (
        "from google.protobuf import descriptor_pb2, descriptor_pool\n"
        "theirs = descriptor_pb2.FileDescriptorProto(name='theirs.proto', package='debugger')\n"
        "theirs.message_type.add(name='EventReply')\n"
        "descriptor_pool.Default().Add(theirs)\n"
        "import tensight.wire.debugger_pb2\n"
        "descriptor_pool.Default().FindMessageTypeByName('debugger.EventReply')\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
