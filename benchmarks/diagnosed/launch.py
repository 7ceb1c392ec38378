"""What every script here has in common: python SCRIPT NAME [--fault FAULT] [--seed N]."""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__).resolve().parent
# The data that can be learnt, and the packages with models where `make healthy` has installed them.
sys.path += [str(HERE.parent / "programs"), str(HERE.parents[1] / ".venvs" / "programs")]
STARTING = HERE.parent / "programs" / "start" / "sitecustomize.py"
"""Lets torchvision be imported beside a PyTorch for the CPU alone; has been run where its folder is in PYTHONPATH."""
if not any(type(finder).__name__ == "Declaring" for finder in sys.meta_path):
    specification = importlib.util.spec_from_file_location("torchvision_operators", STARTING)
    assert specification
    assert specification.loader
    specification.loader.exec_module(importlib.util.module_from_spec(specification))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def run(programs: Mapping[str, Callable[[str], None]]) -> None:
    """Run the program that the command line names, with the fault that it names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=tuple(programs))
    parser.add_argument("--fault", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.fault and f'"{options.fault}"' not in Path(sys.argv[0]).read_text():
        parser.error(f"unknown fault {options.fault}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    random.seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 - as the scripts of people do
    torch.manual_seed(options.seed)
    programs[options.name](options.fault)
