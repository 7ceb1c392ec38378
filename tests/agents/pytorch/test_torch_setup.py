"""The description of what surrounds a training."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensight.agents.setup import REMOVED, describe
from tensight.agents.torch.setup import describe_inputs, describe_torch


class Unwilling(nn.Module):
    """A module that does not like to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.rate = 0.5

    def __getattribute__(self, name: str) -> Any:
        is_built = "rate" in super().__getattribute__("__dict__")
        if is_built and name in ("_parameters", "config"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


def network() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, eps=1e-3), nn.Dropout(0.1), nn.Linear(8, 2))


def setup(model: nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, Any]:
    described = describe(describe_torch(model, optimizers))
    text = json.dumps(described, allow_nan=False)
    assert len(text) < 100_000
    return json.loads(text)


def test_tells_versions_flags_optimizers_schedules_layers_and_weights() -> None:
    model = network()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.5}], lr=0.1, momentum=0.9
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7)
    model[1].eval()
    described = setup(model, optimizer)
    assert "left_out" not in described
    assert described["packages"]["torch"] == described["framework"]["version"] == torch.__version__
    assert described["flags"]["float32_matmul_precision"] == torch.get_float32_matmul_precision()
    assert described["random"]["torch_seed"] == 3
    assert described["threads"]["torch"] == torch.get_num_threads()
    (told,) = described["optimizers"]
    assert [group["parameters"] for group in told["groups"]] == [["0.weight", "0.bias"], ["3.weight", "3.bias"]]
    assert [group["settings"]["lr"] for group in told["groups"]] == [0.1, 0.5]
    assert [(one["class"], one["settings"]["step_size"]) for one in described["schedulers"]] == [("StepLR", 7)]
    assert scheduler is not None
    (of_model,) = described["models"]
    assert (of_model["training"], of_model["modules_in_training"], of_model["modules_in_evaluation"]) == (True, 4, 1)
    assert (of_model["modules"]["1"]["class"], of_model["modules"]["1"]["eps"]) == ("BatchNorm1d", 1e-3)
    assert of_model["random_layers"] == [{"name": "2", "class": "Dropout", "training": True, "p": 0.1}]
    assert of_model["parameters"]["0.weight"]["shape"] == [8, 4]
    assert of_model["parameters"]["0.weight"]["std"] == pytest.approx(model[0].weight.std().item())
    assert set(of_model["buffers"]) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_describing_changes_nothing_and_two_times_is_the_same() -> None:
    model = network()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    assert setup(model) == setup(model)
    assert torch.equal(states[0], torch.get_rng_state())
    assert (states[1], states[2]) == (random.getstate(), np.random.get_state()[1].tobytes())  # noqa: NPY002
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_one_changed_element_and_a_drawn_number_are_seen() -> None:
    first = setup(model := network())
    with torch.no_grad():
        model[3].bias[1] += 1e-6
    torch.rand(1), random.random(), np.random.random()  # noqa: NPY002, S311 - the generators that trainings use
    second = setup(model)
    weights = [described["models"][0]["parameters"] for described in (first, second)]
    assert [name for name in weights[0] if weights[0][name]["hash"] != weights[1][name]["hash"]] == ["3.bias"]
    differing = {name for name in first["random"] if first["random"][name] != second["random"][name]}
    assert differing == {"torch", "python", "numpy"}


def test_weights_that_are_not_there_yet_or_are_too_large_have_no_hash_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    told = setup(nn.Sequential(nn.LazyLinear(3)))["models"][0]["parameters"]["0.weight"]
    assert (told["dtype"], "shape" in told, "hash" in told) == ("float32", False, False)
    monkeypatch.setattr("tensight.agents.torch.setup.HASHED_BYTES", 100)
    told = setup(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))["models"][0]["parameters"]
    assert ("hash" in told["0.weight"], "sampled_hash" in told["1.weight"]) == (True, True)


def test_tied_weights_are_named_together() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert setup(model)["models"][0]["tied"] == [["0.weight", "1.weight"]]


def test_no_secret_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HF_TOKEN": "hf_abc",
        "NCCL_DEBUG": "INFO",
        "MS_SECRET_THING": "abc",
        "TORCH_HOME": "https://me:abc@host/",
        "HF_ENDPOINT": "https://host/?x=1&sig=abc",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "PATH_TO_NOTHING": "abc",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        monkeypatch.setenv(name, value)
    kept: Any = describe()["environment"]
    assert "abc" not in json.dumps(kept)
    assert (kept["NCCL_DEBUG"], kept["TOKENIZERS_PARALLELISM"], kept["HF_TOKEN"]) == ("INFO", "false", REMOVED)
    assert not {"AWS_SECRET_ACCESS_KEY", "PATH_TO_NOTHING"} & set(kept)


def test_what_cannot_be_described_is_left_out_and_named() -> None:
    described = setup(Unwilling(), torch.optim.SGD([nn.Parameter(torch.zeros(2))]))
    assert {"models: RuntimeError", "optimizers: RuntimeError"} <= set(described["left_out"])
    assert described["framework"]["name"] == "torch"


def test_batches_are_told_by_shape_range_and_hash() -> None:
    batch = {"ids": torch.tensor([[1, 5]]), "mask": torch.tensor([True])}
    told = describe_inputs((batch, [torch.full((2,), 0.5, dtype=torch.bfloat16)]), {"scale": torch.tensor(2.0), "n": 3})
    assert [(one["name"], one["shape"], one["dtype"]) for one in told] == [
        ("0.ids", [1, 2], "int64"),
        ("0.mask", [1], "bool"),
        ("1.0", [2], "bfloat16"),
        ("scale", [], "float32"),
    ]
    assert (told[0]["min"], told[0]["max"]) == (1, 5)
    again = describe_inputs((batch,), {})
    batch["ids"][0, 0] = 2
    assert again[0] == told[0] != describe_inputs((batch,), {})[0]
    assert describe_inputs((torch.empty(2, device="meta"),), {})[0]["shape"] == [2]
