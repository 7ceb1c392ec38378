"""One conversation of a training process with a debug server, and what a person does meanwhile.

The same script runs with the original's generated stubs against the original's server (that gives the golden replies),
with the original's stubs against ours, and with the recorded bytes against ours in every test run. It uses nothing but
the standard library and runs on Python 3.9.
"""

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE_S = 60.0
VALUES, STATISTICS = 0, 1


def text(value):
    """Text of a message: the original's are text, ours are bytes."""
    return value.decode() if isinstance(value, bytes) else value


def watched(node):
    """Name and type of a watched node; a process knows a parameter by what follows the last slash."""
    name, kind = text(node.node_name), text(node.node_type)
    return [name.rpartition("/")[2] if kind == "Parameter" else name, kind]


def as_dictionary(reply):
    """What a reply says; the nodes of a watchpoint sorted, as their order means nothing."""
    kind = reply.WhichOneof("cmd")
    said = {"status": reply.status, "cmd": kind}
    if kind == "run_cmd":
        said["run"] = [text(reply.run_cmd.run_level), reply.run_cmd.run_steps, text(reply.run_cmd.node_name)]
    elif kind == "set_cmd":
        command = reply.set_cmd
        said["id"], said["delete"] = command.id, command.delete
        if not command.delete:
            said["condition"] = command.watch_condition.condition
            said["value"] = round(command.watch_condition.value, 6)
            said["params"] = [
                [text(p.name), p.disabled, 0.0 if p.disabled else p.value] for p in command.watch_condition.params
            ]
            said["nodes"] = sorted(map(list, {tuple(watched(node)) for node in command.watch_nodes}))
    elif kind == "view_cmd":
        asked = reply.view_cmd.tensors
        said["tensors"] = [
            [text(t.node_name).rpartition("/")[2] if t.truncate else text(t.node_name), text(t.slot), t.truncate]
            for t in asked
            if text(t.iter) != "prev"  # the original asks for the previous value along with every parameter
        ]
        said["level"] = reply.view_cmd.level
    elif kind is not None:
        said["is"] = getattr(reply, kind)
    return said


class Control:
    """A person at a server's HTTP API."""

    def __init__(self, url):
        self.url = url

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:  # noqa: S310
                text = reply.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]}") from None
        return json.loads(text) if text else None

    def until_paused(self):
        """Wait until the process is known to wait for a command."""
        end = time.monotonic() + PATIENCE_S
        while not self.is_paused():
            if time.monotonic() > end:
                raise RuntimeError("the server does not show the process as waiting")


class OriginalControl(Control):
    """The original's REST API; a long poll of it paces the waiting."""

    root = "/v1/mindinsight/debugger/sessions/0"

    def retrieve(self):
        return self.ask("POST", self.root + "/retrieve", {"mode": "all", "params": {}})

    def is_paused(self):
        return self.retrieve()["metadata"]["state"] == "waiting"

    def watch(self, condition, parameters):
        spec = {"id": condition, "params": [{"name": name, "value": value} for name, value in parameters]}
        return self.ask("POST", self.root + "/create-watchpoint", {"condition": spec, "watch_nodes": []})["id"]

    def unwatch(self, number):
        self.ask("POST", self.root + "/delete-watchpoint", {"watch_point_id": number})

    def go_on(self, steps):
        self.ask("POST", self.root + "/control", {"mode": "continue", "level": "step", "steps": steps})

    def go_to_node(self, graph, node):
        body = {"mode": "continue", "level": "node", "name": self.shown_name(graph, node), "graph_name": graph}
        self.ask("POST", self.root + "/control", body)

    def recheck(self):
        self.ask("POST", self.root + "/recheck")

    def shown_name(self, graph, node):
        """The name that this server shows: with the scope of a parameter's consumer, and with aggregation scopes."""
        short = node.rpartition("/")[2]
        query = {"name": short, "graph_name": graph}
        found = self.ask("GET", self.root + "/search?" + urllib.parse.urlencode(query))["nodes"]
        while found and not found[0]["name"].endswith(short):
            found = found[0]["nodes"]
        return found[0]["name"] if found else node

    def value(self, graph, node):
        name = self.shown_name(graph, node)
        history = {"name": name, "graph_name": graph, "rank_id": 0}
        while not self.ask("POST", self.root + "/tensor-history", history)["tensor_history"][0].get("shape"):
            self.until_paused()  # the process is being asked for the header, without which a value cannot be asked for
        query = {"name": name + ":0", "detail": "data", "shape": "[:]", "prev": "false", "graph_name": graph}
        self.ask("GET", self.root + "/tensors?" + urllib.parse.urlencode(query))

    def terminate(self):
        self.ask("POST", self.root + "/control", {"mode": "terminate"})


class TensightControl(Control):
    """Ours."""

    session = None

    def root(self):
        if self.session is None:
            live = [one for one in self.ask("GET", "/api/v1/sessions") if one["capabilities"]["live"]]
            self.session = live[-1]["id"]
        return "/api/v1/sessions/" + self.session

    def is_paused(self):
        return self.ask("GET", self.root())["state"] == "paused"

    def watch(self, condition, parameters):
        spec = {"condition": condition, "parameters": dict(parameters)}
        if condition.startswith("weight_"):
            # The original goes by the name; ours knows that a weight which nothing updates is frozen.
            spec["selection"] = r"name:^network\..*\.(weight|bias)$"
        return self.ask("POST", self.root() + "/watchpoints", spec)["id"]

    def unwatch(self, number):
        self.ask("DELETE", f"{self.root()}/watchpoints/{number}")

    def command(self, **what):
        self.ask("POST", self.root() + "/command", what)

    def go_on(self, steps):
        self.command(action="continue", steps=steps)

    def go_to_node(self, graph, node):
        self.command(action="run_to_node", graph=graph, node=node)

    def recheck(self):
        self.command(action="recheck")

    def value(self, graph, node):
        query = {"address": f"0/{graph}/{node}:0", "format": "json"}
        self.ask("GET", self.root() + "/tensor/values?" + urllib.parse.urlencode(query))

    def terminate(self):
        self.command(action="terminate")


class Conversation:
    """Plays the process's part; `process` makes the calls, `control` is the person.

    `process.call(rpc, step)` returns the reply as a dictionary: ``{status, cmd: {...}}``.
    """

    def __init__(self, process, control, facts):
        self.process = process
        self.control = control
        self.facts = facts
        self.said = []

    def call(self, rpc, what):
        reply = self.process.call(rpc, what)
        while reply["cmd"] == "view_cmd" and reply["level"] != VALUES:
            # How a server learns about headers and statistics is its own affair.
            answer = ("SendTensorStats", "statistics") if reply["level"] == STATISTICS else ("SendTensorBase", "base")
            self.process.call(*answer, times=len(reply["tensors"]))
            reply = self.process.call(rpc, what)
        self.said.append({"rpc": rpc, "what": what, "reply": reply})
        return reply

    def wait(self, what, action=None):
        """Call WaitCMD and, once the server shows that the process waits, act."""
        if action is None:
            return self.call("WaitCMD", what)
        replies = []
        waiting = threading.Thread(target=lambda: replies.append(self.call("WaitCMD", what)))
        waiting.start()
        self.control.until_paused()
        acting = threading.Thread(target=action, daemon=True)
        acting.start()
        waiting.join(PATIENCE_S)
        if not replies:
            raise RuntimeError(f"no command came for {what}")
        return replies[0]

    def run(self):
        control, graph = self.control, self.facts["graph"]
        self.call("SendMetadata", "metadata")
        self.call("SendHeartbeat", "heartbeat too slow")
        self.call("SendHeartbeat", "heartbeat")
        self.call("SendGraph", "graph")

        def begin():
            control.watch("tensor_too_large", [("max_gt", 0.5)])
            control.watch("weight_change_too_small", [("abs_mean_update_ratio_lt", 0.25)])
            control.watch("tensor_range", [
                ("range_start_inclusive", -1), ("range_end_inclusive", 2.5), ("range_percentage_gt", 12.5),
            ])  # fmt: skip
            control.go_on(2)

        self.wait("step 0", begin)
        for _ in range(4):  # two watchpoints more, the check of the initial state, the first step
            self.wait("step 0")
        self.wait("step 1")  # the second step, without asking anybody
        self.wait("step 2", lambda: control.value(graph, self.facts["parameter"]))
        self.call("SendTensors", "value of the parameter")

        def change():
            control.unwatch(1)
            control.recheck()

        self.wait("step 2", change)
        self.wait("step 2")
        self.call("SendWatchpointHits", "hit")
        self.wait("step 2", lambda: control.go_to_node(graph, self.facts["target"]))
        self.wait("step 2 at another node")
        self.wait("step 2 at the target", lambda: control.go_on(-1))
        self.wait("step 3")
        self.wait("step 4")
        self.call("SendWatchpointHits", "hit")
        self.wait("step 5", control.terminate)
        return self.said
