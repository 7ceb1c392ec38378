"""What a person does with a PyTorch training at a debug server: the original's, or ours.

The answers of the original's server are golden (`golden/pytorch.json`); ours are compared with them in every test run.
It uses nothing but the standard library.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

from protocol_conversation import PATIENCE_S, OriginalControl, TensightControl

SCRIPT = Path(__file__).with_name("pytorch_training.py")
SICK_STEP = 3
"""As in the script: the step after which the watchpoint has hit."""
OPERATOR = "Default/fc1/Linear-op0"
WEIGHT = "fc1.weight"
CONDITION = ("tensor_too_large", "max_gt", 500.0)


def rounded(value: Any) -> Any:
    """Return numbers with four digits: the last ones depend on the processor."""
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.4g}")


def wait_for_step(person: Any, step: int) -> None:
    """Wait until the training stands after a step."""
    end = time.monotonic() + PATIENCE_S
    while not (person.is_paused() and person.facts()["step"] == step):
        if time.monotonic() > end:
            raise RuntimeError(f"the training does not stand at step {step}, but {person.facts()}")


class OriginalPerson(OriginalControl):
    """A person at the original's server; every name is given as the original shows it."""

    def begin(self) -> None:
        """Open the session that all trainings share."""
        self.ask("POST", "/v1/mindinsight/debugger/sessions", {"session_type": "ONLINE", "dump_dir": ""})

    def facts(self) -> dict[str, Any]:
        """Return what it shows of the run."""
        shown = self.retrieve()
        return {"step": shown["metadata"]["step"], "graph": shown["graph"]["graph_names"][0]}

    def found(self, name: str) -> list[str]:
        """Return the full names of all nodes that are found by a part of their name."""
        query = urllib.parse.urlencode({"name": name, "graph_name": "kernel_graph_0"})
        leaves, nodes = [], self.ask("GET", f"{self.root}/search?{query}")["nodes"]
        while nodes:
            node = nodes.pop()
            nodes += node.get("nodes") or []
            if not node.get("nodes"):
                leaves.append(self._plain(node["name"]))
        return sorted(set(leaves))

    def stack(self, node: str) -> list[list[Any]]:
        """Return file and line of each frame of a node."""
        body = {"mode": "node", "params": {"name": node.rpartition("/")[0], "graph_name": "kernel_graph_0"}}
        nodes = self.ask("POST", self.root + "/retrieve", body)["graph"]["nodes"]
        frames = next(each for each in nodes if each["name"] == node)["stack_info"]
        return [[Path(frame["file_path"]).name, frame["line_no"]] for frame in frames]

    def hits(self) -> list[list[Any]]:
        """Return node, slot, condition, and for each parameter what was measured."""
        body = {"group_condition": {"limit": 100, "offset": 0, "rank_id": 0}}
        reply = self.ask("POST", self.root + "/search-watchpoint-hits", body)
        return sorted(
            [self._plain(node["node_name"]), str(tensor["slot"]), each["watch_condition"]["id"],
             [[p["name"], rounded(p["actual_value"])] for p in each["watch_condition"]["params"]
              if p["actual_value"] is not None]]
            for node in reply.get("watch_point_hits", [])
            for tensor in node["tensors"]
            for each in tensor["watch_points"]
        )  # fmt: skip

    def values(self, node: str, *, previous: bool = False) -> Any:
        """Return all values of the first output of a node."""
        name = self.shown_name("kernel_graph_0", node)
        history = {"name": name, "graph_name": "kernel_graph_0", "rank_id": 0}
        while True:
            for each in self.ask("POST", self.root + "/tensor-history", history)["tensor_history"]:
                if each["name"] == name + ":0" and each["type"] == "output" and each.get("shape"):
                    query = {
                        "name": name + ":0", "detail": "data", "graph_name": "kernel_graph_0", "rank_id": 0,
                        "shape": "[" + ", ".join(":" for _ in each["shape"]) + "]",
                        "prev": "true" if previous else "false",
                    }  # fmt: skip
                    path = self.root + "/tensors?" + urllib.parse.urlencode(query)
                    value = self.ask("GET", path)["tensor_value"]["value"]
                    if isinstance(value, list):
                        return rounded(value)
            self.until_paused()

    @staticmethod
    def _plain(name: str) -> str:
        """Return the full name: the original shows what is no operator below a scope that uses it."""
        last = name.rpartition("/")[2]
        return name if "-op" in last else last


class TensightPerson(TensightControl):
    """A person at ours."""

    def begin(self) -> None:
        """Open nothing: a training opens its session."""

    def is_paused(self) -> bool:
        """Whether the training has come, and waits."""
        return bool(self.ask("GET", "/api/v1/sessions")) and super().is_paused()

    def facts(self) -> dict[str, Any]:
        """Return what it shows of the run."""
        graphs = self.ask("GET", self.root() + "/graphs")
        return {"step": self.ask("GET", self.root())["step"], "graph": graphs[0]["name"]}

    def found(self, name: str) -> list[str]:
        """Return the full names of all nodes that are found by a part of their name."""
        query = urllib.parse.urlencode({"name": name, "limit": 1000})
        return sorted(found["entry"]["path"] for found in self.ask("GET", f"{self.root()}/nodes?{query}")["nodes"])

    def stack(self, node: str) -> list[list[Any]]:
        """Return file and line of each frame of a node."""
        query = urllib.parse.urlencode({"name": node, "graph": "kernel_graph_0"})
        frames = self.ask("GET", f"{self.root()}/node?{query}")["stack"]
        return [[Path(frame["file"]).name, frame["line"]] for frame in frames]

    def hits(self) -> list[list[Any]]:
        """Return node, slot, condition, and for each parameter what was measured."""
        return sorted(
            [node["node"], str(tensor["slot"]), hit["condition"],
             [[p["name"], rounded(p["actual"])] for p in hit["parameters"] if p["actual"] is not None]]
            for node in self.ask("GET", self.root() + "/hits?limit=1000")["nodes"]
            for tensor in node["tensors"]
            for hit in tensor["hits"]
        )  # fmt: skip

    def values(self, node: str, *, previous: bool = False) -> Any:
        """Return all values of the first output of a node."""
        step = self.ask("GET", self.root())["step"] - previous
        query = {"address": f"0/kernel_graph_0/{node}:0@{step}", "format": "json"}
        return rounded(self.ask("GET", self.root() + "/tensor/values?" + urllib.parse.urlencode(query)))


def train(address: str) -> subprocess.Popen[str]:
    """Start the training, its script unchanged, at a debug server."""
    host, _, port = address.rpartition(":")
    variables = {"ENABLE_MS_DEBUGGER": "1", "MS_DEBUGGER_HOST": host, "MS_DEBUGGER_PORT": port}
    command = [sys.executable, "-m", "tensight", "run", str(SCRIPT)]
    return subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def converse(person: Any, address: str) -> dict[str, Any]:
    """Debug the training as a person does; return what the server answered."""
    person.begin()
    said: dict[str, Any] = {}
    with train(address) as training:
        try:
            person.until_paused()
            said["before the first step"] = person.facts()
            said["weights before the first step"] = person.found("fc1.")
            said["initial weight"] = person.values(WEIGHT)
            person.go_on(1)
            wait_for_step(person, 1)
            said["after a step"] = person.facts()
            said["operators"] = person.found("Linear")
            said["stack"] = person.stack(OPERATOR)
            person.watch(CONDITION[0], [CONDITION[1:]])
            person.go_on(-1)
            wait_for_step(person, SICK_STEP)
            said["at the hit"] = person.facts()
            said["hits"] = person.hits()
            said["value that hit"] = person.values(OPERATOR)
            said["weight"] = person.values(WEIGHT)
            said["weight before"] = person.values(WEIGHT, previous=True)
            person.unwatch(1)
            person.go_on(-1)
            said["exit code"] = training.wait(PATIENCE_S)
            assert training.stdout
            said["output"] = training.stdout.read().strip()
        finally:
            training.kill()
    return said
