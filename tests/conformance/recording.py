"""Asks one implementation of the debugger API everything about one dump, and writes the answers down as plain data.

`run_original.py` passes the original's modules, `test_conformance.py` passes ours; the same calls run through both.
Runs on Python 3.9 (the original's environment) as well as on the newest. Nothing here compares; `compare.py` does.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Any

from settings import CHECKS, FOLDERS, MISTAKES, QUERIES, make_condition

if TYPE_CHECKING:
    from types import SimpleNamespace

# Texts of hits are long and there are thousands of them: the first few are kept, all are hashed.
TEXTS_KEPT = 4


class Recorder:
    """One implementation (`api` has the names of `mindinsight.debugger` and `DumpParser`) opened on one dump."""

    def __init__(self, api: SimpleNamespace, dump: str, scratch: str) -> None:
        self.api = api
        self.dump = os.path.realpath(dump)
        self.scratch = scratch
        self.analyzer = api.DumpAnalyzer(dump)
        FOLDERS[id(self.analyzer)] = dump
        nodes = self.analyzer.select_nodes(".*", use_regex=True)
        self.index = {node_key(node): number for number, node in enumerate(nodes)}
        self.nodes = nodes

    def record(self, section: str) -> Any:
        """One section's answers; an exception is an answer too."""
        if section.startswith("check "):
            return self.attempt(lambda: self.check(section[len("check ") :]))
        return getattr(self, section)()

    def attempt(self, call: Any) -> Any:
        try:
            return call()
        except Exception as error:  # whatever the original raises is what is recorded
            return {
                "raises": type(error).__name__,
                "bases": [c.__name__ for c in type(error).__mro__],
                "message": self.neutral(error),
            }

    def neutral(self, value: Any) -> str:
        text = str(value).replace(self.dump, "<dump>").replace(self.scratch, "<scratch>")
        return text.replace(os.getcwd(), "<here>")

    # --- the graph --------------------------------------------------------------------------------

    def node_facts(self) -> Any:
        """Every node with its neighbours (as indices into this list), stack and tensors."""
        return [
            {
                "name": node.name,
                "rank": node.rank,
                "graph_name": node.graph_name,
                "root_graph_id": node.root_graph_id,
                "str": str(node),
                "stack": [frame_facts(frame) for frame in node.stack],
                "inputs": self.indices(self.analyzer.get_input_nodes(node)),
                "outputs": self.indices(self.analyzer.get_output_nodes(node)),
                "input_tensors": [self.tensor_key(t) for t in node.get_input_tensors()],
                "output_tensors": [self.tensor_key(t) for t in node.get_output_tensors()],
                "input_tensors_of_slots": [
                    self.tensor_key(t) for t in node.get_input_tensors(iterations=[0], slots=[0, 2])
                ],
                "output_tensors_of_slots": [
                    self.tensor_key(t) for t in node.get_output_tensors(iterations=[1, 77], slots=[0, 5])
                ],
                "affected": self.affected(node),
            }
            for node in self.nodes
        ]

    def affected(self, node: Any) -> Any:
        tensors = node.get_output_tensors()
        return self.indices(self.analyzer.list_affected_nodes(tensors[0])) if tensors else None

    def indices(self, nodes: Any) -> list[int]:
        return [self.index[node_key(node)] for node in nodes]

    def tensor_key(self, tensor: Any) -> list[Any]:
        return [self.index[node_key(tensor.node)], tensor.slot, tensor.iteration]

    def overview(self) -> Any:
        analyzer = self.analyzer
        ranks = analyzer.get_ranks()
        return {
            "ranks": ranks,
            "iterations": analyzer.get_iterations(),
            "iterations_of_rank": [analyzer.get_iterations(ranks=rank) for rank in ranks],
            "iterations_of_list": analyzer.get_iterations(ranks=list(ranks)),
            "iterations_of_set": analyzer.get_iterations(ranks=set(ranks)),
        }

    def queries(self) -> Any:
        """Answers to every query of nodes and of tensors."""
        answers = {}
        for label, (method, arguments) in QUERIES.items():
            selected = self.attempt(lambda m=method, a=arguments: getattr(self.analyzer, m)(**a))
            if isinstance(selected, dict):
                answers[label] = selected
            elif method == "select_nodes":
                answers[label] = self.indices(selected)
            else:
                answers[label] = [self.tensor_key(t) for t in selected]
        return answers

    # --- the values -------------------------------------------------------------------------------

    def tensor_facts(self) -> Any:
        """Text of the first tensors, and dtype, shape and digest of every value (null where there is none)."""
        tensors = self.analyzer.select_tensors(".*", use_regex=True)
        return {
            "texts": [str(t) for t in tensors[:TEXTS_KEPT]],
            "ranks": sorted({t.rank for t in tensors}),
            "values": [[*self.tensor_key(t), self.attempt(lambda t=t: value_facts(t.value()))] for t in tensors],
        }

    def check(self, label: str) -> Any:
        """Hits of one setting, in order: parameters as they are, texts without the actual values."""
        setting = CHECKS[label]
        hits = self.analyzer.check_watchpoints(self.watchpoints(setting["watchpoints"]), **setting.get("check", {}))
        texts = [hit_text(hit) for hit in hits]
        return {
            "conditions": sorted({hit.get_threshold().name for hit in hits}),
            "hits": [self.hit_facts(hit) for hit in hits],
            "texts": [self.neutral(text) for text in texts[:TEXTS_KEPT]],
            "digests": [hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts],
        }

    def watchpoints(self, specifications: Any) -> Any:
        return [
            self.api.Watchpoint(
                tensors=self.analyzer.select_tensors(**dict({"query_string": ".*", "use_regex": True}, **selection)),
                condition=make_condition(self.api, condition),
            )
            for condition, selection in specifications
        ]

    def hit_facts(self, hit: Any) -> list[Any]:
        detail = hit.get_hit_detail()
        parameters = (
            [] if detail is None else [[p.name, p.disabled, p.value, p.hit, p.actual_value] for p in detail.param_dict]
        )
        return [*self.tensor_key(hit.tensor), hit.get_threshold().name, hit.error_code, parameters]

    def hit_interface(self) -> Any:
        """Everything reachable from a hit and from its parts, for a healthy and for a failed one."""
        found = {}
        for label in ("too large, one threshold", "all zero", "unchanged", "overflow", "change below"):
            hits = self.analyzer.check_watchpoints(self.watchpoints(CHECKS[label]["watchpoints"]))
            for hit in hits:
                key = f"{label} {hit.error_code}"
                if key not in found:
                    found[key] = self.one_hit(hit)
        return found

    def one_hit(self, hit: Any) -> Any:
        detail, threshold = hit.get_hit_detail(), hit.get_threshold()
        return {
            "error_code": hit.error_code,
            "error_msg": hit.error_msg,
            "tensor": str(hit.tensor),
            "threshold": condition_facts(threshold),
            "detail": None
            if detail is None
            else [detail.name, detail.condition_id, without_actual_values(str(detail), detail)],
            "text": hit_text(hit),
        }

    # --- the rest ---------------------------------------------------------------------------------

    def conditions(self) -> Any:
        """Names, numbers and parameters of every condition that the settings use."""
        used = {repr(condition): condition for setting in CHECKS.values() for condition, _ in setting["watchpoints"]}
        return {key: condition_facts(make_condition(self.api, used[key])) for key in sorted(used)}

    def mistakes(self) -> Any:
        """What is raised (or returned) for wrong arguments."""
        return {
            label: self.attempt(lambda call=call: summary(call(self.api, self.analyzer)))
            for label, call in MISTAKES.items()
        }

    def xlsx(self) -> Any:
        """Every cell, filter, frozen pane and merged range of the exported workbook."""
        import openpyxl

        folder = os.path.join(self.scratch, "xlsx")
        path = self.analyzer.export_graphs(folder)
        book = openpyxl.load_workbook(path)
        return {
            "file_name": re.sub(r"\d", "9", os.path.relpath(path, folder)),
            "sheets": {
                sheet.title: {
                    "freeze_panes": sheet.freeze_panes,
                    "auto_filter": sheet.auto_filter.ref,
                    "merged": sorted(str(cells) for cells in sheet.merged_cells.ranges),
                    "rows": [[self.cell(value) for value in row] for row in sheet.iter_rows(values_only=True)],
                }
                for sheet in book.worksheets
            },
        }

    def cell(self, value: Any) -> Any:
        """A cell without machine paths, and with our words for three that are the original's internal ones."""
        if not isinstance(value, str):
            return value
        words = re.sub(r"OutputType\.(NONE|BOOL)", "-", self.neutral(value)).replace("OutputType.TUPLE", "tuple")
        return re.sub(r"<MindSporeType\.(\w+): '\w+'>", r"'DT_BASE_\1'", words)

    def tensor_files(self) -> Any:
        """DumpParser.get_tensor_files for queries over the code stack."""
        parser = self.api.DumpParser(self.dump)
        calls = {
            "a line of the script": {"qs": "network.py"},
            "nothing": {"qs": "no such line"},
            "case": {"qs": "NETWORK.PY"},
            "regex": {"qs": r"self\.(log|relu|tanh|hidden)\(", "use_regex": True},
            "rank and iteration": {"qs": "network.py", "rank_ids": [0], "iterations": [1]},
            "absent iteration": {"qs": "network.py", "iterations": [77]},
        }
        return {label: self.attempt(lambda a=a: self.paths(parser.get_tensor_files(**a))) for label, a in calls.items()}

    def statistics(self) -> Any:
        """What is read from statistic.csv and what is summed up of it (mindinsight 2.2 and later)."""
        select = self.analyzer.select_tensor_statistics
        everything = {"ranks": [0], "iterations": None}
        return {
            "one rank": self.attempt(lambda: jsonable(select(**everything))),
            "one iteration": self.attempt(lambda: jsonable(select(iterations=1))),
            "lists": self.attempt(lambda: jsonable(select(iterations=[2, 0], ranks=[2]))),
            "no iteration": self.attempt(lambda: jsonable(select(iterations=[]))),
            "without a file": self.attempt(lambda: jsonable(select(iterations=3))),
            "unknown iteration": self.attempt(lambda: jsonable(select(iterations=7))),
            "unknown rank": self.attempt(lambda: jsonable(select(ranks=1))),
            "summary": self.attempt(lambda: self.summary_of(select(iterations=[0, 1, 2]))),
            "summary, limit": self.attempt(lambda: self.summary_of(select(iterations=[0, 1, 2]), overflow_value=65499)),
            "summary, high limit": self.attempt(
                lambda: self.summary_of(select(iterations=[1], ranks=[0]), overflow_value=1e31)
            ),
            "summary of nothing": self.attempt(lambda: self.summary_of({})),
        }

    def summary_of(self, statistics: Any, **arguments: Any) -> Any:
        """Returned value and lines of the written file."""
        returned = self.analyzer.summary_statistics(statistics, out_path=self.scratch, **arguments)
        path = os.path.join(self.scratch, "statistics_summary.csv")
        with open(path, newline="") as file:
            lines = file.read().splitlines()
        os.remove(path)
        return {"returned": returned, "lines": lines}

    def paths(self, managers: Any) -> Any:
        """{name: {rank: {iteration: {io: sorted relative paths}}}}, without empty iterations' order."""
        return {name: self.plain(manager.to_dict()) for name, manager in managers.items()}

    def plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): self.plain(item) for key, item in value.items()}
        return sorted(os.path.relpath(os.path.realpath(str(path)), self.dump) for path in value)


def node_key(node: Any) -> tuple[Any, ...]:
    return (node.rank, node.graph_name, node.name)


def frame_facts(frame: Any) -> Any:
    return {"text": str(frame), "fields": frame.to_dict(), "file_path": frame.file_path, "line_no": frame.line_no}


def value_facts(value: Any) -> Any:
    """dtype, shape and digest of an array; NaN payloads count, the byte order and strides do not."""
    if value is None:
        return None
    data = value.astype(value.dtype.newbyteorder("<"), order="C", copy=True)
    return [str(data.dtype), list(data.shape), hashlib.sha256(data.tobytes()).hexdigest()[:12]]


def condition_facts(condition: Any) -> Any:
    names = getattr(condition, "param_names", None)
    return {
        "class": type(condition).__name__,
        "name": condition.name,
        "condition_id": condition.condition_id,
        "param_dict": {key: condition.param_dict[key] for key in condition.param_dict},
        "order": list(condition.param_dict),
        "param_names": None if names is None else sorted(names),
        "str": str(condition),
    }


def jsonable(statistics: Any) -> Any:
    """{rank: {iteration: {tensor: [row, …]}}} with rows as plain dictionaries."""
    return {
        str(rank): {
            str(iteration): {name: [dict(row) for row in rows] for name, rows in tensors.items()}
            for iteration, tensors in iterations.items()
        }
        for rank, iterations in statistics.items()
    }


def without_actual_values(text: str, detail: Any) -> str:
    for parameter in detail.param_dict:
        text = text.replace(f"{parameter.name} = {parameter.actual_value}", f"{parameter.name} = <actual>")
    return text


def hit_text(hit: Any) -> str:
    detail = hit.get_hit_detail()
    text = str(hit)
    return text if detail is None else without_actual_values(text, detail)


def summary(result: Any) -> Any:
    """Enough of a result to tell that no error was raised and what kind of thing came back."""
    if result is None or isinstance(result, (bool, int, float, str)):
        return result
    if isinstance(result, (list, tuple, set)):
        return f"{type(result).__name__} of {len(result)}"
    return type(result).__name__
