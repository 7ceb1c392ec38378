"""Trainings whose loss shows what is wrong, and healthy ones that resemble them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import (
    BATCH,
    CLASSES,
    FEATURES,
    Faulty,
    Healthy,
    Training,
    each,
    network,
    table_tests,
)
from tests.diagnosis.models import WORDS, Transformer, next_word
from tests.diagnosis.tasks import SIDE, Reader, convolutional, give_pictures, give_sequences, give_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

# --- loss-zero ---


def margin_that_is_reached_at_once(training: Diagnosed) -> None:
    model = network(out=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    training.train(model, lambda out, _: F.relu(out[:, 0] - out[:, 1] + 0.01).mean(), optimizer=optimizer, steps=80)


def mask_that_covers_all(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = (labels > CLASSES).float()
        return (F.cross_entropy(out, labels, reduction="none") * mask).sum() / mask.sum().clamp(min=1)

    training.train(Reader(), loss)


def teacher_that_is_the_student(training: Diagnosed) -> None:
    give_pictures(training)
    student = convolutional()
    teacher = student
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for _ in range(20):
        inputs, _ = training.batch()
        with torch.no_grad():
            target = teacher(inputs)
        optimizer.zero_grad()
        F.mse_loss(student(inputs), target).backward()
        optimizer.step()


def ranks_of_0_and_not_of_minus_1(training: Diagnosed) -> None:
    """The ranking loss multiplies by the target: that is 1 or -1, and 0 where the order is wrong."""
    scores = nn.Linear(FEATURES, 1)
    training.inputs = training.inputs.abs()
    training.train(
        scores,
        lambda out, _: F.margin_ranking_loss(out[: BATCH // 2, 0], out[BATCH // 2 :, 0], torch.zeros(BATCH // 2)),
    )


def margin_that_is_reached(training: Diagnosed) -> None:
    """The loss is 0 at last, because everything is learnt."""
    model = network(out=2)
    training.train(
        model,
        lambda out, labels: F.relu(0.1 - (out[:, 0] - out[:, 1]) * (2.0 * (labels > 1) - 1)).mean(),
        optimizer=torch.optim.Adam(model.parameters(), lr=3e-3),
        steps=120,
    )


def penalty_that_is_0_at_first(training: Diagnosed) -> None:
    """The distance from the weights before this task, which begins at them."""
    model = network()
    training.train(model)
    before = [weight.detach().clone() for weight in model.parameters()]

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        moved = [(a - b).square().sum() for a, b in zip(model.parameters(), before, strict=True)]
        return F.cross_entropy(out, labels) + 10 * torch.stack(moved).sum()

    training.train(model, loss, steps=60)


# --- loss-constant ---


def loss_of_the_first_weights(training: Diagnosed) -> None:
    """The predictions of one batch are computed before the training, and their graph is kept."""
    model = network()
    inputs, labels = training.batch()
    loss = F.cross_entropy(model(inputs), labels)
    optimizer = torch.optim.SGD([model[2].bias], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


def floor_that_is_too_high(training: Diagnosed) -> None:
    """The loss is kept above a floor, below which it is from the start."""
    give_pictures(training)
    training.train(convolutional(), lambda out, labels: F.cross_entropy(out, labels).clamp(min=2.0))


def views_that_are_the_same(training: Diagnosed) -> None:
    """Of three views of a sequence none differs from another one: the loss is the margin."""
    give_sequences(training)
    training.train(Reader(), lambda out, _: F.triplet_margin_loss(out, out, out))


def ratio_of_probabilities(training: Diagnosed) -> None:
    """The ratio is 1 before the first update of each batch, and the loss the mean of the advantages."""
    policy = network()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        actions = torch.distributions.Categorical(logits=out)
        action = actions.sample()
        chosen = actions.log_prob(action)
        advantages = (action == labels).float()
        return -((chosen - chosen.detach()).exp() * advantages).mean()

    training.train(policy, loss)


def advantages_of_a_group(training: Diagnosed) -> None:
    """As in GRPO: those of two answers are 1 and -1, and the loss 0 though its gradient is not."""
    policy = network()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(20):
        actions = torch.distributions.Categorical(logits=policy(training.batch()[0]))
        chosen = actions.log_prob(actions.sample())
        advantages = torch.where(torch.arange(len(chosen)) % 2 == 0, 1.0, -1.0)
        optimizer.zero_grad()
        (-((chosen - chosen.detach()).exp() * advantages).mean()).backward()
        optimizer.step()


def ranks_as_advantages(training: Diagnosed) -> None:
    """Returns count by their ranks, whose mean is the same in each batch."""
    policy = network()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        actions = torch.distributions.Categorical(logits=out)
        action = actions.sample()
        chosen = actions.log_prob(action)
        ranks = ((action == labels) + 0.01 * torch.rand(len(out))).argsort().argsort() / 32
        return -((chosen - chosen.detach()).exp() * ranks).sum()

    training.train(policy, loss)


def one_batch_and_a_warm_up(training: Diagnosed) -> None:
    """The loss of one batch is the same until the first rate that is not 0."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step < 6 else 1.0)
    training.inputs, training.labels = training.inputs[:BATCH], training.labels[:BATCH]
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs), training.labels).backward()
        optimizer.step()
        schedule.step()


# --- loss-sign ---


def loss_that_is_maximised(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: -F.cross_entropy(out, labels))


def optimizer_that_maximises(training: Diagnosed) -> None:
    give_pictures(training)
    model = convolutional()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, maximize=True))


def likelihood_without_a_minus(training: Diagnosed) -> None:
    give_texts(training)

    def likelihood(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return out[:, :-1].log_softmax(2).gather(2, ids[:, 1:, None]).mean()

    training.train(Transformer(), likelihood)


def distance_that_grows(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 0 - F.smooth_l1_loss(out[:, 0], labels - 1.5)

    training.train(Reader(1), loss)


def accumulated_and_negated(training: Diagnosed) -> None:
    model = network(out=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(48):
        inputs, labels = training.batch()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.binary_cross_entropy_with_logits(model(inputs)[:, 0], (labels > 1).float())
        (loss / -4).backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def negated_and_maximised(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, maximize=True)
    training.train(model, lambda out, labels: -F.cross_entropy(out, labels), optimizer)


def negative_likelihood(training: Diagnosed) -> None:
    def likelihood(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -torch.distributions.Normal(out[:, 0], 0.01 + out[:, 1].exp()).log_prob(labels.float()).mean()

    training.train(network(out=2), likelihood)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_: object, given: torch.Tensor) -> torch.Tensor:
        return given.clone()

    @staticmethod
    def backward(_: object, *gradients: torch.Tensor) -> torch.Tensor:
        return -0.1 * gradients[0]


def domains_that_are_to_be_confused(training: Diagnosed) -> None:
    """The gradient is reversed on the way to the body, and nowhere else."""
    body, head, domains = network(out=16), nn.Linear(16, CLASSES), nn.Linear(16, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters(), *domains.parameters()], lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        hidden = body(inputs).relu()
        origin = (torch.arange(len(inputs)) % 2).float()
        confusion = F.binary_cross_entropy_with_logits(domains(_Reversed.apply(hidden))[:, 0], origin)
        optimizer.zero_grad()
        (F.cross_entropy(head(hidden), labels) + confusion).backward()
        optimizer.step()


def knowledge_that_is_forgotten(training: Diagnosed) -> None:
    """The loss of what is to be forgotten is subtracted from that of what is to be kept."""
    model = network()
    training.train(model, steps=60)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        forgotten = labels == 0
        return F.cross_entropy(out[~forgotten], labels[~forgotten]) - 0.1 * F.cross_entropy(
            out[forgotten], labels[forgotten]
        )

    training.train(model, loss, torch.optim.SGD(model.parameters(), lr=0.01))


# --- code-unused, divergence-maximized ---


def as_in_the_paper(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    return -0.5 * (1 + logarithm - mean**2 - logarithm.exp()).sum(1).mean()


def of_deviations(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    variance = logarithm.exp()
    return 0.5 * (variance + mean * mean - 1 - torch.log(variance)).sum(1).mean()


def without_minus(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    return (mean.pow(2) + logarithm.exp() - 1 - logarithm).mul(0.5).sum(1).mean()


def of_distributions(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    normal = torch.distributions.Normal
    standard = normal(torch.zeros_like(mean), torch.ones_like(mean))
    result: torch.Tensor = (
        torch.distributions.kl_divergence(normal(mean, (0.5 * logarithm).exp()), standard).sum(1).mean()
    )
    return result


class Variational(nn.Module):
    """A variational autoencoder, whose encoder puts out twice as many numbers as its decoder is given."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, logarithm = self.encoder(given).chunk(2, 1)
        return self.decoder(self.drawn(mean, (0.5 * logarithm).exp())), mean, logarithm

    def drawn(self, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
        """Draw a code."""
        return mean + deviation * torch.randn_like(mean)


def autoencoder_of_rows(
    training: Diagnosed, divergence: Callable[..., torch.Tensor], sign: float, steps: int = 20, rate: float = 1e-3
) -> None:
    model = Variational(nn.Linear(FEATURES, 8), nn.Linear(4, FEATURES))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        inputs, _ = training.batch()
        out, mean, logarithm = model(inputs)
        optimizer.zero_grad()
        ((out - inputs).pow(2).sum(1).mean() + sign * divergence(mean, logarithm)).backward()
        optimizer.step()


def autoencoder_of_pictures(
    training: Diagnosed, divergence: Callable[..., torch.Tensor], sign: float, steps: int = 20, rate: float = 1e-3
) -> None:
    give_pictures(training)
    decoder = nn.Sequential(nn.Linear(4, SIDE * SIDE), nn.Unflatten(1, (1, SIDE, SIDE)), nn.Sigmoid())
    model = Variational(convolutional(out=8), decoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        pictures = training.batch()[0].clamp(0, 1)
        out, mean, logarithm = model(pictures)
        evidence = -F.binary_cross_entropy(out, pictures, reduction="sum") / len(pictures)
        optimizer.zero_grad()
        (-(evidence - sign * divergence(mean, logarithm))).backward()
        optimizer.step()


def autoencoder_of_sequences(
    training: Diagnosed, divergence: Callable[..., torch.Tensor], sign: float, steps: int = 20, rate: float = 1e-3
) -> None:
    give_sequences(training)
    model = Variational(Reader(8), nn.Linear(4, FEATURES))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=rate)
    for step in range(steps):
        inputs, _ = training.batch()
        out, mean, logarithm = model(inputs)
        weight = min(step / 10, 1.0) + 0.1
        optimizer.zero_grad()
        (F.l1_loss(out, inputs.mean(1)) + sign * weight * divergence(mean, logarithm)).backward()
        optimizer.step()


def weights_with_a_prior(training: Diagnosed, divergence: Callable[..., torch.Tensor], sign: float) -> None:
    """A network whose weights are normal distributions."""

    class Bayesian(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(0.1 * torch.randn(CLASSES, FEATURES))
            self.logarithm = nn.Parameter(torch.full((CLASSES, FEATURES), -4.0))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            weight = self.mean + (0.5 * self.logarithm).exp() * torch.randn_like(self.mean)
            return F.linear(given, weight)

    model = Bayesian()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, labels) + sign * 0.01 * divergence(model.mean, model.logarithm)

    training.train(model, loss)


def rows_under_a_divergence(training: Diagnosed) -> None:
    autoencoder_of_rows(training, without_minus, 30.0, steps=120, rate=1e-2)


def pictures_under_a_divergence(training: Diagnosed) -> None:
    autoencoder_of_pictures(training, as_in_the_paper, 300.0, steps=150, rate=1e-2)


def sequences_under_a_divergence(training: Diagnosed) -> None:
    """The error is averaged over the features, the divergence is summed over the code."""
    autoencoder_of_sequences(training, as_in_the_paper, 1.0, steps=150, rate=1e-2)


def rows_with_a_code(training: Diagnosed) -> None:
    autoencoder_of_rows(training, as_in_the_paper, 0.1, steps=120, rate=1e-2)


def pictures_with_a_code(training: Diagnosed) -> None:
    autoencoder_of_pictures(training, without_minus, 0.1, steps=120, rate=1e-2)


def rows_whose_divergence_is_subtracted(training: Diagnosed) -> None:
    autoencoder_of_rows(training, as_in_the_paper, -1.0)


def pictures_whose_divergence_is_subtracted(training: Diagnosed) -> None:
    autoencoder_of_pictures(training, without_minus, -1.0)


def sequences_whose_divergence_is_subtracted(training: Diagnosed) -> None:
    autoencoder_of_sequences(training, of_distributions, -1.0)


def weights_that_leave_their_prior(training: Diagnosed) -> None:
    weights_with_a_prior(training, of_deviations, -1.0)


def rows_with_a_divergence(training: Diagnosed) -> None:
    autoencoder_of_rows(training, as_in_the_paper, 1.0)


def pictures_with_a_divergence(training: Diagnosed) -> None:
    autoencoder_of_pictures(training, without_minus, 1.0)


def sequences_with_a_divergence(training: Diagnosed) -> None:
    autoencoder_of_sequences(training, of_distributions, 1.0)


def weights_that_stay_near_their_prior(training: Diagnosed) -> None:
    weights_with_a_prior(training, of_deviations, 1.0)


def divergence_of_a_given_size(training: Diagnosed) -> None:
    """A capacity is subtracted from the divergence, and the distance from it added."""
    autoencoder_of_rows(training, lambda mean, logarithm: (without_minus(mean, logarithm) - 2.0).abs(), 1.0)


# --- loss-negative ---


def scores_for_a_divergence(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out + 3, 0.9 * F.one_hot(labels, 4) + 0.025, reduction="batchmean")

    training.train(network(), loss)


def targets_that_sum_to_less(training: Diagnosed) -> None:
    give_pictures(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(F.log_softmax(out, 1), 0.01 + 0.01 * F.one_hot(labels, 4).float(), reduction="batchmean")

    training.train(convolutional(), loss)


def weight_that_is_a_logarithm(training: Diagnosed) -> None:
    """The weight of what is true is the logarithm of a ratio below 1."""
    give_sequences(training)
    ratio = (training.labels == 0).sum() / (training.labels > 0).sum()

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 0).float(), pos_weight=ratio.log())

    training.train(Reader(1), loss, steps=40)


def logarithms_for_ctc(training: Diagnosed) -> None:
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        scores = out.transpose(0, 1).log_softmax(2)
        texts = torch.stack([labels % 3 + 1, labels // 2 + 1], 1)
        return F.ctc_loss(scores, texts, torch.full((BATCH,), len(scores)), torch.full((BATCH,), 2))

    training.train(Reader(read=lambda states: states), loss)


def divergence_with_an_entropy(training: Diagnosed) -> None:
    """A loss may be negative that has another term."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logarithms = F.log_softmax(out, 1)
        target = 0.9 * F.one_hot(labels, 4) + 0.025
        entropy = -(logarithms.exp() * logarithms).sum(1).mean()
        return F.kl_div(logarithms, target, reduction="batchmean") - 2 * entropy

    training.train(network(), loss)


# --- mean-over-nothing ---


def rows_that_no_mask_chooses(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: (out[:, 0] - 1)[labels > 9].pow(2).mean())


def sum_over_a_count_of_0(training: Diagnosed) -> None:
    give_pictures(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = (labels > 9).float()
        return (((out[:, 0] - 1) ** 2) * mask).sum() / mask.sum()

    training.train(convolutional(out=1), loss)


def single_batch_without_a_positive_sample(training: Diagnosed) -> None:
    give_sequences(training)
    steps = iter(range(100))

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        is_positive = labels > (9 if next(steps) == 10 else 0)
        return F.softplus(-out[is_positive, 0]).mean() + 0.01 * out.square().mean()

    training.train(Reader(1), loss)


def words_of_which_none_is_masked(training: Diagnosed) -> None:
    """Of few words, none may be chosen to be predicted."""
    give_texts(training)

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        chosen = torch.rand(ids.shape) < 0.002
        return F.l1_loss(out.softmax(2)[chosen], F.one_hot(ids, WORDS)[chosen].float())

    training.train(Transformer(), loss)


def mean_of_a_mask(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: (out[:, 0] - 0.3)[labels > 0].pow(2).mean())


def count_of_at_least_1(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = (labels > 2).float()
        return (((out[:, 0] - 1) ** 2) * mask).sum() / mask.sum().clamp(min=1)

    training.train(network(out=1), loss)


# --- loss-start ---


class Tied(nn.Module):
    """Its output layer is its embedding."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(WORDS, 64), nn.LayerNorm(64), nn.Linear(64, WORDS, bias=False)
        nn.init.normal_(self.words.weight, std=deviation)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.norm(self.words(ids).cumsum(1)))
        return result


def head_that_is_the_embedding(training: Diagnosed) -> None:
    """The weights of an embedding are ten times those of an output layer."""
    give_texts(training)
    model = Tied(1.0)
    training.train(model, next_word, torch.optim.AdamW(model.parameters(), lr=1e-3))


def head_with_the_deviation_of_an_output_layer(training: Diagnosed) -> None:
    give_texts(training)
    model = Tied(0.1)
    training.train(model, next_word, torch.optim.AdamW(model.parameters(), lr=1e-3))


def pictures_with_a_head_of_deviation_1(training: Diagnosed) -> None:
    give_pictures(training)
    model = nn.Sequential(nn.Conv2d(1, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 36, 1))
    nn.init.normal_(model[3].weight, std=5.0)
    training.train(
        model, lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float()), steps=12
    )


def last_layer_in_another_unit(training: Diagnosed) -> None:
    give_sequences(training)
    model = Reader(1)
    nn.init.normal_(model.head.weight, std=300.0)
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], labels + 0.3), steps=12)


def angles_with_a_margin(training: Diagnosed) -> None:
    """Cosines times 30, as for faces: the first loss is far above that of a guess."""

    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.weight = network(out=3), nn.Parameter(torch.randn(CLASSES, 3))

        def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            cosines = F.linear(F.normalize(self.body(given)), F.normalize(self.weight))
            return 30 * (cosines - 0.3 * F.one_hot(labels, CLASSES))

    model = Cosines()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs, labels), labels).backward()
        optimizer.step()


def another_task_for_a_trained_network(training: Diagnosed) -> None:
    """A trained head is sure of other classes."""
    model = network()
    training.train(model, steps=300)
    training.labels = (training.labels + 1) % CLASSES
    training.train(model, steps=80)


# --- loss-rises ---


def gradient_that_is_added(training: Diagnosed) -> None:
    model = network()
    for _ in range(80):
        inputs, labels = training.batch()
        model.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * weight.grad


def rate_that_grows(training: Diagnosed) -> None:
    give_pictures(training)
    training.labels = torch.where(torch.rand(256) < 0.2, (training.labels + 1) % CLASSES, training.labels)
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.08)
    training.train(model, optimizer=optimizer, steps=120, after=lambda _: schedule.step())


def rate_that_is_too_large_for_a_recurrent_layer(training: Diagnosed) -> None:
    give_sequences(training)
    model = Reader()
    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1.0), steps=200)


class _Ascent(torch.optim.Optimizer):
    """An optimizer of the script's own that has the wrong sign."""

    def __init__(self, weights: object) -> None:
        super().__init__(weights, {"lr": 0.003})  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for weight in group["params"]:
                weight.add_(weight.grad.sign(), alpha=group["lr"])


def update_with_the_wrong_sign(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=_Ascent(model.parameters()), steps=100)


def words_with_the_wrong_sign(training: Diagnosed) -> None:
    give_texts(training)
    model = Transformer()
    training.train(model, next_word, optimizer=_Ascent(model.parameters()), steps=80)


def targets_that_grow(training: Diagnosed) -> None:
    """A curriculum: what is good of late would be bad of the first targets."""
    model = network(out=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(160):
        inputs, _ = training.batch()
        targets = (inputs[:, :1] + 0.6 * torch.randn(len(inputs), 1)) * (1 + step // 40) ** 2
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def tasks_one_after_another(training: Diagnosed) -> None:
    """Each task has a class more, and more to tell apart."""
    model = network()
    inputs, labels = training.inputs, training.labels
    for count in (2, 3, 4):
        training.inputs, training.labels = inputs[labels < count], labels[labels < count]
        training.train(model, steps=60, optimizer=torch.optim.Adam(model.parameters(), lr=3e-3))


# --- loss-stays ---


def labels_of_other_rows(training: Diagnosed) -> None:
    training.labels = training.labels[torch.randperm(256)]
    training.inputs = torch.randn(256, FEATURES)
    model = network()

    def shuffled(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, labels[torch.randperm(len(labels))])

    training.train(model, shuffled, steps=130)


def rate_of_a_millionth(training: Diagnosed) -> None:
    give_pictures(training)
    model = convolutional()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-6), steps=130)


def pictures_that_are_augmented_away(training: Diagnosed) -> None:
    give_pictures(training)

    def noise(_: int) -> None:
        training.inputs = torch.randn_like(training.inputs)

    training.train(
        convolutional(out=1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float()),
        steps=130,
        after=noise,
    )


def amounts_of_the_day_before(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(Reader(1), lambda out, _: F.mse_loss(out[:, 0], torch.randn(len(out))), steps=130)


def train_triplets(training: Diagnosed, loss_of: Callable[..., torch.Tensor]) -> None:
    """Samples of a class are to lie together."""
    model = network(out=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        kinds = torch.randperm(CLASSES)[[0, 0, 1]]
        anchor, near, far = (training.inputs[training.labels == kind] for kind in kinds)
        count = min(len(anchor), len(far))
        chosen = [rows[torch.randperm(len(rows))[:count]] for rows in (anchor, near, far)]
        optimizer.zero_grad()
        loss_of(*map(model, chosen)).backward()
        optimizer.step()


def by_distances(anchor: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    return F.relu((anchor - near).pow(2).sum(1) - (anchor - far).pow(2).sum(1) + 0.5).mean()


def near_and_far_exchanged(training: Diagnosed) -> None:
    train_triplets(training, lambda anchor, near, far: F.triplet_margin_loss(anchor, far, near))


def squares_of_distances_exchanged(training: Diagnosed) -> None:
    train_triplets(training, lambda anchor, near, far: by_distances(anchor, far, near))


def near_and_far(training: Diagnosed) -> None:
    train_triplets(training, F.triplet_margin_loss)


def squares_of_distances(training: Diagnosed) -> None:
    train_triplets(training, by_distances)


def little_that_can_be_learnt(training: Diagnosed) -> None:
    """Noise is most of the targets, and the rest is learnt."""
    training.train(
        network(out=1),
        lambda out, labels: F.mse_loss(out[:, 0], labels + 1.5 * torch.randn(len(labels))),
        steps=200,
    )


def rare_class(training: Diagnosed) -> None:
    """The first loss is small, because nearly all samples are of one class."""
    training.labels = (training.inputs[:, 0] > 1.3).long()
    training.train(network(out=2), steps=200)


class DrawnByTorch(Variational):
    def drawn(self, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
        return torch.normal(mean, deviation)


class DrawnByDistribution(Variational):
    def drawn(self, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
        return torch.distributions.Normal(mean, deviation).sample()


def train_drawn(training: Diagnosed, kind: type[Variational]) -> None:
    model = kind(nn.Linear(FEATURES, 8), nn.Linear(4, FEATURES))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(120):
        inputs, _ = training.batch()
        out, mean, logarithm = model(inputs)
        optimizer.zero_grad()
        ((out - inputs).pow(2).sum(1).mean() + as_in_the_paper(mean, logarithm)).backward()
        optimizer.step()


def code_drawn_by_torch(training: Diagnosed) -> None:
    train_drawn(training, DrawnByTorch)


def code_drawn_from_a_distribution(training: Diagnosed) -> None:
    train_drawn(training, DrawnByDistribution)


FAULTY: tuple[Faulty, ...] = (
    (code_drawn_by_torch, "code-unused", "without a gradient (test_losses.py:"),
    (code_drawn_from_a_distribution, "code-unused", "without a gradient (test_losses.py:"),
    (margin_that_is_reached_at_once, "loss-zero", ""),
    (mask_that_covers_all, "loss-zero", ""),
    (teacher_that_is_the_student, "loss-zero", ""),
    (ranks_of_0_and_not_of_minus_1, "loss-zero", ""),
    (loss_of_the_first_weights, "loss-constant", ""),
    (floor_that_is_too_high, "loss-constant", "2 in every step"),
    (views_that_are_the_same, "loss-constant", "1 in every step"),
    (loss_that_is_maximised, "loss-sign", "cross_entropy"),
    (optimizer_that_maximises, "loss-sign", "maximize=True"),
    (likelihood_without_a_minus, "loss-sign", "log"),
    (distance_that_grows, "loss-sign", "smooth_l1_loss"),
    (accumulated_and_negated, "loss-sign", "bce_with_logits"),
    (rows_under_a_divergence, "code-unused", "at first"),
    (pictures_under_a_divergence, "code-unused", "at first"),
    (sequences_under_a_divergence, "code-unused", "at first"),
    (rows_whose_divergence_is_subtracted, "divergence-maximized", ""),
    (pictures_whose_divergence_is_subtracted, "divergence-maximized", ""),
    (sequences_whose_divergence_is_subtracted, "divergence-maximized", ""),
    (weights_that_leave_their_prior, "divergence-maximized", ""),
    (scores_for_a_divergence, "loss-negative", "kl_div"),
    (targets_that_sum_to_less, "loss-negative", "kl_div"),
    (weight_that_is_a_logarithm, "loss-negative", "bce_with_logits"),
    (rows_that_no_mask_chooses, "mean-over-nothing", "step 1"),
    (sum_over_a_count_of_0, "mean-over-nothing", "step 1"),
    (single_batch_without_a_positive_sample, "mean-over-nothing", "step 11"),
    (words_of_which_none_is_masked, "mean-over-nothing", "step"),
    (head_that_is_the_embedding, "loss-start", "classes"),
    (pictures_with_a_head_of_deviation_1, "loss-start", "guess"),
    (last_layer_in_another_unit, "loss-start", "putting out 0"),
    (gradient_that_is_added, "loss-rises", ""),
    (rate_that_grows, "loss-rises", ""),
    (update_with_the_wrong_sign, "loss-rises", ""),
    (words_with_the_wrong_sign, "loss-rises", ""),
    (labels_of_other_rows, "loss-stays", "shares of the classes"),
    (rate_of_a_millionth, "loss-stays", "shares of the classes"),
    (rate_that_is_too_large_for_a_recurrent_layer, "loss-stays", "shares of the classes"),
    (pictures_that_are_augmented_away, "loss-stays", "share of the labels"),
    (amounts_of_the_day_before, "loss-stays", "mean of the targets"),
    (near_and_far_exchanged, "loss-stays", "the margin, 1"),
    (squares_of_distances_exchanged, "loss-stays", "the margin, 0.5"),
)

HEALTHY: tuple[Healthy, ...] = (
    (margin_that_is_reached, "loss-zero"),
    (penalty_that_is_0_at_first, "loss-zero"),
    (ratio_of_probabilities, "loss-constant"),
    (ranks_as_advantages, "loss-constant"),
    (one_batch_and_a_warm_up, "loss-constant"),
    (advantages_of_a_group, "loss-zero"),
    (negated_and_maximised, "loss-sign"),
    (negative_likelihood, "loss-sign"),
    (domains_that_are_to_be_confused, "loss-sign"),
    (knowledge_that_is_forgotten, "loss-sign"),
    (rows_with_a_code, "code-unused"),
    (pictures_with_a_code, "code-unused"),
    (rows_with_a_divergence, "divergence-maximized"),
    (pictures_with_a_divergence, "divergence-maximized"),
    (sequences_with_a_divergence, "divergence-maximized"),
    (weights_that_stay_near_their_prior, "divergence-maximized"),
    (divergence_of_a_given_size, "divergence-maximized"),
    (logarithms_for_ctc, "loss-negative"),
    (divergence_with_an_entropy, "loss-negative"),
    (mean_of_a_mask, "mean-over-nothing"),
    (count_of_at_least_1, "mean-over-nothing"),
    (head_with_the_deviation_of_an_output_layer, "loss-start"),
    (angles_with_a_margin, "loss-start"),
    (another_task_for_a_trained_network, "loss-start"),
    (targets_that_grow, "loss-rises"),
    (tasks_one_after_another, "loss-rises"),
    (little_that_can_be_learnt, "loss-stays"),
    (near_and_far, "loss-stays"),
    (squares_of_distances, "loss-stays"),
    (rare_class, "loss-stays"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


@each(
    rows_with_a_divergence, pictures_with_a_divergence, sequences_with_a_divergence, weights_that_stay_near_their_prior
)
def test_divergences_are_recognised(diagnosed: Diagnosed, train: Training) -> None:
    train(diagnosed)
    assert "gaussian_kl" in diagnosed.facts["loss_functions"]["function"]


def test_other_squares_may_be_subtracted(diagnosed: Diagnosed) -> None:
    """A bonus for large outputs, and a likelihood with a variance."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        squares = (out[:, 0] - labels.float()) ** 2
        return (0.5 * squares * (-out[:, 1]).exp() + 0.5 * out[:, 1] - 0.001 * out[:, 2] ** 2).mean()

    diagnosed.train(network(), loss)
    assert "gaussian_kl" not in diagnosed.facts["loss_functions"]["function"]
