"""Trainings of this process, diagnosed."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch

from tests.diagnosis.diagnosed import Diagnosed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def diagnosed(tmp_path: Path) -> Iterator[Diagnosed]:
    """A training whose steps are read; `found` returns the findings."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # What is there before, as the modules of packages, is not searched for models and loaders of the training.
    gc.freeze()
    with Diagnosed(tmp_path) as training:
        yield training
    gc.unfreeze()
