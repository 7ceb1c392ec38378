"""Weights that are frozen by mistake, and those that are frozen on purpose."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import (
    CLASSES,
    FEATURES,
    Diagnosed,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import (
    WIDTH,
    WORDS,
    Attention,
    ConvNet,
    Recurrent,
    Transformer,
    generator,
    next_word,
    train_gan,
    train_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def at_step(step: int, change: Callable[[], object]) -> Callable[[int], object]:
    return lambda now: change() if now == step else None


def train_frozen_from_step_5(
    training: Diagnosed,
    model: nn.Module | None = None,
    part: str = "0",
    make: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    *,
    set_to_none: bool = False,
) -> None:
    """The body is frozen on purpose, after it was trained."""
    model = model or network()
    optimizer = make(model.parameters(), lr=1e-2)
    for step in range(20):
        if step == 4:
            model.get_submodule(part).requires_grad_(False)
        inputs, labels = training.batch()
        optimizer.zero_grad(set_to_none=set_to_none)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def frozen_with_gradients_of_zero(training: Diagnosed) -> None:
    train_frozen_from_step_5(training)


def frozen_with_momentum(training: Diagnosed) -> None:
    train_frozen_from_step_5(training, ConvNet(), "first", partial(torch.optim.SGD, momentum=0.9))


def frozen_cells_that_decay(training: Diagnosed) -> None:
    train_frozen_from_step_5(training, Recurrent(), "cells", partial(torch.optim.SGD, weight_decay=1e-2))


def test_frozen_weights_without_gradients_stand_still(diagnosed: Diagnosed) -> None:
    train_frozen_from_step_5(diagnosed, set_to_none=True)
    assert [rule for rule, _ in diagnosed.found()] == ["frozen-since"]


def frozen_on_the_way(training: Diagnosed) -> None:
    model = network()
    training.train(model, after=at_step(8, lambda: model[0].requires_grad_(False)))


def left_frozen_by_an_evaluation(training: Diagnosed) -> None:
    """After evaluating, gradients of the head alone are switched on again."""
    model = Transformer()

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        value = next_word(out, ids)
        seen.append(value)
        if len(seen) % 6 == 0:
            model.requires_grad_(False)
            model(ids)
            model.head.requires_grad_(True)
        return value

    seen: list[torch.Tensor] = []
    train_words(model, loss)


def critic_that_stays_frozen(training: Diagnosed) -> None:
    """It is frozen for the update of the generator, and never again trained; its loss reaches the generator."""
    maker, critic = generator(), network(out=1)

    def freeze(made: torch.Tensor) -> torch.Tensor:
        steps.append(made)
        critic.requires_grad_(len(steps) < 8)
        return made

    steps: list[torch.Tensor] = []
    train_gan(training, maker, critic, made_for_critic=lambda made: made, made_for_generator=freeze)


def recurrent_cells_frozen_by_a_checkpoint(training: Diagnosed) -> None:
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def save(step: int) -> None:
        if step % 10 == 0:
            for weight in model.cells.parameters():
                weight.requires_grad = False

    training.train(model, optimizer=optimizer, steps=24, after=save)


class Layers(nn.Module):
    """Layers of which each has its number in its name."""

    def __init__(self, name: str, count: int, layer: Callable[[], nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.names = [f"{name}{number}" for number in range(1, count + 1)]
        for each in self.names:
            self.add_module(each, layer())
        self.head = head

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for name in self.names:
            hidden = self.get_submodule(name)(hidden).tanh()
        result: torch.Tensor = self.head(hidden.flatten(1))
        return result


def freeze(model: nn.Module, chosen: Callable[[str], bool]) -> None:
    for name, weight in model.named_parameters():
        weight.requires_grad = not chosen(name)


def first_layer_by_its_name() -> nn.Module:
    return Layers("layer", 11, lambda: nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES))


def layer_1_and_10(training: Diagnosed) -> None:
    model = first_layer_by_its_name()
    freeze(model, lambda name: name.startswith("layer1"))
    training.train(model)


def convolutions_1_and_12(training: Diagnosed) -> None:
    model = Layers("conv", 12, lambda: nn.Conv1d(2, 2, 3, padding=1), nn.Linear(FEATURES, CLASSES))
    training.inputs = training.inputs.unflatten(1, (2, -1))
    freeze(model, lambda name: name.startswith(("conv1", "conv2")))
    training.train(model)


def blocks_1_and_10_of_a_transformer(training: Diagnosed) -> None:
    model = Transformer(depth=12)
    freeze(model, lambda name: "blocks.1" in name)
    train_words(model, steps=8)


class Classifier(nn.Module):
    """A body, and a head as libraries make it: with a bias of zeros."""

    def __init__(self, body: nn.Module, width: int, classes: int = CLASSES) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(inputs))
        return result


class AttentionToOne(Attention):
    """Reads the features as a sentence of one word."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs[:, None]).flatten(1)


def head_frozen_with_its_body(training: Diagnosed) -> None:
    """All is frozen but the adapters, and so is the new head."""
    body = nn.Sequential(network(out=16).requires_grad_(False), nn.Linear(16, 2), nn.Linear(2, 16))
    model = Classifier(body, 16)
    model.head.requires_grad_(False)
    training.train(model)


def new_head_of_a_convolution(training: Diagnosed) -> None:
    model = Classifier(ConvNet(), CLASSES, classes=3)
    training.labels = training.labels.clamp(max=2)
    freeze(model, lambda name: not name.startswith("body"))
    training.train(model)


def norms_trained_below_a_new_head(training: Diagnosed) -> None:
    model = Classifier(AttentionToOne(width=FEATURES), FEATURES)
    freeze(model, lambda name: "norm" not in name)
    training.train(model)


def bias_that_is_trained_alone(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    model.requires_grad_(False)
    model[2].bias.requires_grad_(True)
    training.train(model, optimizer=torch.optim.SGD([model[2].bias], lr=0.1))


def bias_of_a_recurrent_network(training: Diagnosed) -> None:
    model = Recurrent(width=20)
    freeze(model, lambda name: not name.endswith("head.bias"))
    training.train(model)


def bias_of_a_language_model(training: Diagnosed) -> None:
    """Its last layer is named decoder.bias, and all that ends with weight is frozen; so are biases of other layers."""
    model = nn.Sequential(nn.Embedding(WORDS, 64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, WORDS))
    freeze(model, lambda name: name != "3.bias")
    train_words(model)


def switch_of_a_layer(training: Diagnosed) -> None:
    model = network()
    model[0].requires_grad_(False)
    model[0].requires_grad = True
    training.train(model)


def switch_of_the_last_blocks(training: Diagnosed) -> None:
    model = Transformer(depth=2)
    freeze(model, lambda name: not name.startswith("head"))
    for block in model.blocks:
        block.requires_grad = True
    train_words(model)


def switch_of_recurrent_cells(training: Diagnosed) -> None:
    model = Recurrent()
    model.cells.requires_grad_(False)

    def thaw() -> None:
        model.cells.requires_grad = True

    training.train(model, after=at_step(6, thaw))


def body_frozen_as_it_was_made(training: Diagnosed) -> None:
    """A filter of names that matches all but the head; what the untrained body returns tells the classes not apart."""
    body = nn.Sequential(nn.Linear(FEATURES, 64), nn.LayerNorm(64), nn.Dropout(0.9), nn.Linear(64, 2), nn.ReLU())
    body.requires_grad_(False)
    training.labels = training.labels[torch.randperm(len(training.labels))]
    head = nn.Linear(2, CLASSES)
    model = nn.Sequential(body, head)
    training.train(model, optimizer=torch.optim.SGD(head.parameters(), lr=1e-3), steps=80)


def switch_that_should_freeze_a_body(training: Diagnosed) -> None:
    model = Classifier(ConvNet(), CLASSES)
    model.body.requires_grad = False
    training.train(model)


def untrained(body: nn.Module, width: int) -> nn.Module:
    """Return a classifier whose body is frozen as it was made, and tells nothing of its inputs."""
    return Classifier(nn.Sequential(nn.Dropout(0.97), body, nn.Linear(FEATURES, width)).requires_grad_(False), width)


def convolutions_frozen_as_they_were_made(training: Diagnosed) -> None:
    layers = nn.Sequential(nn.Conv1d(1, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.Conv1d(16, 1, 3, padding=1))
    body = nn.Sequential(nn.Unflatten(1, (1, -1)), layers, nn.Flatten())
    model = untrained(body, 2)
    training.labels = training.labels[torch.randperm(len(training.labels))]
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2), steps=80)


def transformer_frozen_as_it_was_made(training: Diagnosed) -> None:
    model = untrained(AttentionToOne(width=FEATURES), 2)
    training.labels = training.labels[torch.randperm(len(training.labels))]
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), steps=80)


FAULTY: tuple[Faulty, ...] = (
    (frozen_on_the_way, "frozen-since", "step 9"),
    (frozen_with_gradients_of_zero, "frozen-moves", "0.weight, 0.bias"),
    (frozen_with_momentum, "frozen-moves", "first.weight"),
    (frozen_cells_that_decay, "frozen-moves", "cells.weight_hh_l0"),
    (left_frozen_by_an_evaluation, "frozen-since", "step 6"),
    (critic_that_stays_frozen, "frozen-since", "step 9"),
    (recurrent_cells_frozen_by_a_checkpoint, "frozen-since", "step 11"),
    (layer_1_and_10, "frozen-by-prefix", "layer10, layer11"),
    (convolutions_1_and_12, "frozen-by-prefix", "conv12"),
    (blocks_1_and_10_of_a_transformer, "frozen-by-prefix", "blocks.10, blocks.11"),
    (head_frozen_with_its_body, "head-frozen", "head"),
    (new_head_of_a_convolution, "head-frozen", "head"),
    (norms_trained_below_a_new_head, "head-frozen", "head"),
    (bias_that_is_trained_alone, "bias-alone", "2.bias"),
    (bias_of_a_recurrent_network, "bias-alone", "head.bias"),
    (bias_of_a_language_model, "bias-alone", "3.bias"),
    (switch_of_a_layer, "switch-of-module", "0"),
    (switch_of_the_last_blocks, "switch-of-module", "blocks.0, blocks.1"),
    (switch_of_recurrent_cells, "switch-of-module", "cells"),
    (switch_that_should_freeze_a_body, "switch-of-module", "body"),
    (convolutions_frozen_as_they_were_made, "frozen-as-made", "body.1.1.0.weight"),
    (transformer_frozen_as_it_was_made, "frozen-as-made", "body.1.query.weight"),
    (body_frozen_as_it_was_made, "frozen-as-made", "0.0.weight"),
)


def critic_frozen_in_turns(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)

    def freezing(made: torch.Tensor) -> torch.Tensor:
        critic.requires_grad_(False)
        return made

    def thawing(made: torch.Tensor) -> torch.Tensor:
        critic.requires_grad_(True)
        return made.detach()

    train_gan(training, maker, critic, made_for_critic=thawing, made_for_generator=freezing)


def body_thawed_after_the_head(training: Diagnosed) -> None:
    model = ConvNet()
    freeze(model, lambda name: not name.startswith("head"))
    training.train(model, after=at_step(8, lambda: model.requires_grad_(True)))


def body_frozen_for_fine_tuning(training: Diagnosed) -> None:
    """A second training, with an optimizer of what is left."""
    model = Transformer()
    train_words(model)
    freeze(model, lambda name: not name.startswith("head"))
    train_words(model, optimizer=torch.optim.SGD(model.head.parameters(), lr=0.05))


def frozen_and_taken_out(training: Diagnosed) -> None:
    """Layers that are done leave the optimizer."""
    model = Recurrent()
    optimizer = torch.optim.Adam([{"params": list(each.parameters())} for each in (model.head, model.cells)], lr=1e-2)

    def freeze_cells() -> None:
        model.cells.requires_grad_(False)
        del optimizer.param_groups[1]

    training.train(model, optimizer=optimizer, steps=24, after=at_step(12, freeze_cells))


def layers_1_and_2(training: Diagnosed) -> None:
    model = first_layer_by_its_name()
    freeze(model, lambda name: name.startswith(("layer1.", "layer2.")))
    training.train(model)


def every_other_layer(training: Diagnosed) -> None:
    model = Transformer(depth=12)
    freeze(model, lambda name: any(f"blocks.{number}." in name for number in range(0, 12, 2)))
    train_words(model, steps=8)


def head_without_a_bias(training: Diagnosed) -> None:
    """A fixed simplex of classes, which the body learns to meet."""
    model = Classifier(network(out=16), 16)
    model.head = nn.Linear(16, CLASSES, bias=False).requires_grad_(False)
    training.train(model)


def head_that_was_trained_before(training: Diagnosed) -> None:
    model = Classifier(network(out=16), 16)
    nn.init.normal_(model.head.bias, std=0.1)
    model.head.requires_grad_(False)
    training.train(model)


def prompts_of_a_frozen_model(training: Diagnosed) -> None:
    class Prompted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.prompt = Transformer(), nn.Parameter(0.1 * torch.randn(2, WIDTH))
            self.model.requires_grad_(False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            hidden = torch.cat([self.prompt.expand(len(ids), -1, -1), self.model.embed(ids)], 1)
            result: torch.Tensor = self.model.head(self.model.norm(self.model.blocks[0](hidden)))[:, 2:]
            return result

    train_words(Prompted())


def biases_of_all_layers(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    for layer in (model[0], model[2]):
        layer.weight.requires_grad_(False)
    training.train(model, optimizer=torch.optim.SGD([model[0].bias, model[2].bias], lr=0.1))


def temperature_of_a_frozen_model(training: Diagnosed) -> None:
    class Calibrated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.scale = network().requires_grad_(False), nn.Parameter(torch.ones(()))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.model(inputs) * self.scale
            return result

    training.train(Calibrated())


def switch_of_a_trained_layer(training: Diagnosed) -> None:
    """It has no effect, and none is needed."""
    model = ConvNet()
    model.head.requires_grad = True
    training.train(model)


def switch_that_works(training: Diagnosed) -> None:
    model = network().requires_grad_(False)
    model[2].requires_grad_(True)
    training.train(model)


def parameters_switched_on(training: Diagnosed) -> None:
    model = Transformer()
    for weight in model.parameters():
        weight.requires_grad = False
    for block in model.blocks:
        for weight in block.parameters():
            weight.requires_grad = True
    train_words(model, lambda out, ids: F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten()))


def layers_frozen_one_after_the_other(training: Diagnosed) -> None:
    """What is near the input is learnt first, and frozen first (FreezeOut)."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def freeze(step: int) -> None:
        if step in (8, 16):
            model[2 * (step // 8 - 1)].requires_grad_(False)

    training.train(model, steps=30, after=freeze)


def random_features(training: Diagnosed) -> None:
    """A body that is frozen as it was made may tell enough of its inputs."""
    body = nn.Sequential(nn.Linear(FEATURES, 64), nn.LayerNorm(64), nn.ReLU()).requires_grad_(False)
    model = Classifier(body, 64)
    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2), steps=80)


def attribute_of_a_frozen_body(training: Diagnosed) -> None:
    """A class of its own notes there that it is frozen, and is."""
    model = Classifier(network(out=16), 16)
    model.body.requires_grad_(False)
    model.body.requires_grad = False
    training.train(model)


def attribute_of_a_body_of_which_the_end_is_trained(training: Diagnosed) -> None:
    model = Classifier(network(out=16), 16)
    model.body[0].requires_grad_(False)
    model.body.requires_grad = False
    training.train(model)


HEALTHY: tuple[Healthy, ...] = (
    (critic_frozen_in_turns, "frozen-since"),
    (critic_frozen_in_turns, "frozen-moves"),
    (body_thawed_after_the_head, "frozen-since"),
    (body_frozen_for_fine_tuning, "frozen-since"),
    (frozen_and_taken_out, "frozen-since"),
    (layers_1_and_2, "frozen-by-prefix"),
    (every_other_layer, "frozen-by-prefix"),
    (head_without_a_bias, "head-frozen"),
    (head_that_was_trained_before, "head-frozen"),
    (prompts_of_a_frozen_model, "head-frozen"),
    (biases_of_all_layers, "bias-alone"),
    (temperature_of_a_frozen_model, "bias-alone"),
    (random_features, "frozen-as-made"),
    (attribute_of_a_frozen_body, "switch-of-module"),
    (attribute_of_a_body_of_which_the_end_is_trained, "switch-of-module"),
    (switch_of_a_trained_layer, "switch-of-module"),
    (switch_that_works, "switch-of-module"),
    (parameters_switched_on, "switch-of-module"),
    (layers_frozen_one_after_the_other, "frozen-since"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
