"""A small PyTorch training, as people write theirs: one batch of it is a thousand times too large."""

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

STEPS = 6
SICK_STEP = 3


class Network(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.fc2(self.relu(self.fc1(inputs)))


def main() -> None:
    """Train, and say what came out."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs = torch.randn(STEPS, 4, 6)
    inputs[SICK_STEP - 1] *= 1000
    labels = torch.randint(0, 3, (STEPS, 4))
    for batch, classes in zip(inputs, labels, strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(batch), classes)
        loss.backward()
        optimizer.step()
    print(f"done {loss.item():.2f}")


if __name__ == "__main__":
    main()
