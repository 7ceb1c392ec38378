"""What a scalar of a log is, by its name: a loss, a measure, a learning rate, a gradient norm, a loss scale."""

from __future__ import annotations

import math
import re
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from tensight.curves.curve import is_loss, loss_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.curves.curve import Point

_EVALUATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev", "holdout"})
_TRAINING = frozenset({"train", "training", "learn"})
_SKILL = re.compile(
    r"(?:^|[^a-z])(?:acc\w?|accuracy|\w{1,12}_acc(?:uracy)?|top[-_@]?[15]|acc@[15]|prec@[15]|f1|bleu|rouge\w{0,3}|auc|auroc"
    r"|m?ap(?:50)?|miou|iou|dice|psnr|ssim|r2|recall|precision|exact_match|mcc|rew(?:ard)?|return)(?![a-z])"
)
_ERROR = re.compile(
    r"(?:^|[^a-z])(?:\w{0,12}logloss|cost|objective|ppl|perplexity|wer|cer|mae|mse|rmse|fid|err(?:or)?)(?![a-z])"
)
_NO_MEASURE = frozenset({"best", "min", "max", "std", "time", "lr", "patience", "threshold", "target"})
_MOVING = frozenset({"policy", "actor", "critic", "rollout", "reward", "rew", "advantage", "episode", "episodic", "td"})
_RIVALS = frozenset({"d", "g", "discriminator", "generator", "disc", "gen", "adv", "adversarial"})


class Kind(Enum):
    """What a scalar is."""

    LOSS = "loss"
    SKILL = "skill"
    """More is better."""
    ERROR = "error"
    """A measure of which less is better."""
    RATE = "learning rate"
    GRADIENT_NORM = "gradient norm"
    SCALE = "loss scale"
    SKIPPED = "skipped updates"


class Role(NamedTuple):
    """What a scalar is, and of which data.

    Attributes
    ----------
    kind : Kind
    is_evaluation : bool
        Whether its name says that it is measured on data that are not trained on.
    """

    kind: Kind
    is_evaluation: bool = False


@lru_cache(maxsize=4096)
def role_of(name: str) -> Role | None:
    """Return what a scalar is; None if its name does not tell."""
    words = set(loss_words(name))
    if name.endswith(".py"):
        return None
    is_evaluation = bool(words & _EVALUATION)
    if "lr" in words or {"learning", "rate"} <= words:
        return Role(Kind.RATE)
    if (
        words in ({"norm"}, {"grad"})
        or (words & {"grad", "gradient", "gradients"} and words & {"norm", "norms"})
        or words & {"gnorm", "gradnorm"}
    ):
        return Role(Kind.GRADIENT_NORM)
    if words & {"scale", "scaler"} and words & {"loss", "grad", "amp", "scaler"}:
        return Role(Kind.SCALE)
    if "skipped" in words:
        return Role(Kind.SKIPPED)
    if words & _NO_MEASURE:
        return None
    if is_loss(name):
        return Role(Kind.LOSS, is_evaluation)
    # "mAP50" and "topK" are words of their own here.
    lower = name.lower()
    if _SKILL.search(lower):
        return Role(Kind.SKILL, is_evaluation)
    if _ERROR.search(lower):
        return Role(Kind.ERROR, is_evaluation)
    return None


def is_part_of_training(name: str) -> bool:
    """Tell whether a folder is called for a part of a training: that of the training data, or of an evaluation."""
    return bool((_EVALUATION | _TRAINING).intersection(loss_words(name)))


def is_data(name: str) -> bool:
    """Tell whether a name says of which data a scalar is, and nothing else: ``train`` or ``val``."""
    return name.lower() in _EVALUATION | _TRAINING


def roles_of_data(points: Mapping[str, Sequence[Point]]) -> dict[str, Role]:
    """Return the roles of scalars that are called for their data alone, as in ``train 0.53 | val 0.61``.

    They are losses if that of the training falls; an accuracy rises.
    """
    named = {name: Role(Kind.LOSS, name.lower() in _EVALUATION) for name in points if is_data(name)}
    trained = [points[name] for name, role in named.items() if not role.is_evaluation]
    if len(named) == 1 or len(trained) != 1:
        return {}
    values = [point.value for point in trained[0] if math.isfinite(point.value)]
    third = len(values) // 3
    falls = third > 0 and sum(values[-third:]) < 0.9 * sum(values[:third])
    return named if falls and min(values) > 0 else {}


def is_of_moving_targets(name: str) -> bool:
    """Tell whether a scalar is one of reinforcement learning, whose losses need not fall."""
    return bool(_MOVING.intersection(loss_words(name)))


def is_of_rivals(name: str) -> bool:
    """Tell whether a loss is one of two models that are trained against each other."""
    return is_loss(name) and bool(_RIVALS.intersection(loss_words(name)))
