"""``with tensight.torch.debug(…)`` against a real server: what a person sees, and what the script notices."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import tensight
from tensight.client import Session
from tensight.errors import InputError
from tensight.sessions.records import State
from tests.server.running import RunningServer

PATIENCE_S = 60.0


class Log(nn.Module):
    """Takes a logarithm where it should not, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)
        self.is_sick = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        hidden = torch.log(hidden) if self.is_sick else torch.tanh(hidden)
        return self.second(hidden)


@pytest.fixture
def person() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def where(server: RunningServer, job: str) -> dict[str, Any]:
    host, _, port = str(server.debugger).rpartition(":")
    return {"host": host, "port": int(port), "job": job}


def attended(server: RunningServer, job: str, do: Callable[[Session], Any]) -> Any:
    with tensight.connect(server.url) as connection:
        session = connection.wait_for_session(PATIENCE_S, name=job)
        session.wait(PATIENCE_S)
        try:
            return do(session)
        except BaseException:
            # Else the training would wait for a person who has gone.
            session.terminate()
            raise


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, sick_from: int = 10**9) -> None:
    for number in range(steps):
        model.is_sick = number >= sick_from  # type: ignore[assignment]
        optimizer.zero_grad()
        model(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()


def test_a_nan_stops_the_training_and_values_are_there(torch_server: RunningServer, person: ThreadPoolExecutor) -> None:
    torch.manual_seed(0)
    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    initial = model.first.weight.detach().clone().numpy()

    def look(session: Session) -> dict[str, Any]:
        at_start = session.tensor("first.weight").numpy()
        session.watch("tensor_overflow", on="all")
        record = session.continue_().wait(PATIENCE_S)
        found = {
            "start": at_start,
            "step": record.step,
            "hit": session.hits()[0],
            "origin": session.origins()[0],
            "hidden": session.tensor("Default/Log-op0").numpy(),
        }
        session.terminate()
        return found

    seen = person.submit(attended, torch_server, "nan", look)
    with (
        pytest.raises(SystemExit),
        tensight.torch.debug(model, optimizer, break_at_start=True, **where(torch_server, "nan")),
    ):
        train(model, optimizer, 10, sick_from=3)
    found = seen.result(PATIENCE_S)
    assert np.array_equal(found["start"], initial)
    assert found["step"] == 4
    assert found["hit"].node == "Default/Log-op0"
    assert found["origin"].node == "Default/Log-op0"
    assert found["origin"].certain
    assert found["origin"].stack[0].code == "hidden = torch.log(hidden) if self.is_sick else torch.tanh(hidden)"
    assert np.isnan(found["hidden"]).any()


def test_within_a_step_weights_are_what_operators_read_and_a_recheck_checks(
    torch_server: RunningServer, person: ThreadPoolExecutor
) -> None:
    torch.manual_seed(0)
    model = Log()
    model.second.weight.requires_grad_(False)
    optimizer = torch.optim.SGD([model.first.weight, model.first.bias], 0.1, momentum=0.9)
    history = [model.first.bias.detach().clone().numpy()]
    optimizer.register_step_post_hook(lambda *_: history.append(model.first.bias.detach().clone().numpy()))
    frozen = model.second.weight.detach().clone().numpy()
    operators = "Default/first/addmm-op0", "Default/second/addmm-op0", "Default/second/t-op0"

    def walk_to(session: Session, name: str) -> None:
        while session.next_node().wait(PATIENCE_S).node != name:
            assert session.summary.state is State.PAUSED

    def look(session: Session) -> dict[str, Any]:
        found: dict[str, Any] = {}
        walk_to(session, operators[0])
        found["first"] = session.tensor(operators[0], io="input").numpy()
        session.watch("tensor_too_large", on=f"name:{operators[0]}", max_gt=-1e9)
        session.watch("tensor_too_large", on="weights", max_gt=-1e9)
        found["rechecked"] = (session.recheck().wait(PATIENCE_S).node, [hit.node for hit in session.hits()])
        session.delete_watchpoints()
        session.step(2).wait(PATIENCE_S)
        walk_to(session, operators[1])
        bias, *_ = session.tensors(operators[0])
        found["record"] = (bias.step, bias.status, bias.statistics.count if bias.statistics else 0)
        found["second"] = session.tensor(bias.address).slice()
        found["previous"] = session.tensor("first.bias", step=2).numpy()
        found["frozen"] = session.tensor(operators[2], io="input").numpy()
        session.watch("tensor_overflow")
        found["hit"] = session.continue_().wait(PATIENCE_S).node
        found["at_hit"] = session.tensor(operators[0], io="input").numpy()
        session.delete_watchpoints()
        session.continue_()
        return found

    seen = person.submit(attended, torch_server, "within", look)
    with tensight.torch.debug(model, optimizer, capture="ops", break_at_start=True, **where(torch_server, "within")):
        train(model, optimizer, 6, sick_from=4)
    found = seen.result(PATIENCE_S)
    np.testing.assert_array_equal(found["first"], history[0])
    assert found["rechecked"] == (operators[0], [operators[0]])
    assert found["record"] == (3, "at_source", 8)
    np.testing.assert_array_equal(found["second"], history[2])
    np.testing.assert_array_equal(found["previous"], history[2])
    np.testing.assert_array_equal(found["frozen"], frozen)
    assert found["hit"].startswith("Default/log")
    np.testing.assert_array_equal(found["at_hit"], history[4])


def test_steps_are_taken_one_by_one_with_previous_values(
    torch_server: RunningServer, person: ThreadPoolExecutor
) -> None:
    torch.manual_seed(0)
    model = Log()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    history = [model.first.weight.detach().clone().numpy()]
    optimizer.register_step_post_hook(lambda *_: history.append(model.first.weight.detach().clone().numpy()))

    def look(session: Session) -> list[Any]:
        found = []
        for _ in range(3):
            session.step().wait(PATIENCE_S)
            tensor = session.tensor("first.weight")
            found.append((tensor.numpy(), tensor.previous.numpy()))
        graph = [found.entry.path for found in session.nodes()]
        session.continue_()
        return [found, graph]

    seen = person.submit(attended, torch_server, "steps", look)
    with (
        contextlib.suppress(SystemExit),
        tensight.torch.debug(model, optimizer, break_at_start=True, **where(torch_server, "steps")),
    ):
        train(model, optimizer, 6)
    found, graph = seen.result(PATIENCE_S)
    for number, (current, previous) in enumerate(found):
        assert np.array_equal(current, history[number + 1])
        assert np.array_equal(previous, history[number])
    assert {"Default/first/Linear-op0", "exp_avg.first.weight", "Gradients/Default/second/LinearGrad-op0"} <= set(graph)


def test_exceptions_of_the_block_pass_unchanged_and_without_a_server_all_goes_on(
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    error = KeyError("own")
    with (  # noqa: PT012 - the block is what is tested
        pytest.raises(KeyError) as caught,
        tensight.torch.debug(model, optimizer, port=9, connect_within_s=0.1),
    ):
        train(model, optimizer, 2)
        raise error
    assert caught.value is error
    assert "no debug server" in capfd.readouterr().err


def test_a_second_debugger_stands_back() -> None:
    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tensight.torch.debug(model, optimizer, port=9, connect_within_s=0.1) as outer:
        with tensight.torch.debug(model, optimizer, port=9) as inner:
            train(model, optimizer, 1)
            inner.step()
        train(model, optimizer, 1)
        assert outer.agent is not None
        assert outer.agent.step == 2
        assert inner.agent is None


def test_what_a_cell_of_a_notebook_begins_again_takes_the_place_of_the_first() -> None:
    debuggers = []
    for _ in range(2):
        model = Log()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        debuggers.append(tensight.torch.debug(model, optimizer, port=9))
        debuggers[-1].start()
        train(model, optimizer, 2)
    debuggers[-1].close()
    assert [debugger.agent and debugger.agent.step for debugger in debuggers] == [2, 2]


@pytest.mark.parametrize(("capture", "order"), [("modules", "step"), ("ops", "next_node")])
def test_what_follows_an_interruption_is_debugged_too(
    torch_server: RunningServer, person: ThreadPoolExecutor, capture: Any, order: str
) -> None:
    torch.manual_seed(0)
    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    job, is_interrupted = f"interrupted-{capture}", threading.Event()

    def look(session: Session) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        # The next cell runs, and stops: nobody has told it to go on.
        session.wait_until(lambda record: record.step > 0 and record.state is State.PAUSED, PATIENCE_S)
        getattr(session, order)().wait(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)
        assert is_interrupted.wait(PATIENCE_S)
        session.terminate()

    debugger = tensight.torch.debug(model, optimizer, break_at_start=True, capture=capture, **where(torch_server, job))
    looked = person.submit(attended, torch_server, job, look)
    with pytest.raises(KeyboardInterrupt):
        debugger.start()
    with pytest.raises(KeyboardInterrupt):
        train(model, optimizer, 10**9)
    is_interrupted.set()
    with pytest.raises(SystemExit):
        train(model, optimizer, 10**9)
    looked.result()


def test_wrong_settings_and_subjects_are_refused_before_the_training() -> None:
    with pytest.raises(InputError, match="port"):
        tensight.torch.debug(port=99999)
    with pytest.raises(InputError, match="models and optimizers"):
        tensight.torch.debug("model")


def test_importing_tensight_does_not_import_torch() -> None:
    code = "import sys, tensight; assert 'torch' not in sys.modules; tensight.torch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not hasattr(tensight, "nothing")
    with pytest.raises(AttributeError):
        tensight.torch.nothing  # noqa: B018


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_training_that_nobody_watches_keeps_no_value_longer_than_without_us(
    torch_server: RunningServer, capture: str
) -> None:
    """Values of its first step, held for ever, would have every later step ask the system for memory anew."""
    model = Log()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    outputs: list[weakref.ref[torch.Tensor]] = []
    model.first.register_forward_hook(lambda _, __, output: outputs.append(weakref.ref(output)))
    with tensight.torch.debug(
        model, optimizer, capture=cast("Any", capture), **where(torch_server, f"unwatched-{capture}")
    ) as debugger:
        train(model, optimizer, 3)
        assert debugger.agent is not None
        assert debugger.agent.step == 3
        assert debugger.agent.observed.retention.kept_bytes == 0
        assert [output() for output in outputs] == [None] * 3


@pytest.mark.parametrize(("requested", "says"), [("ops", True), ("modules", False), ("", False)])
def test_a_capture_that_the_script_overrides_is_reported(
    requested: str, says: bool, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSIGHT_CAPTURE", requested)
    tensight.torch.debug(nn.Linear(1, 1), capture="modules")
    assert any("change it in the script" in line for line in said) == says
