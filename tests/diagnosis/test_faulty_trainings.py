"""Trainings in which no tensor looks ill, and what is found of each."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tensight.diagnosis.catalogue import words_of
from tests.diagnosis.diagnosed import CLASSES, FEATURES, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def softmax_before_cross_entropy(training: Diagnosed) -> None:
    training.train(network(nn.Softmax(dim=1)))


def sigmoid_before_logits(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float())

    training.train(network(nn.Sigmoid(), out=1), loss)


def scores_for_nll(training: Diagnosed) -> None:
    training.train(network(), F.nll_loss)


def softmax_over_the_batch(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.nll_loss(F.log_softmax(out, 0), labels))


def softmax_of_one_unit(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1), out=1),
        lambda out, labels: F.binary_cross_entropy(out[:, 0], labels.clamp(max=1).float()),
    )


def column_against_row(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: ((out - labels.float()) ** 2).mean())


def targets_that_tanh_cannot_reach(training: Diagnosed) -> None:
    training.train(network(nn.Tanh(), out=1), lambda out, labels: F.mse_loss(out[:, 0], 2.0 * labels.float()))


def classes_by_regression(training: Diagnosed) -> None:
    training.labels = training.labels * 2 + (training.inputs[:, 2] > 0).long()
    training.train(network(out=1), lambda out, labels: F.mse_loss(out[:, 0], labels.float()))


def loss_that_is_maximised(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: -F.cross_entropy(out, labels))


def optimizer_that_maximises(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, maximize=True))


def layers_in_a_list(training: Diagnosed) -> None:
    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(FEATURES, 16), nn.Linear(16, 16)]
            self.head = nn.Linear(16, CLASSES)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                given = layer(given).relu()
            result: torch.Tensor = self.head(given)
            return result

    training.train(Listed())


def optimizer_of_a_copy(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.Adam(copy.deepcopy(model).parameters(), lr=1e-2))


def rate_of_zero(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))


def schedule_past_its_end(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    training.train(model, optimizer=optimizer, steps=40, after=lambda _: schedule.step())


def warm_up_that_is_not_stepped(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=10)
    training.train(model, optimizer=optimizer, after=lambda _: schedule)


def gradients_that_are_kept(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        inputs, labels = training.batch()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def gradients_cleared_early(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        inputs, labels = training.batch()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.zero_grad()
        optimizer.step()


def clipped_to_nothing(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e-6)
        optimizer.step()


def clipped_while_scaled(training: Diagnosed) -> None:
    """The tables of steps and of groups do not hold the same steps of a longer training."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    for _ in range(240):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def weights_of_one_and_clipping(training: Diagnosed) -> None:
    """Clipping is all that keeps it from diverging."""
    layers = [each for _ in range(8) for each in (nn.Linear(FEATURES, FEATURES), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def rates_of_layers_that_are_zero(training: Diagnosed) -> None:
    model = network()
    groups = [{"params": list(model[0].parameters()), "lr": 0.0}, {"params": [model[2].bias], "lr": 0.0}]
    training.train(model, optimizer=torch.optim.SGD([*groups, {"params": [model[2].weight]}], lr=0.1))


def warm_up_longer_than_the_training(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-4, total_iters=100_000)
    training.train(model, optimizer=optimizer, steps=30, after=lambda _: schedule.step())


def warm_up_stepped_by_epoch(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=100)
    training.train(model, optimizer=optimizer, steps=60, after=lambda step: schedule.step() if step % 10 == 0 else None)


def targets_times_probabilities(training: Diagnosed) -> None:
    def divergence(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out.softmax(1), F.one_hot(labels, CLASSES) * 0.9 + 0.025, reduction="batchmean")

    training.train(network(), divergence)


def accumulated_without_division(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(64):
        inputs, labels = training.batch()
        F.cross_entropy(model(inputs), labels).backward()
        if number % 8 == 7:
            optimizer.step()
            optimizer.zero_grad()


def dropout_in_evaluation_mode(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Dropout(0.2), nn.Linear(16, CLASSES)).eval()
    training.train(model)


def momentum_of_keras(training: Diagnosed) -> None:
    training.train(
        nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16, momentum=0.99), nn.ReLU(), nn.Linear(16, CLASSES))
    )


def equal_initial_weights(training: Diagnosed) -> None:
    model = network()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    training.train(model)


def average_with_reversed_decay(training: Diagnosed) -> None:
    class Holder:
        ema: nn.Module

    holder, model = Holder(), network()
    holder.ema = copy.deepcopy(model).requires_grad_(False)

    def update(_: int) -> None:
        with torch.no_grad():
            for mine, theirs in zip(holder.ema.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.999)

    training.train(model, after=update)


def optimizer_made_in_the_loop(training: Diagnosed) -> None:
    model = network()
    for _ in range(12):
        training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2), steps=1)


def two_optimizers_on_one_model(training: Diagnosed) -> None:
    model = network()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    training.train(model, after=lambda _: second.step())


def embedding_that_was_cloned(training: Diagnosed) -> None:
    class TinyLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.embedding(given))
            return result

    words(training, TinyLM(), lambda out, ids: F.cross_entropy(out[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1)))


def words(training: Diagnosed, model: nn.Module, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Train a model on sequences in which each word follows from the one before."""
    first = torch.randint(0, 12, (256, 1))
    ids = (first + torch.arange(10)) % 12
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        given = ids[torch.randint(0, 256, (32,))]
        optimizer.zero_grad()
        loss(model(given), given).backward()
        optimizer.step()


def language_model() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))


def labels_shifted_twice(training: Diagnosed) -> None:
    words(
        training,
        language_model(),
        lambda out, ids: F.cross_entropy(out[:, :-2].reshape(-1, 12), ids[:, 2:].reshape(-1)),
    )


def padding_as_targets(training: Diagnosed) -> None:
    ids = torch.randint(1, 12, (32, 10))
    ids[torch.arange(10) >= torch.randint(3, 9, (32, 1))] = 0
    model = language_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()


def norm_over_one_unit(training: Diagnosed) -> None:
    training.train(nn.Sequential(nn.Linear(FEATURES, 1), nn.LayerNorm(1), nn.Linear(1, CLASSES)))


def weights_of_a_thousandth(training: Diagnosed) -> None:
    layers = [each for _ in range(6) for each in (nn.Linear(FEATURES, FEATURES), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(FEATURES, CLASSES))
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, std=1e-3 if name.endswith("weight") else 0.0)
    training.train(model)


def inputs_that_are_lost(training: Diagnosed) -> None:
    training.inputs = training.inputs.mul(0)
    training.train(network())


def inputs_in_pascals(training: Diagnosed) -> None:
    training.inputs = training.inputs * 1e5
    training.train(network())


def sorted_rows(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = training.labels.argsort()
    for epoch in range(8):
        for rows in order.split(16)[epoch % 2 :: 2]:
            optimizer.zero_grad()
            F.cross_entropy(model(training.inputs[rows]), training.labels[rows]).backward()
            optimizer.step()


def clipped_before_the_backward_pass(training: Diagnosed) -> None:
    from tensight.agents.torch.facts import clip_calls

    clip_calls.replace()
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    try:
        for _ in range(20):
            inputs, labels = training.batch()
            loss = F.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            loss.backward()
            optimizer.step()
    finally:
        clip_calls.put_back()


def accumulated_and_cleared(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(64):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        (F.cross_entropy(model(inputs), labels) / 4).backward()
        if number % 4 == 3:
            optimizer.step()


def scaled_and_not_unscaled(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
        optimizer.step()


def summed_with_the_rate_of_a_mean(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    training.train(model, lambda out, labels: F.cross_entropy(out, labels, reduction="sum"), optimizer)


def second_optimizer_that_never_steps(training: Diagnosed) -> None:
    model = network()
    first, second = torch.optim.Adam(model[0].parameters(), lr=1e-2), torch.optim.Adam(model[2].parameters(), lr=1e-2)
    training.train(model, optimizer=first, steps=40, after=lambda _: second.zero_grad())


def milestones_in_epochs(training: Diagnosed) -> None:
    model = network()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(training.inputs, training.labels), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 10])
    training.train(model, optimizer=optimizer, steps=len(loader) * 2, after=lambda _: schedule.step())


def dropout_that_keeps_little(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Dropout(0.95), nn.Linear(16, CLASSES))
    training.train(model)


def prices_that_are_not_scaled(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(out[:, 0], 300_000.0 + 100_000.0 * torch.randn(len(labels)))

    training.train(network(out=1), loss, steps=80)


def squares_that_are_subtracted(training: Diagnosed) -> None:
    model = nn.Linear(FEATURES, CLASSES)
    training.train(
        model,
        lambda out, labels: F.cross_entropy(out, labels) - out.pow(2).mean(),
        torch.optim.SGD(model.parameters(), lr=0.1),
        steps=120,
    )


FAULTY: tuple[tuple[Callable[[Diagnosed], None], str], ...] = (
    (softmax_before_cross_entropy, "activation-twice"),
    (sigmoid_before_logits, "activation-twice"),
    (scores_for_nll, "no-logarithm"),
    (softmax_over_the_batch, "softmax-axis"),
    (softmax_of_one_unit, "one-class"),
    (column_against_row, "broadcast-in-loss"),
    (targets_that_tanh_cannot_reach, "targets-out-of-reach"),
    (classes_by_regression, "classes-by-regression"),
    (loss_that_is_maximised, "loss-sign"),
    (optimizer_that_maximises, "loss-sign"),
    (layers_in_a_list, "not-in-optimizer"),
    (optimizer_of_a_copy, "optimizer-of-others"),
    (rate_of_zero, "learning-rate-zero"),
    (schedule_past_its_end, "schedule-over"),
    (warm_up_that_is_not_stepped, "schedule-not-stepped"),
    (gradients_that_are_kept, "gradients-not-cleared"),
    (gradients_cleared_early, "gradients-cleared-early"),
    (clipped_to_nothing, "clipped-away"),
    (clipped_while_scaled, "clipped-scaled"),
    (weights_of_one_and_clipping, "scale-by-depth"),
    (rates_of_layers_that_are_zero, "learning-rate-zero"),
    (warm_up_stepped_by_epoch, "schedule-not-stepped"),
    (targets_times_probabilities, "no-logarithm"),
    (accumulated_without_division, "accumulation-scale"),
    (dropout_in_evaluation_mode, "evaluation-mode"),
    (momentum_of_keras, "norm-momentum"),
    (equal_initial_weights, "equal-units"),
    (average_with_reversed_decay, "average-follows"),
    (optimizer_made_in_the_loop, "optimizer-made-anew"),
    (two_optimizers_on_one_model, "two-optimizers"),
    (embedding_that_was_cloned, "tied-apart"),
    (labels_shifted_twice, "targets-shifted"),
    (padding_as_targets, "padding-counted"),
    (norm_over_one_unit, "norm-of-one"),
    (weights_of_a_thousandth, "scale-by-depth"),
    (inputs_that_are_lost, "input-constant"),
    (inputs_in_pascals, "input-scale"),
    (sorted_rows, "batch-of-one-class"),
    (clipped_before_the_backward_pass, "clips-nothing"),
    (accumulated_and_cleared, "gradients-thrown-away"),
    (scaled_and_not_unscaled, "gradients-still-scaled"),
    (summed_with_the_rate_of_a_mean, "loss-summed"),
    (second_optimizer_that_never_steps, "optimizer-never-steps"),
    (milestones_in_epochs, "schedule-unit"),
    (dropout_that_keeps_little, "dropout-rate"),
    (prices_that_are_not_scaled, "targets-not-scaled"),
    (squares_that_are_subtracted, "loss-unbounded"),
)


@pytest.mark.parametrize(("train", "rule"), FAULTY, ids=lambda each: getattr(each, "__name__", ""))
def test_the_cause_comes_first(diagnosed: Diagnosed, train: Callable[[Diagnosed], None], rule: str) -> None:
    train(diagnosed)
    found = diagnosed.findings()
    assert [finding.rule for finding in found][:1] == [rule]
    assert len(found) == 1, found


def test_groups_of_which_the_same_is_true_are_in_one_sentence(diagnosed: Diagnosed) -> None:
    rates_of_layers_that_are_zero(diagnosed)
    (finding,) = diagnosed.findings()
    assert finding.values["group"] == "SGD group 0, SGD group 1"


def test_advice_follows_the_sentence(diagnosed: Diagnosed) -> None:
    warm_up_longer_than_the_training(diagnosed)
    diagnosed.end()
    (finding,) = diagnosed.findings()
    assert finding.message == "long"
    assert words_of(finding)[2][0] == "Make the warm-up shorter than the training"
