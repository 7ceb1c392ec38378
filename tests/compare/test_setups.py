"""What differs around two trainings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tensight.agents.setup import describe
from tensight.agents.torch.setup import describe_inputs, describe_torch
from tensight.compare import Verdict
from tensight.compare.setups import Importance, SetupComparison, compare_setups

Change = Callable[[dict[str, Any]], None]


def setup(
    *,
    seed: int = 0,
    eps: float = 1e-5,
    dropout: float = 0.1,
    lr: float = 0.1,
    norm_decay: float = 0.0,
    scale: float = 1.0,
    evaluate: bool = False,
    order: tuple[int, ...] = (0, 1, 2),
    batch_scale: float = 1.0,
    tie: bool = False,
    dtype: torch.dtype = torch.float32,
    step_size: int = 10,
) -> dict[str, Any]:
    """Return the description of a small training, as it is read from a file."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps), nn.Dropout(dropout), nn.Linear(4, 4)).to(dtype)
    with torch.no_grad():
        model[3].weight *= scale
    if tie:
        model[3].weight = model[0].weight
    if evaluate:
        model[2].eval()
    norms = [{"params": model[1].parameters(), "weight_decay": norm_decay}]
    others = [{"params": list(dict.fromkeys([*model[0].parameters(), *model[3].parameters()]))}]
    optimizer = torch.optim.AdamW([*norms, *others], lr=lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size)
    described = describe(describe_torch(model, [optimizer]))
    del scheduler
    batches = torch.arange(24.0).reshape(3, 2, 4) * batch_scale
    described["batches"] = [describe_inputs((batches[at],), {}) for at in order]
    torch.manual_seed(0)
    return json.loads(json.dumps(described))


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return setup()


def parts(comparison: SetupComparison, importance: Importance = Importance.RESULTS) -> set[str]:
    return {one.part for one in comparison.differences if one.importance is importance}


def test_a_training_has_the_set_up_of_itself(reference: dict[str, Any]) -> None:
    comparison = compare_setups(reference, setup())
    assert (comparison.verdict, comparison.differences) == (Verdict.SAME, ())
    assert {"initial weights", "first batches", "optimizer", "flags", "packages"} <= set(comparison.equal)


@pytest.mark.parametrize(
    ("change", "part", "words"),
    [
        ({"seed": 1}, "initial weights", "the values of 4 of 6 weights differ"),
        ({"scale": 2.0}, "initial weights", "standard deviations do, too: 3.weight"),
        ({"eps": 1e-6}, "model", "eps of 1 layer (1): 1e-05 in A, 1e-06 in B"),
        ({"dropout": 0.2}, "random layers", "p of 1 layer (2): 0.1 in A, 0.2 in B"),
        ({"evaluate": True}, "random layers", "training of 1 layer (2): True in A, False in B"),
        ({"evaluate": True}, "mode of the model", "modules_in_evaluation: 0 in A, 1 in B"),
        ({"evaluate": True}, "mode of the model", "in evaluation mode: none in A, 1 (2 Dropout) in B"),
        ({"lr": 0.2}, "optimizer", "lr: 0.1 in A, 0.2 in B"),
        ({"norm_decay": 0.01}, "optimizer", "weight_decay of 2 parameters (1.weight, 1.bias): 0 in A, 0.01 in B"),
        ({"order": (1, 0, 2)}, "first batches", "the first 3 batches are the same in another order"),
        ({"order": (0, 2, 2)}, "first batches", "values of input 0 of step 2: 8 to 15 with mean 11.5 in A, 16 to 23"),
        ({"batch_scale": 2.0}, "first batches", "of the 2 recorded batches after step 1, 2 differ, too"),
        ({"tie": True}, "tied weights", "0.weight, 3.weight are one tensor in B, not in A"),
        ({"dtype": torch.float64}, "initial weights", "dtype of 6 weights (0.weight"),
        ({"step_size": 11}, "schedule", "step_size: 10 in A, 11 in B"),
    ],
)
def test_names_what_was_changed(reference: dict[str, Any], change: dict[str, Any], part: str, words: str) -> None:
    comparison = compare_setups(reference, setup(**change))
    assert comparison.verdict is Verdict.DIFFERENT
    assert part in comparison.sentence
    assert any(words in str(one) for one in comparison.differences if one.part == part)


@pytest.mark.parametrize(
    ("path", "importance"),
    [
        (("packages", "numpy"), Importance.ROUNDING),
        (("threads", "torch"), Importance.ROUNDING),
        (("flags", "cudnn.benchmark"), Importance.ROUNDING),
        (("flags", "default_dtype"), Importance.RESULTS),
        (("environment", "NCCL_ALGO"), Importance.ROUNDING),
        (("environment", "NCCL_DEBUG"), Importance.REST),
        (("process", "world_size"), Importance.RESULTS),
        (("process", "rank"), Importance.REST),
        (("random", "torch"), Importance.RESULTS),
    ],
)
def test_differences_are_sorted_by_what_they_can_do(
    reference: dict[str, Any], path: tuple[str, str], importance: Importance
) -> None:
    other = copy.deepcopy(reference)
    other[path[0]][path[1]] = "changed"
    comparison = compare_setups(reference, other)
    (difference,) = comparison.differences
    assert (difference.importance, difference.what, difference.b) == (importance, path[1], "changed")
    assert comparison.verdict is (Verdict.SAME if importance is Importance.REST else Verdict.DIFFERENT)


def test_generators_matter_less_where_nothing_draws_from_them() -> None:
    a, b = setup(dropout=0.1), setup(dropout=0.1)
    for described in (a, b):
        described["models"][0]["random_layers"] = []
    b["random"]["torch"] = "changed"
    comparison = compare_setups(a, b)
    assert comparison.verdict is Verdict.SAME
    assert "no random layer is known" in comparison.differences[0].what
    del b["batches"]
    assert compare_setups(a, b).verdict is Verdict.DIFFERENT
    assert "first batches (B)" in compare_setups(a, b).not_recorded


@pytest.mark.parametrize(
    ("dropout", "generator", "verdict"),
    [
        (0.0, "torch", Verdict.SAME),
        (0.1, "torch", Verdict.DIFFERENT),
        (0.1, "python", Verdict.SAME),
        (0.1, "numpy", Verdict.SAME),
    ],
)
def test_two_runs_of_a_script_differ_only_in_generators_from_which_a_layer_draws(
    dropout: float, generator: str, verdict: Verdict
) -> None:
    a, b = setup(dropout=dropout), setup(dropout=dropout)
    b["random"][generator] = "changed"
    comparison = compare_setups(a, b)
    assert (comparison.verdict, [one.part for one in comparison.differences]) == (verdict, ["generators"])


def test_layers_left_in_evaluation_are_named_and_the_mode_is_not_called_the_same() -> None:
    descriptions = []
    for is_evaluating in (False, True):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.LSTM(4, 4, 2, dropout=0.1))
        model = nn.Sequential(backbone.train(not is_evaluating), nn.Linear(4, 2))
        descriptions.append(json.loads(json.dumps(describe(describe_torch(model)))))
    comparison = compare_setups(*descriptions)
    assert "mode of the model" not in comparison.equal
    texts = [str(one) for one in comparison.differences if one.part == "mode of the model"]
    assert texts == [
        "modules with dropout or batch norm in evaluation mode: none in A, "
        "3 (0.1 BatchNorm1d, 0.2 Dropout, 0.3 LSTM) in B",
        "modules_in_evaluation: 0 in A, 5 in B",
    ]
    # Traces of earlier versions do not describe batch norms.
    del descriptions[1]["models"][0]["batch_norms"]
    assert "2 (0.2 Dropout, 0.3 LSTM) in B" in " ".join(map(str, compare_setups(*descriptions).differences))


def test_weights_whose_values_were_not_recorded_are_not_called_the_same(reference: dict[str, Any]) -> None:
    other = copy.deepcopy(reference)
    del other["models"][0]["parameters"]["0.weight"]["hash"]
    comparison = compare_setups(reference, other)
    assert "initial weights" not in comparison.equal
    assert "the values of 1 weight were not recorded, so not compared (0.weight)" in str(comparison.differences[0])


def test_descriptions_without_a_common_part_are_not_comparable(reference: dict[str, Any]) -> None:
    assert compare_setups({}, reference).verdict is Verdict.NOT_COMPARABLE
    assert compare_setups({"format": 99}, reference).verdict is Verdict.NOT_COMPARABLE


def test_the_command_prints_and_exits(tensight: Callable[..., Any], tmp_path: Path, reference: dict[str, Any]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"]
    for path, content in zip(paths, (reference, setup(lr=0.2), []), strict=True):
        path.write_text(json.dumps(content))
    same, different = tensight("compare", "setups", paths[0], paths[0]), tensight("compare", "setups", *paths[:2])
    assert (same.code, different.code) == (0, 1)
    assert same.out.startswith("● Same: nothing that was recorded and can change results differs.")
    assert "● Different in what can change results: optimizer" in different.out
    assert "    lr: 0.1 in A, 0.2 in B" in different.out
    data = json.loads(tensight("compare", "setups", *paths[:2], "--json").out)
    assert data["differences"][0] == {
        "importance": "results",
        "part": "optimizer",
        "what": "lr",
        "a": "0.1",
        "b": "0.2",
    }
    for path in (paths[2], tmp_path / "missing", __file__):
        assert tensight("compare", "setups", path, paths[0]).code == 2


SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.sampled_from(["a", "name", "hash", ""])
KEYS = st.sampled_from(
    ["models", "parameters", "batches", "optimizers", "groups", "settings", "random_layers", "tied", "hash", "std",
     "name", "format", "random", "schedulers", "modules", "a", "left_out", "shape", "config"]
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)
DESCRIPTIONS = st.dictionaries(KEYS, ANYTHING, max_size=6)


@settings(max_examples=2 * settings().max_examples)
@given(DESCRIPTIONS, DESCRIPTIONS)
def test_no_description_does_anything_but_get_a_verdict(a: dict[str, Any], b: dict[str, Any]) -> None:
    comparison = compare_setups(a, b)
    json.dumps(comparison.as_data())
    assert comparison.sentence


@given(st.data())
def test_a_description_with_anything_in_it_gets_a_verdict(reference: dict[str, Any], data: st.DataObject) -> None:
    other = copy.deepcopy(reference)
    place: Any = other
    for _ in range(data.draw(st.integers(1, 5))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(ANYTHING)
            break
        place = place[key]
    assert compare_setups(reference, other).sentence


def test_a_renamed_model_is_compared_under_the_names_of_the_other() -> None:
    class Renamed(nn.Module):
        def __init__(self, source: nn.Sequential, eps: float) -> None:
            super().__init__()
            self.stem, self.ln, self.head = source[0], nn.LayerNorm(4, eps=eps), source[2]

    torch.manual_seed(0)
    source = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    port = Renamed(source, eps=1e-3)
    a, b = (
        json.loads(json.dumps(describe(describe_torch(model, [torch.optim.SGD(model.parameters(), 0.1)]))))
        for model in (source, port)
    )
    result = compare_setups(a, b)
    assert "6 weights have other names in B" in result.sentence
    assert {"initial weights", "optimizer"} <= set(result.equal)
    assert any("eps of 1 layer (ln)" in str(one) for one in result.differences)
