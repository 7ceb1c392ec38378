"""What is asked of both implementations: watchpoint settings, queries, and wrong arguments."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALL: dict[str, Any] = {}


def make_condition(api: Any, specification: tuple[str, dict[str, Any]]) -> Any:
    name, arguments = specification
    return getattr(api, name)(**arguments)


def one(
    name: str, selection: dict[str, Any] = ALL, check: dict[str, Any] | None = None, **arguments: Any
) -> dict[str, Any]:
    """A setting with one watchpoint."""
    return {"watchpoints": [((name, arguments), selection)], "check": check or {}}


CHECKS: dict[str, dict[str, Any]] = {
    # every class with one threshold
    "too large, one threshold": one("TensorTooLargeCondition", max_gt=1.0),
    "too large, abs mean": one("TensorTooLargeCondition", abs_mean_gt=0.1),
    "too large, min": one("TensorTooLargeCondition", min_gt=-0.5),
    "too large, mean": one("TensorTooLargeCondition", mean_gt=0),
    "too large, all four": one("TensorTooLargeCondition", abs_mean_gt=0.5, max_gt=2.0, min_gt=-1.0, mean_gt=0.25),
    "too large, never": one("TensorTooLargeCondition", max_gt=1e300),
    "too large, boundary": one("TensorTooLargeCondition", max_gt=100.0, min_gt=0.0),
    "too large, int threshold": one("TensorTooLargeCondition", max_gt=3),
    "too large, infinite threshold": one("TensorTooLargeCondition", max_gt=-math.inf),
    "too large, NaN threshold": one("TensorTooLargeCondition", max_gt=math.nan),
    "too small, one threshold": one("TensorTooSmallCondition", abs_mean_lt=1e-3),
    "too small, max": one("TensorTooSmallCondition", max_lt=0.0),
    "too small, boundary": one("TensorTooSmallCondition", min_lt=0.0, max_lt=1.5),
    "too small, all four": one("TensorTooSmallCondition", abs_mean_lt=0.2, max_lt=0.5, min_lt=-0.5, mean_lt=-0.01),
    "range, percentage above": one(
        "TensorRangeCondition", range_start_inclusive=-1.0, range_end_inclusive=0.0, range_percentage_gt=50.0
    ),
    "range, percentage below": one(
        "TensorRangeCondition", range_start_inclusive=0.0, range_end_inclusive=0.5, range_percentage_lt=30
    ),
    "range, both percentages": one(
        "TensorRangeCondition",
        range_start_inclusive=0,
        range_end_inclusive=1,
        range_percentage_lt=25.0,
        range_percentage_gt=75.0,
    ),
    "range, boundary 0 and 100": one(
        "TensorRangeCondition",
        range_start_inclusive=0.0,
        range_end_inclusive=0.0,
        range_percentage_lt=100.0,
        range_percentage_gt=0.0,
    ),
    "range, start after end": one(
        "TensorRangeCondition", range_start_inclusive=1.0, range_end_inclusive=-1.0, range_percentage_lt=50.0
    ),
    "range, infinite bounds": one(
        "TensorRangeCondition", range_start_inclusive=-math.inf, range_end_inclusive=math.inf, range_percentage_gt=99.0
    ),
    "range, max minus min": one("TensorRangeCondition", max_min_gt=5.0, max_min_lt=0.001),
    "range, max minus min is zero": one("TensorRangeCondition", max_min_lt=0.0, max_min_gt=0.0),
    "range, bounds without percentage": one(
        "TensorRangeCondition", range_start_inclusive=0.0, range_end_inclusive=1.0, max_min_gt=1.0
    ),
    "range, everything": one(
        "TensorRangeCondition",
        range_start_inclusive=-0.5,
        range_end_inclusive=0.5,
        range_percentage_lt=60.0,
        range_percentage_gt=90.0,
        max_min_lt=0.5,
        max_min_gt=3.0,
    ),
    "overflow": one("TensorOverflowCondition"),
    "operator overflow": one("OperatorOverflowCondition"),
    "all zero": one("TensorAllZeroCondition", zero_percentage_ge=100.0),
    "all zero, half": one("TensorAllZeroCondition", zero_percentage_ge=50),
    "all zero, always": one("TensorAllZeroCondition", zero_percentage_ge=0),
    "all zero, more than everything": one("TensorAllZeroCondition", zero_percentage_ge=100.0001),
    "all zero, negative": one("TensorAllZeroCondition", zero_percentage_ge=-5),
    "unchanged": one("TensorUnchangedCondition"),
    "unchanged, loose": one("TensorUnchangedCondition", rtol=0.5, atol=0.1),
    "unchanged, only atol": one("TensorUnchangedCondition", rtol=0.0, atol=0.05),
    "unchanged, only rtol": one("TensorUnchangedCondition", rtol=0.05, atol=0.0),
    "unchanged, exact": one("TensorUnchangedCondition", rtol=0, atol=0),
    "unchanged, boundary": one("TensorUnchangedCondition", rtol=1.0, atol=0.0),
    "change below": one("TensorChangeBelowThresholdCondition", abs_mean_update_ratio_lt=0.01),
    "change below, epsilon": one("TensorChangeBelowThresholdCondition", abs_mean_update_ratio_lt=0.5, epsilon=5.0),
    "change below, zero": one("TensorChangeBelowThresholdCondition", abs_mean_update_ratio_lt=0.0),
    "change above": one("TensorChangeAboveThresholdCondition", abs_mean_update_ratio_gt=0.1),
    "change above, epsilon": one("TensorChangeAboveThresholdCondition", abs_mean_update_ratio_gt=0.5, epsilon=1e-3),
    "change above, always": one("TensorChangeAboveThresholdCondition", abs_mean_update_ratio_gt=-1),
    # options and selections
    "missing values": one("TensorOverflowCondition", check={"error_on_no_value": True}),
    "missing values of changes": one("TensorUnchangedCondition", check={"error_on_no_value": True}),
    "missing values of thresholds": one("TensorTooLargeCondition", max_gt=0.5, check={"error_on_no_value": True}),
    "one iteration": one("TensorTooLargeCondition", {"iterations": [1]}, max_gt=0.0),
    "iterations in falling order": one("TensorTooLargeCondition", {"iterations": [3, 1]}, max_gt=0.0),
    "one rank": one("TensorTooLargeCondition", {"ranks": 0}, max_gt=0.0),
    "one slot": one("TensorTooLargeCondition", {"slots": [0]}, max_gt=0.0),
    "absent slot": one("TensorTooLargeCondition", {"slots": [9]}, max_gt=0.0),
    "weights": one("TensorUnchangedCondition", {"query_string": r"^[^/]*(weight|bias)$"}),
    "constants": one("TensorTooLargeCondition", {"query_string": r"data-\d+|cst"}, max_gt=0.0),
    "no tensor": one("TensorTooLargeCondition", {"query_string": "no such node"}, max_gt=0.0),
    # several watchpoints at once
    "no watchpoint": {"watchpoints": []},
    "two watchpoints": {
        "watchpoints": [
            (("TensorTooLargeCondition", {"max_gt": 1.0}), ALL),
            (("TensorAllZeroCondition", {"zero_percentage_ge": 100.0}), ALL),
        ]
    },
    "the same watchpoint twice": {
        "watchpoints": [
            (("TensorTooLargeCondition", {"max_gt": 1.0}), {"iterations": [0]}),
            (("TensorTooLargeCondition", {"max_gt": 1.0}), {"iterations": [0]}),
        ]
    },
    "every class": {
        "watchpoints": [
            (("TensorOverflowCondition", {}), ALL),
            (("TensorUnchangedCondition", {}), {"query_string": "weight"}),
            (("TensorChangeAboveThresholdCondition", {"abs_mean_update_ratio_gt": 1.0}), {"query_string": "weight"}),
            (("TensorRangeCondition", {"max_min_gt": 10.0}), {"iterations": [1, 2]}),
            (("TensorTooSmallCondition", {"abs_mean_lt": 1e-9}), {"query_string": "Gradients", "use_regex": False}),
        ],
        "check": {"error_on_no_value": True},
    },
    "other iterations in each watchpoint": {
        "watchpoints": [
            (("TensorTooLargeCondition", {"max_gt": 0.5}), {"iterations": [2]}),
            (("TensorTooSmallCondition", {"min_lt": 0.5}), {"iterations": [0]}),
            (("TensorAllZeroCondition", {"zero_percentage_ge": 10}), {"iterations": [0, 2]}),
        ]
    },
}


THRESHOLDS = (-math.inf, -1e300, -1.0, -0.5, -1e-8, -0.0, 0.0, 1e-45, 1e-8, 1e-5, 0.01, 0.5, 1, 3, 50.0, 99.9, 100.0)
UNUSUAL_THRESHOLDS = (100.0001, 65504.0, 1e9, 1e300, math.inf, math.nan)
PARAMETERS = {
    "TensorTooLargeCondition": ("abs_mean_gt", "max_gt", "min_gt", "mean_gt"),
    "TensorTooSmallCondition": ("abs_mean_lt", "max_lt", "min_lt", "mean_lt"),
    "TensorRangeCondition": ("range_percentage_lt", "range_percentage_gt", "max_min_lt", "max_min_gt"),
    "TensorOverflowCondition": (),
    "OperatorOverflowCondition": (),
    "TensorAllZeroCondition": ("zero_percentage_ge",),
    "TensorUnchangedCondition": ("rtol", "atol"),
    "TensorChangeBelowThresholdCondition": ("abs_mean_update_ratio_lt",),
    "TensorChangeAboveThresholdCondition": ("abs_mean_update_ratio_gt",),
}
SELECTIONS: tuple[dict[str, Any], ...] = (
    ALL,
    ALL,
    {"query_string": "weight"},
    {"query_string": "Gradients", "use_regex": False},
    {"iterations": [1]},
)
RANDOM_CHECKS = [f"random {number}" for number in range(1, 31)]


def random_check(label: str) -> dict[str, Any]:
    """One to four watchpoints of any condition, with any numbers that Python's floats have; the same at each call."""
    chance = random.Random(label)  # noqa: S311 - chance, no secret

    def threshold() -> float:
        return chance.choice(THRESHOLDS + UNUSUAL_THRESHOLDS)

    def watchpoint() -> tuple[tuple[str, dict[str, Any]], dict[str, Any]]:
        # How much tensors change is where unusual numbers matter most.
        name = chance.choice([*PARAMETERS, "TensorUnchangedCondition", "TensorUnchangedCondition"])
        names = PARAMETERS[name]
        some: Sequence[str] = names
        if names and name != "TensorUnchangedCondition":
            some = chance.sample(names, chance.randint(1, len(names)))
        arguments = {parameter: threshold() for parameter in names if parameter in some}
        if any(parameter.startswith("range_percentage") for parameter in arguments):
            arguments |= {"range_start_inclusive": threshold(), "range_end_inclusive": threshold()}
        return (name, arguments), chance.choice(SELECTIONS)

    watchpoints = [watchpoint() for _ in range(chance.randint(1, 4))]
    return {"watchpoints": watchpoints, "check": {"error_on_no_value": chance.random() < 0.3}}


CHECKS |= {label: random_check(label) for label in RANDOM_CHECKS}


def nodes(query_string: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "select_nodes", {"query_string": query_string, **arguments}


def tensors(query_string: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "select_tensors", {"query_string": query_string, **arguments}


QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "nodes: empty": nodes(""),
    "nodes: substring": nodes("Conv2D"),
    "nodes: substring with other case": nodes("conv2d"),
    "nodes: any case": nodes("CONV2D", case_sensitive=False),
    "nodes: dot is a dot": nodes("fc1.weight"),
    "nodes: dot in a regex": nodes("network.fc", use_regex=True),
    "nodes: anchored": nodes("^Gradients", use_regex=True),
    "nodes: end": nodes(r"-op\d+5$", use_regex=True),
    "nodes: alternatives": nodes("ReLU|MatMul", use_regex=True),
    "nodes: regex in any case": nodes("relu|MATMUL", use_regex=True, case_sensitive=False),
    "nodes: regex characters in plain text": nodes("Conv.*"),
    "nodes: parameters": nodes("weight"),
    "nodes: constants": nodes("data-"),
    "nodes: constant keys": nodes("cst"),
    "nodes: load": nodes("Load"),
    "nodes: monads": nodes("UpdateState"),
    "nodes: scope": nodes("/network-"),
    "nodes: nothing": nodes("there is no such node"),
    "nodes: rank 0": nodes("MatMul", ranks=0),
    "nodes: ranks": nodes("MatMul", ranks=[0]),
    "nodes: set of ranks": nodes("MatMul", ranks={0}),
    "nodes: no ranks": nodes("MatMul", ranks=[]),
    "nodes: rank twice": nodes("MatMul", ranks=[0, 0]),
    "stack: file": nodes("_network.py", select_by="code_stack"),
    "stack: line": nodes("_network.py:31", select_by="code_stack"),
    "stack: code": nodes("self.log(", select_by="code_stack"),
    "stack: other case": nodes("SELF.LOG(", select_by="code_stack"),
    "stack: any case": nodes("SELF.LOG(", select_by="code_stack", case_sensitive=False),
    "stack: regex": nodes(r"network\.py:3\d", use_regex=True, select_by="code_stack"),
    "stack: start of a frame": nodes("^#", use_regex=True, select_by="code_stack"),
    "stack: frame with a substack": nodes("# -", select_by="code_stack"),
    "stack: spaces before the code": nodes(r"py:\d+  [a-z]", use_regex=True, select_by="code_stack"),
    "stack: library": nodes("/layer/basic.py", select_by="code_stack"),
    "stack: empty": nodes("", select_by="code_stack"),
    "stack: in file": nodes("In file", select_by="code_stack"),
    "tensors: all": tensors(".*", use_regex=True),
    "tensors: name": tensors("ReLU"),
    "tensors: one iteration": tensors("ReLU", iterations=1),
    "tensors: iterations": tensors("ReLU", iterations=[2, 0]),
    "tensors: set of iterations": tensors("ReLU", iterations={0, 2}),
    "tensors: no iterations": tensors("ReLU", iterations=[]),
    "tensors: slot 0": tensors("ReLU", slots=[0]),
    "tensors: slots": tensors("MakeTuple", slots=[1, 0]),
    "tensors: absent slot": tensors("ReLU", slots=[7]),
    "tensors: no slots": tensors("ReLU", slots=[]),
    "tensors: by stack": tensors("self.log(", select_by="code_stack"),
    "tensors: parameters": tensors("weight", iterations=[0], ranks=[0]),
    "tensors: constants": tensors("data-", iterations=[0]),
}


def _mistakes() -> dict[str, Callable[[Any, Any], Any]]:
    """{label: call of (api, analyzer)}; most raise, some surprisingly do not."""
    found: dict[str, Callable[[Any, Any], Any]] = {}
    for value in (None, 5, b"ReLU", ["ReLU"]):
        found[f"select_nodes({value!r})"] = lambda _, a, v=value: a.select_nodes(v)
        found[f"select_tensors({value!r})"] = lambda _, a, v=value: a.select_tensors(v)
    options: list[tuple[str, Any]] = [
        ("use_regex", 1),
        ("use_regex", None),
        ("case_sensitive", "yes"),
        ("select_by", "stack"),
        ("select_by", None),
        ("select_by", "Node_Name"),
        ("ranks", 9),
        ("ranks", -1),
        ("ranks", [0, 9]),
        ("ranks", "0"),
        ("ranks", ["0"]),
        ("ranks", (0,)),
        ("ranks", 0.0),
        ("ranks", True),
        ("ranks", False),
        ("ranks", range(1)),
    ]
    for name, value in options:
        found[f"select_nodes({name}={value!r})"] = lambda _, a, n=name, v=value: a.select_nodes("ReLU", **{n: v})
    found["select_nodes(bad regex)"] = lambda _, a: a.select_nodes("(", use_regex=True)
    found["select_nodes(bad regex as text)"] = lambda _, a: a.select_nodes("(")
    more: list[tuple[str, Any]] = [
        ("iterations", 77),
        ("iterations", -1),
        ("iterations", "0"),
        ("iterations", [0, 77]),
        ("iterations", [0, "1"]),
        ("iterations", (0,)),
        ("iterations", 1.0),
        ("iterations", True),
        ("slots", 0),
        ("slots", (0,)),
        ("slots", {0}),
        ("slots", ["0"]),
        ("slots", [0.5]),
        ("slots", [-1]),
        ("slots", [True]),
        ("ranks", 9),
        ("select_by", "x"),
    ]
    for name, value in more:
        found[f"select_tensors({name}={value!r})"] = lambda _, a, n=name, v=value: a.select_tensors("ReLU", **{n: v})
    for value in (9, "0", [0, 9], 0.5):
        found[f"get_iterations({value!r})"] = lambda _, a, v=value: a.get_iterations(v)
    for value in (9, "0", [0], (0,)):
        found[f"node.get_output_tensors(slots={value!r})"] = lambda _, a, v=value: first_operator(a).get_output_tensors(
            slots=v
        )
        found[f"node.get_input_tensors(slots={value!r})"] = lambda _, a, v=value: first_operator(a).get_input_tensors(
            slots=v
        )
        found[f"node.get_output_tensors(iterations={value!r})"] = lambda _, a, v=value: first_operator(
            a
        ).get_output_tensors(iterations=v)
    for name in ("node", "rank", "iteration", "slot"):
        found[f"tensor.{name} = 0"] = lambda _, a, n=name: setattr(a.select_tensors("MatMul")[0], n, 0)
    for name in ("name", "stack", "rank", "graph_name", "root_graph_id"):
        found[f"node.{name} = 0"] = lambda _, a, n=name: setattr(first_operator(a), n, 0)
    found["get_input_nodes('a')"] = lambda _, a: a.get_input_nodes("a")
    found["get_output_nodes(None)"] = lambda _, a: a.get_output_nodes(None)
    found["get_input_nodes(tensor)"] = lambda _, a: a.get_input_nodes(a.select_tensors("MatMul")[0])
    found["list_affected_nodes('a')"] = lambda _, a: a.list_affected_nodes("a")
    found["list_affected_nodes(node)"] = lambda _, a: a.list_affected_nodes(first_operator(a))
    found["check_watchpoints(None)"] = lambda _, a: a.check_watchpoints(None)
    found["check_watchpoints(watchpoint)"] = lambda api, a: a.check_watchpoints(overflow(api, a))
    found["check_watchpoints([5])"] = lambda _, a: a.check_watchpoints([5])
    found["check_watchpoints(())"] = lambda _, a: a.check_watchpoints(())
    found["check_watchpoints(generator)"] = lambda api, a: bool(
        a.check_watchpoints(overflow(api, a) for _ in range(1)) is not None
    )
    found["check_watchpoints(error_on_no_value=5)"] = lambda api, a: (
        a.check_watchpoints([overflow(api, a)], error_on_no_value=5) is not None
    )
    found["export_graphs(5)"] = lambda _, a: a.export_graphs(5)
    for value in (1024, 2047, "2048", 2**31, -1, 2048.0, True):
        found[f"DumpAnalyzer(mem_limit={value!r})"] = lambda api, a, v=value: api.DumpAnalyzer(
            folder_of(a), mem_limit=v
        )
    found["DumpAnalyzer(mem_limit=2048)"] = lambda api, a: api.DumpAnalyzer(folder_of(a), mem_limit=2048)
    found["DumpAnalyzer(mem_limit=0)"] = lambda api, a: api.DumpAnalyzer(folder_of(a), mem_limit=0)
    for value in ("/nowhere/at/all", "", None, 5):
        found[f"DumpAnalyzer({value!r})"] = lambda api, _, v=value: api.DumpAnalyzer(v)
    found["DumpAnalyzer(rank folder)"] = lambda api, a: api.DumpAnalyzer(folder_of(a) + "/rank_0")
    found["Watchpoint(no list)"] = lambda api, a: api.Watchpoint(
        a.select_tensors("ReLU")[0], api.TensorOverflowCondition()
    )
    found["Watchpoint(tuple)"] = lambda api, a: api.Watchpoint(
        tuple(a.select_tensors("ReLU")), api.TensorOverflowCondition()
    )
    found["Watchpoint(empty list)"] = lambda api, _: api.Watchpoint([], api.TensorOverflowCondition())
    found["Watchpoint(list of text)"] = lambda api, _: api.Watchpoint(["ReLU"], api.TensorOverflowCondition())
    found["Watchpoint(list of nodes)"] = lambda api, a: api.Watchpoint(
        a.select_nodes("ReLU"), api.TensorOverflowCondition()
    )
    found["Watchpoint(condition is text)"] = lambda api, _: api.Watchpoint([], "TensorOverflow")
    found["Watchpoint(condition is a class)"] = lambda api, _: api.Watchpoint([], api.TensorOverflowCondition)
    found["Watchpoint.tensors = []"] = lambda api, a: setattr(overflow(api, a), "tensors", [])
    conditions: list[tuple[str, dict[str, Any]]] = [
        ("TensorTooLargeCondition", {}),
        ("TensorTooLargeCondition", {"max_gt": "1"}),
        ("TensorTooLargeCondition", {"max_gt": True}),
        ("TensorTooLargeCondition", {"max_gt": [1.0]}),
        ("TensorTooLargeCondition", {"max_lt": 1.0}),
        ("TensorTooLargeCondition", {"abs_mean_gt": -1.0}),
        ("TensorTooLargeCondition", {"max_gt": math.nan}),
        ("TensorTooLargeCondition", {"max_gt": 10**400}),
        ("TensorTooLargeCondition", {"max_gt": 1j}),
        ("TensorTooSmallCondition", {}),
        ("TensorTooSmallCondition", {"min_lt": None}),
        ("TensorTooSmallCondition", {"min_lt": "x"}),
        ("TensorRangeCondition", {}),
        ("TensorRangeCondition", {"range_start_inclusive": 0.0}),
        ("TensorRangeCondition", {"range_start_inclusive": 0.0, "range_end_inclusive": 1.0}),
        ("TensorRangeCondition", {"range_percentage_lt": 5.0}),
        ("TensorRangeCondition", {"range_percentage_gt": 5.0, "range_start_inclusive": 0.0}),
        ("TensorRangeCondition", {"range_percentage_gt": 5.0, "range_end_inclusive": 0.0}),
        (
            "TensorRangeCondition",
            {"range_percentage_gt": 500.0, "range_start_inclusive": 0.0, "range_end_inclusive": 0.0},
        ),
        ("TensorRangeCondition", {"max_min_lt": "1"}),
        ("TensorRangeCondition", {"max_min_lt": -1}),
        ("TensorAllZeroCondition", {}),
        ("TensorAllZeroCondition", {"zero_percentage_ge": None}),
        ("TensorAllZeroCondition", {"zero_percentage_ge": "100"}),
        ("TensorAllZeroCondition", {"zero_percentage_ge": -5}),
        ("TensorAllZeroCondition", {"zero_percentage_ge": 101}),
        ("TensorUnchangedCondition", {"rtol": None}),
        ("TensorUnchangedCondition", {"atol": "1"}),
        ("TensorUnchangedCondition", {"rtol": -1.0}),
        ("TensorChangeBelowThresholdCondition", {}),
        ("TensorChangeBelowThresholdCondition", {"abs_mean_update_ratio_lt": None}),
        ("TensorChangeBelowThresholdCondition", {"abs_mean_update_ratio_lt": 0.1, "epsilon": "1"}),
        ("TensorChangeAboveThresholdCondition", {}),
        ("TensorChangeAboveThresholdCondition", {"abs_mean_update_ratio_gt": "0.1"}),
        ("TensorChangeAboveThresholdCondition", {"abs_mean_update_ratio_gt": -0.1}),
        ("TensorOverflowCondition", {"max_gt": 1}),
        ("OperatorOverflowCondition", {"x": 1}),
        ("ConditionBase", {}),
    ]
    for name, arguments in conditions:
        found[f"{name}(**{arguments!r})"[:100]] = lambda api, _, n=name, v=arguments: make_condition(api, (n, v))
    return found


def first_operator(analyzer: Any) -> Any:
    return analyzer.select_nodes("MatMul")[0]


def overflow(api: Any, analyzer: Any) -> Any:
    return api.Watchpoint(analyzer.select_tensors("MatMul"), api.TensorOverflowCondition())


def folder_of(analyzer: Any) -> str:
    """The dump's folder, which both implementations are given as `FOLDERS[analyzer]` by the recorder."""
    return FOLDERS[id(analyzer)]


FOLDERS: dict[int, str] = {}
MISTAKES = _mistakes()
