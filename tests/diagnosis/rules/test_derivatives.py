"""Losses with derivatives that are constants to the weights, and derivatives that may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import BATCH, FEATURES, Diagnosed, Faulty, Healthy, network, table_tests
from tests.diagnosis.models import generator

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 12


def smooth(inputs: int = FEATURES, out: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, out))


def derivative(of: torch.Tensor, inputs: torch.Tensor, *, create_graph: bool) -> torch.Tensor:
    return torch.autograd.grad(of.sum(), inputs, retain_graph=True, create_graph=create_graph)[0]


def train(model: nn.Module, loss: Callable[[], torch.Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


# --- derivative-constant ---


def train_critic(training: Diagnosed, *, create_graph: bool) -> None:
    """The critic of a WGAN with a gradient penalty."""
    critic = nn.Sequential(nn.Linear(FEATURES, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def loss() -> torch.Tensor:
        real, _ = training.batch()
        made, share = torch.randn(BATCH, FEATURES) * 0.5 + 1, torch.rand(BATCH, 1)
        mixed = (share * real + (1 - share) * made).requires_grad_()
        (slope,) = torch.autograd.grad(
            critic(mixed), mixed, torch.ones(BATCH, 1), retain_graph=True, create_graph=create_graph
        )
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        result: torch.Tensor = critic(made).mean() - critic(real).mean() + 10 * penalty
        return result

    train(critic, loss)


def critic_without_a_penalty(training: Diagnosed) -> None:
    train_critic(training, create_graph=False)


def critic_with_a_penalty(training: Diagnosed) -> None:
    train_critic(training, create_graph=True)


def train_in_turns(training: Diagnosed, *, create_graph: bool) -> None:
    """A GAN whose discriminator has a penalty (R1) in some steps only."""
    maker, critic = generator(), smooth()
    first, second = (torch.optim.Adam(model.parameters(), lr=1e-3) for model in (maker, critic))
    for step in range(2 * STEPS):
        real, _ = training.batch()
        made = maker(torch.randn(BATCH, 4))
        loss = F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()
        if step % 8 == 0:
            real.requires_grad_()
            slope = derivative(critic(real), real, create_graph=create_graph)
            loss = loss + 8 * 0.5 * slope.square().sum(1).mean()
        second.zero_grad()
        loss.backward()
        second.step()
        first.zero_grad()
        F.softplus(-critic(maker(torch.randn(BATCH, 4)))).mean().backward()
        first.step()


def rare_penalty_that_is_constant(training: Diagnosed) -> None:
    train_in_turns(training, create_graph=False)


def rare_penalty(training: Diagnosed) -> None:
    train_in_turns(training, create_graph=True)


def train_on_an_equation(_: Diagnosed, *, create_graph: bool, with_time: bool) -> None:
    """A network that solves u'' = -sin(pi x), or the equation of heat with time, with its values at the boundary."""
    model = smooth(1 + with_time)

    def loss() -> torch.Tensor:
        points = torch.rand(64, 1 + with_time).requires_grad_()
        value = model(points)
        slope = derivative(value, points, create_graph=True)
        bend = derivative(slope[:, :1], points, create_graph=create_graph)[:, :1]
        residual = slope[:, 1:] - 0.1 * bend if with_time else bend + torch.sin(torch.pi * points)
        ends = torch.rand(16, 1 + with_time)
        ends[:, 0] = ends[:, 0].round()
        return (residual**2).mean() + (model(ends) ** 2).mean()

    train(model, loss)


def equation_whose_second_derivative_is_constant(training: Diagnosed) -> None:
    train_on_an_equation(training, create_graph=False, with_time=False)


def heat_whose_second_derivative_is_constant(training: Diagnosed) -> None:
    train_on_an_equation(training, create_graph=False, with_time=True)


def equation_with_its_graph(training: Diagnosed) -> None:
    train_on_an_equation(training, create_graph=True, with_time=False)


def heat_with_its_graph(training: Diagnosed) -> None:
    train_on_an_equation(training, create_graph=True, with_time=True)


def train_on_forces(training: Diagnosed, *, create_graph: bool) -> None:
    """Energies and forces, as of a potential between atoms."""
    model = smooth()

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        inputs.requires_grad_()
        energy = model(inputs)
        forces = -derivative(energy, inputs, create_graph=create_graph)
        value, slope = (inputs.detach() ** 2).sum(1, keepdim=True), 2 * inputs.detach()
        total = F.mse_loss(forces, -slope)
        total += F.mse_loss(energy, value)
        return total / 2

    train(model, loss)


def forces_that_are_constant(training: Diagnosed) -> None:
    train_on_forces(training, create_graph=False)


def forces_with_their_graph(training: Diagnosed) -> None:
    train_on_forces(training, create_graph=True)


def train_scores(training: Diagnosed, *, create_graph: bool) -> None:
    """Sliced score matching."""
    model = smooth(out=FEATURES)

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        inputs.requires_grad_()
        score, direction = model(inputs), torch.randn(BATCH, FEATURES)
        bend = derivative(score * direction, inputs, create_graph=create_graph)
        return ((bend * direction).sum(1) + 0.5 * (score**2).sum(1)).mean()

    train(model, loss)


def scores_whose_divergence_is_constant(training: Diagnosed) -> None:
    train_scores(training, create_graph=False)


def scores_with_their_divergence(training: Diagnosed) -> None:
    train_scores(training, create_graph=True)


def train_to_compare(_: Diagnosed, *, create_graph: bool) -> None:
    """The equation of heat, whose two sides are compared by a loss function."""
    model = smooth(2)

    def loss() -> torch.Tensor:
        points = torch.rand(64, 2).requires_grad_()
        slope = derivative(model(points), points, create_graph=True)
        bend = derivative(slope[:, 0], points, create_graph=create_graph)[:, 0]
        ends = torch.rand(16, 2)
        return F.mse_loss(slope[:, 1], 0.1 * bend) + F.mse_loss(model(ends), ends[:, :1])

    train(model, loss)


def sides_of_an_equation_that_are_compared(training: Diagnosed) -> None:
    train_to_compare(training, create_graph=False)


def sides_with_their_graph(training: Diagnosed) -> None:
    train_to_compare(training, create_graph=True)


def train_contractive(training: Diagnosed, *, create_graph: bool) -> None:
    """A contractive autoencoder: the Jacobian of what it encodes is small."""
    encoder, decoder = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh()), nn.Linear(4, FEATURES)
    model = nn.Sequential(encoder, decoder)

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        slopes = torch.autograd.functional.jacobian(
            lambda each: encoder(each).sum(0), inputs, create_graph=create_graph
        )
        return F.mse_loss(model(inputs), inputs) + 0.1 * (slopes**2).sum(2).mean()

    train(model, loss)


def jacobian_that_is_constant(training: Diagnosed) -> None:
    train_contractive(training, create_graph=False)


def jacobian_with_its_graph(training: Diagnosed) -> None:
    train_contractive(training, create_graph=True)


FAULTY: tuple[Faulty, ...] = (
    (critic_without_a_penalty, "derivative-constant", "test_derivatives.py"),
    (rare_penalty_that_is_constant, "derivative-constant", "in 1 of the first steps"),
    (
        equation_whose_second_derivative_is_constant,
        "derivative-constant",
        f"test_derivatives.py:{derivative.__code__.co_firstlineno + 1}",
    ),
    (heat_whose_second_derivative_is_constant, "derivative-constant", "same output"),
    (forces_that_are_constant, "derivative-constant", "trains nothing"),
    (scores_whose_divergence_is_constant, "derivative-constant", "trains nothing"),
    (sides_of_an_equation_that_are_compared, "derivative-constant", "same output"),
    (jacobian_that_is_constant, "derivative-constant", "trains nothing"),
)


def adversarial_inputs(training: Diagnosed) -> None:
    """The inputs move along the derivative, and go through the model again."""
    model = network()

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        moved = inputs.clone().requires_grad_()
        value = F.cross_entropy(model(moved), labels)
        (slope,) = torch.autograd.grad(value, moved, retain_graph=True)
        unit = slope / (slope.norm(dim=1, keepdim=True) + 1e-8)
        return (
            value + F.cross_entropy(model(inputs + 0.1 * unit), labels) + F.cross_entropy(model(moved + unit), labels)
        )

    train(model, loss)


def energies_of_samples(training: Diagnosed) -> None:
    """An energy with a Gaussian prior, whose samples move along its derivative."""
    model = smooth()

    def energy(inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(inputs).squeeze(1) + 0.5 * (inputs**2).sum(1)
        return result

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        made = torch.randn_like(inputs)
        for _ in range(5):
            made.requires_grad_()
            (slope,) = torch.autograd.grad(energy(made).sum(), made)
            made = made.detach() - 0.05 * slope + 0.1 * torch.randn_like(made)
        return (energy(inputs) - energy(made)).mean()

    train(model, loss)


def first_order_meta_learning(_: Diagnosed) -> None:
    """Inner steps on copies of the weights, whose second derivatives are left out."""
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss() -> torch.Tensor:
        slope, inputs = torch.randn(()), torch.rand(32, 1)
        weights = {name: weight.clone() for name, weight in model.named_parameters()}
        for _ in range(2):
            value = F.mse_loss(torch.func.functional_call(model, weights, inputs), slope * inputs)
            slopes = torch.autograd.grad(value, list(weights.values()))
            weights = {name: weight - 0.1 * each for (name, weight), each in zip(weights.items(), slopes, strict=True)}
        return F.mse_loss(torch.func.functional_call(model, weights, inputs), slope * inputs)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = sum((F.mse_loss(model(torch.rand(8, 1)), torch.zeros(8, 1)) * 1e-3, loss()), torch.zeros(()))
        total.backward()
        optimizer.step()


def weights_of_samples(training: Diagnosed) -> None:
    """Samples whose loss is steep count more."""
    model = network()

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        inputs.requires_grad_()
        each = F.cross_entropy(model(inputs), labels, reduction="none")
        (slope,) = torch.autograd.grad(each.sum(), inputs, retain_graph=True)
        weights = 1 + slope.norm(dim=1)
        return (weights * each).mean() + 0.1 * each.mean()

    train(model, loss)


def slopes_that_are_logged(training: Diagnosed) -> None:
    model = network()
    logged = []

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        inputs.requires_grad_()
        value = F.cross_entropy(model(inputs), labels)
        (slope,) = torch.autograd.grad(value, inputs, retain_graph=True)
        logged.append(float(slope.norm() + value.detach()))
        return value

    train(model, loss)


def gradients_that_are_predicted(training: Diagnosed) -> None:
    """Synthetic gradients: a small network predicts the derivative, which is its target."""
    model = nn.ModuleList((nn.Linear(FEATURES, 16), nn.Linear(16, 4), nn.Linear(16, 16)))

    def loss() -> torch.Tensor:
        inputs, labels = training.batch()
        hidden = model[0](inputs)
        value = F.cross_entropy(model[1](hidden.relu()), labels)
        (slope,) = torch.autograd.grad(value, hidden, retain_graph=True)
        return value + ((model[2](hidden.detach()) - slope) ** 2).mean()

    train(model, loss)


def derivative_as_a_target(training: Diagnosed) -> None:
    """A head learns the derivative of another one with the same body: so it need not be computed again."""
    body, heads = smooth(out=16), nn.ModuleList((nn.Linear(16, 1), nn.Linear(16, FEATURES)))
    model = nn.ModuleList((body, heads))

    def loss() -> torch.Tensor:
        inputs, _ = training.batch()
        inputs.requires_grad_()
        hidden = body(inputs)
        energy = heads[0](hidden)
        (slope,) = torch.autograd.grad(energy.sum(), inputs, retain_graph=True)
        made: torch.Tensor = heads[1](hidden)
        return F.mse_loss(made, slope) + (made - slope).abs().mean() + F.mse_loss(energy, inputs[:, :1].detach())

    train(model, loss)


HEALTHY: tuple[Healthy, ...] = (
    (rare_penalty, "derivative-constant"),
    (critic_with_a_penalty, "derivative-constant"),
    (equation_with_its_graph, "derivative-constant"),
    (heat_with_its_graph, "derivative-constant"),
    (forces_with_their_graph, "derivative-constant"),
    (scores_with_their_divergence, "derivative-constant"),
    (adversarial_inputs, "derivative-constant"),
    (energies_of_samples, "derivative-constant"),
    (first_order_meta_learning, "derivative-constant"),
    (weights_of_samples, "derivative-constant"),
    (slopes_that_are_logged, "derivative-constant"),
    (gradients_that_are_predicted, "derivative-constant"),
    (derivative_as_a_target, "derivative-constant"),
    (sides_with_their_graph, "derivative-constant"),
    (jacobian_with_its_graph, "derivative-constant"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
