"""Twelve faults of a resumed training, planted in checkpoints of a real one, and each is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

Run = Callable[..., Any]
State = dict[str, Any]


class Tied(nn.Module):
    """Two layers of one shape, and an embedding that is the output's weight, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 24)
        self.first = nn.Linear(24, 24)
        self.second = nn.Linear(24, 24)
        self.head = nn.Linear(24, 40, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(self.embedding(tokens)))
        return self.head(hidden + torch.tanh(self.second(hidden)))


class Training:
    """A training with Adam that can go on from what it saved."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = Tied()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.step = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            tokens = torch.randint(0, 40, (16, 8))
            self.optimizer.zero_grad()
            logits = self.model(tokens)
            nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
            self.optimizer.step()
            self.step += 1

    def state(self) -> State:
        return copy.deepcopy(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rng_state": torch.get_rng_state(),
                "step": self.step,
            }
        )


@pytest.fixture(scope="module")
def states() -> tuple[State, State, State]:
    """What a training is at step 3, 5 and 6."""
    training = Training()
    training.train(3)
    early = training.state()
    training.train(2)
    saved = training.state()
    training.train(1)
    return early, saved, training.state()


def lose_moments(state: State, _: State) -> None:
    state["optimizer"]["state"] = {}


def reset_moments(state: State, _: State) -> None:
    for moments in state["optimizer"]["state"].values():
        moments["exp_avg"].zero_()
        moments["exp_avg_sq"].zero_()


def another_generator(state: State, _: State) -> None:
    state["rng_state"] = torch.Generator().manual_seed(99).get_state()


def split_tied(state: State, _: State) -> None:
    state["model"]["head.weight"] = state["model"]["head.weight"].clone() * 1.01


def round_master(state: State, _: State) -> None:
    for name, value in state["model"].items():
        state["model"][name] = value.to(torch.bfloat16).to(torch.float32)


def lose_key(state: State, _: State) -> None:
    del state["model"]["second.bias"]


def transpose(state: State, _: State) -> None:
    state["model"]["first.weight"] = state["model"]["first.weight"].t().contiguous()


def swap(state: State, _: State) -> None:
    model = state["model"]
    model["first.weight"], model["second.weight"] = model["second.weight"], model["first.weight"]


def zero_bias(state: State, _: State) -> None:
    state["model"]["first.bias"].zero_()


def plant_nan(state: State, _: State) -> None:
    state["model"]["second.weight"][3, 4] = float("nan")


def change_dtype(state: State, _: State) -> None:
    state["model"]["second.weight"] = state["model"]["second.weight"].to(torch.bfloat16)


def step_back(state: State, early: State) -> None:
    state["step"] = early["step"]
    for moments in state["optimizer"]["state"].values():
        moments["step"].fill_(early["step"])


FAULTS: list[tuple[Callable[[State, State], None], str, str]] = [
    (lose_moments, "optimizer state lost", "optimizer.state.0.exp_avg"),
    (reset_moments, "optimizer state lost", "optimizer.state.1.exp_avg_sq"),
    (another_generator, "generator state", "rng_state"),
    (split_tied, "no longer tied", "head.weight"),
    (round_master, "rounded", "model.first.weight"),
    (lose_key, "missing", "model.second.bias"),
    (transpose, "transposed", "model.first.weight"),
    (swap, "swapped", "model.second.weight"),
    (zero_bias, "zero", "model.first.bias"),
    (plant_nan, "not finite", "model.second.weight"),
    (change_dtype, "dtype", "model.second.weight"),
    (step_back, "step", "step"),
]


def compared(tensight: Run, a: Path, b: Path) -> tuple[int, dict[str, Any]]:
    outcome = tensight("compare", "checkpoints", a, b, "--json")
    assert outcome.err == ""
    return outcome.code, json.loads(outcome.out)


@pytest.mark.parametrize(("plant", "kind", "name"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS])
def test_a_fault_planted_in_a_checkpoint_is_named(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path, plant: Any, kind: str, name: str
) -> None:
    early, saved, _ = states
    torch.save(saved, tmp_path / "a.pt")
    faulty = copy.deepcopy(saved)
    plant(faulty, early)
    torch.save(faulty, tmp_path / "b.pt")
    code, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
    assert (code, result["verdict"]) == (1, "different")
    wrong = [finding for finding in result["findings"] if not finding["note"]]
    named = [finding for finding in wrong if finding["kind"] == kind]
    assert any(other.endswith(name) for finding in named for other in finding["names"]), result["findings"]
    if plant is lose_moments:
        assert "model.embedding.weight" in named[0]["text"]  # which PyTorch calls number 0
    # Nothing that is as it was is blamed.
    assert {finding["kind"] for finding in wrong} == {kind}


def test_a_checkpoint_saved_twice_is_the_same(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    for name in ("a.pt", "b.pt"):
        torch.save(states[1], tmp_path / name)
    code, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
    assert (code, result["verdict"], result["findings"]) == (0, "same", [])
    assert result["a"]["tied"] == [["model.embedding.weight", "model.head.weight"]]


def test_the_next_checkpoint_of_a_training_says_what_is_not_updated(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    _, saved, later = states
    later = copy.deepcopy(later)
    later["model"]["second.weight"] = saved["model"]["second.weight"]
    torch.save(saved, tmp_path / "a.pt")
    torch.save(later, tmp_path / "b.pt")
    _, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
    wrong = {finding["kind"]: finding["names"] for finding in result["findings"] if not finding["note"]}
    assert wrong == {"not updated": ["model.second.weight"]}
    # Each step counts, and draws its data.
    assert {finding["kind"] for finding in result["findings"] if finding["note"]} >= {"step", "generator state"}


def test_a_shard_of_an_older_checkpoint_is_named(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    for folder, model in (("a", states[1]["model"]), ("b", states[2]["model"])):
        (tmp_path / folder).mkdir()
        names = [name for name in model if name != "head.weight"]
        where = {name: f"model-0000{1 + index % 2}-of-00002.safetensors" for index, name in enumerate(names)}
        (tmp_path / folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
        for file in set(where.values()):
            save_file({name: model[name] for name in names if where[name] == file}, tmp_path / folder / file)
    stale = "model-00002-of-00002.safetensors"
    (tmp_path / "b" / stale).write_bytes((tmp_path / "a" / stale).read_bytes())
    code, result = compared(tensight, tmp_path / "a", tmp_path / "b")
    (finding,) = (finding for finding in result["findings"] if finding["kind"] == "stale shard")
    assert code == 1
    assert stale in finding["text"]
    assert set(finding["names"]) == {"first.weight", "second.weight"}


def test_check_names_what_one_checkpoint_tells_by_itself(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(states[1], tmp_path / "good.pt")
    assert tensight("check", "checkpoint", tmp_path / "good.pt").code == 0
    bad = copy.deepcopy(states[1])
    reset_moments(bad, bad)
    plant_nan(bad, bad)
    torch.save(bad, tmp_path / "bad.pt")
    outcome = tensight("check", "checkpoint", tmp_path / "bad.pt", "--json")
    found = {finding["kind"] for finding in json.loads(outcome.out)["findings"] if not finding["note"]}
    assert (outcome.code, found) == (1, {"not finite", "optimizer state lost"})
    # A dump may be called so, too.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    assert "is not a dump" in tensight("check", "./checkpoint").err


def go_on_with_a_new_optimizer(state: State) -> State:
    """Return what follows if the optimizer is made anew on resuming: its counter and its moments begin again."""
    training = Training()
    training.model.load_state_dict(state["model"])
    training.step = state["step"]
    training.train(1)
    return training.state()


@pytest.mark.parametrize("saves_its_step", [True, False])
def test_an_optimizer_that_was_made_anew_went_back_and_nothing_else_is_blamed(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path, saves_its_step: bool
) -> None:
    saved, resumed = copy.deepcopy(states[1]), go_on_with_a_new_optimizer(states[1])
    if not saves_its_step:
        del saved["step"], resumed["step"]
    torch.save(saved, tmp_path / "a.pt")
    torch.save(resumed, tmp_path / "b.pt")
    _, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
    (finding,) = (finding for finding in result["findings"] if not finding["note"])
    assert "went back from 5 to 1: its state was not taken over" in finding["text"]
    assert ("or B is the earlier one" in finding["text"]) is not saves_its_step
    assert "model.first.weight" in finding["text"]


def test_small_numbers_are_not_taken_for_other_small_numbers(tensight: Run, tmp_path: Path) -> None:
    """Beside a large tensor, all small ones are near to each other."""
    generator = torch.Generator().manual_seed(0)
    large, small, other = (torch.randn(64, 8, generator=generator) * size for size in (1.0, 0.01, 0.01))
    torch.save({"state": {0: {"exp_avg": large, "exp_avg_sq": small}}}, tmp_path / "a.pt")
    for changed, kinds in ((other, set()), (small * 1.01, {"swapped"})):
        torch.save({"state": {0: {"exp_avg": changed, "exp_avg_sq": small * 2}}}, tmp_path / "b.pt")
        _, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
        assert {finding["kind"] for finding in result["findings"]} == kinds


def test_of_tensors_that_are_equal_in_both_it_is_not_said_that_they_never_moved(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    model, other = copy.deepcopy(states[1]["model"]), copy.deepcopy(states[2]["model"])
    for name in ("first.weight", "first.bias"):
        other[name] = model[name]
    for equal, amounts in (
        (["first.weight", "first.bias"], "3 others differ"),
        (["first.weight", "first.bias", "second.weight", "second.bias"], "1 other"),
    ):
        for name in equal:
            other[name] = model[name]
        torch.save({name: model[name] for name in model if name != "head.weight"}, tmp_path / "a.pt")
        torch.save({name: other[name] for name in model if name != "head.weight"}, tmp_path / "b.pt")
        _, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
        (finding,) = result["findings"]
        assert (finding["kind"], finding["note"], set(finding["names"])) == ("equal", True, set(equal))
        assert "equal in A and B" in finding["text"]
        assert amounts in finding["text"]


@pytest.mark.parametrize("most", [False, True])
def test_parameters_that_stand_still_while_steps_are_made_are_named_also_if_most_do(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path, most: bool
) -> None:
    _, saved, later = copy.deepcopy(states)
    still = ["first.weight", "first.bias", "second.weight"] if most else ["first.weight"]
    for name in still:
        later["model"][name] = saved["model"][name]
    torch.save(saved, tmp_path / "a.pt")
    torch.save(later, tmp_path / "b.pt")
    _, result = compared(tensight, tmp_path / "a.pt", tmp_path / "b.pt")
    (finding,) = (finding for finding in result["findings"] if finding["kind"] == "not updated")
    assert ({name.removeprefix("model.") for name in finding["names"]}, finding["note"]) == (set(still), most)
    assert "did not move from step 5 to 6" in finding["text"]


def check(tensight: Run, state: State, path: Path) -> tuple[int, set[str], set[str]]:
    torch.save(state, path)
    outcome = tensight("check", "checkpoint", path, "--json")
    findings = json.loads(outcome.out)["findings"]
    return (
        outcome.code,
        {finding["kind"] for finding in findings if not finding["note"]},
        {finding["kind"] for finding in findings if finding["note"]},
    )


def test_an_optimizer_without_any_state_has_lost_it_if_it_made_steps_and_keeps_one(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    state = copy.deepcopy(states[1])
    lose_moments(state, state)
    assert check(tensight, state, tmp_path / "a.pt") == (1, {"optimizer state lost"}, set())
    del state["step"]
    assert check(tensight, state, tmp_path / "a.pt") == (0, set(), {"optimizer state missing"})
    state["step"] = 0
    assert check(tensight, state, tmp_path / "a.pt") == (0, set(), {"optimizer state missing"})
    model = Tied()
    for settings, code in (({}, 0), ({"momentum": 0.9}, 1)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **settings)
        assert check(tensight, {"optimizer": optimizer.state_dict(), "step": 5}, tmp_path / "a.pt")[0] == code


def test_a_matrix_of_one_number_is_a_fault_once_steps_were_made_and_zeros_are_not(
    tensight: Run, states: tuple[State, State, State], tmp_path: Path
) -> None:
    state = copy.deepcopy(states[1])
    state["model"]["first.weight"].fill_(0.5)
    assert check(tensight, state, tmp_path / "a.pt") == (1, {"constant"}, set())
    plain = {"first.weight": state["model"]["first.weight"], "scale": torch.full((24, 1, 1), 1e-6)}
    assert check(tensight, plain, tmp_path / "a.pt") == (0, set(), {"constant"})
    state["model"]["first.weight"].zero_()
    assert check(tensight, state, tmp_path / "a.pt") == (0, set(), {"zero"})
    printed = tensight("check", "checkpoint", tmp_path / "a.pt").out
    assert "1 tensor all zeros: model.first.weight" in printed
    assert "but see above" in printed
