"""Learning rates and schedules that end a training or never begin it, and those that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.optim import lr_scheduler as schedules
from torch.utils.data import DataLoader, TensorDataset

from tensight.diagnosis.catalogue import words_of
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
    VAE,
    ConvNet,
    Recurrent,
    Transformer,
    divergence,
    generator,
    next_word,
    sentences,
    train_gan,
    train_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def train_scheduled(
    training: Diagnosed,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: schedules.LRScheduler,
    steps: int,
    every: int = 1,
) -> None:
    """Train with a schedule that is stepped after each, or each so many, updates; 0 for never."""
    training.train(
        model,
        optimizer=optimizer,
        steps=steps,
        after=lambda step: schedule.step() if every and step % every == 0 else None,
    )


def train_words_scheduled(model: nn.Module, optimizer: torch.optim.Optimizer, step: Callable[[], None]) -> None:
    for _ in range(40):
        ids = sentences()
        optimizer.zero_grad()
        next_word(model(ids), ids).backward()
        optimizer.step()
        step()


def sgd(model: nn.Module, rate: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


def adam(model: nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=rate)


def rate_of_zero(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=sgd(model, 0.0))


def rates_of_layers_that_are_zero(training: Diagnosed) -> None:
    model = network()
    groups = [{"params": list(model[0].parameters()), "lr": 0.0}, {"params": [model[2].bias], "lr": 0.0}]
    training.train(model, optimizer=torch.optim.SGD([*groups, {"params": [model[2].weight]}], lr=0.1))


def warm_up_by_whole_numbers(training: Diagnosed) -> None:
    """Its factor is a division of whole numbers, and 0 up to the end of the warm-up."""
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.LambdaLR(optimizer, lambda step: min(1, step // 100))
    train_words_scheduled(model, optimizer, schedule.step)


def decay_to_zero_in_half_of_the_training(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.PolynomialLR(optimizer, 20), 40)


def rate_of_a_generator_that_ends(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)
    optimizers = adam(maker), adam(critic)
    schedule = schedules.LinearLR(optimizers[0], 1.0, 0.0, total_iters=10)
    optimizers[0].register_step_post_hook(lambda *_: schedule.step())
    train_gan(training, maker, critic, optimizers, steps=30)


def schedule_past_its_end(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.CosineAnnealingLR(optimizer, 10), 40)


def epochs_of_a_cosine_taken_as_updates(training: Diagnosed) -> None:
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.CosineAnnealingLR(optimizer, T_max=12, eta_min=1e-5)
    train_words_scheduled(model, optimizer, schedule.step)


def cosine_stepped_by_two(training: Diagnosed) -> None:
    """Once after each backward pass, and once at the end of each step."""
    model = Recurrent()
    optimizer = sgd(model, 0.05)
    schedule = schedules.CosineAnnealingLR(optimizer, 40)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, labels, label_smoothing=0.1)

    def twice(_: int) -> None:
        schedule.step()
        schedule.step()

    training.train(model, loss, optimizer, steps=40, after=twice)


def exponential_by_updates(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.ExponentialLR(optimizer, 0.8), 80)


def tenth_after_each_update(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = adam(model)
    train_scheduled(training, model, optimizer, schedules.StepLR(optimizer, 5, 0.1), 60)


def plateau_without_patience(training: Diagnosed) -> None:
    """It is given the loss of each batch, which is noise."""
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    values = []

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        values.append(float(next_word(out.detach(), ids)))
        schedule.step(values[-1] + (len(values) % 2))
        return next_word(out, ids)

    train_words(model, loss, optimizer, steps=60)


def rate_multiplied_by_hand(training: Diagnosed) -> None:
    model = VAE()
    optimizer = adam(model)
    for _ in range(80):
        inputs, _ = training.batch()
        made, mean, logarithm = model(inputs)
        optimizer.zero_grad()
        (F.mse_loss(made, inputs) + 0.01 * divergence(mean, logarithm)).backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] *= 0.8


def warm_up_that_is_not_stepped(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.LinearLR(optimizer, 0.01, total_iters=10), 20, every=0)


def warm_up_longer_than_the_training(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.LinearLR(optimizer, 1e-4, total_iters=100_000), 30)


def warm_up_stepped_by_epoch(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.LinearLR(optimizer, 1e-3, total_iters=100), 60, every=10)


def warm_up_of_a_transformer_by_accumulated_steps(training: Diagnosed) -> None:
    """Its schedule counts the updates of an epoch, and the training has some of them."""
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.LambdaLR(optimizer, lambda step: min((step + 1) / 2000, 1.0))
    train_words_scheduled(model, optimizer, schedule.step)


def follow_losses(
    training: Diagnosed,
    model: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    mode: str,
    measure: Callable[[torch.Tensor], float] = float,
) -> None:
    """Train with a schedule that follows a measure of each epoch of four updates."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = schedules.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=2)
    for step in range(60):
        inputs, labels = training.batch()
        value = loss(model(inputs), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % 4 == 3:
            schedule.step(measure(value.detach()))


def to_counts(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(out[:, 0], labels + 0.1 * torch.randn(len(labels)))


def loss_that_should_rise(training: Diagnosed) -> None:
    follow_losses(training, network(), F.cross_entropy, "max")


def squared_error_that_should_rise(training: Diagnosed) -> None:
    follow_losses(training, nn.Sequential(Recurrent(), nn.Linear(CLASSES, 1)), to_counts, "max")


def loss_of_labels_that_should_rise(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out, F.one_hot(labels, CLASSES).float())

    follow_losses(training, ConvNet(), loss, "max")


def train_epochs(
    training: Diagnosed,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: schedules.LRScheduler,
    every: str = "update",
) -> None:
    """Train two epochs of 32 updates, with a schedule that is stepped after every update, epoch, or training."""
    loader = DataLoader(TensorDataset(training.inputs, training.labels), batch_size=8, shuffle=True)
    for _ in range(2):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            if every == "update":
                schedule.step()
        if every == "epoch":
            schedule.step()


def milestones_in_epochs(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train_epochs(training, model, optimizer, schedules.MultiStepLR(optimizer, [5, 10]))


def milestones_of_a_convolution(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    train_epochs(training, model, optimizer, schedules.MultiStepLR(optimizer, [3, 6, 9], gamma=0.5))


def milestones_of_a_recurrent_network_by_groups(training: Diagnosed) -> None:
    model = Recurrent()
    groups = [{"params": list(model.cells.parameters()), "lr": 1e-2}, {"params": list(model.head.parameters())}]
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    train_epochs(training, model, optimizer, schedules.MultiStepLR(optimizer, [20, 30], gamma=0.3))


def one_cycle_that_is_not_stepped(training: Diagnosed) -> None:
    model = Recurrent()
    optimizer = adam(model)
    schedule = schedules.OneCycleLR(optimizer, 1e-2, epochs=2, steps_per_epoch=32)
    train_epochs(training, model, optimizer, schedule, every="training")


FAULTY: tuple[Faulty, ...] = (
    (rate_of_zero, "learning-rate-zero", "SGD group 0"),
    (rates_of_layers_that_are_zero, "learning-rate-zero", "SGD group 0, SGD group 1"),
    (warm_up_by_whole_numbers, "learning-rate-zero", "first update"),
    (decay_to_zero_in_half_of_the_training, "learning-rate-zero", "step 21"),
    (rate_of_a_generator_that_ends, "learning-rate-zero", "step 10"),
    (schedule_past_its_end, "schedule-over", "step 12"),
    (epochs_of_a_cosine_taken_as_updates, "schedule-over", "made for 12 steps"),
    (cosine_stepped_by_two, "schedule-over", "stepped 2 times"),
    (exponential_by_updates, "learning-rate-collapsed", "ExponentialLR"),
    (tenth_after_each_update, "learning-rate-collapsed", "StepLR"),
    (plateau_without_patience, "learning-rate-collapsed", "ReduceLROnPlateau"),
    (rate_multiplied_by_hand, "learning-rate-collapsed", "AdamW group 0"),
    (warm_up_that_is_not_stepped, "schedule-not-stepped", "LinearLR is never stepped"),
    (warm_up_longer_than_the_training, "schedule-not-stepped", "longer than the training"),
    (warm_up_stepped_by_epoch, "schedule-not-stepped", "times in 60 updates"),
    (one_cycle_that_is_not_stepped, "schedule-not-stepped", "OneCycleLR is never stepped"),
    (warm_up_of_a_transformer_by_accumulated_steps, "schedule-not-stepped", "LambdaLR"),
    (loss_that_should_rise, "schedule-mode", "ReduceLROnPlateau"),
    (squared_error_that_should_rise, "schedule-mode", "ReduceLROnPlateau"),
    (loss_of_labels_that_should_rise, "schedule-mode", "ReduceLROnPlateau"),
    (milestones_in_epochs, "schedule-unit", "MultiStepLR"),
    (milestones_of_a_convolution, "schedule-unit", "its last change is at 9"),
    (milestones_of_a_recurrent_network_by_groups, "schedule-unit", "32 batches"),
)


def warm_up_from_zero(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_scheduled(training, model, optimizer, schedules.LambdaLR(optimizer, lambda step: min(step / 10, 1)), 40)


def linear_to_zero_with_the_training(training: Diagnosed) -> None:
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.LinearLR(optimizer, 1.0, 0.0, total_iters=40)
    train_words_scheduled(model, optimizer, schedule.step)


def cosine_to_its_end(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_scheduled(training, model, optimizer, schedules.CosineAnnealingLR(optimizer, 40), 40)


def cosine_with_restarts(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.CosineAnnealingWarmRestarts(optimizer, 8), 40)


def tenth_at_two_milestones(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = adam(model)
    train_scheduled(training, model, optimizer, schedules.MultiStepLR(optimizer, [30, 45]), 60)


def one_cycle_to_its_end(training: Diagnosed) -> None:
    """It ends with a rate that is a hundred thousandth of the highest one."""
    model = Transformer()
    optimizer = adam(model)
    schedule = schedules.OneCycleLR(optimizer, 2e-2, total_steps=41)
    train_words_scheduled(model, optimizer, schedule.step)


def cosine_by_epochs(training: Diagnosed) -> None:
    """Of 20 epochs, the training has seen 6."""
    model = ConvNet()
    optimizer = sgd(model)
    train_scheduled(training, model, optimizer, schedules.CosineAnnealingLR(optimizer, 20), 60, every=10)


def warm_up_and_decay(training: Diagnosed) -> None:
    model = network()
    optimizer = adam(model)
    warm_up = schedules.LinearLR(optimizer, 0.01, total_iters=8)
    schedule = schedules.SequentialLR(optimizer, [warm_up, schedules.CosineAnnealingLR(optimizer, 40)], [8])
    train_scheduled(training, model, optimizer, schedule, 40)


def accuracy_that_should_rise(training: Diagnosed) -> None:
    follow_losses(training, network(), F.cross_entropy, "max", lambda value: 1 / (1 + float(value)))


def loss_that_should_fall(training: Diagnosed) -> None:
    follow_losses(training, nn.Sequential(ConvNet(), nn.Linear(CLASSES, 1)), to_counts, "min")


def milestones_in_updates(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    optimizer = sgd(model, 0.3)
    train_epochs(training, model, optimizer, schedules.MultiStepLR(optimizer, [30, 50]))


def one_cycle_by_epochs(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = adam(model)
    train_epochs(training, model, optimizer, schedules.OneCycleLR(optimizer, 1e-1, total_steps=10), every="epoch")


def stages_with_schedules_of_their_own(training: Diagnosed) -> None:
    """A short first stage, whose rate falls to 0, and a long second one with other weights."""
    body, model = network(), network()
    for stage, steps in ((body, 30), (model, 120)):
        optimizer = torch.optim.Adam(stage.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        training.train(stage, optimizer=optimizer, steps=steps, after=lambda _, schedule=schedule: schedule.step())


HEALTHY: tuple[Healthy, ...] = (
    (warm_up_from_zero, "learning-rate-zero"),
    (linear_to_zero_with_the_training, "learning-rate-zero"),
    (cosine_to_its_end, "schedule-over"),
    (cosine_with_restarts, "schedule-over"),
    (tenth_at_two_milestones, "learning-rate-collapsed"),
    (stages_with_schedules_of_their_own, "learning-rate-collapsed"),
    (one_cycle_to_its_end, "learning-rate-collapsed"),
    (cosine_by_epochs, "schedule-not-stepped"),
    (warm_up_and_decay, "schedule-not-stepped"),
    (one_cycle_by_epochs, "schedule-not-stepped"),
    (accuracy_that_should_rise, "schedule-mode"),
    (loss_that_should_fall, "schedule-mode"),
    (milestones_in_updates, "schedule-unit"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_advice_follows_the_sentence(diagnosed: Diagnosed) -> None:
    warm_up_longer_than_the_training(diagnosed)
    diagnosed.end()
    (finding,) = diagnosed.findings()
    assert finding.message == "long"
    assert words_of(finding)[2][0] == "Make the warm-up shorter than the training"
