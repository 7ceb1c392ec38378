"""Find objects, with detectors of torchvision and transformers: python detection.py retinanet."""

from __future__ import annotations

import sys

import torch
from learning import boxes, report
from torch import nn
from torchvision.models import detection, resnet18
from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
from torchvision.models.detection.rpn import AnchorGenerator
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrResNetConfig,
    YolosConfig,
    YolosForObjectDetection,
)

SIZE = 64
CLASSES = {0: "red", 1: "green", 2: "blue"}


def backbone() -> nn.Module:
    """A ResNet with a pyramid of features."""
    return _resnet_fpn_extractor(resnet18(), 5, returned_layers=[2, 3, 4])


def retinanet() -> nn.Module:
    anchors = AnchorGenerator(((8,), (16,), (32,), (48,)), ((0.5, 1.0, 2.0),) * 4)
    return detection.RetinaNet(backbone(), 4, min_size=SIZE, max_size=SIZE, anchor_generator=anchors)


def fcos() -> nn.Module:
    anchors = AnchorGenerator(((8,), (16,), (32,), (48,)), ((1.0,),) * 4)
    return detection.FCOS(backbone(), 4, min_size=SIZE, max_size=SIZE, anchor_generator=anchors)


def resnet(config_type: type, *stages: str) -> object:
    """Return the configuration of a small backbone."""
    return config_type(
        embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=list(stages),
    )  # fmt: skip


def detr() -> nn.Module:
    config = DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=resnet(ResNetConfig, "stage4"), num_queries=8, d_model=48, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=96, decoder_ffn_dim=96, encoder_attention_heads=4, decoder_attention_heads=4,
        id2label=CLASSES, auxiliary_loss=True,
    )  # fmt: skip
    return DetrForObjectDetection(config)


def yolos() -> nn.Module:
    config = YolosConfig(
        image_size=[SIZE, SIZE], patch_size=8, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=96, num_detection_tokens=8, id2label=CLASSES,
    )  # fmt: skip
    return YolosForObjectDetection(config)


def rtdetr() -> nn.Module:
    config = RTDetrConfig(
        backbone_config=resnet(RTDetrResNetConfig, "stage2", "stage3", "stage4"), encoder_hidden_dim=32,
        encoder_in_channels=[32, 64, 64], encoder_ffn_dim=64, encoder_attention_heads=4, d_model=32,
        decoder_in_channels=[32, 32, 32], decoder_ffn_dim=64, decoder_layers=2, decoder_attention_heads=4,
        num_queries=10, num_denoising=6, id2label=CLASSES, hidden_expansion=1.0,
    )  # fmt: skip
    return RTDetrForObjectDetection(config)


NETWORKS = {
    "retinanet": retinanet,
    "fcos": fcos,
    "detr": detr,
    "yolos": yolos,
    "rt-detr": rtdetr,
}

name = sys.argv[1]
torch.manual_seed(3)
images, found, classes = boxes(32, SIZE)
model = NETWORKS[name]()
model.train()
groups = [
    {"params": [p for n, p in model.named_parameters() if "backbone" in n], "lr": 5e-4},
    {"params": [p for n, p in model.named_parameters() if "backbone" not in n], "lr": 1e-3},
]
optimizer = torch.optim.AdamW(groups, weight_decay=1e-4)
losses = []
for step in range(20):
    rows = (torch.arange(8) + step * 8) % 32
    optimizer.zero_grad()
    if name in ("retinanet", "fcos"):
        targets = [{"boxes": found[row : row + 1], "labels": classes[row : row + 1] + 1} for row in rows.tolist()]
        loss = sum(model(list(images[rows]), targets).values())
    else:
        left, top, right, bottom = (found[rows] / SIZE).unbind(1)
        centred = torch.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], 1)
        labels = [
            {"class_labels": number.view(1), "boxes": box.view(1, 4)}
            for number, box in zip(classes[rows], centred, strict=True)
        ]
        loss = model(pixel_values=images[rows], labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
report(losses, model, optimizer)
