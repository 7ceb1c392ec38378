"""An unchanged script: models, optimizers and roots are found by themselves; children of forks are left alone."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.utils.data import DataLoader, TensorDataset

from tests.agents.pytorch.seen_steps import Seen


def test_it_begins_with_the_first_call_of_a_model_with_parameters() -> None:
    flatten = nn.Flatten()
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    loss = nn.CrossEntropyLoss()
    with Seen() as seen:
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        inputs = flatten(torch.randn(5, 2, 2))
        assert seen.debugger.agent is None
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(inputs), torch.zeros(5, dtype=torch.long)).backward()
            optimizer.step()
    assert seen.agent.initial is not None
    assert seen.agent.initial.of("0.weight").count == 12
    assert {step.program.number for step in seen.steps} == {1}
    assert seen.steps[0].names("Default/")[:5] == [
        "Default/0/Linear-op0",
        "Default/1/ReLU-op0",
        "Default/2/Linear-op0",
        "Default/CrossEntropyLoss/CrossEntropyLoss-op0",
        "Default/Loss-op0",
    ]


def test_an_optimizer_whose_making_failed_is_none() -> None:
    half_made = torch.optim.AdamW.__new__(torch.optim.AdamW)
    model = nn.Linear(4, 2)
    with Seen() as seen:
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).sum().backward()
            optimizer.step()
    assert len(seen.steps) == 3
    assert not vars(half_made)


def test_parts_that_are_called_themselves_have_the_names_of_the_whole() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(2, 2)
            self.decoder = nn.Linear(2, 2)

    whole = Whole()
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    with Seen() as seen:
        whole.decoder(whole.encoder(torch.randn(3, 2))).sum().backward()
        optimizer.step()
    assert seen.steps[0].names("Default/")[:2] == ["Default/encoder/Linear-op0", "Default/decoder/Linear-op0"]


def test_a_second_model_gets_a_name_beside_the_first() -> None:
    class Critic(nn.Linear):
        """Has a name of its own."""

    generator, critic = nn.Linear(2, 2), Critic(2, 1)
    one, two = torch.optim.SGD(generator.parameters(), 0.1), torch.optim.SGD(critic.parameters(), 0.1)
    with Seen() as seen:
        for _ in range(2):
            critic(generator(torch.randn(3, 2))).sum().backward()
            one.step()
            two.step()
    assert len(seen.steps) == 2
    assert seen.steps[1].names("Default/")[:2] == ["Default/Linear-op0", "Default/Critic/Critic-op0"]
    assert "Critic.weight" in {node.name for node in seen.steps[1].program.nodes}


def test_models_that_have_gone_make_room_for_others_of_their_name() -> None:
    with Seen() as seen:
        for _ in range(3):
            model = nn.Sequential(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(2):
                model(torch.randn(3, 2)).sum().backward()
                optimizer.step()
            del model, optimizer
    assert len(seen.steps) == 6
    assert {step.program.name for step in seen.steps} == {"kernel_graph_0"}


def test_the_child_of_a_fork_has_no_hooks_and_the_parent_goes_on() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
        child = os.fork()
        if not child:
            os._exit(0 if not hooks._global_forward_hooks and torch.autograd.backward.__module__ != __name__ else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
    assert len(seen.steps) == 2


def test_workers_of_a_data_loader_are_left_alone() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(8, 2))
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            for (batch,) in DataLoader(data, batch_size=4, num_workers=1):
                model(batch).sum().backward()
                optimizer.step()
    assert len(seen.steps) == 4
