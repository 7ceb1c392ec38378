"""Label every pixel, with DeepLab of torchvision or a U-Net: python segmentation.py deeplab."""

from __future__ import annotations

import sys

import torch
from learning import boxes, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torchvision.models import segmentation


def block(before: int, after: int) -> nn.Sequential:
    """Two convolutions with a norm each."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Down and up again, with connections across."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.ups = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.merge = nn.ModuleList([block(4 * width, 2 * width), block(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden, seen = images, []
        for down in self.down:
            hidden = down(F.max_pool2d(hidden, 2) if seen else hidden)
            seen.append(hidden)
        for up, merge, across in zip(self.ups, self.merge, reversed(seen[:-1]), strict=True):
            hidden = merge(torch.cat([up(hidden), across], 1))
        return {"out": self.head(hidden)}


def dice(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """One minus the overlap, averaged over classes."""
    chances = logits.softmax(1)
    truth = F.one_hot(labels, logits.shape[1]).permute(0, 3, 1, 2)
    overlap = (chances * truth).sum((0, 2, 3))
    return 1 - (2 * overlap / (chances + truth).sum((0, 2, 3)).clamp_min(1e-6)).mean()


torch.manual_seed(2)
images, found, classes = boxes(64, 64)
labels = torch.zeros(64, 64, 64, dtype=torch.long)
for label, (left, top, right, bottom), number in zip(labels, found.int().tolist(), classes.tolist(), strict=True):
    label[top:bottom, left:right] = number + 1
if sys.argv[1] == "deeplab":
    model = segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4, aux_loss=True)
else:
    model = UNet()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
losses = []
for step in range(25):
    rows = torch.arange(8) + step * 8 % 64
    optimizer.zero_grad(set_to_none=False)
    outputs = model(images[rows])
    loss = F.cross_entropy(outputs["out"], labels[rows]) + dice(outputs["out"], labels[rows])
    if "aux" in outputs:
        loss = loss + 0.4 * F.cross_entropy(outputs["aux"], labels[rows])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
report(losses, model, optimizer)
