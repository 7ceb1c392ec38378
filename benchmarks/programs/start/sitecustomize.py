"""Lets torchvision's models be used where its compiled operators cannot be loaded: beside a PyTorch for the CPU alone.

Python imports this when it starts (the folder is in PYTHONPATH). Just before torchvision is imported, the operators
that it describes in Python are declared; none of the models here calls one.
"""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class Declaring(MetaPathFinder):
    """Declares the operators when torchvision is imported, and finds nothing itself."""

    def __init__(self) -> None:
        self.library: object = None

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing."""
        if name == "torchvision" and self.library is None:
            import torch

            built_for_cpu = "+cpu" in importlib.metadata.version("torchvision")
            if torch.version.cuda is None and not built_for_cpu:
                self.library = library = torch.library.Library("torchvision", "FRAGMENT")
                for schema in DECLARED:
                    library.define(schema)
        return None


sys.meta_path.insert(0, Declaring())
