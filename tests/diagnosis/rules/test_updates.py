"""Updates without a lasting effect, and trainings whose weights are changed beside their updates for a reason."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

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
from tests.diagnosis.models import (
    ConvNet,
    Recurrent,
    Transformer,
    generator,
    next_word,
    sentences,
    train_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def restored_after_each_step(training: Diagnosed) -> None:
    model = network()
    first = copy.deepcopy(model.state_dict())
    training.train(model, after=lambda _: model.load_state_dict(first))


def best_state_that_is_never_saved_anew(training: Diagnosed) -> None:
    """It goes back to the best weights after each epoch, and those are always the first."""
    model = ConvNet()
    best = copy.deepcopy(model.state_dict())
    training.train(model, steps=24, after=lambda step: model.load_state_dict(best) if step % 4 == 0 else None)


def binary_weights_without_a_latent_copy(training: Diagnosed) -> None:
    """Small updates never change a sign."""
    model = network()

    def binarise(_: int) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(torch.where(weight >= 0, 0.3, -0.3))

    binarise(0)
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), after=binarise)


def train_with_perturbations(training: Diagnosed, model: nn.Module, *, restores_before: bool) -> None:
    """Use the gradient of a point uphill (sharpness-aware minimisation), from which the weights return."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(16):
        inputs, labels = training.batch()
        before = copy.deepcopy(model.state_dict())
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight.add_(0.05 * weight.grad / (weight.grad.norm() + 1e-12))
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        if restores_before:
            model.load_state_dict(before)
        optimizer.step()
        if not restores_before:
            model.load_state_dict(before)


def perturbation_taken_back_after_the_update(training: Diagnosed) -> None:
    train_with_perturbations(training, Recurrent(), restores_before=False)


def copied_from_a_master_that_nobody_updates(training: Diagnosed) -> None:
    """The weights in low precision are those of the master copy before each step, and the optimizer has not that."""
    model = Transformer()
    master = [weight.detach().clone() for weight in model.parameters()]

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(16):
        with torch.no_grad():
            for weight, value in zip(model.parameters(), master, strict=True):
                weight.copy_(value)
        ids = sentences()
        optimizer.zero_grad()
        next_word(model(ids), ids).backward()
        optimizer.step()


def clamping(model: nn.Module, bound: float, *, biases: bool = True) -> Callable[[int], None]:
    def clamp(_: int) -> None:
        for weight in model.parameters():
            if biases or weight.dim() > 1:
                weight.data.clamp_(-bound, bound)

    return clamp


def range_of_a_thousandth(training: Diagnosed) -> None:
    model = network()
    training.train(model, steps=80, after=clamping(model, 1e-3))


def range_of_a_critic_for_a_classifier(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
    training.train(model, optimizer=optimizer, steps=80, after=clamping(model, 0.002, biases=False))


def recurrent_cells_within_a_range(training: Diagnosed) -> None:
    model = Recurrent()
    training.train(model, steps=80, after=clamping(model, 2e-3))


def convolution_by_regression_within_a_range(training: Diagnosed) -> None:
    model = nn.Sequential(ConvNet(), nn.Linear(CLASSES, 1))

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(out[:, 0], labels - 1.5 + 0.1 * torch.randn(len(labels)))

    training.train(model, loss, steps=80, after=clamping(model, 1e-3, biases=False))


def updates_lost_in_bfloat16(training: Diagnosed) -> None:
    model = network().bfloat16()
    training.inputs = training.inputs.bfloat16()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-5))


def adam_on_a_transformer_in_bfloat16(training: Diagnosed) -> None:
    model = Transformer().bfloat16()
    train_words(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5))


def recurrent_cells_in_float16(training: Diagnosed) -> None:
    model = Recurrent().half()
    training.inputs = training.inputs.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    training.train(model, lambda out, labels: F.cross_entropy(out.float(), labels), optimizer)


class Lower(nn.Module):
    """A layer in another precision than those around it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = next(self.layer.parameters()).dtype
        result: torch.Tensor = self.layer(x.to(dtype)).float()
        return result


def with_lower(inside: nn.Module, head: nn.Module) -> nn.Sequential:
    between = (nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
    return nn.Sequential(Lower(inside), nn.ReLU(), *between, Lower(head))


def trained_slowly(training: Diagnosed, model: nn.Module) -> None:
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=5e-5), steps=30)


def head_in_bfloat16(training: Diagnosed) -> None:
    trained_slowly(training, with_lower(nn.Linear(FEATURES, 48), nn.Linear(48, CLASSES).bfloat16()))


def first_layer_in_bfloat16(training: Diagnosed) -> None:
    trained_slowly(training, with_lower(nn.Linear(FEATURES, 48).bfloat16(), nn.Linear(48, CLASSES)))


def assigned_from_a_file_in_bfloat16(training: Diagnosed) -> None:
    model = with_lower(nn.Linear(FEATURES, 48), nn.Linear(48, CLASSES))
    stored = {name: value.bfloat16() for name, value in model[0].state_dict().items()}
    model[0].load_state_dict(stored, assign=True)
    trained_slowly(training, model)


def norms_in_float32(training: Diagnosed) -> None:
    """Most weights are in bfloat16, and move."""
    layers = [nn.Linear(FEATURES, 16).bfloat16(), nn.LayerNorm(16), nn.Linear(16, CLASSES).bfloat16()]
    model = nn.Sequential(*map(Lower, layers))
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))


def adapter_above_a_body_in_bfloat16(training: Diagnosed) -> None:
    model = with_lower(nn.Linear(FEATURES, 48).bfloat16(), nn.Linear(48, CLASSES))
    model[0].requires_grad_(requires_grad=False)
    training.train(model, optimizer=torch.optim.AdamW(list(model.parameters())[2:], lr=5e-4), steps=30)


def head_in_bfloat16_with_a_usual_rate(training: Diagnosed) -> None:
    model = with_lower(nn.Linear(FEATURES, 48), nn.Linear(48, CLASSES).bfloat16())
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=5e-3), steps=30)


def bias_of_a_price(training: Diagnosed) -> None:
    """The last bias begins at the mean of the targets, next to which float32 is coarse."""
    model = network(out=1)
    nn.init.constant_(model[2].bias, 3e5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], 3e5 + labels), optimizer)


def rate_that_float32_swallows(training: Diagnosed) -> None:
    """Next to the weights of a normalization, which are 1, an update of the rate is nothing."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES))
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-8, weight_decay=0.0), steps=40)


def decay_within_the_gradient_that_leaves_something_to_learn(training: Diagnosed) -> None:
    training.inputs[:, :2] *= 4
    model = network()
    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=2.0), steps=150)


def decay_that_begins_at_its_balance(training: Diagnosed) -> None:
    model = network()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.01)
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=50.0), steps=80)


def decay_of_a_convolution(training: Diagnosed) -> None:
    model = ConvNet()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1.0), steps=40)


def decay_of_a_transformer(training: Diagnosed) -> None:
    model = Transformer()
    train_words(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=20.0), steps=30)


def decay_by_hand_of_recurrent_cells(training: Diagnosed) -> None:
    """A group of its own has a decay that was meant for another rate."""
    model = Recurrent()
    groups = [
        {"params": list(model.cells.parameters()), "weight_decay": 2.0},
        {"params": list(model.head.parameters()), "weight_decay": 0.0},
    ]
    training.train(model, optimizer=torch.optim.SGD(groups, lr=0.05), steps=40)


def decay_within_the_gradient_of_rmsprop(training: Diagnosed) -> None:
    """It is divided by the size of the gradients, and is most of them."""
    model = Recurrent()
    training.train(model, optimizer=torch.optim.RMSprop(model.parameters(), lr=1e-2, weight_decay=3.0), steps=80)


def decay_beside_which_something_is_learnt(training: Diagnosed) -> None:
    """The norm of the weights stays as it is, and the loss falls to half."""
    model = network()
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=5.0), steps=100)


# --- weights-reloaded ---


class Best:
    """Keeps the weights of the best epoch, by a comparison, and goes back to them at its end."""

    def __init__(self, model: nn.Module, is_better: Callable[[float, float], bool]) -> None:
        self.model, self.is_better, self.measure = model, is_better, float("nan")
        self.state: dict[str, torch.Tensor] = {}

    def epoch_ends(self, measure: float) -> None:
        if not self.state or self.is_better(measure, self.measure):
            self.measure, self.state = measure, copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.state)


def train_in_epochs(
    training: Diagnosed, model: nn.Module, ends: Callable[[float], object], steps_of_epoch: int = 40
) -> None:
    """Train for some epochs, longer than the weights of which marks are kept; each ends with a measure that falls."""

    def after(step: int) -> None:
        if step % steps_of_epoch == 0:
            ends(1 / step)

    with replaced_by(made_lines):
        training.train(model, steps=6 * steps_of_epoch, after=after)


def best_epoch_by_the_wrong_comparison(training: Diagnosed) -> None:
    model = network()
    train_in_epochs(training, model, Best(model, lambda measure, best: measure > best).epoch_ends)


def first_checkpoint_instead_of_the_last(training: Diagnosed) -> None:
    """Files are sorted by name, so that the tenth comes before the second."""
    model, files = ConvNet(), dict[str, dict[str, torch.Tensor]]()

    def goes_on(_: float) -> None:
        files[f"epoch-{10 - len(files)}"] = copy.deepcopy(model.state_dict())
        model.load_state_dict(files[max(files, key=lambda name: int(name[6:]))])

    train_in_epochs(training, model, goes_on)


def going_back_whenever_the_loss_is_noisy(training: Diagnosed) -> None:
    model = Recurrent()
    first = copy.deepcopy(model.state_dict())
    train_in_epochs(training, model, lambda _: model.load_state_dict(first))


def best_epoch_by_the_right_comparison(training: Diagnosed) -> None:
    model = network()
    train_in_epochs(training, model, Best(model, lambda measure, best: measure < best).epoch_ends)


def parts_of_the_data_in_turn(training: Diagnosed) -> None:
    """Cross-validation: for each part, the same weights are trained anew."""
    model = network()
    first = copy.deepcopy(model.state_dict())
    with replaced_by(made_lines):
        for _ in range(5):
            model.load_state_dict(first)
            training.train(model, steps=12)


def averages_put_back_after_evaluation(training: Diagnosed) -> None:
    """The averages are evaluated, and the weights put back."""
    model = network()
    average = copy.deepcopy(model.state_dict())

    def evaluated(_: float) -> None:
        kept = copy.deepcopy(model.state_dict())
        for name, value in average.items():
            value.lerp_(kept[name], 0.5)
        model.load_state_dict(average)
        model(training.inputs)
        model.load_state_dict(kept)

    train_in_epochs(training, model, evaluated)


FAULTY: tuple[Faulty, ...] = (
    (best_epoch_by_the_wrong_comparison, "weights-reloaded", "test_updates.py:"),
    (first_checkpoint_instead_of_the_last, "weights-reloaded", "ConvNet"),
    (going_back_whenever_the_loss_is_noisy, "weights-reloaded", "Recurrent"),
    (restored_after_each_step, "update-undone", "0.weight"),
    (best_state_that_is_never_saved_anew, "update-undone", "again and again"),
    (binary_weights_without_a_latent_copy, "update-undone", "0.weight"),
    (perturbation_taken_back_after_the_update, "update-undone", "cells.weight_ih_l0"),
    (copied_from_a_master_that_nobody_updates, "update-undone", "words.weight"),
    (range_of_a_thousandth, "clamped", "0.weight"),
    (range_of_a_critic_for_a_classifier, "clamped", "0.weight"),
    (recurrent_cells_within_a_range, "clamped", "cells.weight_hh_l0"),
    (convolution_by_regression_within_a_range, "clamped", "0.second.weight"),
    (updates_lost_in_bfloat16, "update-lost", "bfloat16"),
    (adam_on_a_transformer_in_bfloat16, "update-lost", "words.weight"),
    (head_in_bfloat16, "update-lost", "beside them are float32"),
    (first_layer_in_bfloat16, "update-lost", "beside them are float32"),
    (assigned_from_a_file_in_bfloat16, "update-lost", "beside them are float32"),
    (recurrent_cells_in_float16, "update-lost", "float16"),
    (bias_of_a_price, "update-lost", "2.bias"),
    (rate_that_float32_swallows, "learning-rate-too-small", "1e-08"),
    (decay_that_begins_at_its_balance, "decay-too-strong", "AdamW group 0"),
    (decay_within_the_gradient_that_leaves_something_to_learn, "decay-too-strong", "times the gradient"),
    (decay_of_a_convolution, "decay-too-strong", "SGD group 0"),
    (decay_of_a_transformer, "decay-too-strong", "AdamW group 0"),
    (decay_by_hand_of_recurrent_cells, "decay-too-strong", "SGD group 0"),
    (decay_within_the_gradient_of_rmsprop, "decay-too-strong", "times the gradient"),
    (decay_beside_which_something_is_learnt, "decay-too-strong", "the last 20 updates"),
)


def perturbation_taken_back_before_the_update(training: Diagnosed) -> None:
    train_with_perturbations(training, Recurrent(), restores_before=True)


def best_state_saved_as_it_improves(training: Diagnosed) -> None:
    """A line search: what makes the loss worse is taken back."""
    model = network()
    best, lowest = copy.deepcopy(model.state_dict()), [9.0]

    def choose(step: int) -> None:
        if step % 4 == 0:
            with torch.no_grad():
                value = float(F.cross_entropy(model(training.inputs), training.labels))
            if value < lowest[0]:
                lowest[0] = value
                best.update(copy.deepcopy(model.state_dict()))
            else:
                model.load_state_dict(best)

    training.train(model, steps=40, after=choose)


def binary_weights_in_the_forward_pass(training: Diagnosed) -> None:
    class Binary(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            signs = torch.where(self.weight >= 0, 0.3, -0.3)
            return F.linear(inputs, self.weight + (signs - self.weight).detach(), self.bias)

    training.train(nn.Sequential(Binary(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), Binary(16, CLASSES)))


def weights_copied_from_a_master_that_is_updated(training: Diagnosed) -> None:
    model = Transformer().bfloat16()
    master = [weight.detach().float().requires_grad_() for weight in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1e-3)
    for _ in range(20):
        ids = sentences()
        model.zero_grad()
        next_word(model(ids).float(), ids).backward()
        for value, weight in zip(master, model.parameters(), strict=True):
            assert weight.grad is not None
            value.grad = weight.grad.float()
        optimizer.step()
        with torch.no_grad():
            for value, weight in zip(master, model.parameters(), strict=True):
                weight.copy_(value)


def inner_loop_that_goes_back(training: Diagnosed) -> None:
    """Each task begins at the weights of the outer loop, which move."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        outer = copy.deepcopy(model.state_dict())
        for _ in range(3):
            inputs, labels = training.batch()
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        inner = model.state_dict()
        model.load_state_dict({name: value.lerp(inner[name], 0.3) for name, value in outer.items()})


def wide_range(training: Diagnosed) -> None:
    model = network()
    training.train(model, steps=80, after=clamping(model, 0.5))


def critic_within_a_range(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)
    optimizers = [torch.optim.RMSprop(model.parameters(), lr=1e-3) for model in (maker, critic)]
    clamp = clamping(critic, 0.01)
    for step in range(40):
        real, _ = training.batch()
        optimizers[1].zero_grad()
        (critic(maker(torch.randn(len(real), 4)).detach()).mean() - critic(real).mean()).backward()
        optimizers[1].step()
        clamp(step)
        optimizers[0].zero_grad()
        (-critic(maker(torch.randn(len(real), 4))).mean()).backward()
        optimizers[0].step()


def weights_that_are_not_negative(training: Diagnosed) -> None:
    """Of a convex network, all but the first weights are at least 0."""
    model = network()

    def project(_: int) -> None:
        model[2].weight.data.clamp_(min=0)

    training.train(model, steps=80, after=project)


def rows_of_unit_length(training: Diagnosed) -> None:
    model = network()

    def project(_: int) -> None:
        with torch.no_grad():
            model[0].weight.div_(model[0].weight.norm(dim=1, keepdim=True))

    training.train(model, steps=40, after=project)


def bfloat16_with_a_large_rate(training: Diagnosed) -> None:
    model = network().bfloat16()
    training.inputs = training.inputs.bfloat16()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))


def autocast_in_bfloat16(training: Diagnosed) -> None:
    """Operators compute in bfloat16; the weights are in float32."""
    model = Recurrent()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out.float(), labels)

    with torch.autocast("cpu", torch.bfloat16):
        training.train(model, loss, torch.optim.AdamW(model.parameters(), lr=1e-4))


def bias_of_a_small_price(training: Diagnosed) -> None:
    model = network(out=1)
    nn.init.constant_(model[2].bias, 300.0)
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], 300 + labels + 0.1 * torch.randn(len(labels))))


def decay_with_a_loss_that_falls(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1.0), steps=80)


def usual_decay_of_a_convolution(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    training.train(model, optimizer=optimizer, steps=40)


def decay_within_the_gradient_of_adam(training: Diagnosed) -> None:
    """It is divided by the size of the gradients."""
    model = ConvNet()
    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=0.02), steps=80)


def decay_of_a_tenth(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1), steps=100)


HEALTHY: tuple[Healthy, ...] = (
    (best_epoch_by_the_right_comparison, "weights-reloaded"),
    (parts_of_the_data_in_turn, "weights-reloaded"),
    (averages_put_back_after_evaluation, "weights-reloaded"),
    (perturbation_taken_back_before_the_update, "update-undone"),
    (best_state_saved_as_it_improves, "update-undone"),
    (binary_weights_in_the_forward_pass, "update-undone"),
    (weights_copied_from_a_master_that_is_updated, "update-undone"),
    (inner_loop_that_goes_back, "update-undone"),
    (wide_range, "clamped"),
    (critic_within_a_range, "clamped"),
    (weights_that_are_not_negative, "clamped"),
    (rows_of_unit_length, "clamped"),
    (bfloat16_with_a_large_rate, "update-lost"),
    (norms_in_float32, "update-lost"),
    (adapter_above_a_body_in_bfloat16, "update-lost"),
    (head_in_bfloat16_with_a_usual_rate, "update-lost"),
    (autocast_in_bfloat16, "update-lost"),
    (bias_of_a_small_price, "update-lost"),
    (decay_with_a_loss_that_falls, "decay-too-strong"),
    (usual_decay_of_a_convolution, "decay-too-strong"),
    (decay_within_the_gradient_of_adam, "decay-too-strong"),
    (decay_of_a_tenth, "decay-too-strong"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
