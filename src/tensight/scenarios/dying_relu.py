"""Tell three kinds of pictures apart. Half of the archive was scanned without scaling, and a layer dies of it."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 32)
        self.output = nn.Linear(32, 3)

    def forward(self, pictures):
        hidden = torch.relu(self.first(pictures))
        hidden = torch.relu(self.second(hidden))  # FAULT: one huge update, and no unit is ever above 0 again
        return self.output(hidden)


def pictures(amount, prototypes, step):
    kinds = torch.randint(0, 3, (amount,))
    images = (prototypes[kinds] + 0.8 * torch.randn(amount, 64)).clamp(0, 1)
    if step == 60:
        images = images * 255  # the scanner's numbers as they are
    return images, kinds


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    prototypes = torch.rand(3, 64)
    for step in range(1, 301):
        images, kinds = pictures(64, prototypes, step)
        loss = nn.functional.cross_entropy(model(images), kinds)
        optimizer.zero_grad()
        loss.backward()
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
        optimizer.step()


if __name__ == "__main__":
    main()
