"""How the trainings of `eager_trainings` are done on MindSpore in PyNative mode."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import mindspore as ms
from eager_trainings import weights_for
from mindspore import nn, ops

if TYPE_CHECKING:
    from collections.abc import Callable

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
add, log, tanh, relu, tensor = ops.add, ops.log, ops.tanh, nn.ReLU, ms.Tensor

_FUNCTIONS = ((nn.Cell, "__call__"), (ms.amp.DynamicLossScaler, "adjust"), (ms.amp.StaticLossScaler, "scale"))
_WERE = [getattr(owner, name) for owner, name in _FUNCTIONS]


class MeanSquare(nn.Cell):
    def construct(self, x: Any) -> Any:
        return ops.square(x).mean()


class Network(nn.Cell):
    def __init__(self, compute: Callable[..., Any], **modules: nn.Cell) -> None:
        super().__init__()
        self.compute = compute
        for name, module in modules.items():
            setattr(self, name, module)

    def construct(self, x: Any) -> Any:
        return self.compute(self, x)


class Part(nn.Cell):
    def __init__(self, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.compute = compute

    def construct(self, x: Any) -> Any:
        return self.compute(x)


mean_square, network, part = MeanSquare, Network, Part


def linear(inputs: int, outputs: int) -> nn.Cell:
    return nn.Dense(inputs, outputs, weight_init=ms.Tensor(weights_for(inputs, outputs)), bias_init="zeros")


def sequence(**modules: nn.Cell) -> nn.Cell:
    return nn.SequentialCell(OrderedDict(modules))


def numpy(one: Any) -> Any:
    return one.asnumpy()


def optimizer(*modules: nn.Cell) -> nn.Optimizer:
    return nn.SGD([weight for module in modules for weight in module.trainable_params()], 0.1, momentum=0.5)


def update(forward: Callable[[], Any], chosen: nn.Optimizer) -> list[Any]:
    _, gradients = ms.value_and_grad(forward, None, chosen.parameters)()
    chosen(gradients)
    return list(gradients)


def evaluate(model: nn.Cell, x: Any) -> Any:
    model.set_train(False)
    output = model(x)
    model.set_train(True)
    return output


def debug(trace: str, *subjects: Any) -> Any:
    import tensight.mindspore

    for one in subjects:
        one.set_train(True)
    return tensight.mindspore.debug(*subjects, trace=trace, quiet=True)


def leftovers() -> list[str]:
    return [name for (owner, name), was in zip(_FUNCTIONS, _WERE, strict=True) if getattr(owner, name) is not was]
