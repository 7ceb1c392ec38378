"""The lines on which loss functions and activations are called, noted during the first steps."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.core.call_stack import line_of_user, source_line
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.facts.samples import shape_text
from tensight.agents.torch.facts.chosen_rows import CHOOSING, ChosenRows
from tensight.agents.torch.facts.cuts import Cuts
from tensight.agents.torch.facts.derivatives import Derivatives
from tensight.agents.torch.operator_mode import BottomMode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import FrameType

_LEAST_AXES = 3
LOSSES = {
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "mse_loss": "mse_loss",
    "smooth_l1_loss": "smooth_l1_loss",
    "huber_loss": "huber_loss",
}
"""Operators that compute a loss, and what that is called."""

_FUNCTIONS = {
    "_log_softmax": "log_softmax",
    "_softmax": "softmax",
    "sigmoid": "sigmoid",
    "sigmoid_": "sigmoid",
    "tanh": "tanh",
    "tanh_": "tanh",
    "relu": "relu",
    "relu_": "relu",
    "log_sigmoid_forward": "logsigmoid",
    **LOSSES,
    "kl_div": "kl_div",
    "xlogy": "kl_div",
    "pow": "mse_loss",
    "abs": "l1_loss",
    "_ctc_loss": "ctc_loss",
    "_cudnn_ctc_loss": "ctc_loss",
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        ),
        "attention",
    ),
}


_DROPS = ("native_dropout", "bernoulli_")
_DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_FUNCTIONS_OF_TORCH = torch.nn.functional.__file__


FUNCTIONS = frozenset(("cross_entropy", *_FUNCTIONS.values()))
"""Functions whose lines are noted."""

_VIEWS = ("view", "_unsafe_view", "_reshape_alias")
_MOST_VIEWS = 64
_SUMS, _MOST_SUMS = ("add", "add_", "sub", "sub_"), 10_000


def _mixes_axes(before: Sequence[int], after: Sequence[int]) -> str:
    """Return how a view that keeps the order of the elements gives axes the sizes of others; empty if it does not.

    That is so if sizes change places, or if an axis that is split, as into heads, gets another one's place, or is
    joined from there.

    Parameters
    ----------
    before, after : sequence of int
        Shapes; the first axis, that of samples, stays.
    """
    old, new = [size for size in before if size != 1], [size for size in after if size != 1]
    if len(old) < _LEAST_AXES or len(new) < _LEAST_AXES or old[0] != new[0]:
        return ""
    if sorted(old) == sorted(new):
        return "swapped" if old != new else ""
    if len(old) == 3 and len(new) == 4 and new[2] == old[1] != new[1]:
        return "heads_apart"
    if len(old) == 4 and len(new) == 3 and old[2] == new[1] != old[1]:
        return "heads_together"
    return ""


class DropLines(BottomMode):
    """Notes where functions drop elements, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.line = ""

    def __torch_dispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        if func._schema.name.rpartition("::")[2] in _DROPS and _is_dropping(sys._getframe(1)):
            self.line = line_of_user()
        return func(*args, **(kwargs or {}))


def _is_dropping(frame: FrameType) -> bool:
    """Whether a frame is that of PyTorch's dropout, or calls its attention; others may draw numbers on purpose."""
    code = frame.f_code
    if code.co_filename == _FUNCTIONS_OF_TORCH:
        return code.co_name in _DROPPING
    return "dropout" in source_line(code.co_filename, frame.f_lineno, frame.f_globals)


class FunctionLines(BottomMode):
    """Notes where some functions were last called, while it is entered; as ``dropout``, where one drops elements.

    Attributes
    ----------
    cuts : Cuts
    derivatives : Derivatives
    chosen : ChosenRows
    drop_rate : float
        The highest probability with which a function dropped elements; NaN if none did.
    drop_line : str
        Where that was.
    views : dict of str to dict
        The rows of ``views``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cuts, self.derivatives, self.chosen = Cuts(), Derivatives(), ChosenRows()
        self._lines: dict[str, str] = {}
        self._sums: dict[int, str] = {}
        self._follows = True
        self._products: dict[str, set[str]] = {}
        self.drop_rate, self.drop_line = math.nan, ""
        self.views: dict[str, dict[str, str]] = {}

    def _drops(self, rate: float) -> None:
        if not rate <= self.drop_rate:
            self.drop_rate, self.drop_line = rate, line_of_user()

    def _view(self, before: Sequence[int], after: Sequence[int]) -> None:
        kind = _mixes_axes(before, after)
        name = f"{shape_text(before)} as {shape_text(after)}" if kind else ""
        if kind and name not in self.views and len(self.views) < _MOST_VIEWS:
            self.views[name] = {"name": name, "kind": kind, "line": line_of_user()}

    def _follow(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any, task: int) -> None:
        self.derivatives.ran(name, (args, kwargs), result, task)
        if task == -1 and name in CHOOSING:
            self.chosen.ran(name, args, result)
        elif task == -1 and name in _SUMS and torch.is_grad_enabled():
            self._note_sum(args)

    def _note_sum(self, terms: Sequence[object]) -> None:
        trained = [term for term in terms if isinstance(term, torch.Tensor) and term.requires_grad]
        if len(trained) > 1 and len(self._sums) < _MOST_SUMS:
            # Its autograd function was made just now.
            self._sums[torch.autograd._get_sequence_nr() - 1] = line_of_user()

    def take_cancelling(self, numbers: Iterable[int]) -> list[dict[str, str]]:
        """Return the rows of ``cancelling`` of some sums whose lines were noted in this step.

        Parameters
        ----------
        numbers : iterable of int
            Sequence numbers of their autograd functions.
        """
        lines = dict.fromkeys(filter(None, (self._sums.get(number) for number in numbers)))
        self._sums.clear()
        return [{"name": line, "line": line} for line in lines]

    def of_product(self, shape: str) -> str:
        """Return where two tensors that both lead on were multiplied; empty if unknown, or several lines."""
        lines = self._products.get(shape, set())
        return next(iter(lines)) if len(lines) == 1 else ""

    def of(self, function: str) -> str:
        """Return where a function was last called; empty if that is unknown."""
        return self._lines.get("nll_loss" if function == "cross_entropy" else function, "")

    def __torch_dispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator."""
        name = func._schema.name.rpartition("::")[2]
        function = _FUNCTIONS.get(name)
        if name in _DROPS and _is_dropping(sys._getframe(1)):
            function = "dropout"
            rate = args[1] if len(args) > 1 and isinstance(args[1], float) else math.nan
            self._drops(1 - rate if name == "bernoulli_" else rate)
        if function is not None:
            line = line_of_user()
            if line:
                self._lines[function] = line
        if name == "mul" and all(isinstance(each, torch.Tensor) and each.requires_grad for each in args[:2]):
            self._products.setdefault(shape_text(args[0].shape), set()).add(line_of_user())
        result = func(*args, **(kwargs or {}))
        task = torch._C._current_graph_task_id()
        if self._follows:
            try:
                self._follow(name, args, kwargs, result, task)
            except Exception as error:
                # The training goes on, whatever a tensor of a class that is not known yet cannot do.
                if is_of_handler(error):
                    raise
                self._follows = False
                self.derivatives.forget()
                self.chosen.forget()
        if task == -1:
            if name in _VIEWS:
                self._view(args[0].shape, result.shape)
            self.cuts.ran(name, (args, kwargs), result)
        return result
