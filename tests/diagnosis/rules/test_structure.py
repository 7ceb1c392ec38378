"""Modes, running statistics, ties and inputs that are wrong, and others that resemble them."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import (
    CLASSES,
    FEATURES,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import WIDTH, WORDS, next_word, train_words
from tests.diagnosis.tasks import Reader, convolutional, give_pictures, give_sequences, give_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def dropping(rate: float = 0.2) -> nn.Sequential:
    return nn.Sequential(network(out=16), nn.Dropout(rate), nn.Linear(16, CLASSES))


def pictures_network(norm: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)
    )


def reader_that_drops(rate: float = 0.2) -> nn.Sequential:
    return nn.Sequential(Reader(16), nn.Dropout(rate), nn.Linear(16, CLASSES))


# --- evaluation-mode ---


def dropout_in_evaluation_mode(training: Diagnosed) -> None:
    training.train(dropping().eval())


def statistics_that_stand_still(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(pictures_network(nn.BatchNorm2d(4)).eval(), steps=30)


def evaluated_and_not_put_back(training: Diagnosed) -> None:
    give_sequences(training)
    model = reader_that_drops()

    def evaluate(step: int) -> None:
        if step == 8:
            model.eval()
            with torch.no_grad():
                model(training.batch()[0])

    training.train(model, steps=30, after=evaluate)


def attention_in_evaluation_mode(training: Diagnosed) -> None:
    """As a model is that was loaded for predictions; one optimizer, in bfloat16."""
    give_sequences(training)
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 16, dropout=0.1, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(10 * FEATURES, CLASSES)).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(20):
        inputs, labels = training.batch()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def frozen_statistics_beside_dropout(training: Diagnosed) -> None:
    model = nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES)
    )
    model[1].eval()
    training.train(model)


def frozen_body_beside_a_head(training: Diagnosed) -> None:
    """The body is in evaluation mode, as it should be: none of it is trained."""
    body, head = dropping(), nn.Sequential(nn.Dropout(0.1), nn.Linear(CLASSES, CLASSES))
    body.requires_grad_(False).eval()
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(head(body(inputs)), labels).backward()
        optimizer.step()


def generator_in_evaluation_mode_for_the_discriminator(training: Diagnosed) -> None:
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, FEATURES))
    critic = network(out=1)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (generator, critic)]
    for step in range(24):
        updates_generator = step % 6 == 0
        generator.train(updates_generator)
        inputs, _ = training.batch()
        made = generator(torch.randn(len(inputs), 4))
        if updates_generator:
            loss = -critic(made).mean()
        else:
            loss = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(inputs)).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        optimizers[0 if updates_generator else 1].step()


# --- training-mode ---


def train_and_evaluate(training: Diagnosed, model: nn.Module, evaluate: Callable[[], object], every: int = 5) -> None:
    training.train(model, steps=30, after=lambda step: evaluate() if step % every == 0 else None)


def evaluated_with_dropout(training: Diagnosed) -> None:
    model = dropping()

    @torch.no_grad()
    def evaluate() -> None:
        for _ in range(6):
            model(training.batch()[0])

    train_and_evaluate(training, model, evaluate)


def evaluated_with_batch_statistics(training: Diagnosed) -> None:
    give_pictures(training)
    model = pictures_network(nn.BatchNorm2d(4))

    def evaluate() -> None:
        with torch.inference_mode():
            assert sum((model(rows).argmax(1) >= 0).sum() for rows in training.inputs.split(64)) == 256

    train_and_evaluate(training, model, evaluate, every=10)


def texts_sampled_with_dropout(training: Diagnosed) -> None:
    give_texts(training)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.Dropout(0.3), nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        ids, _ = training.batch()
        optimizer.zero_grad()
        next_word(model(ids), ids).backward()
        optimizer.step()
        if step % 10 == 9:
            text = ids[:1, :1]
            with torch.no_grad():
                for _ in range(5):
                    text = torch.cat([text, model(text)[:, -1:].argmax(2)], 1)


def evaluation_between_steps(training: Diagnosed) -> None:
    model = dropping()

    def evaluate() -> None:
        model.eval()
        with torch.no_grad():
            for _ in range(6):
                model(training.batch()[0])
        model.train()

    train_and_evaluate(training, model, evaluate)


def samples_of_what_is_uncertain(training: Diagnosed) -> None:
    """The same rows several times in training mode: how far they differ is the result."""
    model = dropping()

    @torch.no_grad()
    def sample() -> None:
        rows = training.inputs[:16]
        torch.stack([model(rows) for _ in range(8)]).std(0)

    train_and_evaluate(training, model, sample)


# --- dropout-rate ---


def dropout_that_keeps_little(training: Diagnosed) -> None:
    training.train(dropping(0.95))


def channels_that_are_dropped(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(pictures_network(nn.Dropout2d(0.9)))


def attention_that_is_dropped(training: Diagnosed) -> None:
    give_sequences(training)
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 16, dropout=0.9, batch_first=True)
    training.train(nn.Sequential(layer, nn.Flatten(), nn.Linear(10 * FEATURES, CLASSES)))


def share_that_is_kept_for_a_function(training: Diagnosed) -> None:
    training.train(Dropping(lambda hidden, is_training: F.dropout(hidden, 0.9, is_training)))


def share_that_is_dropped_by_a_function(training: Diagnosed) -> None:
    training.train(Dropping(lambda hidden, is_training: F.dropout(hidden, 0.1, is_training)))


def much_dropout(training: Diagnosed) -> None:
    training.train(dropping(0.8))


# --- norm-momentum ---


def momentum_of_keras(training: Diagnosed) -> None:
    training.train(
        nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16, momentum=0.99), nn.ReLU(), nn.Linear(16, CLASSES))
    )


def momentum_of_0(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(pictures_network(nn.BatchNorm2d(4, momentum=0.0)))


def momentum_of_1(training: Diagnosed) -> None:
    give_sequences(training)
    norm = nn.InstanceNorm1d(10, momentum=1.0, track_running_stats=True)
    training.train(nn.Sequential(norm, Reader()))


def momentum_of_a_thousandth(training: Diagnosed, momentum: float = 1e-3) -> None:
    """Statistics that have hardly left the start are used in evaluations."""
    training.inputs = 30 + 10 * training.inputs
    model = nn.Sequential(
        *(nn.BatchNorm1d(FEATURES, momentum=momentum), nn.Linear(FEATURES, 32), nn.ReLU()),
        *(nn.BatchNorm1d(32, momentum=momentum), nn.Linear(32, CLASSES)),
    )

    def evaluate(step: int) -> None:
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                F.cross_entropy(model(training.inputs), training.labels).item()
            model.train()

    training.train(model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-2), steps=100, after=evaluate)


def momentum_of_a_tenth(training: Diagnosed) -> None:
    momentum_of_a_thousandth(training, 0.1)


def mean_of_all_batches(training: Diagnosed) -> None:
    """Without a momentum the statistics are those of all batches."""
    give_pictures(training)
    training.train(pictures_network(nn.BatchNorm2d(4, momentum=None)))


def momentum_of_a_third(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(pictures_network(nn.BatchNorm2d(4, momentum=0.3)))


# --- norm-two-streams ---


class Normalised(nn.Module):
    """A body with a normalization, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(given))
        return result


def train_on_two(
    training: Diagnosed, other: Callable[[torch.Tensor], torch.Tensor], model: nn.Module | None = None
) -> None:
    """Train with labels on some inputs, and without them on others."""
    model = model or Normalised()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        inputs, labels = training.batch()
        shares = model(other(inputs)).softmax(1)
        loss = F.cross_entropy(model(inputs), labels) - 0.01 * (shares * shares.log()).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def another_camera(training: Diagnosed) -> None:
    give_pictures(training)
    train_on_two(training, lambda inputs: 4 * inputs + 20, pictures_network(nn.BatchNorm2d(4)))


def numbers_in_another_unit(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: inputs * 0.01 + 5)


def pairs_of_which_one_is_inverted(training: Diagnosed) -> None:
    """Two views of a sample, as for a contrastive loss, of which one is not standardised."""
    give_sequences(training)
    training.inputs = training.inputs + 4
    norm = nn.BatchNorm1d(10)
    model = nn.Sequential(norm, Reader())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(40):
        inputs, _ = training.batch()
        first, second = F.normalize(model(inputs)), F.normalize(model(-inputs))
        optimizer.zero_grad()
        F.cross_entropy(first @ second.T / 0.2, torch.arange(len(inputs))).backward()
        optimizer.step()


def two_views(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: inputs + 0.3 * torch.randn_like(inputs))


def normalised_apart(training: Diagnosed) -> None:
    train_on_two(training, lambda inputs: ((4 * inputs + 20) - 20) / 4)


# --- statistics-drift ---


def frozen_body_in_training_mode(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def frozen_norms_alone(training: Diagnosed) -> None:
    give_pictures(training)
    model = pictures_network(nn.BatchNorm2d(4).requires_grad_(False))
    training.train(model, optimizer=torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2))


def frozen_and_then_set_to_training(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    model.body.eval()
    training.train(
        model,
        optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2),
        steps=30,
        after=lambda step: model.train() if step == 1 else None,
    )


def frozen_once_trained(training: Diagnosed) -> None:
    model = Normalised()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2), steps=20)
    model.body.requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def put_into_evaluation_mode_once_trained(training: Diagnosed) -> None:
    model = Normalised()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2), steps=20)
    model.body.requires_grad_(False)
    model.body.eval()
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def frozen_body_in_evaluation_mode(training: Diagnosed) -> None:
    model = Normalised()
    model.body.requires_grad_(False)
    model.body.eval()
    training.train(model, optimizer=torch.optim.Adam(model.head.parameters(), lr=1e-2), steps=40)


def first_stage_frozen_as_it_was_made(training: Diagnosed) -> None:
    """A smaller part of a model that is trained from its beginning; its statistics belong to weights of chance."""
    model = nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, CLASSES)
    )
    model[:2].requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model[3:].parameters(), lr=1e-2), steps=40)


def target_within_a_module(training: Diagnosed) -> None:
    """The weights of the target follow those of the trained part, and its statistics those of its inputs."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = Normalised(), Normalised().requires_grad_(False)
            self.target.load_state_dict(self.online.state_dict())

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.target(given)
            result: torch.Tensor = self.online(given)
            return result

    model = Pair()

    def follow(_: int) -> None:
        with torch.no_grad():
            for mine, theirs in zip(model.target.parameters(), model.online.parameters(), strict=True):
                mine.lerp_(theirs, 0.05)

    optimizer = torch.optim.Adam(model.online.parameters(), lr=1e-2)
    training.train(model, optimizer=optimizer, steps=40, after=follow)


# --- drops-in-evaluation ---


class Dropping(nn.Module):
    """A network that drops elements by a function."""

    def __init__(self, drop: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES), drop

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.drop(self.body(given).relu(), self.training))
        return result


def attend(given: torch.Tensor, rate: float) -> torch.Tensor:
    rows = given[None, None]
    return given + F.scaled_dot_product_attention(rows, rows, rows, dropout_p=rate)[0, 0]


def train_dropping(training: Diagnosed, model: nn.Module, samples: int = 1) -> None:
    """Train, and evaluate after each fifth step; each batch so many times."""

    def evaluate(step: int) -> None:
        if step % 5 == 0:
            model.eval()
            inputs, _ = training.batch()
            with torch.no_grad():
                for _ in range(samples):
                    model(inputs)
            model.train()

    training.train(model, steps=40, after=evaluate)


def function_without_mode(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, _: F.dropout(given, 0.1)))


def attention_without_mode(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, _: attend(given, 0.1)))


def module_made_in_forward(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, _: nn.Dropout(0.1)(given)))


def function_with_mode(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, mode: F.dropout(given, 0.1, training=mode)))


def attention_with_mode(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, mode: attend(given, 0.1 if mode else 0.0)))


def monte_carlo_dropout(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, _: F.dropout(given, 0.1)), samples=4)


def noise_that_is_meant(training: Diagnosed) -> None:
    train_dropping(training, Dropping(lambda given, _: given * torch.empty_like(given).bernoulli_(0.9)))


# --- tied-apart ---


class TinyLM(nn.Module):
    """An embedding and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.embedding(given))
        return result

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def embedding_that_was_cloned(training: Diagnosed) -> None:
    assert not training.is_attached
    model = TinyLM()
    model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())
    train_words(model)


def embedding_whose_memory_is_shared(training: Diagnosed) -> None:
    """Each is a parameter, and each update is applied to both."""
    assert not training.is_attached
    model = TinyLM()
    model.head.weight = nn.Parameter(model.embedding.weight.detach())
    train_words(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def ties_that_are_configured_and_not_made(training: Diagnosed) -> None:
    assert not training.is_attached
    model = TinyLM()
    model.config = SimpleNamespace(tie_word_embeddings=True)
    train_words(model)


def decoder_that_was_transposed(training: Diagnosed) -> None:
    training.labels = training.inputs
    encoder, decoder = nn.Linear(FEATURES, 4), nn.Linear(4, FEATURES)
    decoder.weight = nn.Parameter(encoder.weight.detach().t().clone())
    training.train(nn.Sequential(encoder, nn.ReLU(), decoder), F.mse_loss)


def code_that_is_wider_than_its_input(training: Diagnosed) -> None:
    """As of a sparse autoencoder: the decoder begins as the transposed encoder on purpose."""
    training.labels = training.inputs
    encoder, decoder = nn.Linear(FEATURES, 32), nn.Linear(32, FEATURES)
    encoder.weight.data = decoder.weight.data.T.clone()
    training.train(nn.Sequential(encoder, nn.ReLU(), decoder), F.mse_loss)


def embedding_that_is_the_head(training: Diagnosed) -> None:
    assert not training.is_attached
    model = TinyLM()
    model.head.weight = model.embedding.weight
    train_words(model)


def blocks_that_begin_alike(training: Diagnosed) -> None:
    """As the layers of an encoder that are copied from one."""
    block = nn.Linear(16, 16)
    model = nn.Sequential(nn.Linear(FEATURES, 16), block, nn.ReLU(), copy.deepcopy(block), nn.Linear(16, CLASSES))
    training.train(model)


# --- norm-of-one ---


def norm_over_one_unit(training: Diagnosed) -> None:
    training.train(nn.Sequential(nn.Linear(FEATURES, 1), nn.LayerNorm(1), nn.Linear(1, CLASSES)))


def groups_of_one_channel_and_pixel(training: Diagnosed) -> None:
    """As many groups as channels, after the pictures are averaged."""
    give_pictures(training)
    training.train(
        nn.Sequential(
            *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.GroupNorm(8, 8)),
            *(nn.Flatten(), nn.Linear(8, CLASSES)),
        )
    )


def batches_of_one_picture(training: Diagnosed) -> None:
    give_pictures(training)
    model = pictures_network(nn.BatchNorm2d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for row in range(40):
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs[row : row + 1]), training.labels[row : row + 1]).backward()
        optimizer.step()


def last_step_of_one_number(training: Diagnosed) -> None:
    give_sequences(training)
    training.train(
        nn.Sequential(Reader(1), nn.LayerNorm(1), nn.Linear(1, 1)), lambda out, y: F.mse_loss(out[:, 0], y - 1.5)
    )


def groups_of_two_channels(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(pictures_network(nn.GroupNorm(2, 4)))


def batches_of_two_pictures(training: Diagnosed) -> None:
    give_pictures(training)
    model = pictures_network(nn.BatchNorm2d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for row in range(0, 40, 2):
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs[row : row + 2]), training.labels[row : row + 2]).backward()
        optimizer.step()


# --- mode-left ---


class Functional(nn.Module):
    """A network whose dropout is a function.

    Parameters
    ----------
    body : Module
        Puts out 16 features.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(16, CLASSES)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(F.dropout(self.body(given), 0.2, self.training))
        return result


def train_and_leave(training: Diagnosed, model: nn.Module, leave: Callable[[], object], at: int = 12) -> None:
    training.train(model, steps=30, after=lambda step: leave() if step == at else None)


def mode_of_a_function(training: Diagnosed) -> None:
    model = Functional(network(out=16))
    train_and_leave(training, model, model.eval)


def mode_after_a_validation(training: Diagnosed) -> None:
    give_pictures(training)
    model = Functional(convolutional(out=16))

    def validate() -> None:
        model.eval()
        with torch.no_grad():
            model(training.inputs)

    train_and_leave(training, model, validate, at=15)


def mode_after_a_prediction(training: Diagnosed) -> None:
    give_sequences(training)
    model = Functional(Reader(16))
    train_and_leave(training, model, lambda: model.train(False), at=8)


def train_and_evaluate_since(training: Diagnosed, model: nn.Module, since: int) -> None:
    """Evaluate after each step from one on, with gradients switched on, and never go back to training mode."""

    def evaluate(step: int) -> None:
        if step >= since:
            model.eval()
            model(training.batch()[0])

    training.train(model, steps=30, after=evaluate)


def mode_that_is_left_at_once(training: Diagnosed) -> None:
    train_and_evaluate_since(training, Dropping(lambda given, mode: F.dropout(given, 0.1, training=mode)), 1)


def mode_of_an_attention_that_is_left(training: Diagnosed) -> None:
    train_and_evaluate_since(training, Dropping(lambda given, mode: attend(given, 0.1 if mode else 0.0)), 5)


def mode_that_does_not_matter(training: Diagnosed) -> None:
    """Nothing in the model depends on it."""
    train_and_evaluate_since(training, Dropping(lambda given, _: given), 1)


def mode_that_is_put_back(training: Diagnosed) -> None:
    give_pictures(training)
    model = Functional(convolutional(out=16))

    def validate(step: int) -> None:
        if step % 6 == 0:
            model.eval()
            with torch.no_grad():
                model(training.inputs)
            model.train()

    training.train(model, steps=30, after=validate)


def mode_from_the_start(training: Diagnosed) -> None:
    training.train(Functional(network(out=16)).eval(), steps=20)


# --- input-scale ---


def inputs_in_pascals(training: Diagnosed) -> None:
    training.inputs = training.inputs * 1e5
    training.train(network())


def pictures_of_16_bits(training: Diagnosed) -> None:
    give_pictures(training)
    training.inputs = (training.inputs.clamp(0, 2) * 32767).round()
    training.train(convolutional())


def columns_of_which_one_is_a_salary(training: Diagnosed) -> None:
    training.inputs[:, 3] = 30_000 + 20_000 * training.inputs[:, 3]
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    training.train(
        model, lambda out, labels: F.mse_loss(out[:, 0], labels - 1.5), torch.optim.SGD(model.parameters(), lr=1e-3)
    )


def pressures_that_are_normalised_first(training: Diagnosed) -> None:
    training.inputs = training.inputs * 1e5 + 1e5
    training.train(nn.Sequential(nn.BatchNorm1d(FEATURES), network()))


def pictures_of_8_bits(training: Diagnosed) -> None:
    """Not scaled, and learnt."""
    give_pictures(training)
    training.inputs = (training.inputs.clamp(0, 2) * 127).round()
    training.train(convolutional(), steps=60)


# --- blocks-are-one ---


class Stack(nn.Module):
    """Blocks in a list, the one after the other."""

    def __init__(self, blocks: list[nn.Module], first: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.blocks, self.last = first, nn.ModuleList(blocks), last

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.first(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        result: torch.Tensor = self.last(hidden)
        return result


def block(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU())


def stack_of_one_block(training: Diagnosed) -> None:
    blocks = nn.Sequential(*[block()] * 4)
    training.train(nn.Sequential(nn.Linear(FEATURES, 16), blocks, nn.Linear(16, CLASSES)))


def list_of_one_block(training: Diagnosed) -> None:
    training.train(Stack([block()] * 3, nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)))


def encoder_of_one_layer(training: Diagnosed) -> None:
    give_texts(training)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = Stack([layer] * 2, nn.Embedding(WORDS, 16), nn.Linear(16, WORDS))
    training.train(model, lambda out, labels: F.cross_entropy(out.mean(1), labels[:, 0]))


FAULTY: tuple[Faulty, ...] = (
    (stack_of_one_block, "blocks-are-one", "The 4 blocks of 1 are one Sequential"),
    (list_of_one_block, "blocks-are-one", "The 3 blocks of blocks"),
    (encoder_of_one_layer, "blocks-are-one", "TransformerEncoderLayer"),
    (dropout_in_evaluation_mode, "evaluation-mode", "Dropout"),
    (statistics_that_stand_still, "evaluation-mode", "BatchNorm2d"),
    (evaluated_and_not_put_back, "evaluation-mode", "step 9"),
    (attention_in_evaluation_mode, "evaluation-mode", "Dropout"),
    (evaluated_with_dropout, "training-mode", "6 calls"),
    (evaluated_with_batch_statistics, "training-mode", "4 calls"),
    (texts_sampled_with_dropout, "training-mode", "5 calls"),
    (dropout_that_keeps_little, "dropout-rate", "95%"),
    (channels_that_are_dropped, "dropout-rate", "90%"),
    (share_that_is_kept_for_a_function, "dropout-rate", "test_structure.py:"),
    (attention_that_is_dropped, "dropout-rate", "dropout"),
    (momentum_of_keras, "norm-momentum", "0.99"),
    (momentum_of_0, "norm-momentum", "never move"),
    (momentum_of_1, "norm-momentum", "momentum 1"),
    (momentum_of_a_thousandth, "norm-momentum", "those of the start"),
    (another_camera, "norm-two-streams", "1"),
    (numbers_in_another_unit, "norm-two-streams", "body.0"),
    (pairs_of_which_one_is_inverted, "norm-two-streams", "0"),
    (frozen_body_in_training_mode, "statistics-drift", "body.0"),
    (frozen_norms_alone, "statistics-drift", "1"),
    (frozen_once_trained, "statistics-drift", "body.0"),
    (frozen_and_then_set_to_training, "statistics-drift", "body.2"),
    (function_without_mode, "drops-in-evaluation", "test_structure.py:"),
    (attention_without_mode, "drops-in-evaluation", "test_structure.py:"),
    (module_made_in_forward, "drops-in-evaluation", "test_structure.py:"),
    (embedding_that_was_cloned, "tied-apart", "embedding.weight"),
    (embedding_whose_memory_is_shared, "tied-apart", "share their memory"),
    (ties_that_are_configured_and_not_made, "tied-apart", "configuration"),
    (decoder_that_was_transposed, "tied-apart", "transpose"),
    (norm_over_one_unit, "norm-of-one", "1"),
    (groups_of_one_channel_and_pixel, "norm-of-one", "3"),
    (batches_of_one_picture, "norm-of-one", "one sample"),
    (last_step_of_one_number, "norm-of-one", "1"),
    (mode_of_a_function, "mode-left", "step 13"),
    (mode_after_a_validation, "mode-left", "step 16"),
    (mode_after_a_prediction, "mode-left", "step 9"),
    (mode_that_is_left_at_once, "mode-left", "test_structure.py:"),
    (mode_of_an_attention_that_is_left, "mode-left", "test_structure.py:"),
    (inputs_in_pascals, "input-scale", "layer 0"),
    (pictures_of_16_bits, "input-scale", "layer 0"),
    (columns_of_which_one_is_a_salary, "input-scale", "layer 0"),
)


def stack_of_many_blocks(training: Diagnosed) -> None:
    training.train(Stack([block() for _ in range(3)], nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES)))


def head_for_each_layer(training: Diagnosed) -> None:
    """What each layer puts out goes to the same head."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(block() for _ in range(2))
            self.first, self.heads = nn.Linear(FEATURES, 16), nn.ModuleList([nn.Linear(16, CLASSES)] * 2)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden, total = self.first(inputs), torch.zeros(len(inputs), CLASSES)
            for layer, head in zip(self.layers, self.heads, strict=True):
                hidden = layer(hidden)
                total = total + head(hidden)
            return total

    training.train(Model())


HEALTHY: tuple[Healthy, ...] = (
    (stack_of_many_blocks, "blocks-are-one"),
    (head_for_each_layer, "blocks-are-one"),
    (frozen_statistics_beside_dropout, "evaluation-mode"),
    (frozen_body_beside_a_head, "evaluation-mode"),
    (generator_in_evaluation_mode_for_the_discriminator, "evaluation-mode"),
    (evaluation_between_steps, "training-mode"),
    (samples_of_what_is_uncertain, "training-mode"),
    (much_dropout, "dropout-rate"),
    (share_that_is_dropped_by_a_function, "dropout-rate"),
    (mean_of_all_batches, "norm-momentum"),
    (momentum_of_a_third, "norm-momentum"),
    (momentum_of_a_tenth, "norm-momentum"),
    (two_views, "norm-two-streams"),
    (normalised_apart, "norm-two-streams"),
    (frozen_body_in_evaluation_mode, "statistics-drift"),
    (put_into_evaluation_mode_once_trained, "statistics-drift"),
    (first_stage_frozen_as_it_was_made, "statistics-drift"),
    (target_within_a_module, "statistics-drift"),
    (function_with_mode, "drops-in-evaluation"),
    (attention_with_mode, "drops-in-evaluation"),
    (monte_carlo_dropout, "drops-in-evaluation"),
    (noise_that_is_meant, "drops-in-evaluation"),
    (embedding_that_is_the_head, "tied-apart"),
    (code_that_is_wider_than_its_input, "tied-apart"),
    (blocks_that_begin_alike, "tied-apart"),
    (groups_of_two_channels, "norm-of-one"),
    (batches_of_two_pictures, "norm-of-one"),
    (mode_that_is_put_back, "mode-left"),
    (mode_from_the_start, "mode-left"),
    (mode_that_does_not_matter, "mode-left"),
    (pressures_that_are_normalised_first, "input-scale"),
    (pictures_of_8_bits, "input-scale"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_a_failing_evaluation_leaves_no_trace(diagnosed: Diagnosed) -> None:
    def drop(given: torch.Tensor, mode: bool) -> torch.Tensor:
        if not mode:
            raise ArithmeticError
        return given

    model = Dropping(drop)

    def evaluate(step: int) -> None:
        model.eval()
        try:
            with torch.no_grad():
                model(diagnosed.batch()[0])
        except ArithmeticError:
            model.train()

    diagnosed.train(model, steps=6, after=evaluate)
    diagnosed.train(model, steps=1)
    assert torch._C._len_torch_dispatch_stack() == 0
