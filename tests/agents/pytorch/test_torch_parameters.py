"""Weights, buffers, gradients and states of optimizers: their names, roles, links and values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tensight.agents.core.graph_messages import graph_message
from tensight.graph.optimizers import parameter_roles
from tensight.graph.parsing import parse_graph_proto
from tests.agents.pytorch.seen_steps import Seen, SeenStep


def roles(step: SeenStep) -> dict[str, str]:
    return {node.name: node.role for node in step.program.nodes if node.role not in ("operator", "input")}


def test_each_has_its_role_and_the_graph_tells_what_is_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[2].bias.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            model(torch.randn(4, 2)).sum().backward()
            optimizer.step()
    step = seen.steps[-1]
    found = roles(step)
    assert found["0.weight"] == "weight"
    assert found["2.bias"] == "frozen_weight"
    assert found["1.running_mean"] == "buffer"
    assert found["exp_avg.0.weight"] == found["exp_avg_sq.1.bias"] == "state"
    assert not any(name.startswith("step.") for name in found)
    assert step.of("exp_avg.0.weight").count == 6
    graph = parse_graph_proto(graph_message(step.program), where="here")
    known = parameter_roles(graph)
    assert known.trainable == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight"}
    assert "exp_avg.0.weight" in known.states
    assert "2.bias" in known.frozen


def test_an_update_reads_the_weight_its_states_and_its_gradient() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            model(torch.randn(4, 2)).sum().backward()
            optimizer.step()
    update = seen.steps[-1].node("Optimizer/weight/ApplySGD-op0")
    assert [source and source[0] for source in update.inputs] == [
        "weight",
        "momentum_buffer.weight",
        "Gradients/Default/weight/AccumulateGrad-op0",
    ]
    assert update.stack[0].code == "optimizer.step()"
    # States that come with the first update make no other graph.
    assert {step.program.name for step in seen.steps} == {"kernel_graph_0"}


def test_a_weight_is_frozen_if_it_needs_no_gradient_and_not_if_the_optimizer_was_not_given_it() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
    found = roles(seen.steps[0])
    assert found["0.weight"] == "frozen_weight"
    assert found["1.weight"] == "weight"


def test_what_no_gradient_reaches_and_no_optimizer_has_is_not_trained_until_one_of_both_changes() -> None:
    model, target = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, target, optimizer) as seen:
        for number in range(4):
            if number == 2:
                optimizer.add_param_group({"params": list(target.parameters())})
            with torch.set_grad_enabled(number == 3):
                wanted = target(torch.ones(4, 2))
            (model(torch.randn(4, 2)) - wanted).sum().backward()
            optimizer.step()
    steps = [roles(step)["Linear.weight"] for step in seen.steps]
    assert steps == ["frozen_weight", "frozen_weight", "weight", "weight"]
    assert seen.debugger._parameters.idle == set()


def test_a_weight_whose_optimizer_is_gone_is_idle_and_one_that_no_optimizer_ever_had_is_not() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    with Seen(model) as seen:
        for trained in ([*model[0].parameters(), *model[2].parameters()], model[2].parameters()):
            optimizer = torch.optim.Adam(trained, 0.1)
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
            # The next one may get its identity.
            del optimizer
    assert len(seen.steps) == 10
    assert seen.debugger._parameters.idle == {"0.weight", "0.bias"}
    assert roles(seen.steps[-1])["1.weight"] == "weight"
    assert seen.agent.reports == []


def test_gradients_are_what_the_optimizer_reads_clipped_as_they_are() -> None:
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        (model(torch.randn(4, 8)) * 1e6).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    norms = [seen.steps[0].of(f"Gradients/Default/{name}/AccumulateGrad-op0").l2_norm for name in ("weight", "bias")]
    assert sum(norm**2 for norm in norms) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_sparse_gradients_have_the_rows_of_what_they_store() -> None:
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.tensor([1, 1, 4])).sum().backward()
        optimizer.step()
    row = seen.steps[0].of("Gradients/Default/weight/AccumulateGrad-op0")
    assert (row.count, row.max) == (6, 2.0)


def test_a_weight_that_is_replaced_is_observed_where_it_is_now() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        model.weight = nn.Parameter(torch.full((1, 2), 7.0))
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
    assert seen.steps[1].of("weight").max == 7.0


def test_a_model_that_gets_new_modules_shows_them() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        model.append(nn.Linear(2, 1))
        optimizer.add_param_group({"params": list(model[1].parameters())})
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
    assert "1.weight" not in roles(seen.steps[0])
    assert seen.steps[1].of("1.weight").count == 2
    assert "Default/1/Linear-op0" in seen.steps[1].names()


def test_lazy_modules_have_weights_once_they_have_run() -> None:
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    with Seen(model) as seen:
        optimizer = None
        for _ in range(2):
            output = model(torch.randn(4, 2)).sum()
            optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
            output.backward()
            optimizer.step()
    assert seen.steps[-1].of("0.weight").shape == (3, 2)
    assert seen.steps[-1].names("Default/0") == ["Default/0/Linear-op0"]


def test_a_loaded_checkpoint_of_the_optimizer_is_followed() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            model(torch.randn(4, 2)).sum().backward()
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        model(torch.randn(4, 2)).sum().backward()
        optimizer.step()
        expected = float(optimizer.state[model.weight]["exp_avg"].abs().mean())
    assert seen.steps[-1].of("exp_avg.weight").abs_mean == pytest.approx(expected)
