"""The lines on which loss functions and activations are called, noted during the first steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.call_stack import line_of_user, source_line
from tensight.agents.facts.samples import shape_text
from tensight.agents.torch.facts.cuts import Cuts
from tensight.agents.torch.operator_mode import BottomMode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

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
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "mse_loss": "mse_loss",
    "smooth_l1_loss": "smooth_l1_loss",
    "huber_loss": "huber_loss",
    "kl_div": "kl_div",
    "xlogy": "kl_div",
    "pow": "mse_loss",
    "abs": "l1_loss",
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
    """

    def __init__(self) -> None:
        super().__init__()
        self.cuts = Cuts()
        self._lines: dict[str, str] = {}
        self._products: dict[str, set[str]] = {}

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
        if function is not None:
            line = line_of_user()
            if line:
                self._lines[function] = line
        if name == "mul" and all(isinstance(each, torch.Tensor) and each.requires_grad for each in args[:2]):
            self._products.setdefault(shape_text(args[0].shape), set()).add(line_of_user())
        result = func(*args, **(kwargs or {}))
        if torch._C._current_graph_task_id() == -1:
            self.cuts.ran(name, (args, kwargs), result)
        return result
