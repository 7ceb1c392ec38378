"""Gradients that are clipped, cleared, scaled or added up in the wrong way, and the right ways of doing that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.utils import clip_grad_norm_

from tensight.agents.torch.facts import clip_calls
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
    VAE,
    ConvNet,
    Recurrent,
    Transformer,
    divergence,
    generator,
    next_word,
    sentences,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def classified(training: Diagnosed, model: nn.Module, **options: Any) -> Callable[[], torch.Tensor]:
    """Return a function that computes the loss of a classifier on a new batch."""

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        return F.cross_entropy(model(inputs), labels, **options)

    return loss


def predicted(model: nn.Module) -> Callable[[], torch.Tensor]:
    """Return a function that computes the loss of a language model on new sentences."""

    def loss() -> torch.Tensor:
        ids = sentences()
        return next_word(model(ids), ids)

    return loss


def nothing() -> None:
    """Do nothing."""


def train(
    loss: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 20,
    before: Callable[[], Any] = nothing,
    between: Callable[[], Any] = nothing,
    clears: bool = True,
) -> None:
    """Train with something before each backward pass, and something between it and the update."""
    for _ in range(steps):
        value = loss()
        if clears:
            optimizer.zero_grad()
        before()
        value.backward()
        between()
        optimizer.step()


def sgd(model: nn.Module, rate: float = 0.1, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate, **options)


def adam(model: nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=rate)


# --- clipping ---


def train_scaled(
    loss: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    between: Callable[[torch.amp.GradScaler], Any],
    *,
    scale: float = 2.0**14,
    steps: int = 30,
    through: bool = True,
) -> None:
    """Train with a scaler of losses, and something between the backward pass and the update."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss()).backward()
        between(scaler)
        if through:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()


def clipped_while_scaled(training: Diagnosed) -> None:
    """The tables of steps and of groups do not hold the same steps of a longer training."""
    model = network()
    train_scaled(classified(training, model), sgd(model), lambda _: clip_grad_norm_(model.parameters(), 1.0), steps=240)


def convolution_clipped_while_scaled(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.05, momentum=0.9)
    train_scaled(classified(training, model), optimizer, lambda _: clip_grad_norm_(model.parameters(), 5.0))


def transformer_clipped_before_it_is_unscaled(training: Diagnosed) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def between(scaler: torch.amp.GradScaler) -> None:
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)

    train_scaled(predicted(model), optimizer, between)


def clipped_to_nothing(training: Diagnosed) -> None:
    model = network()
    train(classified(training, model), sgd(model), between=lambda: clip_grad_norm_(model.parameters(), 1e-6))


def summed_loss_clipped_to_its_mean(training: Diagnosed) -> None:
    """Each gradient is a thousand times the limit: only its direction is left."""
    model = Recurrent()
    loss = classified(training, model, reduction="sum")
    train(loss, sgd(model, 1e-2), between=lambda: clip_grad_norm_(model.parameters(), 1e-3))


def transformer_clipped_to_a_millionth(training: Diagnosed) -> None:
    model = Transformer()
    train(predicted(model), sgd(model), between=lambda: clip_grad_norm_(model.parameters(), 1e-6))


def clipped_before_the_backward_pass(training: Diagnosed) -> None:
    model = network()
    with replaced_by(clip_calls):
        train(classified(training, model), adam(model), before=lambda: nn.utils.clip_grad_norm_(model.parameters(), 1))


def values_clipped_after_the_update(training: Diagnosed) -> None:
    model = ConvNet()
    loss, optimizer = classified(training, model), sgd(model)
    with replaced_by(clip_calls):
        for _ in range(20):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)


def clipped_after_the_update(training: Diagnosed) -> None:
    model = Transformer()
    loss, optimizer = predicted(model), adam(model)
    with replaced_by(clip_calls):
        for _ in range(20):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)


# --- clearing ---


def updated_twice_by_a_gradient(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train(classified(training, model), optimizer, between=optimizer.step)


def backward_pass_of_every_second_step(training: Diagnosed) -> None:
    """An interval was meant for the update, and is around the backward pass."""
    model = Transformer()
    loss, optimizer = predicted(model), adam(model)
    for step in range(24):
        if step % 2 == 0:
            optimizer.zero_grad()
            loss().backward()
        optimizer.step()


def critic_updated_again_in_the_turn_of_its_generator(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)
    first, second = adam(maker, 2e-3), adam(critic, 2e-3)
    for _ in range(20):
        real, _ = training.batch()
        made = maker(torch.randn(len(real), 4))
        second.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()).backward()
        second.step()
        second.step()
        first.zero_grad()
        F.softplus(-critic(maker(torch.randn(len(real), 4)))).mean().backward()
        first.step()


def gradients_that_are_kept(training: Diagnosed) -> None:
    model = network()
    train(classified(training, model), sgd(model, 1e-3), clears=False)


def transformer_that_clears_nothing(training: Diagnosed) -> None:
    model = Transformer()
    train(predicted(model), torch.optim.AdamW(model.parameters(), lr=1e-3), clears=False)


def another_optimizer_that_is_cleared(training: Diagnosed) -> None:
    """Of the head's optimizer nothing is cleared."""
    model = ConvNet()
    rest = [weight for name, weight in model.named_parameters() if not name.startswith("head")]
    first, second = torch.optim.SGD(rest, lr=1e-2), sgd(model.head, 1e-2)
    train(classified(training, model), first, between=second.step)


def against_each_other(training: Diagnosed, *, clears_both: bool) -> None:
    """A generator and its discriminator, whose own gradients are cleared in its turn or not."""
    model, judge = network(out=FEATURES), network(out=1)
    optimizers = adam(model), adam(judge)
    right, wrong = torch.ones(32, 1), torch.zeros(32, 1)
    for _ in range(16):
        inputs, _ = training.batch()
        optimizers[0].zero_grad()
        if clears_both:
            optimizers[1].zero_grad()
        made = model(torch.randn(32, FEATURES))
        F.binary_cross_entropy_with_logits(judge(inputs), right).backward()
        F.binary_cross_entropy_with_logits(judge(made.detach()), wrong).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.binary_cross_entropy_with_logits(judge(made), right).backward()
        optimizers[0].step()


def discriminator_that_is_not_cleared(training: Diagnosed) -> None:
    against_each_other(training, clears_both=False)


def discriminator_that_is_cleared_in_its_turn(training: Diagnosed) -> None:
    """Between, the loss of the generator leaves gradients there."""
    against_each_other(training, clears_both=True)


def recurrent_cells_that_are_not_cleared(training: Diagnosed) -> None:
    """The head is cleared by itself."""
    model = Recurrent()
    train(classified(training, model), sgd(model, 1e-3), before=model.head.zero_grad, clears=False)


def gradients_cleared_early(training: Diagnosed) -> None:
    model = network()
    optimizer = sgd(model)
    train(classified(training, model), optimizer, between=optimizer.zero_grad)


def model_cleared_before_its_update(training: Diagnosed) -> None:
    model = Transformer()
    train(predicted(model), adam(model), between=model.zero_grad, clears=False)


def gradients_set_to_zeros_before_the_update(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = sgd(model, 0.05, momentum=0.9)
    train(classified(training, model), optimizer, between=lambda: optimizer.zero_grad(set_to_none=False))


def updates_by_hand_that_clear_nothing(training: Diagnosed) -> None:
    weight, bias = torch.zeros(FEATURES, CLASSES, requires_grad=True), torch.zeros(CLASSES, requires_grad=True)
    for _ in range(30):
        inputs, labels = training.batch()
        F.cross_entropy(inputs @ weight + bias, labels).backward()
        with torch.no_grad():
            for tensor in (weight, bias):
                tensor -= 1e-3 * tensor.grad


def update_whose_result_is_another_variable(training: Diagnosed) -> None:
    model = network()
    loss = classified(training, model)
    for _ in range(20):
        loss().backward()
        for weight in model.parameters():
            assert weight.grad is not None
            weight = weight - 0.1 * weight.grad


def optimizer_that_is_never_called(training: Diagnosed) -> None:
    model = Transformer()
    loss, optimizer = predicted(model), adam(model)
    for _ in range(20):
        loss().backward()
    assert not optimizer.state


def accumulated_and_cleared(training: Diagnosed) -> None:
    model = network()
    accumulate(classified(training, model), sgd(model), 4, divided_by=4, cleared_each_time=True)


def words_accumulated_and_cleared(training: Diagnosed) -> None:
    model = Transformer()
    accumulate(predicted(model), adam(model), 3, divided_by=3, cleared_each_time=True)


def convolution_accumulated_and_cleared_by_its_model(training: Diagnosed) -> None:
    model = ConvNet()
    loss, optimizer = classified(training, model), sgd(model, momentum=0.9)
    for number in range(40):
        model.zero_grad(set_to_none=False)
        (loss() / 5).backward()
        if number % 5 == 4:
            optimizer.step()


# --- scale ---


def scaled_and_not_unscaled(training: Diagnosed) -> None:
    model = network()
    train_scaled(classified(training, model), sgd(model, 1e-6), lambda _: None, scale=1024.0, steps=20, through=False)


def second_loss_that_is_not_scaled(training: Diagnosed) -> None:
    model, second = network(), nn.Linear(FEATURES, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *second.parameters()], lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
        (0.5 * F.mse_loss(second(inputs)[:, 0], inputs[:, 0])).backward()
        scaler.step(optimizer)
        scaler.update()


def two_losses_that_are_scaled(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        losses = [
            F.cross_entropy(model(part), given) for part, given in zip(inputs.chunk(2), labels.chunk(2), strict=True)
        ]
        scaled = scaler.scale(losses)
        scaled[0].backward()
        scaled[1].backward()
        scaler.step(optimizer)
        scaler.update()


def transformer_scaled_and_not_unscaled(training: Diagnosed) -> None:
    model = Transformer()
    train_scaled(predicted(model), adam(model), lambda _: None, scale=2.0**16, steps=20, through=False)


def autoencoder_scaled_and_not_unscaled(training: Diagnosed) -> None:
    model = VAE()

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        made, mean, logarithm = model(inputs)
        return F.mse_loss(made, inputs) + 0.01 * divergence(mean, logarithm)

    train_scaled(loss, sgd(model, 1e-6), lambda _: None, scale=4096.0, steps=20, through=False)


def accumulate(
    loss: Callable[[], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    passes: int,
    *,
    divided_by: float = 1.0,
    between: Callable[[], Any] = nothing,
    cleared_each_time: bool = False,
) -> None:
    """Train by several backward passes for each update."""
    for number in range(10 * passes):
        if cleared_each_time:
            optimizer.zero_grad()
        (loss() / divided_by).backward()
        if number % passes == passes - 1:
            between()
            optimizer.step()
            optimizer.zero_grad()


def accumulated_without_division(training: Diagnosed) -> None:
    model = network()
    accumulate(classified(training, model), sgd(model), 8)


def words_accumulated_without_division(training: Diagnosed) -> None:
    model = Transformer()
    accumulate(predicted(model), sgd(model, 0.05, momentum=0.9), 4)


def gradients_divided_again(training: Diagnosed) -> None:
    model = ConvNet()

    def divide() -> None:
        for weight in model.parameters():
            assert weight.grad is not None
            weight.grad /= 4

    accumulate(classified(training, model), adam(model), 4, divided_by=4, between=divide)


def loss_divided_by_the_square(training: Diagnosed) -> None:
    """A function divides it, and the loop does so again."""
    model = Recurrent()
    accumulate(classified(training, model), sgd(model), 5, divided_by=25)


def summed_with_the_rate_of_a_mean(training: Diagnosed) -> None:
    model = network()
    train(classified(training, model, reduction="sum"), sgd(model, 0.05))


def squared_errors_that_are_summed(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        return F.mse_loss(model(inputs)[:, 0], labels - 1.5, reduction="sum")

    train(loss, sgd(model, 0.02))


def labels_of_a_convolution_that_are_summed(training: Diagnosed) -> None:
    model = ConvNet()

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        return F.binary_cross_entropy_with_logits(model(inputs), F.one_hot(labels, CLASSES).float(), reduction="sum")

    train(loss, sgd(model, 0.01, momentum=0.9))


def train_in_half(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, scale: float, steps: int) -> None:
    """Train under autocast in float16, with a scale that is set to this amount again and again."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = loss()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update(scale)


def scale_that_is_too_large(training: Diagnosed) -> None:
    model = network()
    train_in_half(classified(training, model), sgd(model, 1e-2), 2.0**30, 24)


def scale_of_a_transformer_that_overflows(training: Diagnosed) -> None:
    model = Transformer()
    train_in_half(predicted(model), adam(model), 2.0**40, 24)


def rows_of_which_some_are_infinite(training: Diagnosed) -> None:
    """Every second batch holds a row that was divided by 0."""
    model = ConvNet()
    loss, steps = classified(training, model), []

    def with_rows() -> torch.Tensor:
        steps.append(None)
        return loss() + (torch.inf * model.head.bias.sum() if len(steps) % 2 else 0.0)

    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=64.0), sgd(model, 1e-2)
    for _ in range(72):
        optimizer.zero_grad()
        scaler.scale(with_rows()).backward()
        scaler.step(optimizer)
        scaler.update(64.0)


FAULTY: tuple[Faulty, ...] = (
    (clipped_while_scaled, "clipped-scaled", "still multiplied"),
    (convolution_clipped_while_scaled, "clipped-scaled", "test_gradients.py:"),
    (transformer_clipped_before_it_is_unscaled, "clipped-scaled", "AdamW"),
    (clipped_to_nothing, "clipped-away", "SGD"),
    (summed_loss_clipped_to_its_mean, "clipped-away", "test_gradients.py:"),
    (transformer_clipped_to_a_millionth, "clipped-away", "of themselves in every step"),
    (clipped_before_the_backward_pass, "clips-nothing", "no backward pass"),
    (values_clipped_after_the_update, "clips-nothing", "clip_grad_value_"),
    (clipped_after_the_update, "clips-nothing", "no backward pass"),
    (updated_twice_by_a_gradient, "gradients-repeated", "SGD"),
    (backward_pass_of_every_second_step, "gradients-repeated", "Adam"),
    (critic_updated_again_in_the_turn_of_its_generator, "gradients-repeated", "test_gradients.py:"),
    (gradients_that_are_kept, "gradients-not-cleared", "test_gradients.py:"),
    (transformer_that_clears_nothing, "gradients-not-cleared", "AdamW"),
    (another_optimizer_that_is_cleared, "gradients-not-cleared", "head.weight, head.bias"),
    (discriminator_that_is_not_cleared, "gradients-not-cleared", "0.weight"),
    (recurrent_cells_that_are_not_cleared, "gradients-not-cleared", "cells.weight_ih_l0"),
    (gradients_cleared_early, "gradients-cleared-early", "test_gradients.py:"),
    (model_cleared_before_its_update, "gradients-cleared-early", "Adam"),
    (gradients_set_to_zeros_before_the_update, "gradients-cleared-early", "SGD"),
    (updates_by_hand_that_clear_nothing, "no-optimizer", "not cleared"),
    (update_whose_result_is_another_variable, "no-optimizer", "no update"),
    (optimizer_that_is_never_called, "no-optimizer", "no update"),
    (accumulated_and_cleared, "gradients-thrown-away", "4 backward passes"),
    (words_accumulated_and_cleared, "gradients-thrown-away", "3 backward passes"),
    (convolution_accumulated_and_cleared_by_its_model, "gradients-thrown-away", "5 backward passes"),
    (scaled_and_not_unscaled, "gradients-still-scaled", "scale 1024"),
    (second_loss_that_is_not_scaled, "gradients-still-scaled", "is not scaled"),
    (transformer_scaled_and_not_unscaled, "gradients-still-scaled", "Adam group 0"),
    (autoencoder_scaled_and_not_unscaled, "gradients-still-scaled", "scale 4096"),
    (accumulated_without_division, "accumulation-scale", "8 backward passes"),
    (words_accumulated_without_division, "accumulation-scale", "4 times those of a mean"),
    (gradients_divided_again, "accumulation-scale", "divided by 4 twice"),
    (loss_divided_by_the_square, "accumulation-scale", "divided by 5 twice"),
    (summed_with_the_rate_of_a_mean, "loss-summed", "32 targets"),
    (squared_errors_that_are_summed, "loss-summed", "mse_loss"),
    (labels_of_a_convolution_that_are_summed, "loss-summed", "128 targets"),
    (scale_that_is_too_large, "updates-skipped", "24 of 24"),
    (scale_of_a_transformer_that_overflows, "updates-skipped", "24 of 24"),
    (rows_of_which_some_are_infinite, "updates-skipped", "36 of 72"),
)


def clipped(training: Diagnosed) -> None:
    model = network()
    train(classified(training, model), adam(model), between=lambda: clip_grad_norm_(model.parameters(), 0.1))


def clipped_after_it_is_unscaled(training: Diagnosed) -> None:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def between(scaler: torch.amp.GradScaler) -> None:
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.5)

    train_scaled(predicted(model), optimizer, between)


def values_clipped_after_the_backward_pass(training: Diagnosed) -> None:
    model = ConvNet()
    with replaced_by(clip_calls):
        train(
            classified(training, model), sgd(model), between=lambda: nn.utils.clip_grad_value_(model.parameters(), 0.5)
        )


def gradients_of_unit_length(training: Diagnosed) -> None:
    """Of a normalised descent, the rate is the length of a step."""
    model = network()

    def normalise() -> None:
        norm = torch.stack([weight.grad.norm() for weight in model.parameters() if weight.grad is not None]).norm()
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad /= norm

    train(classified(training, model), sgd(model, 0.05), between=normalise)


def critic_updated_by_two_batches(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)
    first, second = adam(maker, 2e-3), adam(critic, 2e-3)
    for step in range(24):
        real, _ = training.batch()
        second.zero_grad()
        made = maker(torch.randn(len(real), 4)).detach()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(made)).mean()).backward()
        second.step()
        if step % 2:
            first.zero_grad()
            F.softplus(-critic(maker(torch.randn(len(real), 4)))).mean().backward()
            first.step()


def quasi_newton(training: Diagnosed) -> None:
    """Its closure is evaluated several times for each update."""
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(training.inputs), training.labels) + 1e-2 * model[0].weight.square().sum()
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)


def cleared_parameter_by_parameter(training: Diagnosed) -> None:
    model = Recurrent()

    def clear() -> None:
        for weight in model.parameters():
            weight.grad = None

    train(classified(training, model), sgd(model), before=clear, clears=False)


def cleared_after_the_update(training: Diagnosed) -> None:
    model = Transformer()
    loss, optimizer = predicted(model), adam(model)
    for _ in range(20):
        loss().backward()
        optimizer.step()
        model.zero_grad()


def updates_by_hand(training: Diagnosed) -> None:
    model = ConvNet()
    loss = classified(training, model)
    for _ in range(30):
        loss().backward()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.grad is not None:
                    weight -= 0.1 * weight.grad
                    weight.grad = None


def accumulation(training: Diagnosed) -> None:
    model = network()
    accumulate(classified(training, model), sgd(model), 8, divided_by=8)


def words_accumulated_for_adam(training: Diagnosed) -> None:
    """It is indifferent to a factor."""
    model = Transformer()
    accumulate(predicted(model), adam(model), 4)


def accumulated_by_scaled_passes(training: Diagnosed) -> None:
    model = ConvNet()
    loss, optimizer, scaler = classified(training, model), sgd(model), torch.amp.GradScaler("cpu", init_scale=256.0)
    for number in range(40):
        scaler.scale(loss() / 4).backward()
        if number % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def summed_with_a_small_rate(training: Diagnosed) -> None:
    model = network()
    train(classified(training, model, reduction="sum"), sgd(model, 2e-3), steps=40)


def unscaled_by_hand(training: Diagnosed) -> None:
    model = Recurrent()

    def unscale(scaler: torch.amp.GradScaler) -> None:
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad /= scaler.get_scale()

    train_scaled(classified(training, model), sgd(model), unscale, scale=1024.0, through=False)


def scale_that_finds_its_size(training: Diagnosed) -> None:
    model = network()
    loss, optimizer, scaler = classified(training, model), adam(model), torch.amp.GradScaler("cpu", init_scale=2.0**24)
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            value = loss()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()


HEALTHY: tuple[Healthy, ...] = (
    (clipped_after_it_is_unscaled, "clipped-scaled"),
    (clipped, "clipped-away"),
    (gradients_of_unit_length, "clipped-away"),
    (values_clipped_after_the_backward_pass, "clips-nothing"),
    (critic_updated_by_two_batches, "gradients-repeated"),
    (quasi_newton, "gradients-repeated"),
    (cleared_parameter_by_parameter, "gradients-not-cleared"),
    (discriminator_that_is_cleared_in_its_turn, "gradients-not-cleared"),
    (cleared_after_the_update, "gradients-cleared-early"),
    (updates_by_hand, "no-optimizer"),
    (accumulation, "gradients-thrown-away"),
    (accumulated_by_scaled_passes, "gradients-thrown-away"),
    (words_accumulated_for_adam, "accumulation-scale"),
    (unscaled_by_hand, "gradients-still-scaled"),
    (two_losses_that_are_scaled, "gradients-still-scaled"),
    (summed_with_a_small_rate, "loss-summed"),
    (scale_that_finds_its_size, "updates-skipped"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
