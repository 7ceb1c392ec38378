"""Tell three kinds of pictures apart. The second half of the archive has other units, and learning stops."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.second = nn.Linear(32, 32)
        self.output = nn.Linear(32, 3)

    def forward(self, pictures):
        hidden = torch.sigmoid(self.first(pictures))  # FAULT: far from 0 a sigmoid is flat, no gradient gets through
        hidden = torch.sigmoid(self.second(hidden))
        return self.output(hidden)


def pictures(amount, prototypes, step):
    kinds = torch.randint(0, 3, (amount,))
    images = prototypes[kinds] + 0.8 * torch.randn(amount, 64)
    if step > 60:
        images = images * 255  # the second half was never scaled
    return images, kinds


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
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
