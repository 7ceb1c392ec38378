"""Write a large dump with real MindSpore 2.0.0 (run by offline_check.py in the original's environment).

usage: python big_dump.py FOLDER ITERATIONS BATCH
"""

import json
import os
import sys

folder, iterations, batch = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.makedirs(folder, exist_ok=True)
config = {
    "common_dump_settings": {
        "op_debug_mode": 0, "dump_mode": 0, "path": os.path.join(folder, "dump"), "net_name": "Wide",
        "iteration": "all", "saved_data": "tensor", "input_output": 0, "kernels": [], "support_device": [0],
    },
    "e2e_dump_settings": {"enable": True, "trans_flag": False},
}  # fmt: skip
os.environ["MINDSPORE_DUMP_CONFIG"] = os.path.join(folder, "config.json")
with open(os.environ["MINDSPORE_DUMP_CONFIG"], "w") as file:
    json.dump(config, file)

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import Tensor, nn  # noqa: E402

ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")


class Wide(nn.Cell):
    """Convolutions and dense layers of the sizes that real networks have."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, has_bias=True)
        self.conv2 = nn.Conv2d(32, 32, 3, has_bias=True)
        self.norm = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.dense1 = nn.Dense(32 * 16 * 16, 512)
        self.dense2 = nn.Dense(512, 512)
        self.dense3 = nn.Dense(512, 10)
        self.tanh = nn.Tanh()

    def construct(self, x):
        """Return the logits, shape (batch, 10)."""
        x = self.relu(self.norm(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        x = self.tanh(self.dense1(self.flatten(x)))
        return self.dense3(self.relu(self.dense2(x)))


net = Wide()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Adam(net.trainable_params(), 1e-3)
step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
step.set_train()
generator = np.random.RandomState(0)
for _ in range(iterations):
    images = Tensor(generator.randn(batch, 3, 32, 32).astype(np.float32))
    step(images, Tensor(generator.randint(0, 10, batch).astype(np.int32)))
