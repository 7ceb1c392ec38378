"""First values with which a network does not learn, and those that only look so."""

from __future__ import annotations

import io
from collections import OrderedDict
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedModel

from tensight.agents.torch.facts import made_lines
from tests.diagnosis.diagnosed import (
    CLASSES,
    FEATURES,
    Diagnosed,
    Faulty,
    Healthy,
    network,
    replaced_by,
    table_tests,
)
from tests.diagnosis.models import ConvNet, Recurrent, Transformer, generator, train_gan, train_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


def equal_initial_weights(training: Diagnosed) -> None:
    model = network()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    training.train(model)


def convolution_of_ones(training: Diagnosed) -> None:
    model = ConvNet()
    for layer in (model.first, model.second):
        nn.init.constant_(layer.weight, 0.05)
        nn.init.zeros_(layer.bias)
    training.train(model)


def recurrent_cells_of_one_value(training: Diagnosed) -> None:
    model = Recurrent()
    for weight in model.parameters():
        nn.init.constant_(weight, 0.1)
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def feed_forward_layers_of_one_value(training: Diagnosed) -> None:
    model = Transformer()
    for name, weight in model.named_parameters():
        if name.endswith(("up.weight", "down.weight")):
            nn.init.constant_(weight, 0.1)
        if name.endswith("up.bias"):
            nn.init.zeros_(weight)
    train_words(model)


def generator_of_ones(training: Diagnosed) -> None:
    maker = generator()
    for layer in (maker[0], maker[2]):
        nn.init.constant_(layer.weight, 0.02)
        nn.init.zeros_(layer.bias)
    train_gan(training, maker, network(out=1))


def deep(activation: type[nn.Module], deviation: float, depth: int = 8, width: int = FEATURES) -> nn.Sequential:
    """Return layers of one width, whose weights have a standard deviation."""
    layers = [each for _ in range(depth) for each in (nn.Linear(width, width), activation())]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=deviation if name.endswith("weight") else 1e-9)
    return model


def weights_of_a_thousandth(training: Diagnosed) -> None:
    training.train(deep(nn.Tanh, 1e-3, depth=6))


def weights_of_one_and_clipping(training: Diagnosed) -> None:
    """Clipping is all that keeps it from diverging."""
    model = deep(nn.ReLU, 4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def convolutions_that_shrink(training: Diagnosed) -> None:
    layers = [each for _ in range(8) for each in (nn.Conv1d(2, 2, 3, padding=1), nn.LeakyReLU())]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(FEATURES, CLASSES))
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=0.05 if name.endswith("weight") else 1e-9)
    training.inputs = training.inputs.unflatten(1, (2, -1))
    training.train(model)


def residual_branches_that_grow(training: Diagnosed) -> None:
    """Each adds several times what it is given, without a normalization."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branches = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(14))
            self.head = nn.Linear(FEATURES, CLASSES)
            for branch in self.branches:
                nn.init.normal_(branch.weight, std=1.0)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            for branch in self.branches:
                hidden = hidden + branch(hidden).relu()
            result: torch.Tensor = self.head(hidden)
            return result

    model = Residual()
    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))


# --- nothing-loaded ---


def train_loaded(training: Diagnosed, model: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    with replaced_by(made_lines):
        model.load_state_dict(state, strict=False)
    training.train(model)


def weights_of_a_parallel_model(training: Diagnosed) -> None:
    train_loaded(training, ConvNet(), {f"module.{name}": value for name, value in ConvNet().state_dict().items()})


def weights_of_the_body_alone(training: Diagnosed) -> None:
    """The body was saved on its own, and is loaded into the model that holds it."""
    model = nn.ModuleDict({"body": network(out=16), "head": nn.Linear(16, CLASSES)})

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.parts["head"](self.parts["body"](inputs))
            return result

    train_loaded(training, Model(), network(out=16).state_dict())


def weights_of_a_body_of_another_name(training: Diagnosed) -> None:
    def model() -> nn.Module:
        return nn.Sequential(OrderedDict(body=network(out=16), head=nn.Linear(16, CLASSES)))

    state = {name.replace("body", "backbone"): value for name, value in model().state_dict().items()}
    train_loaded(training, model(), state)


@pytest.mark.parametrize("names", ["those of the model", "those of a wrapper"])
def test_a_model_that_is_initialized_anew_for_the_most_part(diagnosed: Diagnosed, tmp_path: Path, names: str) -> None:
    config = GPT2Config(
        vocab_size=20, n_positions=8, n_embd=16, n_layer=2, n_head=2, num_labels=CLASSES, pad_token_id=0
    )
    folder = tmp_path / "model"
    GPT2LMHeadModel(config).save_pretrained(folder)
    if names == "those of a wrapper":
        (folder / "model.safetensors").unlink()
        states = GPT2LMHeadModel(config).state_dict()
        torch.save({f"net.{name}": value for name, value in states.items()}, folder / "pytorch_model.bin")
    original = PreTrainedModel.from_pretrained
    with replaced_by(made_lines):
        model = GPT2ForSequenceClassification.from_pretrained(folder).train()
    assert PreTrainedModel.from_pretrained == original
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(4):
        ids = torch.randint(1, 20, (8, 8))
        optimizer.zero_grad()
        model(ids, labels=ids[:, 0] % CLASSES).loss.backward()
        optimizer.step()
    expected = [("nothing-loaded", "anew")] if names == "those of a wrapper" else []
    assert diagnosed.found() == expected


# --- files ---


@contextmanager
def read_again(*states: Mapping[str, object]) -> Iterator[list[Any]]:
    """What is read of files with these contents, while reading and loading is noted."""
    with replaced_by(made_lines):
        contents = []
        for state in states:
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            contents.append(torch.load(f=file, map_location="cpu"))
        yield contents


def dictionary_merged_by_names(training: Diagnosed) -> None:
    """Names that the model does not have are left out before loading."""
    model = network()
    with read_again(network().state_dict()) as (state,):
        merged = model.state_dict()
        merged.update({f"module.{name}": value for name, value in state.items() if f"module.{name}" in merged})
        model.load_state_dict(merged)
    training.train(model)


def initialized_after_loading(training: Diagnosed) -> None:
    model = network()
    with read_again({"model": network().state_dict()}) as (content,):
        model.load_state_dict(content["model"])
    model[0].reset_parameters()
    model[2].reset_parameters()
    training.train(model)


def states_of_a_run(model: nn.Module) -> dict[str, dict[str, Any]]:
    """The states after 40 steps, written without any."""
    optimizer, schedule = made_for(model)
    state = {
        at: {"step": torch.tensor(40.0), "exp_avg": 0.1 * weight.detach(), "exp_avg_sq": weight.detach() ** 2}
        for at, weight in enumerate(model.parameters())
    }
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict() | {"state": state},
        "schedule": schedule.state_dict() | {"last_epoch": 40},
    }


def resumed_with_momentum(training: Diagnosed) -> None:
    """The schedule is part of a dictionary of its own, and forgotten."""
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    momenta = {at: {"momentum_buffer": 0.1 * weight.detach()} for at, weight in enumerate(model.parameters())}
    with read_again(
        {
            "network": {"state_dict": ConvNet().state_dict()},
            "training": {
                "optim": optimizer.state_dict() | {"state": momenta},
                "sched": schedule.state_dict() | {"last_epoch": 60},
            },
        }
    ) as (content,):
        model.load_state_dict(content["network"]["state_dict"])
        optimizer.load_state_dict(content["training"]["optim"])
    training.train(model, optimizer=optimizer, after=lambda _: schedule.step())


def made_for(model: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 30)


def resumed(*loaded: str) -> Callable[[Diagnosed], None]:
    """A training that loads some of the states of a run."""

    def train(training: Diagnosed) -> None:
        model = network()
        optimizer, schedule = made_for(model)
        with read_again(states_of_a_run(network())) as (content,):
            for name, subject in {"model": model, "optimizer": optimizer, "schedule": schedule}.items():
                if name in loaded:
                    subject.load_state_dict(state_dict=content[name])
        training.train(model, optimizer=optimizer, after=lambda _: schedule.step())

    train.__name__ = "_and_".join(("resumed", *loaded))
    return train


def learnt(training: Diagnosed, updates: int) -> tuple[nn.Module, dict[str, Any]]:
    """A network that was trained by hand, which no one watches, with the states of a run of Adam."""
    model = network()
    weights = [weight.detach().clone().requires_grad_() for weight in model.parameters()]
    for _ in range(updates):
        hidden = nn.functional.linear(training.inputs, weights[0], weights[1]).relu()
        loss = nn.functional.cross_entropy(nn.functional.linear(hidden, weights[2], weights[3]), training.labels)
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight -= 0.5 * gradient
    with torch.no_grad():
        for weight, value in zip(model.parameters(), weights, strict=True):
            weight.copy_(value)
    state = {
        at: {"step": torch.tensor(float(updates)), "exp_avg": 0 * weight, "exp_avg_sq": 0 * weight + 1e-4}
        for at, weight in enumerate(each.detach() for each in model.parameters())
    }
    return model, {"model": model.state_dict(), "optimizer": made_for(model)[0].state_dict() | {"state": state}}


def gone_on(
    change: Callable[[Diagnosed], None], updates: int = 300, *, takes_optimizer: bool = True
) -> Callable[[Diagnosed], None]:
    """A training that goes on from a file, after something has changed."""

    def train(training: Diagnosed) -> None:
        _, states = learnt(training, updates)
        model = network()
        optimizer, _ = made_for(model)
        with read_again(states) as (content,):
            model.load_state_dict(content["model"])
            if takes_optimizer:
                optimizer.load_state_dict(content["optimizer"])
        change(training)
        training.train(model, optimizer=optimizer, steps=80)

    train.__name__ = f"gone_on_with_{change.__name__}_{updates}_{takes_optimizer}"
    return train


def classes_in_another_order(training: Diagnosed) -> None:
    training.labels = (training.labels + 1) % 4


def inputs_of_another_scale(training: Diagnosed) -> None:
    training.inputs = 6 - 5 * training.inputs


def features_in_another_order(training: Diagnosed) -> None:
    training.inputs = training.inputs[:, [2, 3, 4, 5, 6, 7, 0, 1]]


def nothing_else(_: Diagnosed) -> None:
    pass


def average_of_files(training: Diagnosed) -> None:
    model = network()
    with read_again(network().state_dict(), network().state_dict()) as (first, second):
        model.load_state_dict({name: (value + second[name]) / 2 for name, value in first.items()})
    training.train(model)


def weights_of_a_teacher(training: Diagnosed) -> None:
    teacher = network()
    with read_again(network().state_dict()) as (state,):
        teacher.load_state_dict(state)
    training.train(network(), lambda out, _: (out - teacher(training.inputs[: len(out)]).detach()).square().mean())


def weights_of_another_model(training: Diagnosed) -> None:
    train_loaded(training, network(), Recurrent().state_dict())


FAULTY: tuple[Faulty, ...] = (
    (equal_initial_weights, "equal-units", "0.weight"),
    (convolution_of_ones, "equal-units", "first.weight"),
    (recurrent_cells_of_one_value, "equal-units", "cells.weight_hh_l0"),
    (feed_forward_layers_of_one_value, "equal-units", "blocks.0.up.weight"),
    (generator_of_ones, "equal-units", "0.weight"),
    (weights_of_a_thousandth, "scale-by-depth", "shrink"),
    (weights_of_one_and_clipping, "scale-by-depth", "grow"),
    (convolutions_that_shrink, "scale-by-depth", "shrink"),
    (residual_branches_that_grow, "scale-by-depth", "branches.0"),
    (weights_of_a_parallel_model, "nothing-loaded", "such as module.first.weight for first.weight"),
    (weights_of_the_body_alone, "nothing-loaded", "such as 0.weight for parts.body.0.weight"),
    (weights_of_another_model, "nothing-loaded", "none of 6 tensors into Sequential"),
    (weights_of_a_body_of_another_name, "nothing-loaded", "such as backbone.0.weight for body.0.weight"),
    (dictionary_merged_by_names, "nothing-loaded", "none of the 4 weights"),
    (initialized_after_loading, "nothing-loaded", "no longer there"),
    (resumed("model", "optimizer"), "half-resumed", "its schedule begins anew"),
    (resumed("model", "schedule"), "half-resumed", "its optimizer begins anew"),
    (resumed_with_momentum, "half-resumed", "its schedule begins anew"),
    (gone_on(classes_in_another_order), "resumed-as-new", "after 300 updates"),
    (gone_on(inputs_of_another_scale), "resumed-as-new", "after 300 updates"),
    (gone_on(features_in_another_order), "resumed-as-new", "after 300 updates"),
)


def last_layer_of_zeros(training: Diagnosed) -> None:
    model = ConvNet()
    nn.init.zeros_(model.head.weight)
    training.train(model)


def low_rank_branch_of_zeros(training: Diagnosed) -> None:
    model = Transformer()
    nn.init.zeros_(model.blocks[0].get_submodule("down").get_parameter("weight"))
    train_words(model)


def orthogonal_recurrent_cells(training: Diagnosed) -> None:
    """Biases of one value, with matrices that differ."""
    model = Recurrent()
    for weight in model.cells.parameters():
        if weight.dim() > 1:
            nn.init.orthogonal_(weight)
        else:
            nn.init.constant_(weight, 0.5)
    training.train(model)


def recurrent_cells_of_one_value_below_a_random_head(training: Diagnosed) -> None:
    """The head tells the units apart from the first update on."""
    model = Recurrent()
    for weight in model.cells.parameters():
        nn.init.constant_(weight, 0.1)
    training.train(model)


def rows_that_are_repeated(training: Diagnosed) -> None:
    """A wider network is made of a smaller one, with some noise between the copies of its units."""
    model = network()
    with torch.no_grad():
        model[0].weight.copy_(model[0].weight[:8].repeat(2, 1) + 1e-3 * torch.randn(16, FEATURES))
    training.train(model)


def blur_of_each_channel(training: Diagnosed) -> None:
    """Each unit has an input of its own, and so the same first values do not stay so."""
    blur = nn.Conv1d(4, 4, 3, padding=1, groups=4)
    nn.init.constant_(blur.weight, 1 / 3)
    training.inputs = training.inputs.unflatten(1, (4, -1))
    training.train(nn.Sequential(blur, nn.Flatten(), nn.Linear(FEATURES, CLASSES)))


def identity_of_each_layer(training: Diagnosed) -> None:
    model = deep(nn.ReLU, 0.1)
    with torch.no_grad():
        for layer in model[:-1:2]:
            nn.init.eye_(layer.weight)
    training.train(model)


def deep_by_width(training: Diagnosed) -> None:
    """The standard deviation that keeps the scale with rectified units."""
    training.train(deep(nn.ReLU, (2 / FEATURES) ** 0.5, depth=12))


def large_weights_between_norms(training: Diagnosed) -> None:
    layers = [each for _ in range(6) for each in (nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    for layer in model[::3]:
        nn.init.normal_(layer.weight, std=4.0)
    model[-1].reset_parameters()
    training.train(model)


def narrow_autoencoder(training: Diagnosed) -> None:
    """Its code is smaller than what it reads, in width and in scale."""
    widths = (FEATURES, 6, 4, 2, 4, 6, FEATURES)
    layers = [each for pair in pairwise(widths) for each in (nn.Linear(*pair), nn.Tanh())]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), inputs).backward()
        optimizer.step()


def weights_without_those_of_the_head(training: Diagnosed) -> None:
    state = ConvNet().state_dict()
    train_loaded(training, ConvNet(), {name: value for name, value in state.items() if "head" not in name})


def weights_with_a_head_for_another_task(training: Diagnosed) -> None:
    state = {f"old_{name}" if "head" in name else name: value for name, value in ConvNet().state_dict().items()}
    train_loaded(training, ConvNet(), state)


HEALTHY: tuple[Healthy, ...] = (
    (last_layer_of_zeros, "equal-units"),
    (low_rank_branch_of_zeros, "equal-units"),
    (orthogonal_recurrent_cells, "equal-units"),
    (recurrent_cells_of_one_value_below_a_random_head, "equal-units"),
    (rows_that_are_repeated, "equal-units"),
    (blur_of_each_channel, "equal-units"),
    (identity_of_each_layer, "scale-by-depth"),
    (deep_by_width, "scale-by-depth"),
    (large_weights_between_norms, "scale-by-depth"),
    (narrow_autoencoder, "scale-by-depth"),
    (weights_without_those_of_the_head, "nothing-loaded"),
    (weights_with_a_head_for_another_task, "nothing-loaded"),
    (average_of_files, "nothing-loaded"),
    (weights_of_a_teacher, "nothing-loaded"),
    (resumed("model"), "half-resumed"),
    (gone_on(nothing_else), "resumed-as-new"),
    (gone_on(nothing_else, 1), "resumed-as-new"),
    (gone_on(classes_in_another_order, takes_optimizer=False), "resumed-as-new"),
    (resumed("model", "optimizer", "schedule"), "half-resumed"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
