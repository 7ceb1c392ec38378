"""Fine-tune a network: at first only its new head, later all of it. The second part never begins."""

import torch
from torch import nn

WARM_UP = 60


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(64, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, pictures, step):
        is_frozen = step > WARM_UP
        features = self.body(pictures).detach() if is_frozen else self.body(pictures)  # FAULT: the wrong way round
        return self.head(torch.relu(features))


def pictures(amount, prototypes):
    kinds = torch.randint(0, 3, (amount,))
    return prototypes[kinds] + 4 * torch.randn(amount, 64), kinds


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    prototypes = torch.randn(3, 64)
    for step in range(1, 301):
        images, kinds = pictures(64, prototypes)
        loss = nn.functional.cross_entropy(model(images, step), kinds)
        optimizer.zero_grad()
        loss.backward()
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
        optimizer.step()


if __name__ == "__main__":
    main()
