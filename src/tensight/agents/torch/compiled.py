"""What can be told of code that PyTorch's compiler has made: which frames are its own, and which tensors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tensight.agents.core.call_stack import is_compiler_output, rewritten
from tensight.agents.core.notices import log_once
from tensight.agents.eager.names import unwrapped
from tensight.agents.torch.framework import FRAMEWORK
from tensight.agents.torch.inner_modules import inner_modules

if TYPE_CHECKING:
    from types import CodeType, FrameType

    import torch

    from tensight.agents.eager.names import Names

OBSERVED_OPERATORS = "only operators can be observed that the compiler has not fused"
"""Of compiled code, if operators are captured."""

# Between an operator and the compiled code that calls it are at most our own frames, and a few of PyTorch.
_NEAREST = 12


def is_rewritten(code: CodeType) -> bool:
    """Whether the compiler has rewritten a function, whose instructions then all count as those of its first line."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return code in getattr(dynamo, "output_codes", ())


def is_from_compiled_code(tensor: torch.Tensor) -> bool:
    """Whether a tensor that no observed operator has made belongs to compiled code: one that it returned or reads."""
    if type(tensor.grad_fn).__name__.startswith("CompiledFunction"):
        return True
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_NEAREST):
        if frame is None:
            break
        if is_compiler_output(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def is_compiled_in_place(model: torch.nn.Module) -> bool:
    """Whether ``module.compile()`` was called for a model or one of its modules; PyTorch then calls no hooks of it."""
    return any(module._compiled_call_impl is not None for _, module in inner_modules(model))


def report_compiled_in_place(names: Names, observed: str) -> None:
    """Log which models have modules that are compiled in place, and what of those is observed."""
    for root in names.roots:
        model = root.module()
        if model is not None and is_compiled_in_place(model):
            log_once(f"modules of {type(model).__name__} are compiled in place: {observed}")


def report_compiled(module: torch.nn.Module, observed: str) -> None:
    """Log that a module is compiled, and what of it is observed."""
    log_once(f"{type(unwrapped(FRAMEWORK, module)).__name__} is compiled: {observed}")


rewritten.append(is_rewritten)
