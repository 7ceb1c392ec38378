"""The role of a tensor in a checkpoint, by its name: optimizer state, step counter, generator state, parameter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.compare.renaming import plain_name

if TYPE_CHECKING:
    from tensight.checkpoints import Checkpoint, Entry

MOMENTS = (
    "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "square_avg", "grad_avg", "acc_delta",
    "sum", "prev", "mu", "nu", "exp_avg_slow", "exp_avg_sq_row", "exp_avg_sq_col",
)  # fmt: skip
"""Optimizer states of a parameter, as PyTorch names them; MindSpore's names are translated to these."""

_STATE = re.compile(rf"(?:^|.*\.)state\.(?P<parameter>.+)\.(?P<slot>{'|'.join(MOMENTS)}|step)")
_FIRST = re.compile(r"(?:.*\.)?(?P<slot>exp_avg|exp_avg_sq|momentum_buffer)\.(?P<parameter>.+)")
_GENERATOR = re.compile(r"(^|[._-])(\w*rng\w*|random|random_states?|generator|seed)([._-]|$)", re.IGNORECASE)
_STEP = re.compile(
    r"(^|[._-])(step|global_step|epoch|iteration|iter|current_step|epochs_run|steps|last_epoch|_step_count)$"
)
_SETTING = re.compile(r"max|min|save|eval|warm|total|every|args|config|log|decay|interval|per_|num_")
_STATE_BYTES = (5056, 16)
"""Size of the state of PyTorch's generator on a CPU and on a GPU, in bytes."""

_BUFFERS = (
    "running_mean", "running_var", "num_batches_tracked", "position_ids", "inv_freq", "attn.bias", "masked_bias",
    "rotary_emb.inv_freq", "relative_position_index", "attn_mask", "causal_mask",
)  # fmt: skip


def moment_of(name: str) -> tuple[str, str] | None:
    """Return the parameter and the kind of an optimizer state; None for other names.

    Examples
    --------
    >>> moment_of("optimizer.state.3.exp_avg")
    ('3', 'exp_avg')
    >>> moment_of("moment1.conv.weight")
    ('conv.weight', 'exp_avg')
    """
    match = _STATE.fullmatch(name) or _FIRST.fullmatch(plain_name(name))
    return (match["parameter"], match["slot"]) if match else None


def parameters_by_number(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the names of the parameters by the numbers that a PyTorch optimizer gives them.

    An optimizer numbers the parameters in the order of the model, and so are the model's entries ordered. The names are
    certain if the shapes of all states match those of the parameters in this order.

    Parameters
    ----------
    checkpoint : Checkpoint

    Returns
    -------
    dict of str to str
        Names by number; empty if there are several optimizers, or if the shapes do not match.
    """
    states: dict[int, tuple[int, ...]] = {}
    seen: set[object] = set()
    parameters = []
    for entry in checkpoint.entries.values():
        moment = moment_of(entry.name)
        if moment is not None and moment[1] in ("exp_avg", "momentum_buffer") and moment[0].isdigit():
            if int(moment[0]) in states:
                return {}
            states[int(moment[0])] = entry.shape
        elif is_parameter(entry) and (entry.memory is None or entry.memory not in seen):
            seen.add(entry.memory)
            parameters.append(entry)
    numbers = sorted(states)
    if not numbers or numbers != list(range(len(parameters))):
        return {}
    if any(states[number] != entry.shape for number, entry in zip(numbers, parameters, strict=True)):
        return {}
    return {str(number): entry.name for number, entry in zip(numbers, parameters, strict=True)}


def is_step(name: str) -> bool:
    """Tell whether a value is a step counter, by its name; schedule settings such as ``save_steps`` are not."""
    return _STEP.search(name) is not None and _SETTING.search(name) is None


def is_generator(entry: Entry) -> bool:
    """Tell whether a tensor is the state of a random number generator."""
    is_bytes = entry.dtype.name == "uint8" and len(entry.shape) == 1
    is_named = entry.dtype.kind in "iu" and is_generator_name(entry.name)
    return is_named or (is_bytes and entry.size in _STATE_BYTES)


def is_generator_name(name: str) -> bool:
    """Tell whether a name denotes the state of a random number generator."""
    return _GENERATOR.search(name) is not None


def is_parameter(entry: Entry) -> bool:
    """Tell whether a tensor is a parameter, by its name and dtype: neither an optimizer state nor a known buffer."""
    return (
        entry.dtype.kind not in "biu"
        and moment_of(entry.name) is None
        and not is_generator(entry)
        and not is_step(entry.name)
        and not entry.name.endswith(_BUFFERS)
        and not plain_name(entry.name).endswith(_BUFFERS)
        and not any(word in entry.name for word in ("beta1_power", "beta2_power", "learning_rate", "scale_sense"))
    )
