"""The messages of an old MindSpore process, made at run time from the tables of the protocol's description.

Nothing of Tensight is used: if the server and this table disagree about a number, the tests of the timeline fail.
The messages live in a descriptor pool of their own, under a package of their own; names do not travel on the wire.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "mindspore_standin"
SERVICE = "debugger.EventListener"
CHUNK_BYTES = 3 * 1024 * 1024

DATA_TYPES = """
0 DT_UNDEFINED, 1 DT_BOOL, 2 DT_INT8, 3 DT_INT16, 4 DT_INT32, 5 DT_INT64, 6 DT_UINT8, 7 DT_UINT16, 8 DT_UINT32,
9 DT_UINT64, 10 DT_FLOAT16, 11 DT_FLOAT32, 12 DT_FLOAT64, 13 DT_STRING, 14 DT_TENSOR, 15 DT_GRAPH, 31 DT_TUPLE,
32 DT_LIST, 34 DT_NONE, 41 DT_REFKEY, 42 DT_REF, 43 DT_UMONAD, 44 DT_IOMONAD
"""

GRAPH_MESSAGES = """
ValueProto: 1 dtype DataType; 2 bool_val bool; 3 int_val int64; 4 uint_val uint64; 5 float_val float;
  6 double_val double; 7 str_val string; 8 tensor_val TensorProto; 9 graph GraphProto; 11 int_vals repeated int64;
  13 float_vals repeated float; 18 values repeated ValueProto; 20 type_val TypeProto
AttributeProto: 1 name string; 2 value ValueProto
NamedValueProto: 1 key string; 2 value ValueProto; 3 full_name string
TensorShapeProto: 1 dim repeated TensorShapeProto.Dimension
TensorShapeProto.Dimension: 1 size int64; 2 name string
TypeProto: 1 data_type DataType; 2 tensor_type TypeProto.Tensor in value; 3 sequence_type TypeProto.Sequence in value
TypeProto.Tensor: 1 elem_type DataType; 2 shape TensorShapeProto
TypeProto.Sequence: 1 elem_types repeated TypeProto
ParameterProto: 1 name string; 2 type TypeProto; 3 default_val ValueProto
OutputProto: 1 name string; 2 type TypeProto
InputProto: 1 name string; 2 type EdgeType
NodeProto: 1 input repeated InputProto; 2 name string; 3 op_type string; 4 scope string;
  5 attribute repeated AttributeProto; 6 output_type TypeProto; 7 output_i uint64; 8 full_name string;
  9 source_address string
GraphProto: 1 node repeated NodeProto; 2 name string; 3 parameters repeated ParameterProto;
  4 outputs repeated OutputProto; 5 const_vals repeated NamedValueProto; 6 root_name string
TensorProto: 1 node_name string; 2 slot string; 3 tensor_content bytes; 4 dims repeated int64; 5 data_type DataType;
  6 finished bool; 7 iter string; 8 truncate bool
"""

DEBUG_MESSAGES = """
Metadata: 1 device_name string; 2 cur_step int32; 3 backend string; 4 cur_node string; 5 training_done bool;
  6 graph_num int32; 7 ms_version string
Chunk: 1 buffer bytes; 2 finished bool
EventReply: 1 status Status; 2 exit bool in cmd; 3 run_cmd RunCMD in cmd; 4 set_cmd SetCMD in cmd;
  5 view_cmd ViewCMD in cmd; 6 version_matched bool in cmd
RunCMD: 1 run_level string; 2 run_steps int32 in cmd; 3 node_name string in cmd
SetCMD: 1 watch_nodes repeated WatchNode; 2 watch_condition WatchCondition; 3 delete bool; 4 id int32
ViewCMD: 1 tensors repeated TensorProto; 2 level Level
WatchCondition: 1 condition Condition; 2 value float; 4 params repeated WatchCondition.Parameter
WatchCondition.Parameter: 1 name string; 2 disabled bool; 3 value double; 4 hit bool; 5 actual_value double
WatchNode: 1 node_name string; 2 node_type string
WatchpointHit: 1 tensor TensorProto; 2 watch_condition WatchCondition; 3 id int32; 4 error_code int32
Heartbeat: 1 message string; 2 period int32
TensorSummary: 1 tensor_base TensorBase; 2 statistics Statistics
Statistics: 1 is_bool bool; 2 max_value float; 3 min_value float; 4 avg_value float; 5 count uint64;
  6 neg_zero_count uint64; 7 pos_zero_count uint64; 8 nan_count uint64; 9 neg_inf_count uint64;
  10 pos_inf_count uint64; 11 zero_count uint64
TensorBase: 1 data_type int32; 2 shape repeated int64; 3 data_size int64
"""

CONDITIONS = """
0 nan, 1 inf, 2 overflow, 3 max_gt, 4 max_lt, 5 min_gt, 6 min_lt, 7 max_min_gt, 8 max_min_lt, 9 mean_gt, 10 mean_lt,
11 sd_gt, 12 sd_lt, 13 tensor_general_overflow, 14 tensor_initialization, 15 tensor_too_large, 16 tensor_too_small,
17 tensor_all_zero, 18 tensor_change_too_large, 19 tensor_change_too_small, 20 tensor_not_changed, 21 tensor_range
"""

GRAPH_ENUMS = {"DataType": DATA_TYPES, "EdgeType": "0 DATA_EDGE, 1 CONTROL_EDGE"}
DEBUG_ENUMS = {
    "Status": "0 OK, 1 FAILED, 2 PENDING",
    "Level": "0 value, 1 statistics, 2 base",
    "Condition": CONDITIONS,
}

CALLS = {
    # call: (request, whether it is a stream)
    "WaitCMD": ("Metadata", False),
    "SendMetadata": ("Metadata", False),
    "SendGraph": ("Chunk", True),
    "SendTensors": ("TensorProto", True),
    "SendTensorBase": ("TensorBase", True),
    "SendTensorStats": ("TensorSummary", True),
    "SendWatchpointHits": ("WatchpointHit", True),
    "SendMultiGraphs": ("Chunk", True),
    "SendHeartbeat": ("Heartbeat", False),
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE,
}


def numbered(table: str) -> dict[str, int]:
    """Read ``0 nan, 1 inf`` as names with their numbers."""
    return {name: int(number) for number, name in (entry.split() for entry in table.split(","))}


def rows(table: str) -> list[tuple[str, list[str]]]:
    """Read ``Message: 1 name type; …`` as messages with their fields; a message may go over several lines."""
    messages = re.findall(r"^(\S+): (.*?)(?=^\S|\Z)", table.strip() + "\n", re.MULTILINE | re.DOTALL)
    return [(name, [" ".join(entry.split()) for entry in text.split(";")]) for name, text in messages]


def _add_field(message: Any, entry: str, enums: set[str]) -> None:
    number, name, *words = entry.split()
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if words[0] == "repeated":
        field.label = _Field.LABEL_REPEATED
        words = words[1:]
    if words[1:]:
        oneofs = [each.name for each in message.oneof_decl]
        if words[2] not in oneofs:
            message.oneof_decl.add(name=words[2])
        field.oneof_index = [each.name for each in message.oneof_decl].index(words[2])
    if words[0] in _SCALARS:
        field.type = _SCALARS[words[0]]
        return
    field.type = _Field.TYPE_ENUM if words[0] in enums else _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{words[0]}"


def _file(name: str, syntax: str, messages: str, enums: dict[str, str], imported: dict[str, str]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=PACKAGE, syntax=syntax)
    for enum, table in enums.items():
        declared = file.enum_type.add(name=enum)
        for value, number in numbered(table).items():
            # Values of enumerations share the scope of their enumeration's parent, hence the prefix.
            declared.value.add(name=f"{enum}_{value}", number=number)
    by_name: dict[str, Any] = {}
    for message, entries in rows(messages):
        outer, _, inner = message.rpartition(".")
        added = by_name[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=inner)
        by_name[message] = added
        for entry in entries:
            _add_field(added, entry, set(enums) | set(imported))
    return file


def _build() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    graph = _file("standin_graph.proto", "proto2", GRAPH_MESSAGES, GRAPH_ENUMS, {})
    debug = _file("standin_debug.proto", "proto3", DEBUG_MESSAGES, DEBUG_ENUMS, GRAPH_ENUMS)
    debug.dependency.append(graph.name)
    pool.Add(graph)
    pool.Add(debug)
    names = [name for name, _ in rows(GRAPH_MESSAGES) + rows(DEBUG_MESSAGES)]
    return {
        name.replace(".", ""): message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in names
    }


messages: Any = SimpleNamespace(**_build())
"""All messages by name, for instance ``messages.Metadata``; a nested one as ``messages.WatchConditionParameter``."""

DATA_TYPE = numbered(DATA_TYPES)
CONDITION = numbered(CONDITIONS)
CONDITION_NAME = {number: name for name, number in CONDITION.items()}
STATUS = numbered(DEBUG_ENUMS["Status"])
LEVEL_NAME = {number: name for name, number in numbered(DEBUG_ENUMS["Level"]).items()}
