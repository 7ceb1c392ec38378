"""Drawn pairs of checkpoints: one model, or two that differ in a known way, under the names of other programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from drawn import Drawn, Judgement, Outcome
from safetensors.numpy import save_file

from tensight.checkpoints import open_checkpoint
from tensight.compare import Verdict
from tensight.compare.checkpoints import CheckpointComparison, compare_checkpoints
from tensight.errors import CheckpointError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

# --- a model, under the names of a Llama ---

ATTENTION = [f"self_attn.{word}_proj.weight" for word in "qkvo"]
MLP = ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"]
NORMS = ["input_layernorm.weight", "post_attention_layernorm.weight"]


def _model(rng: np.random.Generator, layers: int, width: int, *, biases: bool) -> Arrays:
    entries = {"model.embed_tokens.weight": rng.standard_normal((50, width)) * 0.02}
    for layer in range(layers):
        for name in ATTENTION + MLP:
            shape = (width, 2 * width) if "down" in name else (2 * width, width) if "mlp" in name else (width, width)
            entries[f"model.layers.{layer}.{name}"] = rng.standard_normal(shape) * 0.02
            if biases:
                bias = name.replace("weight", "bias")
                entries[f"model.layers.{layer}.{bias}"] = rng.standard_normal(shape[0]) * 0.01
        for name in NORMS:
            entries[f"model.layers.{layer}.{name}"] = 1 + 0.1 * rng.standard_normal(width)
    entries["model.norm.weight"] = 1 + 0.1 * rng.standard_normal(width)
    entries["lm_head.weight"] = rng.standard_normal((50, width)) * 0.02
    return {name: values.astype(np.float32) for name, values in entries.items()}


# --- spellings: each returns the entries of another program, and which of its names hold which of the Llama's ---


@dataclass
class Spelled:
    """A model in the words of a program.

    Attributes
    ----------
    entries : dict of str to array
    names : dict of str to str
        The name in `entries` of each Llama parameter; of a fused one, that of the whole.
    """

    entries: Arrays = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def _renamed(model: Arrays, words: dict[str, str], prefix: str = "") -> Spelled:
    spelled = Spelled()
    for name, values in model.items():
        other = name
        for word, replacement in words.items():
            other = other.replace(word, replacement)
        spelled.entries[prefix + other] = values
        spelled.names[name] = prefix + other
    return spelled


def llama(model: Arrays) -> Spelled:
    return _renamed(model, {})


def wrapped(model: Arrays) -> Spelled:
    return _renamed(model, {}, "module._orig_mod.")


OWN = {
    "model.layers.": "blocks.", "self_attn.q_proj": "attn.wq", "self_attn.k_proj": "attn.wk",
    "self_attn.v_proj": "attn.wv", "self_attn.o_proj": "attn.wo", "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down", "input_layernorm": "norm1", "post_attention_layernorm": "norm2",
    "model.embed_tokens": "tok_emb", "model.norm": "norm", "lm_head": "head",
}  # fmt: skip


def own(model: Arrays) -> Spelled:
    return _renamed(model, OWN)


def mindspore(model: Arrays) -> Spelled:
    words = {
        "layernorm.weight": "layernorm.gamma",
        "norm.weight": "norm.gamma",
        "tokens.weight": "tokens.embedding_table",
    }
    return _renamed(model, words, "network.")


def _fused(spelled: Spelled, parts: tuple[str, ...], whole: str) -> Spelled:
    result = Spelled(dict(spelled.entries), dict(spelled.names))
    for name, other in spelled.names.items():
        if f".{parts[0]}." not in name:
            continue
        llama_names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
        others = [spelled.names[each] for each in llama_names]
        module = other.rpartition(".")[0].rpartition(".")[0]
        fused = f"{module}.{whole}.{other.rpartition('.')[2]}"
        result.entries[fused] = np.concatenate([result.entries.pop(each) for each in others])
        result.names |= dict.fromkeys(llama_names, fused)
    return result


def fused(model: Arrays) -> Spelled:
    return _fused(own(model), ("q_proj", "k_proj", "v_proj"), "qkv")


def fused_mlp(model: Arrays) -> Spelled:
    return _fused(llama(model), ("gate_proj", "up_proj"), "gate_up_proj")


def both_fused(model: Arrays) -> Spelled:
    return _fused(
        _fused(llama(model), ("q_proj", "k_proj", "v_proj"), "qkv_proj"), ("gate_proj", "up_proj"), "gate_up_proj"
    )


def transposed(model: Arrays) -> Spelled:
    """Return matrices as GPT-2's Conv1D and Flax keep them, of which no sign remains in square ones."""
    spelled = _renamed(model, {"proj.weight": "proj.kernel"})
    return Spelled(
        {
            name: np.ascontiguousarray(values.T) if name.endswith("kernel") else values
            for name, values in spelled.entries.items()
        },
        spelled.names,
    )


SPELLINGS: dict[str, Callable[[Arrays], Spelled]] = {
    "Llama": llama, "wrapped": wrapped, "own": own, "MindSpore": mindspore, "fused": fused, "fused MLP": fused_mlp,
    "both fused": both_fused, "transposed": transposed,
}  # fmt: skip

# --- files ---


def _pt(path: Path, entries: Arrays, more: dict[str, Any]) -> Path:
    path = path.with_suffix(".pt")
    tensors = {name: torch.from_numpy(values.copy()) for name, values in entries.items()}
    torch.save({"model": tensors, **more} if more else tensors, path)
    return path


def _safetensors(path: Path, entries: Arrays, more: dict[str, Any]) -> Path:
    if more:
        return _pt(path, entries, more)
    path = path.with_suffix(".safetensors")
    save_file({name: np.ascontiguousarray(values) for name, values in entries.items()}, path)
    return path


def _npz(path: Path, entries: Arrays, more: dict[str, Any]) -> Path:
    if more:
        return _pt(path, entries, more)
    np.savez(path.with_suffix(".npz"), **entries)
    return path.with_suffix(".npz")


FILES = {"pt": _pt, "safetensors": _safetensors, "npz": _npz}

# --- plants: each changes the second checkpoint, and names what must, and what may be said ---


@dataclass
class State:
    """The second checkpoint before it is written: the model in a Llama's words, and the rest of a training."""

    model: Arrays
    more: dict[str, Any]


@dataclass(frozen=True)
class Plant:
    """What is changed, and the kinds of faults that may be found of it; the first must be."""

    change: Callable[[random.Random, State], str]
    kinds: tuple[str, ...]


def _weight(rng: random.Random, state: State, among: tuple[str, ...] = ("weight",)) -> str:
    return rng.choice([name for name in state.model if name.endswith(among)])


def nothing(rng: random.Random, state: State) -> str:  # noqa: ARG001
    return ""


def one_element(rng: random.Random, state: State) -> str:
    name = _weight(rng, state)
    state.model[name].flat[rng.randrange(state.model[name].size)] += 0.5
    return name


def not_a_number(rng: random.Random, state: State) -> str:
    name = _weight(rng, state)
    state.model[name].flat[3] = np.nan
    return name


def turned(rng: random.Random, state: State) -> str:
    name = _weight(rng, state, ("q_proj.weight", "o_proj.weight"))
    state.model[name] = np.ascontiguousarray(state.model[name].T)
    return name


def swapped(rng: random.Random, state: State) -> str:
    names = [name for name in state.model if name.endswith("o_proj.weight")]
    first, second = rng.sample(names, 2)
    state.model[first], state.model[second] = state.model[second], state.model[first]
    return first


def swapped_within(rng: random.Random, state: State) -> str:
    name = _weight(rng, state, ("q_proj.weight",))
    other = name.replace("q_proj", rng.choice(["k_proj", "v_proj"]))
    state.model[name], state.model[other] = state.model[other], state.model[name]
    return name


def another_seed(rng: random.Random, state: State) -> str:
    numbers = np.random.default_rng(rng.randrange(2**32))
    for name, values in state.model.items():
        if values.ndim > 1:
            state.model[name] = (numbers.standard_normal(values.shape) * 0.02).astype(np.float32)
    return "all matrices"


def cast(rng: random.Random, state: State) -> str:  # noqa: ARG001
    for name, values in state.model.items():
        state.model[name] = values.astype(np.float16)
    return "all"


def zeroed(rng: random.Random, state: State) -> str:
    name = _weight(rng, state)
    state.model[name][...] = 0
    return name


def rounded(rng: random.Random, state: State) -> str:  # noqa: ARG001
    for name, values in state.model.items():
        state.model[name] = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    return "all"


def lost(rng: random.Random, state: State) -> str:
    name = _weight(rng, state)
    del state.model[name]
    return name


PLANTS: dict[str, Plant] = {
    "none": Plant(nothing, ()),
    "one element": Plant(one_element, ()),
    "NaN": Plant(not_a_number, ("not finite",)),
    "transposed": Plant(turned, ("transposed",)),
    "swapped": Plant(swapped, ("swapped",)),
    "swapped in a layer": Plant(swapped_within, ("swapped",)),
    "another seed": Plant(another_seed, ()),
    "float16": Plant(cast, ("dtype",)),
    "zeroed": Plant(zeroed, ("zero",)),
    "rounded": Plant(rounded, ("rounded",)),
    "missing": Plant(lost, ("missing",)),
}

# --- optimizers ---


def _optimizer(rng: np.random.Generator, model: Arrays, step: int) -> dict[str, Any]:
    """Return what Adam saves of a model at a step."""
    state = {
        number: {
            "step": torch.tensor(float(step)),
            "exp_avg": torch.from_numpy(rng.standard_normal(values.shape).astype(np.float32) * 1e-3),
            "exp_avg_sq": torch.from_numpy(np.square(rng.standard_normal(values.shape)).astype(np.float32) * 1e-6),
        }
        for number, values in enumerate(model.values())
    }
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "params": list(state)}
    return {"state": state, "param_groups": [group]}


OPTIMIZER_PLANTS = {
    "optimizer anew": ("step",),
    "optimizer lost": ("optimizer state lost",),
    "frozen": ("not updated",),
    "earlier": ("step",),
    "next step": (),
}


def draw(rng: random.Random, folder: Path) -> Drawn:
    """Draw a pair of models, or of states of one training."""
    return _resumed(rng, folder) if rng.random() < 0.3 else _ported(rng, folder)


def _ported(rng: random.Random, folder: Path) -> Drawn:
    numbers = np.random.default_rng(rng.randrange(2**32))
    model = _model(numbers, rng.choice([2, 3, 5]), rng.choice([8, 16, 24]), biases=rng.random() < 0.3)
    moved = rng.choice([0.0, 0.0, 0.002])
    other = {
        name: (values + moved * numbers.standard_normal(values.shape)).astype(np.float32)
        for name, values in model.items()
    }
    name = rng.choice(["none", *PLANTS])
    state = State(other, {})
    of = PLANTS[name].change(rng, state)
    spellings = [rng.choice(list(SPELLINGS)) for _ in "ab"]
    if rng.random() < 0.5:
        spellings[1] = spellings[0]
    # A matrix that is transposed, or lost, cannot be fused.
    if name in ("transposed", "missing"):
        spellings = [rng.choice(["Llama", "wrapped", "own", "MindSpore"]) for _ in "ab"]
    spelled = [SPELLINGS[spelling](entries) for spelling, entries in zip(spellings, (model, state.model), strict=True)]
    paths = []
    files = [rng.choice(list(FILES)) for _ in "ab"]
    for side, each, file in zip("ab", spelled, files, strict=True):
        names = list(each.entries)
        if rng.random() < 0.5:
            rng.shuffle(names)
        paths.append(FILES[file](folder / side, {entry: each.entries[entry] for entry in names}, {}))
    truth = _Ported(PLANTS[name].kinds, moved > 0 or name != "none", spelled[0], spelled[1], set(state.model))
    description = f"{name} of {of or 'nothing'}, moved by {moved}, {spellings}, {files}"
    return Drawn(name, description, lambda: _judged(paths[0], paths[1], truth.outcome))


def _resumed(rng: random.Random, folder: Path) -> Drawn:
    numbers = np.random.default_rng(rng.randrange(2**32))
    model = _model(numbers, 2, rng.choice([8, 16]), biases=False)
    step, later = 100, 100 + rng.choice([1, 20])
    other = {
        name: (values + 1e-3 * numbers.standard_normal(values.shape)).astype(np.float32)
        for name, values in model.items()
    }
    name = rng.choice(list(OPTIMIZER_PLANTS))
    optimizer = _optimizer(numbers, model, step)
    if name == "earlier":
        step, later = later, step
        optimizer = _optimizer(numbers, model, step)
    following = _optimizer(numbers, model, later - step if name == "optimizer anew" else later)
    if name == "optimizer lost":
        following["state"] = {}
    frozen = rng.sample(list(model), rng.choice([1, 3, len(model) - 2])) if name == "frozen" else []
    other |= {each: model[each] for each in frozen}
    paths = [
        _pt(folder / side, entries, {"optimizer": state, "step": at})
        for side, entries, state, at in (("a", model, optimizer, step), ("b", other, following, later))
    ]

    def outcome(result: CheckpointComparison) -> tuple[Outcome, str]:
        kinds = OPTIMIZER_PLANTS[name]
        found = [finding for finding in result.findings if not finding.is_note or finding.kind in kinds]
        extra = {finding.kind for finding in found} - set(kinds)
        if extra:
            return Outcome.FALSE, f"nothing of {sorted(extra)} is planted"
        if name == "optimizer anew" and not any("was not taken over" in finding.text for finding in found):
            return Outcome.FALSE, "the state was not taken over"
        if name == "earlier" and not all("earlier one" in finding.text for finding in found):
            return Outcome.FALSE, "B is the earlier one"
        if frozen and {each for finding in found for each in finding.names} != {f"model.{each}" for each in frozen}:
            return Outcome.FALSE, f"frozen are {frozen}"
        return (Outcome.RIGHT, "") if found or not kinds else (Outcome.FALSE, f"{kinds} is not found")

    return Drawn(name, f"{name} {frozen}, step {step} to {later}", lambda: _judged(paths[0], paths[1], outcome))


@dataclass(frozen=True)
class _Ported:
    """What is known of two models.

    Attributes
    ----------
    kinds : tuple of str
        Faults that may be found; the first must be.
    is_different : bool
    a, b : Spelled
    in_b : set of str
        The Llama parameters that B has.
    """

    kinds: tuple[str, ...]
    is_different: bool
    a: Spelled
    b: Spelled
    in_b: set[str]

    def outcome(self, result: CheckpointComparison) -> tuple[Outcome, str]:
        if (result.verdict is Verdict.SAME) == self.is_different:
            return Outcome.FALSE, f"they are {'different' if self.is_different else 'the same'}"
        unsure = {name for finding in result.findings if finding.kind == "unsure pair" for name in finding.names}
        for pair in result.pairs:
            a, b = (entry.name.partition("[")[0] for entry in (pair.pair.a, pair.pair.b))
            if not any(self.a.names[name] == a and self.b.names.get(name) == b for name in self.in_b):
                return (Outcome.UNDECIDED if pair.name in unsure else Outcome.FALSE), f"{a} is not {b}"
        wrong = {finding.kind for finding in result.findings if not finding.is_note}
        extra = wrong - set(self.kinds)
        if extra - {"missing"} or ("missing" in extra and len(self.in_b) == len(self.a.names) and not result.only_a):
            return Outcome.FALSE, f"nothing of {sorted(extra)} is planted"
        if "missing" in extra:
            return Outcome.UNDECIDED, "not all were paired"
        is_found = not self.kinds or self.kinds[0] in wrong
        return (Outcome.RIGHT, "") if is_found else (Outcome.UNDECIDED, f"{self.kinds[0]} is not named")


def _judged(a: Path, b: Path, outcome: Callable[[CheckpointComparison], tuple[Outcome, str]]) -> Judgement:
    try:
        with open_checkpoint(str(a)) as first, open_checkpoint(str(b)) as second:
            result = compare_checkpoints(first, second, threads=1)
    except CheckpointError as error:
        return Judgement(Outcome.UNDECIDED, "refused", [str(error)])
    judged, why = outcome(result)
    said = [
        result.verdict.value,
        *(f"{'•' if finding.is_note else '●'} {finding.kind}: {finding.text}" for finding in result.findings),
    ]
    rules = {pair.pair.rule for pair in result.pairs}
    return Judgement(judged, why, [*said, f"paired by {', '.join(sorted(rules))}"])
