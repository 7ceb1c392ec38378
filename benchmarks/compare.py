"""One difference is planted in one of two trainings; is the right operator the first that is named.

    python benchmarks/compare.py [NAME ...] [--captures modules ops] [--steps 3] [--only-equal] [--json FILE]

Each case trains a program twice from the same weights on the same batches, records both, and compares the recordings
with ``tensight compare runs``. In a *planted* case one operator, weight, hyper-parameter or loss of the second training
is changed; in half of them the second model's modules are renamed and registered in another order, too, and in others
the second program is written in another way (operators or matrices fused or split) or computes in another element
type. The case is won if the first name that the verdict gives is that of what was changed, in the right phase. In an
*equal* case the trainings differ by rounding only (threads, another order of summation, a batch in two halves, written
in another way, another element type), and there must be no finding.

Models come from transformers, torchvision and timm with random weights; `make healthy` installs the packages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import platform
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

PACKAGES = Path(__file__).resolve().parent.parent / ".venvs" / "programs"
sys.path.append(str(PACKAGES))
# Declares the operators of torchvision, which has no build for this PyTorch.
sys.path.insert(0, str(Path(__file__).resolve().parent / "programs" / "start"))
__import__("sitecustomize")

import rewritten  # noqa: E402
import torch  # noqa: E402
from rewritten import NothingToRewrite  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import nn  # noqa: E402

import tensight.torch  # noqa: E402
from tensight.analysis import Analysis  # noqa: E402
from tensight.compare.runs import Finding, RunComparison, compare_runs  # noqa: E402
from tensight.compare.runs.words import sentence  # noqa: E402
from tensight.dumps import open_dump  # noqa: E402

Batch = tuple[torch.Tensor, torch.Tensor]
LossOf = Callable[[Any, torch.Tensor], torch.Tensor]
out = Console(width=None if sys.stdout.isatty() else 200)


@dataclass
class Training:
    """A training whose parts a case may change.

    Attributes
    ----------
    model : Module
    optimizer : callable
        Makes the optimizer of a model.
    loss : callable
        Loss of what the model returned and the targets.
    batches : list of (Tensor, Tensor)
    halves : bool
        Whether each batch goes through the model in two halves, whose gradients add up.
    clip : float or None
        Norm to which gradients are clipped.
    dtype : dtype or None
        Element type of the model and of its inputs.
    autocast : bool
        Whether forward passes compute in bfloat16 where PyTorch thinks that it is safe.
    """

    model: nn.Module
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    loss: LossOf
    batches: list[Batch]
    halves: bool = False
    clip: float | None = None
    dtype: torch.dtype | None = None
    autocast: bool = False
    folder: Path = Path()
    capture: str = "modules"

    def run(self, recorder: Recorder | None = None) -> None:
        """Train one step on each batch; by default Tensight records."""
        optimizer = self.optimizer(self.model)
        with recorder(self, optimizer) if recorder is not None else self.recorded(optimizer) as around_step:
            for inputs, targets in self.batches:
                if not callable(around_step):
                    self.step(optimizer, inputs, targets)
                    continue
                with around_step():
                    self.step(optimizer, inputs, targets)

    def step(self, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """Train one step."""
        if self.dtype is not None and inputs.is_floating_point():
            inputs = inputs.to(self.dtype)
        optimizer.zero_grad()
        parts = list(zip(inputs.chunk(2), targets.chunk(2), strict=True)) if self.halves else [(inputs, targets)]
        for one, wanted in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                loss = self.loss(self.model(one), wanted) / len(parts)
            loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        optimizer.step()

    def recorded(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the debugger that records."""
        return tensight.torch.debug(
            self.model,
            optimizer,
            record="full",
            record_folder=str(self.folder),
            capture=self.capture,
            memory_budget_bytes=4 << 30,
            quiet=True,
            port=1,
        )


Recorder = Callable[[Training, torch.optim.Optimizer], contextlib.AbstractContextManager[Any]]
"""Records a training; what it yields may be called for a context around each step."""


def adamw(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, **options})


def sgd(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **options})


def cross_entropy(logits: Any, targets: torch.Tensor, **options: Any) -> torch.Tensor:
    logits = getattr(logits, "logits", logits)
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **options)


def tokens(vocabulary: int, steps: int, batch: int = 4, length: int = 16) -> list[Batch]:
    found = torch.randint(0, vocabulary, (steps, batch, length + 1))
    return [(one[:, :-1], one[:, 1:]) for one in found]


def images(size: int, classes: int, steps: int, batch: int = 4) -> list[Batch]:
    return [(torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))) for _ in range(steps)]


def gpt2(steps: int) -> Training:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=200, n_positions=64, **NO_DROPOUT_GPT2)
    return Training(GPT2LMHeadModel(config), adamw, cross_entropy, tokens(200, steps))


def bert(steps: int) -> Training:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        num_hidden_layers=3, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=200,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return Training(BertForMaskedLM(config), adamw, cross_entropy, tokens(200, steps))


def llama(steps: int) -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=4, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        vocab_size=200, max_position_embeddings=64,
    )  # fmt: skip
    return Training(LlamaForCausalLM(config), adamw, cross_entropy, tokens(200, steps))


def resnet(steps: int) -> Training:
    import timm

    model = timm.create_model("resnet18", num_classes=10, channels=(16, 24, 32, 48), zero_init_last=False)
    return Training(model, sgd, cross_entropy, images(48, 10, steps))


def convnext(steps: int) -> Training:
    import timm

    model = timm.create_model("convnext_atto", num_classes=10, depths=(1, 1, 2, 1), dims=(16, 32, 48, 64))
    return Training(model, adamw, cross_entropy, images(48, 10, steps))


def vit(steps: int) -> Training:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=48, depth=4, embed_dim=64, num_heads=4, num_classes=10)
    return Training(model, adamw, cross_entropy, images(48, 10, steps))


class Recurrent(nn.Module):
    """A language model of recurrent cells, unrolled by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, 32)
        self.cells = nn.ModuleList([nn.GRUCell(32, 48), nn.GRUCell(48, 48)])
        self.norm, self.drop, self.head = nn.LayerNorm(48), nn.Dropout(0.0), nn.Linear(48, 200)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [x.new_zeros(len(x), 48, dtype=self.norm.weight.dtype) for _ in self.cells]
        outputs = []
        for entry in self.embed(x).unbind(1):
            for place, cell in enumerate(self.cells):
                states[place] = entry = cell(entry, states[place])
            outputs.append(entry)
        return self.head(self.drop(self.norm(torch.stack(outputs, 1))))


def recurrent(steps: int) -> Training:
    return Training(Recurrent(), adamw, cross_entropy, tokens(200, steps, length=12))


NO_DROPOUT_GPT2 = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
PROGRAMS: dict[str, Callable[[int], Training]] = {
    "gpt2": gpt2, "bert": bert, "llama": llama, "resnet": resnet, "convnext": convnext, "vit": vit,
    "recurrent": recurrent,
}  # fmt: skip


@dataclass
class Truth:
    """What the verdict must name first.

    Attributes
    ----------
    phases : tuple of Finding
    within : tuple of str
        One of these is in the name, written with slashes; of a weight the parameter's name.
    """

    phases: tuple[Finding, ...]
    within: tuple[str, ...] = ("",)

    def is_named_by(self, result: RunComparison) -> bool:
        """Return whether the first name of a verdict is right."""
        if result.finding not in self.phases:
            return False
        names = [one.name_a for one in result.tensors[:1]]
        if result.first is not None:
            names += [result.first.pair.a.name, *(op.name for op in result.first.through)]
        return any(part in name.replace(".", "/").replace("my_", "") for part in self.within for name in names)


Plant = Callable[[Training], Truth]
FORWARD = (Finding.FORWARD,)


def path(name: str) -> str:
    return name.replace(".", "/")


def modules_of(training: Training, *kinds: type[nn.Module] | str) -> list[tuple[str, nn.Module]]:
    """Return the modules of some types, or types whose name ends so, in order of registration."""
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    endings = tuple(kind for kind in kinds if isinstance(kind, str))
    return [
        (name, module)
        for name, module in training.model.named_modules()
        if (classes and isinstance(module, classes)) or (endings and type(module).__name__.endswith(endings))
    ]


NORMS = (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm, "RMSNorm")
ACTIVATIONS = (nn.GELU, nn.SiLU, nn.ReLU, "GELUActivation", "SiLUActivation")


def epsilon(training: Training, place: float, factor: float) -> Truth:
    name, module = _at(modules_of(training, *NORMS), place)
    attribute = "eps" if hasattr(module, "eps") else "variance_epsilon"
    before = getattr(module, attribute)
    setattr(module, attribute, before * factor if before > 1e-7 else 1e-5)
    return Truth(FORWARD, (path(name) + "/",))


def changed_output(
    training: Training, place: float, change: Callable[[torch.Tensor], torch.Tensor], *kinds: Any
) -> Truth:
    name, module = _at(modules_of(training, *kinds), place)
    forward = module.forward
    module.forward = lambda *args, **kwargs: change(forward(*args, **kwargs))  # type: ignore[method-assign]
    return Truth(FORWARD, (path(name) + "/",))


def gelu(training: Training, place: float) -> Truth:
    """Another variant of an activation; where a module serves several layers, in all of them."""
    found = modules_of(training, *ACTIVATIONS)
    name, module = _at(found, place)
    kind = type(module).__name__
    if "GELU" in kind:
        module.forward = lambda x: nn.functional.gelu(x, approximate="none" if "New" in kind else "tanh")  # type: ignore[method-assign]
    elif "Si" in kind:
        module.forward = lambda x: x * torch.sigmoid(1.02 * x)  # type: ignore[method-assign]
    else:
        module.forward = lambda x: nn.functional.leaky_relu(x, 0.01)  # type: ignore[method-assign]
    return Truth(FORWARD, (path(name) + "/",))


def dropout_left_on(training: Training, place: float) -> Truth:
    found = modules_of(training, nn.Dropout)
    if not found:
        return changed_output(training, place, partial(nn.functional.dropout, p=0.05), nn.Linear, nn.Conv2d)
    name, module = _at(found, place)
    module.p = 0.1
    # Fused attention is given the probability by the module around it.
    return Truth(FORWARD, (path(name) + "/", path(name).rpartition("/")[0] + "/"))


def in_bfloat16(training: Training, place: float) -> Truth:
    name, module = _at(modules_of(training, nn.Linear, nn.Conv2d, "Conv1D"), place)
    module.forward = partial(_narrow, module.forward)  # type: ignore[method-assign]
    return Truth(FORWARD, (path(name) + "/",))


def _narrow(forward: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return forward(*args).float()


def missing_bias(training: Training, place: float) -> Truth:
    found = [
        (n, m) for n, m in modules_of(training, nn.Linear, nn.Conv2d, "Conv1D", nn.LayerNorm) if m.bias is not None
    ]
    if not found:
        return initial_weight(training, place)
    name, module = _at(found, place)
    with torch.no_grad():
        module.bias.normal_(std=0.02)
    training.reference_changed = True  # type: ignore[attr-defined]
    forward = module.forward
    bias = module.bias
    module.forward = lambda *args: forward(*args) - bias  # type: ignore[method-assign]
    return Truth(FORWARD, (path(name) + "/",))


def initial_weight(training: Training, place: float) -> Truth:
    name, parameter = _at(list(training.model.named_parameters()), place)
    with torch.no_grad():
        parameter.view(-1)[0] += 1e-3
    return Truth((Finding.INITIAL_WEIGHTS,), (path(name),))


def initialiser(training: Training, place: float) -> Truth:
    name, parameter = _at([(n, p) for n, p in training.model.named_parameters() if p.dim() > 1], place)
    with torch.no_grad():
        parameter.mul_(1.1)
    return Truth((Finding.INITIAL_WEIGHTS,), (path(name),))


def scaled(training: Training, place: float) -> Truth:
    return changed_output(training, place, lambda x: x * 1.001, nn.Linear, nn.Conv2d, "Conv1D")


def wrong_axis(training: Training, place: float) -> Truth:
    name, module = _at(modules_of(training, nn.LayerNorm, nn.BatchNorm2d, "RMSNorm"), place)
    axis = 1

    def forward(x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(axis, keepdim=True)
        return centred / (x.var(axis, keepdim=True, unbiased=False) + 1e-5).sqrt()

    module.forward = forward  # type: ignore[method-assign]
    return Truth(FORWARD, (path(name) + "/",))


def flipped_mask(training: Training, place: float) -> Truth:
    """Zeros where a mask was left out: the last position of a layer's output."""

    def masked(x: Any) -> Any:
        first = x[0] if isinstance(x, tuple) else x
        mask = torch.ones_like(first)
        mask[..., -1] = 0
        return (first * mask, *x[1:]) if isinstance(x, tuple) else first * mask

    return changed_output(training, place, masked, nn.Linear, nn.Conv2d, "Conv1D")


def smoothing(training: Training, _: float) -> Truth:
    training.loss = partial(cross_entropy, label_smoothing=0.1)
    return Truth(FORWARD)


def reduction(training: Training, _: float) -> Truth:
    training.loss = partial(cross_entropy, reduction="sum")
    return Truth(FORWARD)


def optimizer_of(training: Training, _: float, **options: Any) -> Truth:
    training.optimizer = partial(training.optimizer, **options)
    return Truth((Finding.UPDATE,))


def momentum(training: Training, place: float) -> Truth:
    is_adam = training.optimizer is adamw
    return optimizer_of(training, place, **({"betas": (0.8, 0.999)} if is_adam else {"momentum": 0.8}))


def weight_decay(training: Training, place: float) -> Truth:
    return optimizer_of(training, place, weight_decay=0.02)


def decay_of_norms(training: Training, _: float) -> Truth:
    make = training.optimizer
    norms = {id(p) for _, m in modules_of(training, *NORMS) for p in m.parameters()}
    names = [path(n) for n, p in training.model.named_parameters() if id(p) in norms]

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        found = make(model)
        (group,) = found.param_groups
        kept = [p for p in group["params"] if id(p) not in norms]
        special = [p for p in group["params"] if id(p) in norms]
        found.param_groups[0]["params"] = kept
        found.add_param_group(
            {**{k: v for k, v in group.items() if k != "params"}, "params": special, "weight_decay": 0.1}
        )
        return found

    training.optimizer = optimizer
    return Truth((Finding.UPDATE,), tuple(names))


def learning_rate(training: Training, place: float) -> Truth:
    return optimizer_of(training, place, lr=1.01e-3 if training.optimizer is adamw else 0.0505)


def clipping(training: Training, _: float) -> Truth:
    training.clip = 0.01
    return Truth((Finding.BACKWARD, Finding.UPDATE))


def frozen(training: Training, place: float) -> Truth:
    name, parameter = _at([(n, p) for n, p in training.model.named_parameters() if p.dim() > 1], place)
    make = training.optimizer

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        found = make(model)
        group = found.param_groups[0]
        group["params"] = [p for p in group["params"] if p is not parameter]
        return found

    training.optimizer = optimizer
    return Truth((Finding.UPDATE, Finding.BETWEEN_STEPS), (path(name),))


def _at(found: list[Any], place: float) -> Any:
    if not found:
        raise NothingToRewrite
    return found[min(int(place * len(found)), len(found) - 1)]


PLANTS: dict[str, Plant] = {
    "epsilon/10 early": partial(epsilon, place=0.2, factor=0.1),
    "epsilon*10 late": partial(epsilon, place=0.8, factor=10.0),
    "activation": partial(gelu, place=0.5),
    "dropout left on": partial(dropout_left_on, place=0.6),
    "scale": partial(scaled, place=0.4),
    "axis": partial(wrong_axis, place=0.5),
    "mask": partial(flipped_mask, place=0.7),
    "bfloat16": partial(in_bfloat16, place=0.3),
    "initial weight": partial(initial_weight, place=0.5),
    "initialiser": partial(initialiser, place=0.7),
    "loss reduction": partial(reduction, _=0.0),
    "label smoothing": partial(smoothing, _=0.0),
    "momentum": partial(momentum, place=0.0),
    "weight decay": partial(weight_decay, place=0.0),
    "decay of norms": partial(decay_of_norms, _=0.0),
    "learning rate": partial(learning_rate, place=0.0),
    "clipping": partial(clipping, _=0.0),
    "frozen": partial(frozen, place=0.5),
}


def threads(_: Training) -> None:
    torch.set_num_threads(2)


def without_mkldnn(_: Training) -> None:
    torch.backends.mkldnn.enabled = False


def summed_backwards(training: Training) -> None:
    for _, module in modules_of(training, nn.Linear)[::2]:
        weight, bias = module.weight, module.bias

        def forward(x: torch.Tensor, weight: Any = weight, bias: Any = bias) -> torch.Tensor:
            y = nn.functional.linear(x.flip(-1), weight.flip(-1))
            return y if bias is None else y + bias

        module.forward = forward


def halves(training: Training) -> None:
    if modules_of(training, nn.BatchNorm2d) or training.capture == "ops":
        # Normalising halves is another computation, and cutting a batch is an operator that is named.
        raise NothingToRewrite
    training.halves = True


EQUAL: dict[str, Callable[[Training], None]] = {
    "the same": lambda _: None,
    "threads": threads,
    "without mkldnn": without_mkldnn,
    "order of summation": summed_backwards,
    "batch in halves": halves,
}


def loss_written_out(training: Training) -> None:
    if training.loss is not cross_entropy:
        raise NothingToRewrite
    training.loss = _cross_entropy_written_out


def _cross_entropy_written_out(logits: Any, targets: torch.Tensor) -> torch.Tensor:
    logits = getattr(logits, "logits", logits)
    logits = logits.reshape(-1, logits.shape[-1])
    picked = logits.gather(1, targets.reshape(-1, 1)).squeeze(1)
    return (torch.logsumexp(logits, 1) - picked).mean()


def in_float64(training: Training) -> None:
    training.model.double()
    training.dtype = torch.float64


def in_bfloat16_all(training: Training) -> None:
    training.model.bfloat16()
    training.dtype = torch.bfloat16


def autocast(training: Training) -> None:
    training.autocast = True


def written(change: Callable[[nn.Module], None], training: Training) -> None:
    change(training.model)


REWRITTEN: dict[str, Callable[[Training], None]] = {
    "attention written out": partial(written, rewritten.attention),
    "activations written out": partial(written, rewritten.activations),
    "linears written out": partial(written, rewritten.linears),
    "norms written out": partial(written, rewritten.norms),
    "convolutions written out": partial(written, rewritten.convolutions),
    "cells written out": partial(written, rewritten.cells),
    "projections fused or split": partial(written, rewritten.projections),
    "loss written out": loss_written_out,
    "in float64": in_float64,
    "in bfloat16": in_bfloat16_all,
    "autocast": autocast,
}
"""Ways of writing the second program that change nothing but rounding."""

NARROW = ("in bfloat16", "autocast")
COARSE = (
    "axis", "mask", "dropout left on", "initialiser", "loss reduction", "label smoothing", "momentum", "clipping",
    "frozen",
)  # fmt: skip
"""Changes that rounding to bfloat16 does not hide."""

OF_PARAMETERS = ("initial weight", "initialiser", "frozen", "bfloat16")
"""Changes that writing the program in another way may undo, or that need a type of their own."""


def make(program: str, steps: int) -> Training:
    """Return a training whose weights and batches depend on nothing but the program."""
    torch.manual_seed(11)
    training = PROGRAMS[program](steps)
    training.model.train()
    return training


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(1)
        torch.backends.mkldnn.enabled = True


class Bench:
    """Runs cases.

    Parameters
    ----------
    folder : Path
        For recordings; those of the second trainings are removed at once.
    steps : int
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self._folder, self._steps = folder, steps
        self._references: dict[tuple[str, str], Analysis] = {}

    def record(self, training: Training, name: str, capture: str) -> Analysis:
        """Train and open the recording."""
        training.folder, training.capture = self._folder / name, capture
        with settings_kept() if name.startswith("a-") else contextlib.nullcontext():
            torch.manual_seed(5)
            training.run()
        return Analysis(open_dump(str(training.folder)), cache_dir=self._folder / "cache")

    def reference(self, program: str, capture: str) -> Analysis:
        """Return the recording of a program as it is."""
        key = (program, capture)
        if key not in self._references:
            self._references[key] = self.record(make(program, self._steps), f"a-{program}-{capture}", capture)
        return self._references[key]

    def compare(self, case: Case) -> tuple[Any, RunComparison, int]:
        """Return what a change returned, the verdict, and how many operators a step of the reference has."""
        training = make(case.program, self._steps)
        training.capture = case.capture
        with settings_kept():
            truth = case.apply(training)
            reference = None
            if getattr(training, "reference_changed", False):
                plain = make(case.program, self._steps)
                plain.model.load_state_dict(training.model.state_dict())
                reference = self.record(plain, "own-a", case.capture)
            b = self.record(training, "b", case.capture)
        a = reference or self.reference(case.program, case.capture)
        (result,) = compare_runs(a, b)
        return truth, result, len(result.matching.pairs) + len(result.matching.only_a)

    def clear(self) -> None:
        """Remove the recordings of a case."""
        for name in ("b", "own-a"):
            shutil.rmtree(self._folder / name, ignore_errors=True)

    def keep(self, case: Case, folder: Path) -> None:
        """Copy the recordings of a case to where they can be looked at."""
        own = self._folder / "own-a"
        reference = own if own.exists() else self._folder / f"a-{case.program}-{case.capture}"
        shutil.copytree(reference, folder / "a", dirs_exist_ok=True)
        shutil.copytree(self._folder / "b", folder / "b", dirs_exist_ok=True)


@dataclass(frozen=True)
class Case:
    """Two trainings of a program.

    Attributes
    ----------
    program, capture : str
    change : str
        Of `PLANTS`, or of `EQUAL`; empty if the second program is only written in another way.
    way : str
        Of `REWRITTEN`, or empty.
    rename : bool
        Whether the second model's modules are renamed.
    """

    program: str
    capture: str
    change: str
    way: str = ""
    rename: bool = False

    @property
    def is_planted(self) -> bool:
        """Whether something differs that must be found."""
        return self.change in PLANTS

    def __str__(self) -> str:
        """Return what differs."""
        return ", ".join(filter(None, (self.change, self.way, "renamed" if self.rename else "")))

    def apply(self, training: Training) -> Truth | None:
        """Change the second training; return what must be found."""
        truth = None
        if self.change in PLANTS:
            truth = PLANTS[self.change](training)
        elif self.change:
            EQUAL[self.change](training)
        if self.way:
            REWRITTEN[self.way](training)
        if self.rename:
            rewritten.renamed(training.model)
        return truth


def cases_of(program: str, capture: str) -> Iterator[Case]:
    """Yield the cases of a program: every change, every way of writing it, and each way with one of the changes."""
    for number, change in enumerate(PLANTS):
        yield Case(program, capture, change, rename=(number + list(PROGRAMS).index(program)) % 2 == 1)
    for number, way in enumerate(REWRITTEN):
        changes = COARSE if way in NARROW else [change for change in PLANTS if change not in OF_PARAMETERS]
        change = changes[(4 * list(PROGRAMS).index(program) + 3 * number) % len(changes)]
        yield Case(program, capture, change, way)
    for change in EQUAL:
        yield Case(program, capture, change)
    for way in REWRITTEN:
        yield Case(program, capture, "", way)


def main() -> int:
    """Run the cases and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*PROGRAMS, *PLANTS, *EQUAL, *REWRITTEN]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--captures", nargs="+", default=["modules"], choices=["modules", "ops"])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only-equal", action="store_true")
    parser.add_argument("--only-planted", action="store_true")
    parser.add_argument("--only-rewritten", action="store_true", help="only programs that are written in another way")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the recordings of what was not right")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    programs = [one for one in PROGRAMS if one in options.names] or list(PROGRAMS)
    chosen = {one for one in (*PLANTS, *EQUAL, *REWRITTEN) if one in options.names}
    cases = [
        case
        for capture in options.captures
        for program in programs
        for case in cases_of(program, capture)
        if (not chosen or case.change in chosen or case.way in chosen)
        and not (options.only_equal and case.is_planted)
        and not (options.only_planted and not case.is_planted)
        and not (options.only_rewritten and not case.way)
    ]
    rows: list[dict[str, Any]] = []
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        bench = Bench(Path(temporary), options.steps)
        for case in cases:
            row = run_case(bench, case, options.keep)
            if row is None:
                continue
            rows.append(row)
            if options.json is not None:
                options.json.write_text(json.dumps(rows, indent=1))
    show(rows, f"{platform.processor() or platform.machine()}, {time.monotonic() - began_s:.0f} s")
    return 0


def run_case(bench: Bench, case: Case, keep: Path | None) -> dict[str, Any] | None:
    """Run a case and print what was found; None if the program has nothing to change."""
    try:
        truth, result, size = bench.compare(case)
    except NothingToRewrite:
        return None
    is_right = truth.is_named_by(result) if case.is_planted else result.finding is Finding.NOTHING
    if keep is not None and not is_right:
        bench.keep(case, keep / f"{case.program}-{case.capture}-{case}".replace(", ", "-").replace(" ", "-"))
    bench.clear()
    mark = "[green]✓[/]" if is_right else "[red]✗[/]"
    text = "" if is_right else f": {sentence(result)}"
    out.print(f"{mark} {case.program} {case.capture}, {case} ({size} operators){text}", highlight=False)
    return {
        "program": case.program, "capture": case.capture, "change": case.change, "way": case.way,
        "renamed": case.rename, "kind": "planted" if case.is_planted else "equal", "operators": size,
        "is_right": is_right, "sentence": sentence(result),
    }  # fmt: skip


def show(rows: list[dict[str, Any]], title: str) -> None:
    """Print how many cases of each program were right."""
    table = Table(title=title)
    for column in ("program", "capture", "operators", "planted: right", "of", "equal: no finding", "of"):
        table.add_column(column)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["program"], row["capture"]), []).append(row)
    for (program, capture), of_group in [*groups.items(), (("all", ""), rows)]:
        counts = []
        for kind in ("planted", "equal"):
            results = [row["is_right"] for row in of_group if row["kind"] == kind]
            counts += [str(sum(results)), str(len(results))]
        sizes = [row["operators"] for row in of_group] or [0]
        table.add_row(program, capture, f"{min(sizes)} – {max(sizes)}", *counts)
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
