"""Optimizers that hold something else than what is trained, or do not update it, and those that only look so."""

from __future__ import annotations

import copy
from itertools import chain
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
    LENGTH,
    VAE,
    WIDTH,
    WORDS,
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
    from collections.abc import Iterable


def adam(*parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(list(chain(*parameters)), lr=1e-2)


def train_vae(training: Diagnosed, model: VAE, *optimizers: torch.optim.Optimizer, steps: int = 20) -> None:
    for _ in range(steps):
        inputs, _ = training.batch()
        made, mean, logarithm = model(inputs)
        model.zero_grad()
        (F.mse_loss(made, inputs) + 0.01 * divergence(mean, logarithm)).backward()
        for optimizer in optimizers:
            optimizer.step()


class Listed(nn.Module):
    """Its layers are in a list or a dictionary of Python."""

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.layers, self.head = layers, nn.Linear(16, CLASSES)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values() if isinstance(self.layers, dict) else self.layers:
            hidden = layer(hidden).relu()
        result: torch.Tensor = self.head(hidden)
        return result


def layers_in_a_list(training: Diagnosed) -> None:
    training.train(Listed([nn.Linear(FEATURES, 16), nn.Linear(16, 16)]))


def layers_in_a_dictionary(training: Diagnosed) -> None:
    training.train(Listed({"first": nn.Linear(FEATURES, 16), "second": nn.Sequential(nn.Linear(16, 16), nn.Tanh())}))


def biases_that_a_filter_leaves_out(training: Diagnosed) -> None:
    model = Transformer()
    train_words(model, optimizer=adam(weight for weight in model.parameters() if weight.dim() > 1))


def layer_in_the_middle_that_is_left_out(training: Diagnosed) -> None:
    model = ConvNet()
    training.train(model, optimizer=adam(model.first.parameters(), model.norm.parameters(), model.head.parameters()))


def ends_alone_in_the_optimizer(training: Diagnosed) -> None:
    """Most of the model is left out, and nothing is learnt."""
    training.labels = torch.randint(0, CLASSES, (256,))
    layers = [nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(8)]
    model = nn.Sequential(nn.Linear(FEATURES, 16), *layers, nn.Linear(16, CLASSES))
    weights = [*model[0].parameters(), *model[-1].parameters()]
    training.train(model, optimizer=torch.optim.Adam(weights, lr=1e-3), steps=120)


def head_alone_above_what_never_learnt(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    training.train(model, optimizer=adam(model[2].parameters()))


def frozen_head_alone_in_the_optimizer(training: Diagnosed) -> None:
    """All but the normalization is switched off, after the optimizer was given the head."""
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = adam(model[3].parameters())
    for name, weight in model.named_parameters():
        weight.requires_grad = name.startswith("1.")
    training.train(model, optimizer=optimizer, steps=12)


def cells_thawed_without_the_optimizer(training: Diagnosed) -> None:
    """It was made of what required gradients when the cells were frozen."""
    model = Recurrent()
    model.cells.requires_grad_(False)
    optimizer = adam(weight for weight in model.parameters() if weight.requires_grad)
    training.train(
        model, optimizer=optimizer, steps=24, after=lambda step: model.cells.requires_grad_() if step == 8 else None
    )


class Scaled(nn.Module):
    """Holds tensors that are no parameters."""

    def __init__(self, body: nn.Module, held: Any) -> None:
        super().__init__()
        self.body, self.held = body, held

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(inputs)
        for tensor in self.held.values() if isinstance(self.held, dict) else [self.held]:
            out = out * tensor
        return out


def scale_that_is_a_tensor(training: Diagnosed) -> None:
    training.train(Scaled(network(), torch.ones(CLASSES, requires_grad=True)))


def scales_in_a_dictionary(training: Diagnosed) -> None:
    held = {"first": torch.ones(CLASSES, requires_grad=True), "second": torch.ones((), requires_grad=True)}
    training.train(Scaled(ConvNet(), held))


def positions_that_are_a_tensor(training: Diagnosed) -> None:
    class Model(Transformer):
        def __init__(self) -> None:
            super().__init__()
            del self.positions
            self.where = torch.zeros(WIDTH, requires_grad=True)

        def embed(self, ids: torch.Tensor) -> torch.Tensor:
            return self.words(ids) + self.where * torch.arange(ids.shape[1])[:, None]

    train_words(Model())


def positions_that_are_a_view(training: Diagnosed) -> None:
    """The parameter itself is held by nobody."""

    class Model(Transformer):
        def __init__(self) -> None:
            super().__init__()
            del self.positions
            self.where = nn.Parameter(torch.zeros(LENGTH, WIDTH)).unsqueeze(0)

        def embed(self, ids: torch.Tensor) -> torch.Tensor:
            return self.words(ids) + self.where[:, : ids.shape[1]]

    train_words(Model())


class Guarded(torch.optim.SGD):
    """Takes an update back if a gradient is large, and all that follow."""

    is_closed = False

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        weights = [weight for group in self.param_groups for weight in group["params"]]
        self.is_closed |= max(float(weight.grad.abs().max()) for weight in weights) > 1.0
        before = [weight.detach().clone() for weight in weights]
        super().step(closure)
        if self.is_closed:
            for weight, value in zip(weights, before, strict=True):
                weight.data.copy_(value)


def spiking(step: int, factor: float) -> Any:
    """Return a factor of the loss that is large in a single step."""
    steps = iter(range(1, 1000))
    return lambda: factor if next(steps) == step else 1.0


def guard_that_never_opens_again(training: Diagnosed) -> None:
    model, factor = Recurrent(), spiking(10, 1e4)
    training.train(model, lambda out, labels: factor() * F.cross_entropy(out, labels), Guarded(model.parameters(), 0.1))


def gradient_whose_square_is_infinite(training: Diagnosed) -> None:
    """Adam divides all later updates by its root."""
    factor = spiking(10, 1e25)
    train_words(Transformer(), lambda out, ids: factor() * next_word(out, ids))


def rmsprop_after_an_infinite_square(training: Diagnosed) -> None:
    model, factor = ConvNet(), spiking(12, 1e28)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    training.train(model, lambda out, labels: factor() * F.cross_entropy(out, labels), optimizer)


def two_optimizers_on_one_model(training: Diagnosed) -> None:
    model = network()
    second = torch.optim.SGD(model.parameters(), lr=0.1)
    training.train(model, after=lambda _: second.step())


def embedding_in_both_optimizers(training: Diagnosed) -> None:
    """It was given a rate of its own, and is still in the group of all."""
    model = Transformer()
    words = torch.optim.SGD([model.words.weight, model.positions.weight], lr=0.1)
    every = adam(model.parameters())
    for _ in range(20):
        ids = sentences()
        every.zero_grad()
        next_word(model(ids), ids).backward()
        words.step()
        every.step()


def encoder_in_both_optimizers(training: Diagnosed) -> None:
    model = VAE()
    train_vae(training, model, adam(model.parameters()), torch.optim.SGD(model.encoder.parameters(), lr=0.05))


def critic_in_the_optimizer_of_its_generator(training: Diagnosed) -> None:
    """The generator is in none."""
    maker, critic = generator(), network(out=1)
    train_gan(training, maker, critic, [torch.optim.Adam(critic.parameters(), lr=2e-3) for _ in range(2)])


def optimizer_of_a_copy(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=adam(copy.deepcopy(model).parameters()))


def head_replaced_after_the_optimizer(training: Diagnosed) -> None:
    model = ConvNet()
    optimizer = adam(model.parameters())
    model.head = nn.Linear(model.head.in_features, CLASSES)
    training.train(model, optimizer=optimizer)


def weights_assigned_after_the_optimizer(training: Diagnosed) -> None:
    model = Transformer()
    optimizer = adam(model.parameters())
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    train_words(model, optimizer=optimizer)


def words_added_after_the_optimizer(training: Diagnosed) -> None:
    """More words need a new embedding."""
    model = nn.Sequential(nn.Embedding(WORDS - 2, WIDTH), nn.LSTM(WIDTH, WIDTH, batch_first=True))
    head = nn.Linear(WIDTH, WORDS)
    optimizer = adam(model.parameters(), head.parameters())
    larger = nn.Embedding(WORDS, WIDTH)
    with torch.no_grad():
        larger.weight[: WORDS - 2].copy_(model[0].weight)
    model[0] = larger

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.head = model, head

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.model(ids)[0])
            return result

    train_words(Model(), optimizer=optimizer)


def optimizer_made_in_the_loop(training: Diagnosed) -> None:
    model = network()
    for _ in range(12):
        training.train(model, optimizer=adam(model.parameters()), steps=1)


def momentum_made_anew_every_second_step(training: Diagnosed) -> None:
    model = ConvNet()
    for _ in range(10):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        training.train(model, optimizer=optimizer, steps=2)


def optimizer_of_each_sentence(training: Diagnosed) -> None:
    """A function that trains a language model on a batch makes its optimizer."""
    model = Transformer()
    for _ in range(16):
        train_words(model, optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3), steps=1)


def second_optimizer_that_never_steps(training: Diagnosed) -> None:
    model = network()
    first, second = adam(model[0].parameters()), adam(model[2].parameters())
    training.train(model, optimizer=first, steps=40, after=lambda _: second.zero_grad())


def embedding_whose_optimizer_is_forgotten(training: Diagnosed) -> None:
    model = Transformer()
    words = adam(model.words.parameters())
    rest = adam(weight for name, weight in model.named_parameters() if not name.startswith("words"))
    train_words(model, lambda out, ids: (words.zero_grad(), next_word(out, ids))[1], rest, steps=30)


def decoder_whose_optimizer_is_forgotten(training: Diagnosed) -> None:
    model = VAE()
    forgotten = adam(model.decoder.parameters(), model.head.parameters())
    train_vae(training, model, adam(model.encoder.parameters()), steps=30)
    assert not forgotten.state


FAULTY: tuple[Faulty, ...] = (
    (layers_in_a_list, "not-in-optimizer", "Linear.weight"),
    (layers_in_a_dictionary, "not-in-optimizer", "Sequential.0.weight"),
    (biases_that_a_filter_leaves_out, "not-in-optimizer", "blocks.0.query.bias"),
    (layer_in_the_middle_that_is_left_out, "not-in-optimizer", "second.weight, second.bias"),
    (ends_alone_in_the_optimizer, "not-in-optimizer", "and the loss stays"),
    (head_alone_above_what_never_learnt, "not-in-optimizer", "as an initialization leaves them"),
    (frozen_head_alone_in_the_optimizer, "not-in-optimizer", "Nothing is trained"),
    (cells_thawed_without_the_optimizer, "not-in-optimizer", "cells.weight_ih_l0"),
    (scale_that_is_a_tensor, "not-a-parameter", "held"),
    (scales_in_a_dictionary, "not-a-parameter", "first"),
    (positions_that_are_a_tensor, "not-a-parameter", "where"),
    (positions_that_are_a_view, "not-a-parameter", "where"),
    (guard_that_never_opens_again, "update-without-effect", "step 10"),
    (gradient_whose_square_is_infinite, "update-without-effect", "step 11"),
    (rmsprop_after_an_infinite_square, "update-without-effect", "RMSprop"),
    (two_optimizers_on_one_model, "two-optimizers", "Adam, SGD"),
    (embedding_in_both_optimizers, "two-optimizers", "words.weight, positions.weight"),
    (encoder_in_both_optimizers, "two-optimizers", "encoder.0.weight"),
    (critic_in_the_optimizer_of_its_generator, "two-optimizers", "and 4 of another model by none"),
    (optimizer_of_a_copy, "optimizer-of-others", "Adam group 0"),
    (head_replaced_after_the_optimizer, "optimizer-of-others", "head.weight, head.bias"),
    (weights_assigned_after_the_optimizer, "optimizer-of-others", "words.weight"),
    (words_added_after_the_optimizer, "optimizer-of-others", "0.weight"),
    (optimizer_made_in_the_loop, "optimizer-made-anew", "diagnosed.py:"),
    (momentum_made_anew_every_second_step, "optimizer-made-anew", "SGD"),
    (optimizer_of_each_sentence, "optimizer-made-anew", "AdamW"),
    (second_optimizer_that_never_steps, "optimizer-never-steps", "2.weight, 2.bias"),
    (embedding_whose_optimizer_is_forgotten, "optimizer-never-steps", "words.weight"),
    (decoder_whose_optimizer_is_forgotten, "optimizer-never-steps", "decoder.0.weight"),
)


def head_alone_in_the_optimizer(training: Diagnosed) -> None:
    """What is below it has learnt elsewhere, and is meant to stay, although its gradients are on."""
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    with torch.no_grad():
        model[0].weight.normal_()
    training.train(model, optimizer=adam(model[2].parameters()))


def layers_in_a_module_list(training: Diagnosed) -> None:
    training.train(Listed(nn.ModuleList((nn.Linear(FEATURES, 16), nn.Linear(16, 16)))))


def layers_added_to_the_optimizer_as_they_thaw(training: Diagnosed) -> None:
    model = Recurrent()
    model.cells.requires_grad_(False)
    optimizer = adam(model.head.parameters())

    def thaw(step: int) -> None:
        if step == 8:
            optimizer.add_param_group({"params": list(model.cells.requires_grad_().parameters())})

    training.train(model, optimizer=optimizer, steps=24, after=thaw)


def inputs_that_require_gradients(training: Diagnosed) -> None:
    """A training against changes of the inputs by their gradients."""
    model = ConvNet()
    optimizer = adam(model.parameters())
    for _ in range(20):
        inputs, labels = training.batch()
        changed = inputs.clone().requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(model(changed), labels), changed)
        optimizer.zero_grad()
        F.cross_entropy(model((inputs + 0.05 * slope.sign()).requires_grad_()), labels).backward()
        optimizer.step()


def scale_that_is_a_buffer(training: Diagnosed) -> None:
    model = Scaled(network(), {})
    model.register_buffer("scale", torch.full((CLASSES,), 2.0))
    model.held = {"scale": model.scale}
    training.train(model)


def guard_that_opens_again(training: Diagnosed) -> None:
    class Open(Guarded):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.is_closed = False
            super().step(closure)

    model, factor = ConvNet(), spiking(10, 1e4)
    training.train(model, lambda out, labels: factor() * F.cross_entropy(out, labels), Open(model.parameters(), 0.05))


def two_optimizers_that_share_nothing(training: Diagnosed) -> None:
    model = Transformer()
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = torch.optim.SGD([weight for weight in model.parameters() if weight.dim() == 1], lr=0.05)
    first = adam(matrices)
    first.register_step_post_hook(lambda *_: (vectors.step(), vectors.zero_grad()))
    train_words(model, optimizer=first)


def optimizers_that_take_turns(training: Diagnosed) -> None:
    """Each has every second update."""
    model = network()
    optimizers = adam(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(24):
        training.train(model, optimizer=optimizers[step % 2], steps=1)


def encoder_that_follows_two_losses(training: Diagnosed) -> None:
    """An adversarial autoencoder: its encoder is trained to reconstruct, and then to look as if it was drawn."""
    encoder, decoder, critic = network(out=4), nn.Linear(4, FEATURES), nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
    reconstruct, imitate = adam(encoder.parameters(), decoder.parameters()), adam(encoder.parameters())
    criticise = adam(critic.parameters())

    def update(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(20):
        inputs, _ = training.batch()
        drawn = torch.randn(len(inputs), 4)
        update(reconstruct, F.mse_loss(decoder(encoder(inputs)), inputs))
        update(criticise, F.softplus(-critic(drawn)).mean() + F.softplus(critic(encoder(inputs).detach())).mean())
        update(imitate, F.softplus(-critic(encoder(inputs))).mean())


def optimizer_changed_on_the_way(training: Diagnosed) -> None:
    model = ConvNet()
    training.train(model, optimizer=adam(model.parameters()))
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.05))


def model_converted_before_the_optimizer(training: Diagnosed) -> None:
    model = Recurrent().double().float()
    model.head = nn.Linear(model.head.in_features, CLASSES)
    training.train(model)


def optimizer_with_a_model_for_later(training: Diagnosed) -> None:
    """A head for another task does not run yet."""
    model, other = ConvNet(), nn.Linear(CLASSES, 2)
    training.train(model, optimizer=adam(model.parameters(), other.parameters()))


def plain_descent_made_anew(training: Diagnosed) -> None:
    """It keeps nothing from step to step."""
    model = network()
    for _ in range(12):
        training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), steps=1)


def a_model_for_each_fold(training: Diagnosed) -> None:
    for _ in range(3):
        training.train(ConvNet(), steps=10)


def critic_more_often_than_its_generator(training: Diagnosed) -> None:
    maker, critic = generator(), network(out=1)
    optimizers = [torch.optim.Adam(model.parameters(), lr=2e-3) for model in (maker, critic)]
    for step in range(40):
        real, _ = training.batch()
        made = maker(torch.randn(len(real), 4))
        optimizers[1].zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()).backward()
        optimizers[1].step()
        if step % 5 == 4:
            optimizers[0].zero_grad()
            F.softplus(-critic(maker(torch.randn(len(real), 4)))).mean().backward()
            optimizers[0].step()


HEALTHY: tuple[Healthy, ...] = (
    (head_alone_in_the_optimizer, "not-in-optimizer"),
    (layers_in_a_module_list, "not-in-optimizer"),
    (layers_added_to_the_optimizer_as_they_thaw, "not-in-optimizer"),
    (inputs_that_require_gradients, "not-a-parameter"),
    (scale_that_is_a_buffer, "not-a-parameter"),
    (guard_that_opens_again, "update-without-effect"),
    (two_optimizers_that_share_nothing, "two-optimizers"),
    (optimizers_that_take_turns, "two-optimizers"),
    (encoder_that_follows_two_losses, "two-optimizers"),
    (optimizer_changed_on_the_way, "two-optimizers"),
    (model_converted_before_the_optimizer, "optimizer-of-others"),
    (optimizer_with_a_model_for_later, "optimizer-of-others"),
    (plain_descent_made_anew, "optimizer-made-anew"),
    (a_model_for_each_fold, "optimizer-made-anew"),
    (critic_more_often_than_its_generator, "optimizer-never-steps"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
