"""Classify pictures with a network of torchvision or timm: python images.py resnet18."""

from __future__ import annotations

import argparse

import timm
import torch
from learning import CLASSES, pictures, report
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torchvision import models

NETWORKS = {
    "resnet18": lambda: models.resnet18(num_classes=CLASSES),
    "resnet-zero-init": lambda: models.resnet18(num_classes=CLASSES, zero_init_residual=True),
    "densenet": lambda: models.DenseNet(12, (2, 4, 4), 24, num_classes=CLASSES),
    "mobilenet-v3": lambda: models.mobilenet_v3_small(num_classes=CLASSES),
    "vit": lambda: models.VisionTransformer(32, 4, 4, 4, 96, 192, num_classes=CLASSES),
    "swin": lambda: models.SwinTransformer(
        [2, 2], 32, [2, 2, 2], [2, 4, 8], [4, 4], stochastic_depth_prob=0.1, num_classes=CLASSES
    ),
    "convnext": lambda: timm.create_model("convnext_atto", num_classes=CLASSES, drop_path_rate=0.1),
    "mixer": lambda: timm.models.MlpMixer(CLASSES, 32, patch_size=4, num_blocks=4, embed_dim=96),
    "beit": lambda: timm.models.Beit(32, 4, num_classes=CLASSES, embed_dim=96, depth=4, num_heads=4,
                                     use_rel_pos_bias=True, init_values=0.1),
    "maxvit": lambda: timm.create_model(
        "maxvit_rmlp_pico_rw_256", num_classes=CLASSES, img_size=64, depths=(1, 1, 1, 1)
    ),
    "nfnet": lambda: timm.create_model("nfnet_l0", num_classes=CLASSES, depths=(1, 1, 1, 1)),
}  # fmt: skip

SETTINGS = {"vit": (40, 1e-3), "swin": (30, 1e-3), "beit": (40, 1e-3), "nfnet": (20, 1e-3)}
"""Steps, and the learning rate; 20 and 0.002 for the others."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("--fault", default="")
    options = parser.parse_args()
    torch.manual_seed(1)
    images, labels = pictures(128, 64 if options.network == "maxvit" else 32)
    model = NETWORKS[options.network]()
    steps, lr = SETTINGS.get(options.network, (20, 2e-3))
    if options.fault == "learning-rate":
        lr = 3e3
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 5, 1.0))
    if options.fault == "dead-relu":
        torch.nn.init.constant_(model.layer2[0].bn1.bias, -30.0)
    if options.fault == "zero-weights":
        torch.nn.init.zeros_(model.layer2[0].conv1.weight)
    if options.fault == "frozen":
        model.layer3.requires_grad_(False)
    if options.fault == "nan-in-data":
        images[70, 1, 5, 5] = torch.nan
    losses = []
    for step in range(steps):
        rows = torch.arange(16) + step * 16 % 128
        if options.fault != "zero-grad":
            optimizer.zero_grad()
        loss = F.cross_entropy(model(images[rows]), labels[rows], label_smoothing=0.05)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 10 == 0:
            print(f"step {step}: {losses[-1]:.6f}")
    report(losses, model, optimizer, falls_to=0.95)


if __name__ == "__main__":
    main()
