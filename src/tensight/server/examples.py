"""Examples in the API description: request and response of each operation."""

from __future__ import annotations

from typing import Any

_GRAPH = "kernel_graph_0"
_NODE = "Default/network/energy/Log-op144"
_ADDRESS = f"0/{_GRAPH}/{_NODE}:0@3"
_FRAME = {"file": "network.py", "line": 31, "code": "return self.log(energy)", "is_user_code": True}

_CAPABILITIES = {
    "can_step": True,
    "can_step_back": True,
    "can_go_to_step": True,
    "can_next_node": True,
    "can_edit_watchpoints": True,
    "can_recheck": True,
    "can_draw_graph": True,
    "has_previous_values": True,
    "has_origin": True,
    "has_statistics_table": True,
}
_RANK = {"rank": 0, "state": "paused", "step": 3, "graph": _GRAPH, "graphs": [_GRAPH]}
_SESSION = {
    "id": "1",
    "name": "resnet-nan",
    "state": "paused",
    "message": "1 watchpoint hit in step 3",
    "step": 3,
    "total_steps": 4,
    "graph": _GRAPH,
    "framework": "mindspore",
    "framework_version": "2.0.0",
    "backend": "CPU",
    "created": 1700000000.0,
    "ranks": [_RANK],
    "capabilities": _CAPABILITIES,
    "watchpoints": 1,
    "hits": 1,
    "last_event": 12,
    "dump": "resnet-nan",
}
_STATISTICS = {
    "dtype": "float32",
    "shape": [8, 1],
    "size_bytes": 32,
    "count": 8,
    "neg_inf_count": 1,
    "positive_count": 7,
    "min": 0.5,
    "max": 6.25,
    "mean": 2.5,
    "abs_mean": 2.5,
    "std": 1.5,
    "l2_norm": 7.75,
    "content_hash": "0123456789abcdef",
}
_ROW = {
    "address": _ADDRESS,
    "rank": 0,
    "graph": _GRAPH,
    "node": _NODE,
    "slot": 0,
    "io": "output",
    "step": 3,
    "type": "Log",
    "position": 17,
    "statistics": _STATISTICS,
}
_FINDING_WORDS = {
    "title": "2 of 2 modules that behave otherwise in training are trained in evaluation mode: 1, 3",
    "evidence": ["BatchNorm1d, Dropout: nothing is dropped, and running statistics stand still"],
    "advice": "Call model.train() after loading and after each evaluation",
}
_FINDING_WORDS_IN_CHINESE = {"title": "2 个在训练时行为不同的模块中有 2 个以评估模式训练: 1, 3"}
_ENTRY = {"path": _NODE, "label": "Log-op144", "kind": "operator", "type": "Log", "nodes": 1, "hits": 1}
_SCOPE = {"path": "Default", "label": "Default", "kind": "scope", "children": 12, "nodes": 103, "hits": 1}
_SLOT = {"slot": 0, "io": "output", "dtype": "float32", "shape": [8, 1]}
_EDGE = {"source": "Default/network/energy/Add-op143", "target": _NODE, "label": "float32[8,1]"}
_CONDITION = {
    "id": "tensor_overflow",
    "abbreviation": "TO",
    "target": "tensor",
    "meaning": "The tensor holds NaN or infinite elements.",
    "advice": ["Look at the inputs of the operator."],
}
_WATCHPOINT = {
    "id": 1,
    "name": "no infinities",
    "condition": "tensor_overflow",
    "abbreviation": "TO",
    "parameters": {},
    "selection": "all",
    "severity": "error",
    "enabled": True,
    "nodes": 103,
    "text": "tensor_overflow",
    "words": "Stops where any tensor holds NaN or infinite elements.",
    "hits": 1,
}
_HIT = {
    "watchpoint": 1,
    "name": "no infinities",
    "condition": "tensor_overflow",
    "abbreviation": "TO",
    "severity": "error",
    "errors": ["the tensor holds infinite elements"],
}
_NODE_HITS = {
    "rank": 0,
    "graph": _GRAPH,
    "node": _NODE,
    "type": "Log",
    "step": 3,
    "position": 17,
    "line": _FRAME,
    "tensors": [{"slot": 0, "address": _ADDRESS, "hits": [_HIT]}],
}
_DUMP = {
    "name": "resnet-nan",
    "ranks": [0],
    "framework": "mindspore",
    "framework_version": "2.0.0",
    "modified": 1700000000.0,
    "session": "1",
}
_EVENTS = {
    "events": [{"number": 12, "time": 1700000000.0, "kind": "hits", "data": {"step": 3, "total": 1}}],
    "last": 12,
}
_TENSOR = {
    "address": _ADDRESS,
    "rank": 0,
    "graph": _GRAPH,
    "node": _NODE,
    "slot": 0,
    "io": "output",
    "step": 3,
    "type": "Log",
    "status": "available",
    "dtype": "float32",
    "shape": [8, 1],
    "size_bytes": 32,
    "has_previous": True,
    "statistics": _STATISTICS,
    "abbreviations": ["TO"],
}

_NORM = f"0/{_GRAPH}/Default/norm/LayerNorm-op3:0@1"
_DIFFERENCE = {
    "text": "relative difference 0.05",
    "is_comparable": True,
    "bit_equal": False,
    "from_values": True,
    "relative": 0.05,
    "absolute": 0.4,
    "max_absolute": 0.25,
    "max_relative": 0.06,
    "cosine": 0.999,
    "norm_ratio": 0.95,
    "over_1_permille": 1.0,
    "over_5_permille": 0.875,
    "shapes": [[8, 1], [8, 1]],
    "dtypes": ["float32", "float32"],
}
_COMPARED = {
    "name": "Default/norm/LayerNorm-op3",
    "name_b": "Default/norm/LayerNorm-op3",
    "type": "LayerNorm",
    "type_b": "LayerNorm",
    "step": 1,
    "position": 3,
    "phase": "forward",
    "rule": "name",
    "text": "relative difference 0.05",
    "relative": 0.05,
    "added": 0.05,
    "allowed": 1e-06,
    "is_divergent": True,
    "source": _FRAME,
    "outputs": [{"name": "Default/norm/LayerNorm-op3", "slot": 0, "address": _NORM, "address_b": _NORM, **_DIFFERENCE}],
}
_COMPARISON = {
    "id": "1",
    "created": 1700000000.0,
    "a": {"dump": "reference", "title": "reference", "session": "1", "framework": "pytorch"},
    "b": {"dump": "runs/7", "title": "port", "framework": "pytorch"},
    "options": {"rtol": 0.001},
    "state": "done",
    "verdict": "different",
    "sentence": "Step 1, forward: Default/norm/LayerNorm-op3 (LayerNorm, network.py:31) is the first operator whose …",
    "ranks": [
        {
            "rank": 0,
            "verdict": "different",
            "finding": "forward",
            "sentence": "Step 1, forward: Default/norm/LayerNorm-op3 (LayerNorm, network.py:31) is the first …",
            "step": 1,
            "first": _COMPARED,
            "proof": {"inputs": 1, "inputs_that_agree": 1, "weights": 12, "weights_that_agree": 12},
            "matched": {"name": 40},
            "unmatched": {"operators": 1},
            "steps": [1],
        }
    ],
}

EXAMPLES: dict[str, tuple[Any, Any]] = {
    "get_server": (
        None,
        {
            "name": "tensight",
            "version": "0.1.0",
            "api": "v1",
            "started": 1700000000.0,
            "uptime_s": 60.0,
            "debugger_address": "127.0.0.1:50051",
            "debugger_elsewhere": None,
            "debugger_needs_token": False,
            "sessions": 1,
            "subscribers": 2,
            "last_event": 12,
            "limits": {"body_bytes": 1048576, "subscribers": 500},
        },
    ),
    "log_in": ({"token": "the-token-that-the-server-printed"}, None),
    "list_conditions": (None, [_CONDITION]),
    "list_session_conditions": (None, [_CONDITION]),
    "list_dumps": (None, [_DUMP]),
    "list_sessions": (None, [_SESSION]),
    "open_dump": ({"dump": "resnet-nan"}, _SESSION),
    "get_session": (None, _SESSION),
    "send_command": ({"action": "continue", "steps": 1}, _SESSION),
    "list_graphs": (None, [{"rank": 0, "name": _GRAPH, "nodes": 140, "operators": 103, "parameters": 14}]),
    "get_tree": (None, {"rank": 0, "graph": _GRAPH, "scope": "", "total": 1, "entries": [_SCOPE]}),
    "search_nodes": (None, {"total": 1, "nodes": [{"rank": 0, "graph": _GRAPH, "entry": _ENTRY}]}),
    "get_nodes_meant": (None, {"names": ["Default/network/conv1-Conv2d/Conv2D-op3"], "total": 1, "graphs": [_GRAPH]}),
    "get_node": (
        None,
        {
            "rank": 0,
            "graph": _GRAPH,
            "name": _NODE,
            "type": "Log",
            "kind": "operator",
            "scope": "Default/network/energy",
            "roles": ["activation"],
            "outputs": [_SLOT],
            "consumers": ["Default/network/energy/Sub-op149"],
            "consumer_count": 1,
            "stack": [_FRAME],
            "position": 17,
        },
    ),
    "get_level": (
        None,
        {
            "rank": 0,
            "graph": _GRAPH,
            "scope": "Default/network/energy",
            "entries": [_ENTRY],
            "edges": [_EDGE],
        },
    ),
    "get_relations": (
        None,
        {
            "rank": 0,
            "graph": _GRAPH,
            "centre": _NODE,
            "nodes": [{"name": _NODE, "type": "Log", "distance": 0, "slots": [_SLOT], "abbreviations": {"0": ["TO"]}}],
            "edges": [_EDGE],
        },
    ),
    "list_sources": (
        None,
        {
            "total": 1,
            "files": [{"file": "network.py", "lines": [{"line": 31, "code": "return self.log(energy)", "nodes": 2}]}],
        },
    ),
    "list_executions": (
        None,
        {"total": 1, "executions": [{"step": 3, "graph": _GRAPH, "graphs": [_GRAPH], "has_data": True}]},
    ),
    "list_watchpoints": (None, [_WATCHPOINT]),
    "create_watchpoint": (
        {"condition": "tensor_overflow", "name": "no infinities", "severity": "error"},
        _WATCHPOINT,
    ),
    "list_recommended_watchpoints": (None, [_WATCHPOINT]),
    "recommend_watchpoints": ({"accept": True}, [_WATCHPOINT]),
    "get_watchpoint": (None, _WATCHPOINT),
    "change_watchpoint": (
        {"enabled": True, "further_edits": [{"add": False, "path": "Default/network/probe"}]},
        _WATCHPOINT,
    ),
    "list_hits": (None, {"total": 1, "nodes": [_NODE_HITS], "step": 3}),
    "list_origins": (
        None,
        [
            {
                "anomaly": "inf",
                "sentence": "Inf began at step 3 in Default/network/energy/Log-op144; its inputs were finite.",
                "address": _ADDRESS,
                "type": "Log",
                "step": 3,
                "certain": True,
                "arrived": False,
                "stack": [_FRAME],
                "line": _FRAME,
            }
        ],
    ),
    "list_tensors": (None, [_TENSOR]),
    "get_element": (None, {"address": _ADDRESS, "index": [3, 0], "value": "-inf"}),
    "get_histogram": (None, {"counts": [3, 4, 1], "edges": [0.5, 2.5, 4.5, 6.5]}),
    "get_statistics": (None, {"address": _ADDRESS, "statistics": _STATISTICS}),
    "get_history": (None, [_ROW]),
    "list_statistics": (None, {"total": 1, "rows": [_ROW]}),
    "get_overview": (
        None,
        {
            "statistic": "abs_mean",
            "total": 1,
            "tensors": 1,
            "steps": [{"first": 1, "last": 2}, {"first": 3, "last": 3}],
            "rows": [
                {
                    "address": _ADDRESS.rpartition("@")[0],
                    "node": _NODE,
                    "slot": 0,
                    "io": "output",
                    "graph": _GRAPH,
                    "graphs": [_GRAPH],
                    "type": "Log",
                    "position": 17,
                }
            ],
            "values": [[1.25, 2.5]],
            "marks": [[0, 6]],
        },
    ),
    "get_timeline": (
        None,
        {
            "first_step": 0,
            "last_step": 3,
            "present_step": 3,
            "steps": [
                {"first": 0, "last": 1, "statistics": True, "values": True, "graph": _GRAPH},
                {"first": 2, "last": 3, "hits": 1, "statistics": True, "values": True, "graph": _GRAPH},
            ],
            "loss": {"address": f"0/{_GRAPH}/Default/loss/ReduceMean-op9:0", "values": [0.75, None], "marks": [0, 1]},
        },
    ),
    "get_findings": (
        None,
        {
            "steps": 64,
            "findings": [
                {
                    **_FINDING_WORDS,
                    "rule": "evaluation-mode",
                    "category": "mode",
                    "certainty": "certain",
                    "step": 1,
                    "where": {"module": "1, 3"},
                    "chinese": _FINDING_WORDS_IN_CHINESE,
                }
            ],
            "undecided": [{"rule": "repeated-batch", "why": "no calls were seen"}],
        },
    ),
    "get_facts": (
        None,
        {"subject": "losses", "rank": 0, "columns": {"step": [1, 2], "name": ["loss", "loss"], "value": [0.75, 0.5]}},
    ),
    "get_curves": (
        None,
        {
            "rank": 0,
            "last_step": 3,
            "curves": [{"name": "loss", "steps": [1, 2, 3], "values": [0.75, 0.5, None], "marks": [0, 0, 1]}],
        },
    ),
    "list_comparisons": (None, [_COMPARISON]),
    "compare_runs": ({"a": "1", "b": "runs/7", "rtol": 0.001}, _COMPARISON),
    "get_comparison": (None, _COMPARISON),
    "list_compared_operators": (None, {"total": 1, "rows": [_COMPARED]}),
    "list_unmatched": (
        None,
        {"total": 1, "rows": [{"name": "Default/drop-Dropout/Dropout-op7", "kind": "operator", "type": "Dropout"}]},
    ),
    "get_added_errors": (
        None,
        {
            "rank": 0,
            "step": 1,
            "largest": 0.05,
            "scopes": [
                {
                    "scope": "Default",
                    "total": 1,
                    "entries": [
                        {
                            "path": "Default/norm",
                            "kind": "scope",
                            "added": 0.05,
                            "relative": 0.05,
                            "divergent": 1,
                            "compared": 1,
                        }
                    ],
                }
            ],
        },
    ),
    "get_compared_losses": (
        None,
        {
            "verdict": "different",
            "divergence": "first_step",
            "sentence": "The losses differ from the first step: by 4 %.",
            "meaning": "The forward pass, the data or the initial weights differ.",
            "leaves_at": 1,
            "compared": 1,
            "outside": 1,
            "points": [{"step": 1, "a": 0.75, "b": 0.72, "relative_difference": 0.04, "is_outside": True}],
        },
    ),
    "get_compared_setups": (
        None,
        {
            "verdict": "different",
            "sentence": "1 difference can change results.",
            "differences": [{"importance": "results", "part": "layers", "what": "norm.eps", "a": "1e-5", "b": "1e-3"}],
        },
    ),
    "get_compared_element": (None, {"address": _NORM, "index": [3, 0], "value": "0.25"}),
    "get_compared_histogram": (None, {"counts": [3, 4, 1], "edges": [0.5, 2.5, 4.5, 6.5]}),
    "get_compared_statistics": (
        None,
        {
            "address": _NORM,
            "address_b": _NORM,
            "a": _STATISTICS,
            "b": _STATISTICS,
            "difference": _STATISTICS,
            "measures": _DIFFERENCE,
        },
    ),
    "list_searches": (
        None,
        [
            {
                "name": "lenet/search",
                "study": "search",
                "targets": [{"name": "accuracy", "goal": "maximize"}],
                "trials": 40,
                "complete": 12,
                "pruned": 27,
                "failed": 1,
                "best": [0.98],
                "modified": 1700000000.0,
            }
        ],
    ),
    "get_search": (
        None,
        {
            "study": "search",
            "storage": "sqlite:////data/lenet/search.db",
            "parameters": [{"name": "lr", "kind": "float", "low": 1e-05, "high": 1.0, "log": True}],
            "targets": [{"name": "accuracy", "goal": "maximize"}],
            "trials": [
                {"number": 0, "state": "complete", "params": {"lr": 0.01}, "values": [0.98], "duration_s": 8.5},
                {
                    "number": 1,
                    "state": "pruned",
                    "params": {"lr": 0.9},
                    "reason": "tensor_overflow at step 3: Default/fc/Dense-op0 (train.py:12)",
                    "illness": {
                        "condition": "tensor_overflow",
                        "severity": "error",
                        "node": "Default/fc/Dense-op0",
                        "step": 3,
                        "line": "train.py:12",
                    },
                    "recording": "lenet/train_0/recording",
                },
            ],
            "best": [0],
            "best_command": "python train.py --lr 0.01",
            "best_yaml": "lr: 0.01\n",
            "importance": {"lr": 1.0},
        },
    ),
    "list_server_events": (None, _EVENTS),
    "list_events": (None, _EVENTS),
}
