"""When a step ends, for all the ways in which optimizers are used."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import tensight
from tensight.agents.core.slots import Need
from tensight.agents.torch import operators
from tensight.sessions.records import State
from tests.agents.pytorch.seen_steps import Seen
from tests.agents.pytorch.trainings import descend
from tests.agents.pytorch.watched_training import PATIENCE_S, Person, debug

if TYPE_CHECKING:
    from tests.server.running import RunningServer


def batch() -> torch.Tensor:
    return torch.randn(4, 2)


def test_a_step_ends_with_the_update_and_weights_are_those_after_it() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        assert seen.agent.initial is not None
        assert seen.agent.initial.of("weight").mean == pytest.approx(float(model.weight.detach().mean()))
        for number in range(3):
            optimizer.zero_grad()
            model(batch()).sum().backward()
            gradient = model.weight.grad
            assert gradient is not None
            norm = float(gradient.double().norm())
            optimizer.step()
            step = seen.steps[number]
            assert step.of("weight").mean == pytest.approx(float(model.weight.detach().mean()))
            assert step.of("Gradients/Default/weight/AccumulateGrad-op0").l2_norm == pytest.approx(norm)
    assert len(seen.steps) == 3


def test_accumulated_gradients_are_one_step_of_several_calls() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for number in range(6):
            model(batch()).sum().backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    assert len(seen.steps) == 2
    assert seen.steps[0].names("Default/Linear") == [f"Default/Linear-op{number}" for number in range(3)]
    assert seen.steps[0].program is seen.steps[1].program


def test_with_several_optimizers_a_step_ends_when_each_has_updated() -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    one, two = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters(), 0.1)
    with Seen(first, two, second, one) as seen:
        for _ in range(3):
            second(first(batch())).sum().backward()
            one.step()
            two.step()
    assert len(seen.steps) == 3
    assert {"weight", "Linear.weight", "exp_avg.Linear.weight"} <= {node.name for node in seen.steps[-1].program.nodes}


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_model_that_is_made_anew_is_followed_also_where_nobody_watches(capture: Any) -> None:
    with Seen(capture=capture) as seen:
        made = []
        for _ in range(2):
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            made.append((model, optimizer))
            for _ in range(4):
                optimizer.zero_grad()
                model(batch()).sum().backward()
                optimizer.step()
            seen.agent.capturing = False
    assert len(seen.steps) == 7
    assert [node.name for node in seen.steps[-1].program.nodes if node.role == "weight"] == [
        *("weight", "bias", "Linear.weight", "Linear.bias")
    ]


@pytest.mark.parametrize("is_watched", [True, False])
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_model_that_is_trained_before_the_next_one_is_called_is_trained_in_the_same_step(
    capture: Any, is_watched: bool
) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters(), 0.1)
    begun = []
    with Seen(capture=capture) as seen:
        first(batch())
        seen.agent.capturing = is_watched
        for _ in range(3):
            for model, optimizer in zip((first, second), optimizers, strict=True):
                output = model(batch())
                begun.append(len(seen.steps))
                output.sum().backward()
                optimizer.step()
    assert (begun, len(seen.steps)) == ([0, 0, 1, 1, 2, 2], 3)


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_model_that_is_trained_later_holds_no_step_up(capture: Any) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = torch.optim.SGD(first.parameters(), 0.1), torch.optim.Adam(second.parameters(), 0.1)
    begun = []
    with Seen(capture=capture) as seen:
        for _ in range(3):
            output = first(batch())
            begun.append(len(seen.steps))
            output.sum().backward()
            optimizers[0].step()
    assert (begun, len(seen.steps)) == ([0, 1, 2], 3)


def test_an_optimizer_that_updates_more_often_makes_every_update_a_step() -> None:
    critic, generator = nn.Linear(2, 1), nn.Linear(2, 2)
    often, seldom = torch.optim.SGD(critic.parameters(), 0.1), torch.optim.SGD(generator.parameters(), 0.1)
    with Seen(critic, generator, often, seldom) as seen:
        for number in range(9):
            critic(generator(batch())).sum().backward()
            often.step()
            if number % 3 == 2:
                seldom.step()
        before = len(seen.steps)
        critic(generator(batch())).sum().backward()
        often.step()
        seldom.step()
    assert len(seen.steps) == before + 2


def test_an_optimizer_that_never_updates_holds_no_step_up() -> None:
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer, unused = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)
    with Seen(model, other, optimizer, unused) as seen:
        for _ in range(4):
            model(batch()).sum().backward()
            optimizer.step()
    assert len(seen.steps) == 3


def test_optimizers_that_nobody_named_are_found() -> None:
    model = nn.Linear(2, 1)
    early = torch.optim.Adam(model.parameters(), 0.1)
    with Seen(model) as seen:
        model(batch()).sum().backward()
        early.step()
        late = torch.optim.SGD(model.parameters(), 0.1)
        model(batch()).sum().backward()
        late.step()
        early.step()
    assert len(seen.steps) == 2
    assert "exp_avg.weight" in {node.name for node in seen.steps[-1].program.nodes}


def test_optimizers_of_other_models_end_no_step() -> None:
    model, stranger = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer, foreign = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(stranger.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            stranger(batch()).sum().backward()
            foreign.step()
        model(batch()).sum().backward()
        optimizer.step()
    assert len(seen.steps) == 1


def test_an_update_that_a_scaler_leaves_out_ends_a_step() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    with Seen(model, optimizer) as seen:
        for scale in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaled = scaler.scale(model(batch()).sum() * scale)
            assert seen.agent.checks.scaling.applies
            scaled.backward()
            before = model.weight.detach().clone()
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(before, model.weight) == (scale != 1.0)
            assert not seen.agent.checks.scaling.applies
    assert [step.skipped for step in seen.steps] == [False, True, False]
    assert seen.steps[1].of("Gradients/Default/weight/AccumulateGrad-op0").non_finite_count > 0


def test_closures_are_evaluated_within_one_step_and_are_one_program() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    inputs = batch()
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        return loss

    with Seen(model, optimizer) as seen:
        for _ in range(3):
            optimizer.step(closure)
    assert evaluations > 3
    assert len(seen.steps) == 3
    assert {step.program.number for step in seen.steps} == {1}
    assert seen.steps[0].names("Default/0") == ["Default/0/Linear-op0"]
    assert ("Gradients/Default/0/weight/AccumulateGrad-op0", 0, "output") in seen.steps[0].rows


def test_a_closure_given_by_name_returns_what_it_returned() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        loss = model(batch()).sum()
        loss.backward()
        return loss

    with Seen(model, optimizer) as seen:
        assert isinstance(optimizer.step(closure=closure), torch.Tensor)
    assert len(seen.steps) == 1


def test_an_exception_in_an_update_is_the_scripts_own_and_later_steps_count() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def closure() -> torch.Tensor:
        raise ZeroDivisionError

    with Seen(model, optimizer) as seen:
        with pytest.raises(ZeroDivisionError):
            optimizer.step(closure)
        model(batch()).sum().backward()
        optimizer.step()
        model(batch()).sum().backward()
        optimizer.step()
    assert len(seen.steps) == 2


def test_inference_ends_a_step_with_each_call_of_the_outermost_module() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).eval()
    with Seen(model, step_on="forward") as seen, torch.inference_mode():
        for _ in range(3):
            model(batch())
    assert len(seen.steps) == 3
    assert seen.steps[-1].names() == ["Default/0/Linear-op0", "Default/1/Linear-op0"]


def test_a_script_ends_steps_itself_where_no_optimizer_does() -> None:
    model = nn.Linear(2, 1).eval()
    with Seen(model, step_on="call") as seen, torch.no_grad():
        for _ in range(2):
            model(batch())
            model(batch())
            seen.debugger.step()
    assert len(seen.steps) == 2
    assert seen.steps[0].names() == ["Default/Linear-op0", "Default/Linear-op1"]


def test_a_call_of_step_after_an_update_is_not_counted_twice() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(3):
            model(batch()).sum().backward()
            optimizer.step()
            seen.debugger.step()
    assert len(seen.steps) == 3


def test_nothing_is_seen_while_nobody_wants_to_know_and_steps_are_counted_all_the_same() -> None:
    from torch.nn.modules import module as hooks

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for number in range(6):
            model(batch()).sum().backward()
            # What the agent decides at the end of a step counts for the next one.
            seen.agent.capturing = number == 3
            optimizer.step()
            assert bool(hooks._global_forward_hooks) == (number == 3)
    assert len(seen.steps) == 6


def test_when_debugging_ends_within_an_update_other_peoples_hooks_still_run() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    told = []
    with Seen(model, optimizer) as seen:
        handle = register_optimizer_step_post_hook(lambda *_: told.append(1))
        try:

            def fail(*_: object, **__: object) -> None:
                raise ValueError("planted")

            seen.agent.step_done = fail  # type: ignore[method-assign]
            for _ in range(3):
                model(batch()).sum().backward()
                optimizer.step()
        finally:
            handle.remove()
    assert told == [1, 1, 1]
    assert seen.agent.closed


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_updates_of_another_model_are_reported_within_the_first_steps(capture: str) -> None:
    replaced = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(replaced.parameters(), 0.1)
    model = nn.Linear(2, 1)
    with Seen(model, capture=capture) as seen:
        for _ in range(40):
            model(batch()).sum().backward()
            optimizer.step()
            if optimizer.param_groups and len(seen.agent.reports) == 1:
                break
        assert seen.steps == []
        assert len(seen.agent.reports) == 1
        assert "3 updates by SGD are not counted as steps: none of its parameters belongs" in seen.agent.reports[0]
        for _ in range(40):
            model(batch()).sum().backward()
            optimizer.step()
        assert len(seen.agent.reports) == 1


def test_an_optimizer_of_a_tensor_beside_that_of_the_model_is_nothing_to_report() -> None:
    model, temperature = nn.Linear(2, 1), torch.zeros(1, requires_grad=True)
    optimizer, beside = torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD([temperature], 0.1)
    with Seen(model) as seen:
        for _ in range(40):
            (model(batch()).sum() * temperature.exp()).backward()
            optimizer.step()
            beside.step()
        assert seen.agent.reports == []


class ReadsTheSummary(Person):
    """Watches a training that goes on by itself, and reads what the session says of it."""

    def debug(self, url: str, job: str) -> Any:
        with tensight.connect(url) as server:
            session = server.wait_for_session(PATIENCE_S, name=job)
            session.wait(PATIENCE_S)
            session.continue_()
            reported = session.wait_until(lambda record: bool(record.message), PATIENCE_S).message
            return reported, session.wait(PATIENCE_S)


def test_what_becomes_no_step_is_read_where_the_session_is_looked_at(torch_server: RunningServer) -> None:
    made_before, model = nn.Linear(2, 1), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(made_before.parameters(), 0.1)
    training = descend(model, optimizer, lambda _: model(batch()).sum())
    reported, last = debug(torch_server, training, 4, person=ReadsTheSummary())
    assert reported.startswith("3 updates by SGD are not counted as steps: none of its parameters belongs")
    assert (last.state, last.step, last.message) == (State.FINISHED, 0, reported)


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_backward_passes_without_any_update_are_reported(capture: str) -> None:
    model = nn.Linear(2, 1)
    with Seen(model, capture=capture) as seen:
        for _ in range(40):
            model.zero_grad()
            model(batch()).sum().backward()
        (report,) = seen.agent.reports
        assert report.startswith("33 backward passes since step 0, and no update by an optimizer")


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_updates_in_another_thread_are_reported(capture: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train() -> None:
        for _ in range(5):
            model(batch()).sum().backward()
            optimizer.step()

    with Seen(model, optimizer, capture=capture) as seen:
        thread = threading.Thread(target=train, name="trainer")
        thread.start()
        thread.join()
        (report,) = seen.agent.reports
        assert "3 updates by SGD in thread 'trainer' are not counted as steps: only thread" in report


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_steps_in_which_no_model_was_called_are_reported_with_the_reason(capture: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer, capture=capture) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.linear(batch(), model.weight, model.bias).sum().backward()
            optimizer.step()
        (report,) = seen.agent.reports
        assert report.startswith("3 steps were counted, and no call of a model was seen in them: it is called in")


def test_what_is_healthy_is_not_reported() -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=50, tolerance_grad=0, tolerance_change=0)
    inputs = batch()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(inputs) - 1).square().mean()
        loss.backward()
        return loss

    with Seen(model, optimizer) as seen:
        for _ in range(3):
            optimizer.step(closure)
        for _ in range(4):
            for _ in range(16):
                model(inputs).sum().backward()
            optimizer.step(closure)
        assert seen.agent.reports == []


class Wrapping(torch.optim.Optimizer):
    """Hands on to another optimizer what it is asked to do, as those of Accelerate do."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("wrapper_first", [True, False])
def test_an_optimizer_and_what_wraps_it_are_one(wrapper_first: bool, capture: str) -> None:
    model = nn.Linear(2, 1)
    inner = torch.optim.SGD(model.parameters(), 0.1)
    outer = Wrapping(inner)
    with Seen(model, *((outer, inner) if wrapper_first else (inner, outer)), capture=capture) as seen:
        for _ in range(4):
            inner.zero_grad()
            model(batch()).sum().backward()
            outer.step()
    assert len(seen.steps) == 4


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_calls_that_no_step_ends_are_reported_until_there_is_a_step(capture: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, capture=capture) as seen:
        for _ in range(100):
            with torch.no_grad():
                model(batch())
        (report,) = seen.agent.reports
        assert report.startswith("64 calls of a model were seen, and no backward pass and no update by an optimizer")
        # As in reinforcement learning, where many games are played before the first update.
        model(batch()).sum().backward()
        optimizer.step()
        assert seen.agent.reports == []


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_many_layers_that_are_called_one_after_another_are_one_forward_pass(capture: str) -> None:
    layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(80))
    optimizer = torch.optim.SGD(layers.parameters(), 0.1)
    with Seen(layers, capture=capture) as seen:
        hidden = batch()
        for layer in layers:
            hidden = layer(hidden)
        assert seen.agent.reports == []
        hidden.sum().backward()
        optimizer.step()
    assert len(seen.steps) == 1


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_the_call_at_which_the_debugger_attaches_is_one_call_of_one_model(capture: str) -> None:
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(70)))
    with Seen(capture=capture, step_on="forward") as seen, torch.no_grad():
        for _ in range(2):
            model(batch())
        assert (len(seen.steps), seen.agent.reports) == (2, [])
    assert len(seen.steps[0].names("Default/")) >= 70


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")  # of what PyTorch itself deprecates
@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_step_that_is_compiled_as_a_whole_is_reported_at_the_end(said: list[str], capture: str) -> None:
    torch._dynamo.reset()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="aot_eager")
    def step(inputs: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    with Seen(capture=capture) as seen:
        for _ in range(4):
            step(batch())
    assert seen.debugger.agent is None
    assert [line.partition(":")[0] for line in said] == ["nothing of this training was debugged"]


def test_tensors_that_are_trained_without_a_module_and_an_optimizer_are_reported(said: list[str]) -> None:
    weight = torch.ones(2, requires_grad=True)
    with Seen() as seen:
        for _ in range(5):
            (batch() @ weight).square().mean().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad = None
        assert seen.debugger.agent is None
        assert [line.partition(",")[0] for line in said] == ["3 backward passes were made"]
        model = nn.Linear(2, 1)
        model(batch()).sum().backward()
        assert len(seen.agent.reports) == 0
        seen.debugger.step()
    assert seen.steps[0].names("Default/L") == ["Default/Linear-op0", "Default/Loss-op0"]


@pytest.mark.parametrize("need", [Need.ROW, Need.NOTHING])
def test_a_script_that_ends_no_step_is_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch, need: Need) -> None:
    monkeypatch.setattr(operators, "MOST_OPERATORS", 100)
    monkeypatch.setattr(operators, "MOST_UNWATCHED", 50)
    model = nn.Linear(2, 1)
    with Seen(model, capture="ops", need=need) as seen:
        seen.agent.capturing = need is Need.ROW
        for _ in range(1000):
            with torch.no_grad():
                model(batch())
        assert len(seen.agent.slot_table) < 400
        seen.agent.capturing = True
        seen.debugger.step()
        model(batch())
        seen.debugger.step()
    assert seen.steps[-1].names()[-1:] == ["Default/addmm-op0"]
