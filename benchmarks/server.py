"""The debug server under load, beside plain gRPC and plain WebSockets in the same run.

    python benchmarks/server.py [--only steps|events|tensor|graph|answers|browse|hits ...] [--processes 64]

steps   64 training processes attached and running, each asks the server at every step and never computes: 64 jobs, then
        one job of 64 ranks that go in lockstep; beside a gRPC server that answers at once
events  200 WebSockets at one session: from an event until the last one has it; beside a bare broadcast
tensor  1 GiB streamed by a training process; beside a gRPC server that only counts bytes; then a slice of it over HTTP
graph   100,000 operators: from the first byte sent until a search finds one; beside plain gRPC plus parsing alone
answers answers of the API about another, small run while a training process sends a graph of 500,000 nodes, as real as
        those above and as small as a message can make them; while the page opens it; and how long the server then
        takes to end in the middle of another one
browse  100,000 nodes over HTTP, watched: pages of the tree, drawn levels, selections; beside a request for the session
hits    10,000 tensors hit in one step: until they are listed over HTTP

Every part starts a server of its own. All client processes run on the same cores as the server.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import httpx

import tensight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server, Session

HERE = Path(__file__).resolve().parent
PATIENCE_S = 120
HELPERS = 4
"""Real processes that play the many."""


class Child:
    """A helper process that takes orders on standard input and answers in lines."""

    def __init__(self, script: str, *words: object) -> None:
        command = [sys.executable, str(HERE / script), *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin
        assert self.process.stdout
        self._orders, self._answers = self.process.stdin, self.process.stdout

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def order(self, line: str) -> None:
        self._orders.write(line + "\n")
        self._orders.flush()

    def end_orders(self) -> None:
        self._orders.close()

    def line(self) -> str:
        answer = self._answers.readline()
        assert answer, f"{self.process.args} ended"
        return answer.strip()

    def answer(self, kind: str) -> dict[str, Any]:
        """Return the next line of JSON of this kind."""
        while True:
            answer: dict[str, Any] = json.loads(self.line())
            if answer["kind"] == kind:
                return answer


class Running:
    """A server of its own, and a person connected to it."""

    def __init__(self, folder: Path) -> None:
        workspace = folder / "workspace"
        command = [sys.executable, "-m", "tensight", "start", "--port", "0", "--debugger-port", "0"]
        command += ["--workspace", str(workspace), "--summary-base-dir", str(folder)]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        state = workspace / "server.json"
        wait_until(lambda: state.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, (folder / "log").read_text()
        addresses = json.loads(state.read_text())
        self.debugger: str = addresses["debugger"]
        self.person: Server = tensight.connect(addresses["http"])

    def memory_mb(self, key: str) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{key}:"))
        return int(line.split()[1]) / 1024

    def stop(self) -> None:
        self.person.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started() -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder:
        server = Running(Path(folder))
        try:
            yield server
        finally:
            server.stop()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[max(math.ceil(len(values) * part) - 1, 0)]


def row(what: str, figure: str, beside: str = "", bar: str = "", met: bool | None = None) -> None:
    verdict = "" if met is None else ("yes" if met else "NO")
    print(f"{what:44} {figure:26} {beside:34} {bar:14} {verdict}", flush=True)


# --- steps ---


def trainings(stack: ExitStack, address: str, processes: int, *words: object) -> list[Child]:
    """Start processes spread over the helpers."""
    share = -(-processes // HELPERS)
    starts = range(0, processes, share)
    return [
        stack.enter_context(
            Child(
                "server_training.py", address, "steps", "--first", first,
                "--count", min(share, processes - first), *words,
            )
        )
        for first in starts
    ]  # fmt: skip


def measured_waits(children: list[Child], seconds: float) -> tuple[list[float], float]:
    """Return how long the calls took that ended while all ran, and calls per second."""
    time.sleep(1.0)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    for child in children:
        child.order("stop")
    found = [wait for child in children for wait in child.answer("waits")["waits"]]
    inside = [took for ended, took in found if begin <= ended < end]
    return inside, len(inside) / (end - begin)


def steps(options: argparse.Namespace) -> None:
    count, seconds = options.processes, options.seconds
    with ExitStack() as stack:
        peer = stack.enter_context(Child("server_peers.py", "grpc"))
        children = trainings(stack, f"127.0.0.1:{peer.line()}", count)
        plain, plain_rate = measured_waits(children, seconds)
    with ExitStack() as stack:
        server = stack.enter_context(started())
        children = trainings(stack, server.debugger, count)
        sessions = settled(server.person, count)
        for session in sessions:
            session.continue_()
        ours, rate = measured_waits(children, seconds)
        memory = server.memory_mb("VmRSS")
    row(
        f"{count} jobs, step round trip, all at once", f"median {median(ours) * 1000:.1f} ms",
        f"plain gRPC {median(plain) * 1000:.1f} ms",
    )  # fmt: skip
    row("  99th percentile", f"{quantile(ours, 0.99) * 1000:.1f} ms", f"{quantile(plain, 0.99) * 1000:.1f} ms")
    row("  steps per second, all together", f"{rate:,.0f}", f"{plain_rate:,.0f} (ratio {rate / plain_rate:.2f})")
    row("  memory of the server", f"{memory:.0f} MB")
    with ExitStack() as stack:
        server = stack.enter_context(started())
        children = trainings(stack, server.debugger, count, "--job", "bench", "--world", count)
        (session,) = settled(server.person, 1)
        wait_until(lambda: len(session.summary.ranks) == count and session.state.value == "paused")
        session.continue_()
        _, rate = measured_waits(children, seconds)
    row(f"{count} ranks in lockstep", f"{count / rate * 1000:.1f} ms a step", f"{rate:,.0f} waits per second")


def settled(person: Server, count: int) -> list[Session]:
    """Return the sessions when there are so many and all stand still."""
    wait_until(lambda: len(person.sessions()) == count)
    sessions = person.sessions()
    for session in sessions:
        session.wait(PATIENCE_S)
    return sessions


# --- events ---


def latencies(stack: ExitStack, url: str, count: int, act: Callable[[int], None], repeats: int) -> dict[int, float]:
    """Return for each event that all subscribers got the seconds until the last one had it."""
    share = -(-count // HELPERS)
    children = [
        stack.enter_context(Child("server_subscribers.py", url, min(share, count - first)))
        for first in range(0, count, share)
    ]
    for child in children:
        assert child.line() == "ready"
    for number in range(repeats):
        act(number)
        time.sleep(0.1)
    for child in children:
        child.end_orders()
    found = [json.loads(child.line()) for child in children]
    complete = [number for number in found[0] if sum(each.get(number, [0])[0] for each in found) == count]
    return {int(number): max(each[number][1] for each in found) for number in complete}


def events(options: argparse.Namespace) -> None:
    count, repeats = options.subscribers, options.repeats * 10
    with ExitStack() as stack:
        peer = stack.enter_context(Child("server_peers.py", "events"))
        port = peer.line()
        filler = "x" * 1500
        plain = latencies(
            stack, f"ws://127.0.0.1:{port}", count,
            lambda number: peer.order(json.dumps({"number": number, "filler": filler})), repeats,
        )  # fmt: skip
    with ExitStack() as stack:
        server = stack.enter_context(started())
        stack.enter_context(Child("server_training.py", server.debugger, "steps"))
        (session,) = settled(server.person, 1)
        watchpoint = session.watch("tensor_overflow")
        before = session.summary.last_event
        url = server.person.url.replace("http", "ws", 1)
        path = f"{url}/api/v1/sessions/{session.id}/events/stream?after={before}"

        def act(number: int) -> None:
            session.change_watchpoint(watchpoint, enabled=bool(number % 2))

        ours = latencies(stack, path, count, act, repeats)
    assert len(ours) >= repeats <= len(plain), (len(ours), len(plain))
    row(
        f"event to the last of {count} subscribers", f"median {median(ours.values()) * 1000:.1f} ms",
        f"bare broadcast {median(plain.values()) * 1000:.1f} ms",
    )  # fmt: skip
    row("  longest", f"{max(ours.values()) * 1000:.1f} ms", f"{max(plain.values()) * 1000:.1f} ms")


# --- tensor ---


def tensor(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        peer = stack.enter_context(Child("server_peers.py", "grpc"))
        plain_address = f"127.0.0.1:{peer.line()}"
        server = stack.enter_context(started())
        child = stack.enter_context(Child("server_training.py", server.debugger, "tensor", "--mib", options.mib))
        (session,) = settled(server.person, 1)
        session.watch("tensor_overflow")
        memory = {key: server.memory_mb(key) for key in ("VmHWM", "RssAnon")}
        plain, ours, first_slice, later_slices = [], [], [], []
        for number in range(options.repeats):
            child.order(f"stream {plain_address}")
            plain.append(rate(child.answer("tensor")))
            if number:
                session.step()
                session.wait(PATIENCE_S)
            handle = session.tensor("big.weight")
            begin = time.perf_counter()
            assert handle.slice("[0:100, 0:1000]").shape == (100, 1000)
            asked = time.perf_counter() - begin
            streamed = child.answer("tensor")
            ours.append(rate(streamed))
            first_slice.append(asked - (streamed["end"] - streamed["begin"]))
            later_slices += [timed(partial(handle.slice, "[-100:, 0:1000]")) for _ in range(10)]
        pictures = [timed(partial(handle.heat_map, "[0:1000, :]")) for _ in range(5)]
        growth = {key: server.memory_mb(key) - before for key, before in memory.items()}
    ratio = median(ours) / median(plain)
    row(
        f"{options.mib} MiB streamed", f"{median(ours):.2f} GB/s",
        f"plain gRPC {median(plain):.2f} GB/s (ratio {ratio:.2f})", "ratio >= 0.60", ratio >= 0.6,
    )  # fmt: skip
    row(
        "  peak memory of the server grew by", f"{growth['VmHWM']:.0f} MB",
        f"afterwards {growth['RssAnon']:.0f} MB more", "<= 512 MB", growth["VmHWM"] <= 512,
    )  # fmt: skip
    row("  the first slice, after the stream's end", f"{median(first_slice) * 1000:.0f} ms")
    row(
        "  a slice of 100,000 elements", f"median {median(later_slices) * 1000:.0f} ms",
        f"longest {max(later_slices) * 1000:.0f} ms", "<= 100 ms", median(later_slices) <= 0.1,
    )  # fmt: skip
    row("  a picture of 8,192,000 elements", f"median {median(pictures) * 1000:.0f} ms")


def rate(streamed: dict[str, Any]) -> float:
    assert streamed["status"] == 0, streamed
    return float(streamed["bytes"]) / (streamed["end"] - streamed["begin"]) / 1e9


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


# --- graph ---


def graph(options: argparse.Namespace) -> None:
    from graph_parse import READ

    searches, plain = [], []
    with ExitStack() as stack:
        peer = stack.enter_context(Child("server_peers.py", "grpc"))
        address = f"127.0.0.1:{peer.line()}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ms_output_trace_code_graph_0.pb"
            write = [sys.executable, str(HERE / "graph_parse.py"), "--nodes", str(options.nodes), "--write", str(path)]
            subprocess.run(write, check=True)
            parse = [sys.executable, "-c", READ, str(path)]
            parsed = [
                json.loads(subprocess.run(parse, check=True, capture_output=True).stdout)["parse_s"]
                for _ in range(options.repeats)
            ]
        for _ in range(options.repeats):
            with Child("server_training.py", address, "graph", "--nodes", options.nodes) as child:
                sent = child.answer("graph")
                plain.append(sent["end"] - sent["begin"])
    memory, again = [], []
    for _ in range(options.repeats):
        with ExitStack() as stack:
            server = stack.enter_context(started())
            child = stack.enter_context(Child("server_training.py", server.debugger, "graph", "--nodes", options.nodes))
            session = server.person.wait_for_session(PATIENCE_S, name="bench-0")
            session.wait(PATIENCE_S)
            found = session.nodes("layer_7-GeLU")
            end = time.monotonic()
            assert len(found) > 0
            sent = child.answer("graph")
            searches.append(end - sent["begin"])
            again.append(timed(partial(session.nodes, "layer_8-Add")))
            memory.append(server.memory_mb("VmHWM"))
    alone = median(plain) + median(parsed)
    row(
        f"{options.nodes:,} operators, sent and searched", f"median {median(searches):.2f} s",
        f"gRPC {median(plain):.2f} s + parsing {median(parsed):.2f} s (ratio {median(searches) / alone:.2f})",
        "<= 5 s", median(searches) <= 5,
    )  # fmt: skip
    row("  another search", f"{median(again) * 1000:.0f} ms", f"of {sent['bytes'] / 2**20:.0f} MiB of graph")
    row("  peak memory of the server", f"{max(memory):.0f} MB")


# --- answers ---


class Prober:
    """Asks the API again and again, in a thread, and remembers how long each answer took."""

    def __init__(self, url: str, paths: list[str]) -> None:
        self._url, self._paths = url, paths
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers: list[tuple[float, float, str]] = []
        """When each was asked for, the seconds until it was there, and the path."""

    def __enter__(self) -> Prober:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx.Client(base_url=f"{self._url}/api/v1", timeout=PATIENCE_S) as browser:
            while not self._ended.is_set():
                for path in self._paths:
                    begin = time.monotonic()
                    browser.get(path).raise_for_status()
                    self.answers.append((begin, time.monotonic() - begin, path))
                time.sleep(0.01)

    def between(self, begin: float, end: float) -> list[tuple[float, str]]:
        """Return the seconds and paths of the answers that were waited for at some time between two moments."""
        return [(took, path) for asked, took, path in self.answers if asked < end and asked + took > begin]


def answers(options: argparse.Namespace) -> None:
    # Every fourth operator reads a parameter of its own; there are an input and a constant, too.
    real = ["graph", "--nodes", (options.most_nodes - 2) * 4 // 5]
    for what, words in {"a real graph": real, "two-byte nodes": ["bare", "--nodes", options.most_nodes]}.items():
        with ExitStack() as stack:
            server = stack.enter_context(started())
            stack.enter_context(Child("server_training.py", server.debugger, "graph", "--first", 1))
            (small,) = settled(server.person, 1)
            here = f"/sessions/{small.id}"
            paths = ["/sessions", here, f"{here}/tree", f"{here}/nodes?name=MatMul", f"{here}/events"]
            with Prober(server.person.url, paths) as prober:
                first = stack.enter_context(Child("server_training.py", server.debugger, *words))
                sent = first.answer("graph")
                large = next(session for session in server.person.sessions() if session.id != small.id)
                large.wait(PATIENCE_S)
                opened = time.monotonic()
                with httpx.Client(base_url=f"{server.person.url}/api/v1", timeout=PATIENCE_S) as browser:
                    for path in ("graphs", "tree?limit=100", "nodes?name=MatMul&limit=100"):
                        browser.get(f"/sessions/{large.id}/{path}").raise_for_status()
                closed = time.monotonic()
            second = stack.enter_context(Child("server_training.py", server.debugger, *words, "--first", 2))
            second.answer("sending")
            time.sleep(3.0)
            server.person.close()
            began = time.monotonic()
            server.process.terminate()
            server.process.wait(PATIENCE_S)
            ending = time.monotonic() - began
        size = f"{sent['bytes'] / 2**20:.0f} MiB"
        for phase, begin, end in (("is sent", sent["begin"], sent["end"]), ("is opened", opened, closed)):
            found = prober.between(begin, end)
            longest, path = max(found)
            row(
                f"{what} ({size}) {phase}: answers", f"longest {longest * 1000:.0f} ms",
                f"median {median(took for took, _ in found) * 1000:.0f} ms of {len(found)}, {end - begin:.1f} s"
                f" ({path.rpartition('/')[2]})", "<= 500 ms", longest <= 0.5,
            )  # fmt: skip
        row(
            "  the server ends in the middle of another",
            f"{ending:.1f} s",
            f"status {server.process.returncode}",
            "<= 10 s",
            ending <= 10,
        )


# --- browse ---


def browse(options: argparse.Namespace) -> None:
    network = "Default/network-WithLossCell/_backbone-LanguageModel/transformer-Transformer/blocks-CellList"
    with ExitStack() as stack:
        server = stack.enter_context(started())
        # Every fourth operator reads a parameter of its own.
        operators = (options.nodes - 2) * 4 // 5
        stack.enter_context(Child("server_training.py", server.debugger, "graph", "--nodes", operators))
        (session,) = settled(server.person, 1)
        browser = stack.enter_context(httpx.Client(base_url=f"{server.person.url}/api/v1"))
        here = f"/sessions/{session.id}"

        def ask(path: str, **parameters: Any) -> float:
            begin = time.perf_counter()
            reply = browser.get(here + path, params=parameters).raise_for_status()
            took = time.perf_counter() - begin
            assert reply.json(), path
            return took

        def watch(selection: str, *edits: dict[str, Any]) -> float:
            wanted = {"condition": "tensor_overflow", "selection": selection, "edits": edits}
            begin = time.perf_counter()
            made = browser.post(f"{here}/watchpoints", json=wanted).raise_for_status().json()
            took = time.perf_counter() - begin
            assert made["nodes"], selection
            browser.delete(f"{here}/watchpoints/{made['id']}").raise_for_status()
            return took

        session.watch("tensor_too_large", max_gt=1, on="all")
        ask("")
        plain = [ask("") for _ in range(20)]
        last_page = operators // 40 - 100
        rows = {
            "a page of the tree": (
                ask("/tree", scope=network, limit=100),
                [ask("/tree", scope=network, limit=100, offset=last_page * turn // 20) for turn in range(20)],
            ),
            "a level drawn": (
                ask("/level", scope=network, limit=5000),
                [ask("/level", scope=f"{network}/{block}-Block") for block in range(20)],
            ),
            "a selection of types": (watch("type:MatMul"), [watch("type:MatMul,GeLU") for _ in range(20)]),
            "a selection of names": (watch("name:MatMul"), [watch(f"name:layer_{turn}-") for turn in range(20)]),
            "a selection of all, a scope left out": (
                watch("all"),
                [watch("all", {"add": False, "path": f"{network}/{turn}-Block"}) for turn in range(20)],
            ),
        }
    row(f"{options.nodes:,} nodes: a request that reads none", f"median {median(plain) * 1000:.0f} ms")
    for what, (first, later) in rows.items():
        row(
            f"  {what}", f"median {median(later) * 1000:.0f} ms",
            f"longest {max(later) * 1000:.0f} ms, the first {first * 1000:.0f} ms", "<= 200 ms", median(later) <= 0.2,
        )  # fmt: skip


# --- hits ---


def hits(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(started())
        child = stack.enter_context(
            Child("server_training.py", server.debugger, "hits", "--nodes", options.hits * 4 // 5)
        )
        browser = stack.enter_context(httpx.Client(base_url=server.person.url))
        (session,) = settled(server.person, 1)
        session.watch("tensor_too_large", max_gt=1, on="all")
        paused, first, pages, listed = [], [], [], []
        for _ in range(options.repeats):
            session.step()
            record = session.wait(PATIENCE_S)
            seen = time.monotonic()
            page = browser.get(f"/api/v1/sessions/{session.id}/hits", params={"limit": 10}).json()
            done = time.monotonic()
            sent = child.answer("hits")
            assert record.hits == sent["count"] == page["total"] >= options.hits, (record.hits, sent, page["total"])
            paused.append(seen - sent["end"])
            first.append(done - seen)
            listed.append(done - sent["end"])
            pages.append(timed(lambda: list(session.hits())))
    row(
        f"{sent['count']:,} hits in one step, listed after", f"median {median(listed) * 1000:.0f} ms",
        f"longest {max(listed) * 1000:.0f} ms", "<= 200 ms", median(listed) <= 0.2,
    )  # fmt: skip
    row("  of these until the session is seen to stand", f"{median(paused) * 1000:.0f} ms")
    row("  and one request for the first ten of them", f"{median(first) * 1000:.0f} ms")
    row("  all of them, 500 a request", f"{median(pages) * 1000:.0f} ms")


PARTS = {
    "steps": steps,
    "events": events,
    "tensor": tensor,
    "graph": graph,
    "answers": answers,
    "browse": browse,
    "hits": hits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--subscribers", type=int, default=200)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--most-nodes", type=int, default=500_000, help="of the graph that is taken in meanwhile")
    parser.add_argument("--hits", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the steps are measured")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    row("", "tensight", "beside", "bar")
    for part in options.only:
        PARTS[part](options)


if __name__ == "__main__":
    main()
