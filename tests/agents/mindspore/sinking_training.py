"""A training of MindSpore in sink mode, on a machine that seems to have an Ascend device.

MindSpore takes the way to the device, where it finds none, and says so; what comes before that is as it would be there.
Before it sinks many steps at once it waits for a line on standard input. At the end it trains on the CPU.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mindspore as ms
import numpy as np
from mindspore import context, dataset, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCHES = 4


class Told(ms.Callback):
    """Tells of each step."""

    def on_train_step_end(self, run_context: Any) -> None:
        """Tell of a step."""
        print("step", run_context.original_args().cur_step_num, flush=True)


@contextmanager
def seeming_ascend() -> Iterator[None]:
    """Have MindSpore's own code, and everybody else's, take the device for an Ascend."""
    original = context.get_context

    def get_context(name: str) -> Any:
        return "Ascend" if name == "device_target" else original(name)

    context.get_context = ms.get_context = get_context
    try:
        yield
    finally:
        context.get_context = ms.get_context = original


def tried(what: str, call: Callable[[], Any]) -> None:
    """Say what became of a call for which there is no device."""
    try:
        with seeming_ascend():
            call()
    except RuntimeError as error:
        print(what, "has no device:", "InitDataSetQueue" in str(error), flush=True)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=("model", "function"), default="model")
    way = parser.parse_args().way
    ms.set_seed(1)
    pictures = np.ones((2 * BATCHES, 4), np.float32)
    digits = np.zeros(2 * BATCHES, np.int32)
    columns = ["pictures", "digits"]
    # MindSpore notes on a dataset how much of it is sunk at once.
    data, unseen = (dataset.NumpySlicesDataset((pictures, digits), columns, shuffle=False).batch(2) for _ in range(2))
    network = nn.Dense(4, 2)
    loss_of = nn.CrossEntropyLoss()
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    model = ms.Model(network, loss_of, optimizer, metrics={"loss"})
    ms.set_context(mode=ms.PYNATIVE_MODE)
    tried("PyNative mode", lambda: model.train(1, unseen, dataset_sink_mode=True))
    ms.set_context(mode=ms.GRAPH_MODE)
    tried("evaluation", lambda: model.eval(unseen, dataset_sink_mode=True))
    tried("one batch", lambda: model.train(1, unseen, dataset_sink_mode=True, sink_size=1))
    print("now many steps", flush=True)
    sys.stdin.readline()
    if way == "model":
        tried(
            "training",
            lambda: model.train(
                1,
                data,
                dataset_sink_mode=True,  # The line to change.
            ),
        )
    else:
        step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
        # The line to change.
        tried("training", lambda: ms.data_sink(step, data, sink_size=BATCHES, jit_config=ms.JitConfig())())
    model.train(1, data, [Told()], dataset_sink_mode=False)


if __name__ == "__main__":
    main()
