"""LeNet-5 tells synthetic digits apart; a search chooses its hyper-parameters.

The script is as MindSpore Insight's ``mindoptimizer`` wants it, but for one import. From this folder, with
``pip install 'tensight[search]'``::

    mindoptimizer --config lenet_search.yaml --iter 10
"""

import mindspore as ms
import numpy as np
from lenet_mindspore import LeNet5
from mindspore import dataset, nn
from mindspore.train import Model, SummaryCollector

from tensight.search import HyperConfig  # was: from mindinsight.optimizer import HyperConfig

TRAINED, UNSEEN = 1024, 256
"""Pictures."""


def digits(pictures, seed, batch_size):
    """Return batches of noisy pictures of ten patterns."""
    coarse = np.random.default_rng(0).random((10, 1, 8, 8), np.float32)
    patterns = coarse.repeat(4, axis=2).repeat(4, axis=3)
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, pictures).astype(np.int32)
    noise = random.standard_normal((pictures, 1, 32, 32), np.float32)
    data = {"picture": patterns[labels] + 0.3 * noise - 0.5, "label": labels}
    return dataset.NumpySlicesDataset(data, shuffle=False).batch(batch_size, drop_remainder=True)


def main():
    config = HyperConfig()
    params = config.params
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(0)

    network = LeNet5()
    optimizer = nn.Momentum(network.trainable_params(), params.learning_rate, params.momentum)
    model = Model(network, nn.CrossEntropyLoss(), optimizer, metrics={"Accuracy": nn.Accuracy()})
    summary = SummaryCollector(config.summary_dir)
    model.train(2, digits(TRAINED, 1, params.batch_size), callbacks=[summary], dataset_sink_mode=False)
    metrics = model.eval(digits(UNSEEN, 2, params.batch_size), callbacks=[summary], dataset_sink_mode=False)
    print(metrics)


if __name__ == "__main__":
    main()
