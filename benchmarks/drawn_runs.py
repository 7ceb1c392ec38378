"""Drawn pairs of runs: one small training, or two that part in a known way, as two people write it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from drawn import Drawn, Judgement, Outcome
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tensight.torch
from tensight.analysis import Analysis
from tensight.compare.runs import Finding, RunComparison, compare_runs
from tensight.compare.runs.words import sentence
from tensight.compare.verdict import Verdict
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = 4
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "silu": F.silu,
    "shifted": lambda values: F.gelu(values) + 0.05 * values,
}
MODULES: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU}
VISIBLE = 1e-4
"""Relative difference of the losses or weights above which no verdict may say that two runs are the same."""
VISIBLE_MIXED = 16 * 2.0**-8
"""The same of the losses for runs in bfloat16, which are said to be the same up to rounding to that."""


class Shifted(nn.Module):
    """An activation with a slip in it."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS["shifted"](values)


class Attention(nn.Module):
    """Attention over the rows of a picture or over words, fused or written out."""

    def __init__(self, width: int, heads: int, *, is_fused: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.is_fused = heads, is_fused
        self.factor = 1.0

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        count, length, width = hidden.shape
        q, k, v = self.qkv(hidden).view(count, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scale = self.factor * (width // self.heads) ** -0.5
        if self.is_fused:
            mixed = F.scaled_dot_product_attention(q, k, v, scale=scale)
        else:
            mixed = torch.matmul((torch.matmul(q, k.transpose(-2, -1)) * scale).softmax(-1), v)
        return hidden + self.out(mixed.transpose(1, 2).reshape(count, length, width))


class Words(nn.Module):
    """Recurrent layers over words, of which the last state is returned."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.cells = nn.Embedding(30, width), nn.GRU(width, width, batch_first=True)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.cells(self.table(words))[0][:, -1]


class Flat(nn.Module):
    """Flattens pictures, channels first or last."""

    is_permuted = False

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values.permute(0, 2, 3, 1) if self.is_permuted else values).flatten(1)


class Mean(nn.Module):
    """The mean over positions."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(1)


@dataclass(frozen=True)
class Spec:
    """What both trainings have in common.

    Attributes
    ----------
    family : str
        ``points``, ``pictures``, ``rows`` (attention) or ``words``.
    width, depth : int
    activation, norm : str
    optimizer : str
    lr : float
    clip : bool
    averages : bool
        Whether a moving average of the weights is kept.
    parts : int
        Number of parts of a batch, whose gradients are accumulated.
    is_mixed : bool
        Whether products are computed in bfloat16.
    steps : int
    seed : int
    """

    family: str
    width: int
    depth: int
    activation: str
    norm: str
    optimizer: str
    lr: float
    clip: bool
    averages: bool
    parts: int
    is_mixed: bool
    steps: int
    seed: int


@dataclass(frozen=True)
class Style:
    """How one of them is written.

    Attributes
    ----------
    names : str
        ``numbers`` of a Sequential, or a prefix of attributes.
    is_functional : bool
        Whether activations are calls of functions.
    is_fused : bool
        Whether attention is one operator.
    is_backwards : bool
        Whether modules are registered in the opposite order.
    is_foreach : bool
        Whether the optimizer updates lists of weights at once.
    keeps_zeroes : bool
        Whether gradients are set to zero instead of None.
    is_split : bool
        Whether each part of a batch is split once more.
    """

    names: str = "numbers"
    is_functional: bool = False
    is_fused: bool = True
    is_backwards: bool = False
    is_foreach: bool = False
    keeps_zeroes: bool = False
    is_split: bool = False


class Network(nn.Module):
    """Layers one after another.

    Parameters
    ----------
    layers : list of (str, Module)
        Kind and module; an activation may be a plain function for `Style.is_functional`.
    """

    def __init__(self, layers: list[tuple[str, nn.Module]], style: Style) -> None:
        super().__init__()
        self.order, self.calls = [], dict[str, str]()
        for number, (kind, layer) in enumerate(layers):
            name = f"layer{number}" if style.names == "numbers" else f"{style.names}_{kind}_{number}"
            self.order.append((name, layer))
            if style.is_functional and kind == "act":
                self.calls[name] = activation_name(layer)
        registered = [entry for entry in self.order if entry[0] not in self.calls]
        for name, layer in reversed(registered) if style.is_backwards else registered:
            self.add_module(name, layer)
        self.order = [name for name, _ in self.order]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            values = ACTIVATIONS[self.calls[name]](values) if name in self.calls else getattr(self, name)(values)
        return values


def activation_name(layer: nn.Module) -> str:
    return next((name for name, kind in MODULES.items() if isinstance(layer, kind)), "shifted")


def layers_of(spec: Spec, style: Style) -> list[tuple[str, nn.Module]]:
    width, act = spec.width, MODULES[spec.activation]
    if spec.family == "pictures":
        layers: list[tuple[str, nn.Module]] = []
        for number in range(spec.depth):
            norm = nn.BatchNorm2d(width) if spec.norm == "batch" else nn.GroupNorm(2, width)
            layers += [("conv", nn.Conv2d(width if number else 3, width, 3, 2, 1)), ("norm", norm), ("act", act())]
        side = 12
        for _ in range(spec.depth):
            side = (side + 1) // 2
        return [*layers, ("flat", Flat()), ("head", nn.Linear(width * side * side, CLASSES))]
    if spec.family == "rows":
        blocks = [("attn", Attention(width, 2, is_fused=style.is_fused)) for _ in range(spec.depth)]
        norms = [("norm", nn.LayerNorm(width)) for _ in range(spec.depth)]
        inner = [layer for pair in zip(norms, blocks, strict=True) for layer in pair]
        return [
            ("stem", nn.Linear(12, width)),
            *inner,
            ("act", act()),
            ("mean", Mean()),
            ("head", nn.Linear(width, CLASSES)),
        ]
    if spec.family == "words":
        return [
            ("words", Words(width)),
            ("norm", nn.LayerNorm(width)),
            ("act", act()),
            ("head", nn.Linear(width, CLASSES)),
        ]
    layers = []
    for number in range(spec.depth):
        norm = nn.BatchNorm1d(width) if spec.norm == "batch" else nn.LayerNorm(width)
        layers += [("lin", nn.Linear(width if number else 12, width)), ("norm", norm), ("act", act())]
    return [*layers, ("head", nn.Linear(width, CLASSES))]


def has_batch_norm(spec: Spec) -> bool:
    return spec.norm == "batch" and spec.family in ("points", "pictures")


def batches_of(spec: Spec) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(spec.seed)
    shapes = {"pictures": (8, 3, 12, 12), "rows": (8, 6, 12), "words": (8, 7), "points": (16, 12)}
    found = []
    for _ in range(spec.steps):
        shape = shapes[spec.family]
        if spec.family == "words":
            inputs = torch.randint(0, 30, shape, generator=generator)
        else:
            inputs = torch.randn(shape, generator=generator)
        found.append((inputs, torch.randint(0, CLASSES, shape[:1], generator=generator)))
    return found


@dataclass
class Run:
    """One training of a pair, which a plant may change.

    Attributes
    ----------
    spec : Spec
    style : Style
    layers : list of (str, Module)
    batches : list of (Tensor, Tensor)
    loss : callable
    after_step : callable
        Called with the network and the index of the step, between two steps.
    zeroes : callable
        Whether gradients are set to zero before a step.
    decay : float
        Of the moving average.
    clip_gradients : callable or None
        Called with the parameters before an update.
    rate : callable
        Returns the factor of the learning rate in a step.
    is_mixed : bool
    share : float
        Factor of the loss of a part of a batch.
    options : dict of str to object
        Of the optimizer.
    decays_vectors : bool
        Whether weight decay applies to biases and norms, too.
    """

    spec: Spec
    style: Style
    layers: list[tuple[str, nn.Module]]
    batches: list[tuple[torch.Tensor, torch.Tensor]]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy
    after_step: Callable[[Network, int], None] = lambda _network, _step: None
    zeroes: Callable[[int], bool] = lambda _: True
    decay: float = 0.9
    clip_gradients: Callable[[Iterable[nn.Parameter]], object] | None = None
    rate: Callable[[int], float] = lambda _: 1.0
    is_mixed: bool = False
    share: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    decays_vectors: bool = True
    losses: list[float] = field(default_factory=list)
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    def train(self, folder: Path, capture: str, *, has_values: bool) -> None:
        """Train and record, with values or only statistics."""
        spec, network = self.spec, Network(self.layers, self.style)
        optimizer = self._optimizer()
        average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(self.decay)) if spec.averages else None
        models = [network] if average is None else [network, average.module]
        # Operators that update averages are recorded anyhow; by calls of modules they are only seen if they are known.
        subjects = [network, average] if average is not None and capture == "modules" else [network]
        where = {"record": "full", "record_folder": str(folder)} if has_values else {"trace": str(folder)}
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        with tensight.torch.debug(*subjects, optimizer, capture=capture, quiet=True, port=1, **where):
            for step, batch in enumerate(self.batches):
                if self.zeroes(step):
                    optimizer.zero_grad(set_to_none=not self.style.keeps_zeroes)
                losses = [self._pass(network, *part) for part in self._parts(batch)]
                if self.clip_gradients is not None:
                    self.clip_gradients(network.parameters())
                optimizer.step()
                schedule.step()
                if average is not None:
                    average.update_parameters(network)
                self.after_step(network, step)
                self.losses.append(sum(losses))
        self.state = {
            f"{path}layer{number}.{key}": value.detach().clone()
            for model, path in zip(models, ("", "AveragedModel.module."), strict=False)
            for number, name in enumerate(network.order)
            if name not in network.calls
            for key, value in getattr(model, name).state_dict().items()
        }

    @property
    def amount(self) -> int:
        """Number of parts of a batch."""
        return self.spec.parts * (2 if self.style.is_split else 1)

    def _parts(self, batch: tuple[torch.Tensor, torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        inputs, targets = (tensor.chunk(self.amount) for tensor in batch)
        return zip(inputs, targets, strict=True)

    def _pass(self, network: Network, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Run forward and backward pass of a part of a batch, and return its loss."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_mixed):
            loss = self.loss(network(inputs), targets)
        if self.amount > 1:
            loss = loss * self.share
        loss.backward()
        return loss.item()

    def _optimizer(self) -> torch.optim.Optimizer:
        parameters = [p for _, layer in self.layers for p in layer.parameters() if p.requires_grad]
        options = {"lr": self.spec.lr, "foreach": self.style.is_foreach, **self.options}
        groups: list[Any] = parameters
        if not self.decays_vectors:
            vectors = [p for p in parameters if p.ndim < 2]
            groups = [{"params": [p for p in parameters if p.ndim > 1]}, {"params": vectors, "weight_decay": 0.0}]
        if self.spec.optimizer == "sgd":
            return torch.optim.SGD(groups, **{"momentum": 0.9, **options})
        kind = torch.optim.Adam if self.spec.optimizer == "adam" else torch.optim.AdamW
        return kind(groups, **options)


def clip_norm(parameters: Iterable[nn.Parameter]) -> object:
    return nn.utils.clip_grad_norm_(parameters, 0.5)


@dataclass(frozen=True)
class Truth:
    """What a verdict may name.

    Attributes
    ----------
    findings : tuple of Finding
    layers : tuple of int
        Numbers of layers, one of which is in the first name; none if it does not matter.
    """

    findings: tuple[Finding, ...]
    layers: tuple[int, ...] = ()


Plant = Callable[[random.Random, Run], "Truth | None"]
FORWARD, BACKWARD, UPDATE = Finding.FORWARD, Finding.BACKWARD, Finding.UPDATE


def _pick(rng: random.Random, run: Run, *kinds: str) -> int | None:
    numbers = [number for number, (kind, _) in enumerate(run.layers) if kind in kinds]
    return rng.choice(numbers) if numbers else None


def learning_rate(rng: random.Random, run: Run) -> Truth:
    run.options["lr"] = run.spec.lr * rng.choice([0.5, 0.9, 1.02, 1.5, 10])
    return Truth((UPDATE,))


def weight_decay(rng: random.Random, run: Run) -> Truth:
    run.options["weight_decay"] = rng.choice([0.1, 0.5])
    return Truth((UPDATE,))


def betas(rng: random.Random, run: Run) -> Truth:
    changed = {"momentum": rng.choice([0.0, 0.5])} if run.spec.optimizer == "sgd" else {"betas": (0.8, 0.95)}
    run.options.update(changed)
    return Truth((UPDATE,))


def clipping(_: random.Random, run: Run) -> Truth | None:
    if run.clip_gradients is not None or run.spec.optimizer != "sgd":
        return None
    run.clip_gradients = clip_norm
    return Truth((UPDATE, BACKWARD))


def clipping_of_values(rng: random.Random, run: Run) -> Truth | None:
    if run.clip_gradients is not None or run.spec.optimizer != "sgd":
        return None
    bound = rng.choice([1e-3, 1e-2])
    run.clip_gradients = lambda parameters: nn.utils.clip_grad_value_(parameters, bound)
    return Truth((UPDATE, BACKWARD))


def decay_of_vectors(_: random.Random, run: Run) -> Truth | None:
    if not run.options.get("weight_decay"):
        return None
    run.decays_vectors = False
    return Truth((UPDATE,))


def schedule(rng: random.Random, run: Run) -> Truth:
    first, factor = rng.randrange(run.spec.steps), rng.choice([0.1, 0.5, 0.95])
    run.rate = lambda step: factor if step >= first else 1.0
    return Truth((UPDATE,))


def epsilon_of_adam(rng: random.Random, run: Run) -> Truth | None:
    if run.spec.optimizer == "sgd":
        return None
    run.options["eps"] = rng.choice([1e-6, 1e-4, 1e-2])
    return Truth((UPDATE,))


def variant(_: random.Random, run: Run) -> Truth:
    run.options["nesterov" if run.spec.optimizer == "sgd" else "amsgrad"] = True
    return Truth((UPDATE,))


def frozen_later(rng: random.Random, run: Run) -> Truth | None:
    number, chosen = _pick(rng, run, "lin", "conv", "attn", "words", "stem"), rng.randrange(run.spec.steps - 1)
    if number is None:
        return None
    layer = run.layers[number][1]

    def freeze(_network: Network, step: int) -> None:
        if step == chosen:
            layer.requires_grad_(False)

    run.after_step = freeze
    return Truth((UPDATE, BACKWARD), (number,))


def mixed_in_one(_: random.Random, run: Run) -> Truth | None:
    if run.is_mixed:
        return None
    run.is_mixed = True
    return Truth((FORWARD, BACKWARD))


def average_decay(_: random.Random, run: Run) -> Truth | None:
    if not run.spec.averages:
        return None
    run.decay = 0.5
    return Truth((UPDATE, FORWARD, Finding.BETWEEN_STEPS))


def share_of_part(_: random.Random, run: Run) -> Truth | None:
    if run.spec.parts == 1:
        return None
    run.share = 1.0
    return Truth((FORWARD, BACKWARD))


def hooked_gradient(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "lin", "conv", "attn", "words", "stem", "head")
    if number is None:
        return None
    factor = rng.choice([0.0, 0.5, 2.0])
    next(run.layers[number][1].parameters()).register_hook(lambda gradient: gradient * factor)
    return Truth((BACKWARD, UPDATE), (number,))


def activation(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "act")
    if number is None:
        return None
    run.layers[number] = ("act", Shifted())
    return Truth((FORWARD,), (number, number + 1))


def epsilon(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "norm")
    if number is None:
        return None
    run.layers[number][1].eps = rng.choice([1e-2, 1e-1])
    return Truth((FORWARD,), (number,))


def batch_momentum(_: random.Random, run: Run) -> Truth | None:
    numbers = [n for n, (_, layer) in enumerate(run.layers) if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]
    if not numbers:
        return None
    for number in numbers:
        run.layers[number][1].momentum = 0.5
    return Truth((FORWARD, UPDATE, Finding.BETWEEN_STEPS), tuple(numbers))


def permuted(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "flat")
    if number is None:
        return None
    run.layers[number][1].is_permuted = True
    return Truth((FORWARD,), (number,))


def scale(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "attn")
    if number is None:
        return None
    run.layers[number][1].factor = rng.choice([0.5, 1.3])
    return Truth((FORWARD,), (number,))


def initial(rng: random.Random, run: Run) -> Truth:
    number = _pick(rng, run, "lin", "conv", "head", "stem", "attn", "words")
    assert number is not None
    with torch.no_grad():
        next(run.layers[number][1].parameters()).mul_(1.1)
    return Truth((Finding.INITIAL_WEIGHTS,), (number,))


def another_batch(rng: random.Random, run: Run) -> Truth:
    step = rng.randrange(run.spec.steps)
    run.batches[step] = batches_of(replace(run.spec, seed=run.spec.seed + 1))[step]
    return Truth((Finding.DATA,))


def smoothing(_: random.Random, run: Run) -> Truth:
    run.loss = lambda logits, targets: F.cross_entropy(logits, targets, label_smoothing=0.1)
    return Truth((FORWARD, BACKWARD))


def clamped(rng: random.Random, run: Run) -> Truth:
    bound, first = rng.choice([0.02, 0.1]), rng.randrange(run.spec.steps - 1)

    def clamp(network: Network, step: int) -> None:
        if step >= first:
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.clamp_(-bound, bound)

    run.after_step = clamp
    return Truth((Finding.BETWEEN_STEPS,))


def decayed_by_hand(_: random.Random, run: Run) -> Truth:
    def decay(network: Network, _: int) -> None:
        for parameter in network.parameters():
            parameter.data.mul_(0.98)

    run.after_step = decay
    return Truth((Finding.BETWEEN_STEPS,))


def reloaded(rng: random.Random, run: Run) -> Truth:
    chosen = rng.randrange(run.spec.steps - 1)

    def reload(network: Network, step: int) -> None:
        if step == chosen:
            for parameter in network.parameters():
                parameter.data = parameter.data + 0.01

    run.after_step = reload
    return Truth((Finding.BETWEEN_STEPS,))


def no_zeroing(rng: random.Random, run: Run) -> Truth:
    chosen = rng.randrange(1, run.spec.steps)
    run.zeroes = lambda step: step != chosen
    return Truth((BACKWARD, UPDATE))


def frozen(rng: random.Random, run: Run) -> Truth | None:
    number = _pick(rng, run, "lin", "conv", "attn", "words", "stem")
    if number is None:
        return None
    run.layers[number][1].requires_grad_(False)
    return Truth((UPDATE, BACKWARD), (number,))


PLANTS: dict[str, Plant] = {
    "learning rate": learning_rate, "weight decay": weight_decay, "betas": betas, "clipping": clipping,
    "activation": activation, "epsilon": epsilon, "batch momentum": batch_momentum, "permuted": permuted,
    "scale": scale, "initial": initial, "another batch": another_batch, "smoothing": smoothing, "clamped": clamped,
    "decayed by hand": decayed_by_hand, "reloaded": reloaded, "no zeroing": no_zeroing, "frozen": frozen,
    "clipping of values": clipping_of_values, "decay of vectors": decay_of_vectors, "schedule": schedule,
    "epsilon of Adam": epsilon_of_adam, "variant": variant, "frozen later": frozen_later, "mixed in one": mixed_in_one,
    "average decay": average_decay, "share of part": share_of_part, "hooked gradient": hooked_gradient,
}  # fmt: skip


def draw(rng: random.Random, folder: Path) -> Drawn:
    spec = Spec(
        family=rng.choice(["points", "pictures", "rows", "words"]), width=rng.choice([8, 16, 24]),
        depth=rng.choice([1, 2, 3]), activation=rng.choice(list(MODULES)), norm=rng.choice(["batch", "layer"]),
        optimizer=rng.choice(["sgd", "adam", "adamw"]), lr=rng.choice([1e-3, 1e-2]), clip=rng.random() < 0.25,
        averages=rng.random() < 0.25, parts=2 if rng.random() < 0.2 else 1, is_mixed=rng.random() < 0.15,
        steps=rng.choice([3, 4, 6]), seed=rng.randrange(10**6),
    )  # fmt: skip
    capture, has_values = rng.choice(["modules", "ops"]), rng.random() < 0.25
    other = Style()
    if rng.random() < 0.6:
        other = Style(
            names=rng.choice(["numbers", "my", "net"]), is_functional=rng.random() < 0.4,
            is_fused=rng.random() < 0.5, is_backwards=rng.random() < 0.4, is_foreach=rng.random() < 0.2,
            keeps_zeroes=rng.random() < 0.2, is_split=rng.random() < 0.1 and not has_batch_norm(spec),
        )  # fmt: skip
    torch.manual_seed(spec.seed)
    a = Run(spec, Style(), layers_of(spec, Style()), batches_of(spec))
    b = Run(spec, other, layers_of(spec, other), batches_of(spec))
    decays = rng.random() < 0.3
    for run in (a, b):
        run.is_mixed, run.share = spec.is_mixed, 1 / run.amount
        run.clip_gradients = clip_norm if spec.clip else None
        if decays:
            run.options["weight_decay"] = 0.2
    for (_, ours), (_, theirs) in zip(a.layers, b.layers, strict=True):
        theirs.load_state_dict(ours.state_dict())
    truth, name = None, "none"
    if rng.random() < 0.7:
        while truth is None:
            name = rng.choice(list(PLANTS))
            truth = PLANTS[name](rng, b)
    if truth is not None and other.is_split:
        # Only gradients and updates are compared.
        truth = Truth((*truth.findings, BACKWARD, UPDATE))
    description = f"{name} {truth}\n    {capture}{' with values' * has_values} {spec}\n    B {other}"
    return Drawn(name, description, lambda: _judge(a, b, truth, folder, capture, has_values=has_values))


def _judge(a: Run, b: Run, truth: Truth | None, folder: Path, capture: str, *, has_values: bool) -> Judgement:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, run in (("a", a), ("b", b)):
            torch.manual_seed(1)
            run.train(folder / name, capture, has_values=has_values)
    finally:
        torch.set_num_threads(threads)
    (result,) = compare_runs(*(Analysis(open_dump(folder / name)) for name in ("a", "b")))
    said = list(_said(result))
    if result.verdict is Verdict.NOT_COMPARABLE:
        return Judgement(Outcome.UNDECIDED, "not compared", said)
    if b.style.is_split and result.first is not None and "split" in result.first.pair.a.name:
        return Judgement(Outcome.RIGHT, "one run splits the batch", said)
    if truth is None:
        is_right = result.verdict is Verdict.SAME
        return Judgement(Outcome.RIGHT if is_right else Outcome.FALSE, "nothing was planted", said)
    if result.verdict is Verdict.SAME:
        visible = _visible(a, b, result)
        is_visible = visible > (VISIBLE_MIXED if a.is_mixed or b.is_mixed else VISIBLE)
        return Judgement(Outcome.FALSE if is_visible else Outcome.UNDECIDED, f"differs by {visible:.2g}", said)
    if result.finding is Finding.LOSSES:
        return Judgement(Outcome.UNDECIDED, "only the losses are known to differ", said)
    is_named = result.finding in truth.findings and _names_one(result, truth)
    return Judgement(Outcome.RIGHT if is_named else Outcome.FALSE, "another cause is named", said)


def _said(result: RunComparison) -> Iterator[str]:
    yield f"{result.verdict.value}, {result.finding.value}, step {result.step}"
    yield sentence(result)


def _names_one(result: RunComparison, truth: Truth) -> bool:
    if not truth.layers:
        return True
    names = [tensor.name_a for tensor in result.tensors]
    if result.first is not None:
        names += [result.first.pair.a.name, *(operator.name for operator in result.first.through)]
    parts = [part for name in names for part in name.replace(".", "/").split("/")]
    return any(part == f"layer{number}" or part.endswith(f"_{number}") for part in parts for number in truth.layers)


def _visible(a: Run, b: Run, result: RunComparison) -> float:
    """Return the largest relative difference of losses and of final values.

    Not of the values that the verdict says it did not judge, or that have no effect; nor of any in bfloat16, because
    Adam amplifies rounding.
    """
    values = [(torch.tensor(a.losses), torch.tensor(b.losses))]
    unjudged = (*_without_effect(a), *(result.steps[-1].amplified if result.steps else ()))
    if not (a.is_mixed or b.is_mixed):
        both = ((name, value, b.state.get(name)) for name, value in a.state.items() if not name.endswith(unjudged))
        values += [(ours, theirs) for _, ours, theirs in both if theirs is not None and ours.shape == theirs.shape]
    largest = 0.0
    for ours, theirs in values:
        norm = float(ours.double().norm())
        largest = max(largest, float((ours.double() - theirs.double()).norm()) / max(norm, 1e-12))
    return largest


def _without_effect(run: Run) -> Iterator[str]:
    """Yield biases whose gradients are zero up to rounding, of which Adam makes full steps, and means that follow."""
    if run.spec.optimizer == "sgd":
        return
    for number, (kind, layer) in enumerate(run.layers):
        if kind == "attn":
            yield f"layer{number}.qkv.bias"
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            yield from (f"layer{number - 1}.bias", f"layer{number}.running_mean")
