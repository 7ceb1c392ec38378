"""Weights whose gradient is missing, or exactly 0, and trainings that look like that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    VAE,
    WIDTH,
    WORDS,
    Attention,
    ConvNet,
    Recurrent,
    Transformer,
    divergence,
    generator,
    next_word,
    train_gan,
    train_words,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def loss_made_anew(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.tensor(F.cross_entropy(out, labels).item(), requires_grad=True)

    training.train(network(), loss)


def errors_as_a_loss(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (out.argmax(1) != labels).float().mean().requires_grad_()

    training.train(ConvNet(), loss)


def losses_gathered_as_numbers(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        numbers = [F.cross_entropy(out[:, at], ids[:, at + 1]).item() for at in range(3)]
        return torch.tensor(numbers, requires_grad=True).mean()

    train_words(Transformer(), loss)


def updates_without_a_backward_pass(training: Diagnosed) -> None:
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(9):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels)
        optimizer.step()


class Cut(nn.Module):
    """A body and a head, with something between them."""

    def __init__(self, body: nn.Module, width: int, between: Any) -> None:
        super().__init__()
        self.body, self.head, self.between = body, nn.Linear(width, CLASSES), between

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.between(self.body(inputs)))
        return result


def detached_body(training: Diagnosed) -> None:
    training.train(Cut(network(out=16), 16, torch.Tensor.detach))


def features_by_numpy(training: Diagnosed) -> None:
    class Net(ConvNet):
        def features(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(super().features(inputs).data.numpy())

    training.train(Net())


def features_copied_by_numpy(training: Diagnosed) -> None:
    class Net(ConvNet):
        def features(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.tensor(super().features(inputs).detach().numpy().tolist())

    training.train(Net())


def words_embedded_without_gradients(training: Diagnosed) -> None:
    class Model(Transformer):
        def embed(self, ids: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return super().embed(ids)

    train_words(Model())


def state_detached_at_each_step(training: Diagnosed) -> None:
    """A recurrent network whose input layer only the earlier steps depend on."""

    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader, self.cell, self.head = nn.Linear(FEATURES, 8), nn.GRUCell(1, 8), nn.Linear(8, CLASSES)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            state = self.reader(inputs)
            for at in range(FEATURES):
                state = self.cell(inputs[:, at : at + 1], state.detach())
            result: torch.Tensor = self.head(state)
            return result

    training.train(Cells())


def code_of_which_only_the_index_is_used(training: Diagnosed) -> None:
    """A quantisation without its straight-through estimator."""

    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.codes, self.decoder = network(out=4), nn.Embedding(16, 4), nn.Linear(4, FEATURES)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            nearest = torch.cdist(self.encoder(inputs), self.codes.weight).argmin(1)
            result: torch.Tensor = self.decoder(self.codes(nearest))
            return result

    model = Quantised()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        F.mse_loss(model(inputs), inputs).backward()
        optimizer.step()


def generator_detached_in_its_turn(training: Diagnosed) -> None:
    train_gan(training, generator(), network(out=1), made_for_generator=torch.Tensor.detach)


def policy_whose_logarithms_are_detached(training: Diagnosed) -> None:
    actor, critic = network(out=2), network(out=1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
    for _ in range(20):
        state, _ = training.batch()
        policy = torch.distributions.Categorical(logits=actor(state))
        action = policy.sample()
        returns, value = (action == (state[:, 0] > 0)).float(), critic(state)[:, 0]
        chosen = policy.log_prob(action).detach()
        optimizer.zero_grad()
        (F.mse_loss(value, returns) - (chosen * (returns - value.detach())).mean()).backward()
        optimizer.step()


class TwoHeads(nn.Module):
    """Has a head that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = network(out=16), nn.Linear(16, CLASSES), nn.Linear(16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(inputs).relu())
        return result


def head_that_is_never_called(training: Diagnosed) -> None:
    training.train(TwoHeads())


def two_zero_factors(training: Diagnosed) -> None:
    model = network()
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    nn.init.zeros_(model[2].weight)
    training.train(model)


def adapters_of_zeros(training: Diagnosed) -> None:
    """Both factors of an adapter beside a frozen matrix begin at 0."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.head = nn.Linear(FEATURES, 16).requires_grad_(False), nn.Linear(16, CLASSES)
            self.down, self.up = nn.Linear(FEATURES, 2, bias=False), nn.Linear(2, 16, bias=False)
            nn.init.zeros_(self.down.weight)
            nn.init.zeros_(self.up.weight)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head((self.base(inputs) + self.up(self.down(inputs))).relu())
            return result

    training.train(Adapted())


def values_that_are_rounded(training: Diagnosed) -> None:
    """Rounding has a gradient of 0 everywhere; a straight-through estimator is missing."""
    training.train(Cut(ConvNet(), CLASSES, torch.round))


class NoGradient(torch.autograd.Function):
    """Clamps, with a backward pass that was never written."""

    @staticmethod
    def forward(_: Any, given: torch.Tensor) -> torch.Tensor:
        return given.clamp(-3, 3)

    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(gradients[0])


def backward_pass_of_zeros(training: Diagnosed) -> None:
    class Model(Transformer):
        def embed(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = NoGradient.apply(super().embed(ids))
            return result

    train_words(Model())


def output_clamped_out_of_reach(training: Diagnosed) -> None:
    """All outputs are below the range to which they are clamped."""
    model = network(out=1)
    nn.init.constant_(model[2].bias, -50.0)
    training.train(
        model, lambda out, labels: F.mse_loss(out[:, 0].clamp(0, 3), labels + 0.1 * torch.randn(len(labels)))
    )


def branch_times_zero(training: Diagnosed) -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.branch, self.gate = Recurrent(), ConvNet(), torch.zeros(())

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.cells(inputs) + self.gate * self.branch(inputs)
            return result

    training.train(Gated())


# --- straight-through-cancels ---


class Codes(nn.Module):
    """An autoencoder with a codebook.

    Parameters
    ----------
    estimate : callable (Tensor, Tensor) -> Tensor
        Given what the encoder puts out, and the code for it, returns what the decoder is given.
    """

    def __init__(self, estimate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.encoder, self.codes, self.decoder = network(out=4), nn.Embedding(16, 4), nn.Linear(4, FEATURES)
        self.estimate = estimate

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.encoder(inputs)
        code = self.codes(torch.cdist(hidden, self.codes.weight).argmin(1))
        distances = F.mse_loss(code, hidden.detach()) + 0.25 * F.mse_loss(hidden, code.detach())
        return self.decoder(self.estimate(hidden, code)), distances


def train_codes(training: Diagnosed, estimate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    model = Codes(estimate)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        restored, distances = model(inputs)
        optimizer.zero_grad()
        (F.mse_loss(restored, inputs) + distances).backward()
        optimizer.step()


def codes_without_a_detach(training: Diagnosed) -> None:
    train_codes(training, lambda hidden, code: hidden + (code - hidden))


def codes_whose_order_is_another(training: Diagnosed) -> None:
    train_codes(training, lambda hidden, code: code - hidden + hidden)


def codes_of_which_the_sum_comes_first(training: Diagnosed) -> None:
    train_codes(training, lambda hidden, code: code + hidden - hidden)


def activations_rounded_without_a_detach(training: Diagnosed) -> None:
    training.train(Cut(network(out=16), 16, lambda hidden: hidden + (hidden.round() - hidden)))


def weights_binarised_without_a_detach(training: Diagnosed) -> None:
    class Binary(nn.Linear):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return F.linear(inputs, (torch.sign(self.weight) - self.weight) + self.weight, self.bias)

    training.train(nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), Binary(16, 16), nn.ReLU(), nn.Linear(16, CLASSES)))


def choices_without_a_detach(training: Diagnosed) -> None:
    """A hard Gumbel softmax that is written out."""

    def choose(hidden: torch.Tensor) -> torch.Tensor:
        soft = F.gumbel_softmax(hidden, tau=1.0)
        hard = F.one_hot(soft.argmax(1), 16).float()
        return hard - soft + soft

    training.train(Cut(network(out=16), 16, choose))


def codes_with_a_detach(training: Diagnosed) -> None:
    train_codes(training, lambda hidden, code: hidden + (code - hidden).detach())


def codes_whose_other_term_is_detached(training: Diagnosed) -> None:
    train_codes(training, lambda hidden, code: code.detach() - hidden.detach() + hidden)


def means_that_are_added_again(training: Diagnosed) -> None:
    def centred(hidden: torch.Tensor) -> torch.Tensor:
        mean = hidden.mean(1, keepdim=True)
        return (hidden - mean) + mean + (hidden + F.relu(hidden) - hidden)

    training.train(Cut(network(out=16), 16, centred))


def steps_towards_an_average(training: Diagnosed) -> None:
    """Residual connections, and a step from one tensor towards another one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = (
                nn.Linear(FEATURES, 16),
                nn.Linear(FEATURES, 16),
                nn.Linear(16, CLASSES),
            )

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            first, second = self.first(inputs).tanh(), self.second(inputs).tanh()
            mixed = first + 0.5 * (second - first) + torch.sub(second, first, alpha=0.25)
            result: torch.Tensor = self.head(mixed + F.relu(mixed) - mixed.mean(1, keepdim=True))
            return result

    training.train(Model())


def expert_of_every_second_block(training: Diagnosed) -> None:
    """The steps that are read late are those of the other experts; evaluations call it, too."""
    experts = nn.ModuleList(network() for _ in range(3))
    optimizer = torch.optim.Adam(experts.parameters(), lr=1e-3)
    for step in range(1, 241):
        rows, labels = training.batch()
        # From the first step after those that are read all on, and never in each twentieth one.
        at = 2 if step > 70 and step // 10 % 2 else step % 2
        optimizer.zero_grad()
        F.cross_entropy(experts[at](rows), labels).backward()
        optimizer.step()
        if step % 60 == 0:
            with torch.no_grad():
                for expert in experts:
                    expert(rows)


FAULTY: tuple[Faulty, ...] = (
    (codes_without_a_detach, "straight-through-cancels", "detach"),
    (codes_whose_order_is_another, "straight-through-cancels", "test_no_gradient.py"),
    (codes_of_which_the_sum_comes_first, "straight-through-cancels", "test_no_gradient.py"),
    (activations_rounded_without_a_detach, "straight-through-cancels", "detach"),
    (weights_binarised_without_a_detach, "straight-through-cancels", "detach"),
    (choices_without_a_detach, "straight-through-cancels", "detach"),
    (loss_made_anew, "no-gradients", "new tensor, made at test_no_gradient.py:"),
    (errors_as_a_loss, "no-gradients", "argmax (test_no_gradient.py:"),
    (losses_gathered_as_numbers, "no-gradients", "models.py:"),
    (updates_without_a_backward_pass, "no-gradients", "no backward pass"),
    (detached_body, "no-gradient", "is detached (test_no_gradient.py:"),
    (features_by_numpy, "no-gradient", "is detached"),
    (features_copied_by_numpy, "no-gradient", "no tensor of a graph after that"),
    (words_embedded_without_gradients, "no-gradient", "switched off (models.py:"),
    (state_detached_at_each_step, "state-detached", "cell"),
    (code_of_which_only_the_index_is_used, "no-gradient", "argmin (test_no_gradient.py:"),
    (generator_detached_in_its_turn, "no-gradient", "is detached"),
    (policy_whose_logarithms_are_detached, "no-gradient", "is detached"),
    (head_that_is_never_called, "no-gradient", "other.weight, other.bias"),
    (two_zero_factors, "zero-gradient", "0.weight"),
    (adapters_of_zeros, "zero-gradient", "down.weight, up.weight"),
    (values_that_are_rounded, "zero-gradient", "round, whose derivative is 0"),
    (backward_pass_of_zeros, "zero-gradient", "words.weight, positions.weight"),
    (output_clamped_out_of_reach, "zero-gradient", "all weights"),
    (branch_times_zero, "zero-gradient", "branch.first.weight"),
)


def batches_without_a_loss(training: Diagnosed) -> None:
    """Of two in three batches nothing is learnt."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(18):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss = torch.zeros((), requires_grad=True) if number % 3 else F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()


def loss_written_as_a_number(training: Diagnosed) -> None:
    """The numbers are for the eye; the loss goes on."""
    shown = []

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        value = next_word(out, ids)
        shown.append(torch.tensor(value.item(), requires_grad=True))
        return value

    train_words(Transformer(), loss)


def frozen_body(training: Diagnosed) -> None:
    model = network()
    model[0].requires_grad_(False)
    training.train(model)


def features_of_a_frozen_body(training: Diagnosed) -> None:
    body = ConvNet().requires_grad_(False).eval()
    head = nn.Linear(CLASSES, CLASSES)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = body, head

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                hidden = self.body(inputs)
            result: torch.Tensor = self.head(hidden)
            return result

    training.train(Model(), optimizer=torch.optim.Adam(head.parameters(), lr=1e-2))


def generator_detached_for_its_critic(training: Diagnosed) -> None:
    train_gan(training, generator(), network(out=1))


def target_of_a_view_that_is_detached(training: Diagnosed) -> None:
    """Each of two views is predicted from the other, whose gradient is stopped."""
    body, predictor = network(out=8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD([*body.parameters(), *predictor.parameters()], lr=0.05)
    for _ in range(20):
        inputs, _ = training.batch()
        views = [body(inputs + 0.1 * torch.randn_like(inputs)) for _ in range(2)]
        first, second = (predictor(view) for view in views)
        loss = -F.cosine_similarity(first, views[1].detach()).mean()
        loss = loss - F.cosine_similarity(second, views[0].detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def straight_through(training: Diagnosed) -> None:
    training.train(Cut(network(out=16), 16, lambda hidden: hidden + (hidden.round() - hidden).detach()))


def code_with_a_straight_through_estimator(training: Diagnosed) -> None:
    encoder, codes, decoder = network(out=4), nn.Embedding(16, 4), nn.Linear(4, FEATURES)
    model = nn.ModuleList((encoder, codes, decoder))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        hidden = encoder(inputs)
        code = codes(torch.cdist(hidden, codes.weight).argmin(1))
        distances = F.mse_loss(code, hidden.detach()) + 0.25 * F.mse_loss(hidden, code.detach())
        optimizer.zero_grad()
        (F.mse_loss(decoder(hidden + (code - hidden).detach()), inputs) + distances).backward()
        optimizer.step()


def zero_initialised_branch(training: Diagnosed) -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up, self.head = nn.Linear(FEATURES, 4), nn.Linear(4, FEATURES), nn.Linear(FEATURES, CLASSES)
            nn.init.zeros_(self.up.weight)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(inputs + self.up(self.down(inputs)))
            return result

    training.train(Branch())


def residual_blocks_that_begin_at_zero(training: Diagnosed) -> None:
    """Of a block whose last layer is 0, the gradients are 0 in the first step only."""
    model = Transformer(depth=2)
    for block in model.blocks:
        assert isinstance(block, Attention)
        nn.init.zeros_(block.out.weight)
        nn.init.zeros_(block.down.weight)
    train_words(model)


def pixels_that_are_never_lit(training: Diagnosed) -> None:
    training.inputs[:, 3:] = 0.0
    training.train(network())


def words_that_never_occur(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Embedding(200, WIDTH), nn.Linear(WIDTH, WORDS))
    train_words(model)


def code_of_a_vae(training: Diagnosed) -> None:
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, _ = training.batch()
        made, mean, logarithm = model(inputs)
        optimizer.zero_grad()
        (F.mse_loss(made, inputs) + 0.01 * divergence(mean, logarithm)).backward()
        optimizer.step()


def blocks_of_which_the_last_hands_nothing_on(training: Diagnosed) -> None:
    """Each block predicts, and takes from the input what it has explained; nothing follows the last one."""

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.forecasts = nn.ModuleList(network() for _ in range(3))
            self.explained = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(len(inputs), CLASSES)
            for forecast, explained in zip(self.forecasts, self.explained, strict=True):
                total = total + forecast(inputs)
                inputs = inputs - explained(inputs)
            return total

    training.train(Blocks())


HEALTHY: tuple[Healthy, ...] = (
    (expert_of_every_second_block, "no-gradient"),
    (codes_with_a_detach, "straight-through-cancels"),
    (codes_whose_other_term_is_detached, "straight-through-cancels"),
    (means_that_are_added_again, "straight-through-cancels"),
    (steps_towards_an_average, "straight-through-cancels"),
    (batches_without_a_loss, "no-gradients"),
    (loss_written_as_a_number, "no-gradients"),
    (frozen_body, "no-gradient"),
    (features_of_a_frozen_body, "no-gradient"),
    (generator_detached_for_its_critic, "no-gradient"),
    (target_of_a_view_that_is_detached, "no-gradient"),
    (code_with_a_straight_through_estimator, "no-gradient"),
    (code_of_a_vae, "no-gradient"),
    (blocks_of_which_the_last_hands_nothing_on, "no-gradient"),
    (straight_through, "zero-gradient"),
    (zero_initialised_branch, "zero-gradient"),
    (residual_blocks_that_begin_at_zero, "zero-gradient"),
    (pixels_that_are_never_lit, "zero-gradient"),
    (words_that_never_occur, "zero-gradient"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_parameters_beside_a_dead_matrix_are_counted_with_it(diagnosed: Diagnosed) -> None:
    two_zero_factors(diagnosed)
    (finding,) = diagnosed.findings()
    assert (finding.values["count"], finding.values["of"]) == (2, 4)


class ReturnsNothing(NoGradient):
    @staticmethod
    def backward(_: Any, *gradients: torch.Tensor) -> None:  # type: ignore[override]
        assert gradients


def test_what_is_detached_beside_the_cause_is_not_blamed(diagnosed: Diagnosed) -> None:
    """The straight-through estimator is right; the backward pass behind it returns nothing."""

    def rounded(hidden: torch.Tensor) -> torch.Tensor:
        hidden = ReturnsNothing.apply(hidden)
        return hidden + (hidden.round() - hidden).detach()

    diagnosed.train(Cut(network(out=16), 16, rounded))
    (finding,) = diagnosed.findings()
    assert (finding.rule, finding.message, finding.where["line"]) == ("no-gradient", "some", "")
