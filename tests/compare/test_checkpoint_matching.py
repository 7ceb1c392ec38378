"""Tensors of two checkpoints with other names find each other, and it is said by which rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]
Arrays = dict[str, np.ndarray[Any, Any]]


def noise(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return numbers that no other seed and shape gives."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def compared(tensight: Run, folder: Path, a: Arrays, b: Arrays, *options: object) -> dict[str, Any]:
    np.savez(folder / "a.npz", **a)
    np.savez(folder / "b.npz", **b)
    outcome = tensight("compare", "checkpoints", folder / "a.npz", folder / "b.npz", "--json", *options)
    assert outcome.err == ""
    return json.loads(outcome.out)


def rules(result: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(pair["a"], pair["b"]): pair["rule"] for pair in result["pairs"]}


PYTORCH = {
    "embedding.weight": noise(11, 4),
    "conv.weight": noise(4, 3, 3, 3),
    "conv.bias": noise(4),
    "bn.weight": noise(4, seed=1),
    "bn.bias": noise(4, seed=2),
    "bn.running_mean": noise(4, seed=3),
    "bn.running_var": noise(4, seed=4),
    "layers.0.norm.weight": noise(4, seed=5),
    "layers.0.norm.bias": noise(4, seed=6),
    "layers.1.norm.weight": noise(4, seed=7),
    "layers.1.norm.bias": noise(4, seed=8),
}
WORDS = {"bn.weight": "bn.gamma", "bn.bias": "bn.beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
WORDS |= {"norm.weight": "norm.gamma", "norm.bias": "norm.beta", "embedding.weight": "embedding.embedding_table"}


def in_mindspore(name: str) -> str:
    for word, other in WORDS.items():
        name = name.replace(word, other)
    return name


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("", "network."),
        ("module.", ""),
        ("", "model.encoder."),
        ("_orig_mod.module.", "backbone.net."),
    ],
)
def test_pytorch_and_mindspore_are_paired_by_their_words_whatever_stands_before(
    tensight: Run, tmp_path: Path, here: str, there: str
) -> None:
    a = {here + name: values for name, values in PYTORCH.items()}
    # in an order of its own, so that no order helps
    b = {there + in_mindspore(name): PYTORCH[name] * 2 for name in sorted(PYTORCH, reverse=True)}
    result = compared(tensight, tmp_path, a, b)
    assert rules(result) == {(here + name, there + in_mindspore(name)): "naming scheme" for name in PYTORCH}
    assert all(pair["relative_norm"] == pytest.approx(1) for pair in result["pairs"])


@pytest.mark.parametrize(
    ("fused", "parts"),
    [
        ("layer.self_attn.in_proj_weight", [f"layer.self_attn.{word}_proj.weight" for word in "qkv"]),
        ("layer.attn.qkv.weight", [f"layer.attn.{word}.weight" for word in ("query", "key", "value")]),
        ("layer.mlp.gate_up_proj.weight", ["layer.mlp.gate_proj.weight", "layer.mlp.up_proj.weight"]),
    ],
)
def test_parts_of_a_fused_matrix_are_compared_each_with_its_rows(
    tensight: Run, tmp_path: Path, fused: str, parts: list[str]
) -> None:
    whole = noise(4 * len(parts), 6)
    split = {name: whole[4 * index : 4 * index + 4].copy() for index, name in enumerate(parts)}
    for a, b in (({fused: whole}, split), (split, {fused: whole})):
        result = compared(tensight, tmp_path, a, b)
        assert (result["verdict"], set(rules(result).values()), len(result["pairs"])) == ("same", {"fused"}, len(parts))
    split[parts[1]][2, 3] += 1
    result = compared(tensight, tmp_path, {fused: whole}, split)
    assert [pair["b"] for pair in result["pairs"] if not pair["same"]] == [parts[1]]


def test_a_fused_matrix_that_lies_transposed_is_taken_apart_too(tensight: Run, tmp_path: Path) -> None:
    whole = noise(12, 4)
    split = {f"h.0.attn.{word}_proj.weight": whole[4 * index : 4 * index + 4] for index, word in enumerate("qkv")}
    result = compared(tensight, tmp_path, {"h.0.attn.c_attn.weight": np.ascontiguousarray(whole.T)}, split)
    assert (result["verdict"], set(rules(result).values())) == ("same", {"fused"})


def test_names_with_nothing_in_common_are_paired_by_values_then_by_shape_and_order(
    tensight: Run, tmp_path: Path
) -> None:
    a = {"one": noise(3, 4), "two": noise(3, 4, seed=1), "three": noise(5), "four": noise(5, seed=1)}
    b = {"alpha": a["two"], "beth": a["one"], "gimel": a["three"] + 1, "dalet": a["four"] + 1}
    assert rules(compared(tensight, tmp_path, a, b)) == {
        ("one", "beth"): "sampled values",
        ("two", "alpha"): "sampled values",
        ("three", "gimel"): "shape and order",
        ("four", "dalet"): "shape and order",
    }


def test_what_has_no_pair_is_listed_and_nothing_in_common_is_not_comparable(tensight: Run, tmp_path: Path) -> None:
    result = compared(tensight, tmp_path, {"a": noise(3), "same": noise(2)}, {"b": noise(4), "same": noise(2)})
    assert ([entry["name"] for entry in result["only_a"]], [entry["name"] for entry in result["only_b"]]) == (
        ["a"],
        ["b"],
    )
    result = compared(tensight, tmp_path, {"a": noise(3)}, {"b": noise(4)})
    assert result["verdict"] == "not comparable"
    assert tensight("compare", "checkpoints", tmp_path / "a.npz", tmp_path / "b.npz").code == 2


def test_a_matrix_that_another_framework_keeps_transposed_is_compared_transposed(tensight: Run, tmp_path: Path) -> None:
    result = compared(
        tensight, tmp_path, {"fc.weight": noise(3, 5)}, {"fc.kernel": np.ascontiguousarray(noise(3, 5).T)}
    )
    (pair,) = result["pairs"]
    assert (result["verdict"], pair["transposed"], pair["rule"]) == ("same", True, "naming scheme")


def test_where_matrices_are_kept_transposed_square_ones_are_too(tensight: Run, tmp_path: Path) -> None:
    a = {"h.0.c_fc.weight": noise(8, 32), "h.0.c_proj.weight": noise(16, 16), "h.0.wte.weight": noise(20, 20)}
    b = {f"model.{name}": values if "wte" in name else values.T.copy() for name, values in a.items()}
    result = compared(tensight, tmp_path, a, b)
    assert result["verdict"] == "same", result["findings"]
    assert [pair["transposed"] for pair in result["pairs"]] == [True, True, False]


def test_of_a_checkpoint_in_another_dtype_it_is_said_that_its_values_are_rounded_and_no_more(
    tensight: Run, tmp_path: Path
) -> None:
    a = {f"layers.{number}.weight": noise(16, 16, seed=number) for number in range(3)} | {"norm.weight": np.ones(16)}
    b = {name: values.astype(np.float16) for name, values in a.items()}
    result = compared(tensight, tmp_path, a, b)
    assert {finding["kind"] for finding in result["findings"]} == {"dtype"}
    printed = tensight("compare", "checkpoints", tmp_path / "a.npz", tmp_path / "b.npz").out
    assert "hold A's values rounded" in printed
    assert "norm of change" not in printed


def hugging_face_block(number: int) -> Arrays:
    """Return a block as `transformers` initialises it: biases are zeros, norms are ones."""
    block = f"layers.{number}"
    linears = {f"attention.{name}": (8, 8) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    linears |= {"mlp.fc1": (16, 8), "mlp.fc2": (8, 16)}
    entries: Arrays = {}
    for at, (name, shape) in enumerate(linears.items()):
        entries[f"{block}.{name}.weight"] = noise(*shape, seed=10 * number + at)
        entries[f"{block}.{name}.bias"] = np.zeros(shape[0], np.float32)
    return entries | {f"{block}.layernorm_before.weight": np.ones(8, np.float32)}


def timm_block(entries: Arrays, number: int) -> Arrays:
    """Return the same block as `timm` calls it."""
    block, other = f"layers.{number}", f"blocks.{number}"
    result = {f"{other}.norm1.weight": entries[f"{block}.layernorm_before.weight"]}
    for word in ("weight", "bias"):
        parts = [entries[f"{block}.attention.{name}.{word}"] for name in ("q_proj", "k_proj", "v_proj")]
        result[f"{other}.attn.qkv.{word}"] = np.concatenate(parts)
        result[f"{other}.attn.proj.{word}"] = entries[f"{block}.attention.o_proj.{word}"]
        result |= {f"{other}.mlp.{name}.{word}": entries[f"{block}.mlp.{name}.{word}"] for name in ("fc1", "fc2")}
    return result


@pytest.mark.parametrize("is_turned", [False, True], ids=["parts in A", "parts in B"])
def test_parts_of_fused_matrices_and_zeros_are_found_by_the_modules_that_they_are_in(
    tensight: Run, tmp_path: Path, is_turned: bool
) -> None:
    a = hugging_face_block(0) | hugging_face_block(1)
    b = timm_block(a, 0) | timm_block(a, 1)
    result = compared(tensight, tmp_path, *((b, a) if is_turned else (a, b)))
    assert result["verdict"] == "same", result["findings"]
    assert len(result["pairs"]) == len(a)
    query = b["blocks.1.attn.qkv.weight"]
    query[8:16], query[16:] = query[16:].copy(), query[8:16].copy()
    findings = compared(tensight, tmp_path, a, b)["findings"]
    assert {finding["kind"] for finding in findings} == {"swapped"}


def test_a_mapping_goes_before_all_rules_and_can_be_written_edited_and_read(tensight: Run, tmp_path: Path) -> None:
    a = {'od"d': noise(3), "two": noise(3, seed=1)}
    b = {"eins": noise(3), "zwei": noise(3, seed=1)}
    file = tmp_path / "names.toml"
    compared(tensight, tmp_path, a, b, "--write-mapping", file)
    assert '"od\\"d" = "eins"  # sampled values' in file.read_text()
    file.write_text(file.read_text().replace("eins", "0").replace("zwei", "eins").replace('"0"', '"zwei"'))
    assert rules(compared(tensight, tmp_path, a, b, "--mapping", file)) == {
        ('od"d', "zwei"): "mapping file",
        ("two", "eins"): "mapping file",
    }
    for text, error in (
        ("nonsense", "names.toml:1"),
        ('"a" = "b"\n"a" = "c"', "names.toml:2"),
        ('"x" = "eins"', "'x'"),
    ):
        file.write_text(text)
        outcome = tensight("compare", "checkpoints", tmp_path / "a.npz", tmp_path / "b.npz", "--mapping", file)
        assert (outcome.code, error in outcome.err) == (2, True), outcome.err


def test_a_tolerance_counts_for_every_element_and_nan_in_both_is_equal(tensight: Run, tmp_path: Path) -> None:
    values = noise(100)
    values[7] = np.nan
    near = values * np.float32(1.0005)
    result = compared(tensight, tmp_path, {"w": values}, {"w": near})
    assert (result["verdict"], result["pairs"][0]["both_nan"]) == ("different", 1)
    assert compared(tensight, tmp_path, {"w": values}, {"w": near}, "--rtol", 1e-3)["verdict"] == "same"
    near[50] *= 1.1
    assert compared(tensight, tmp_path, {"w": values}, {"w": near}, "--rtol", 1e-3)["verdict"] == "different"
    result = compared(tensight, tmp_path, {"w": values}, {"w": values})
    assert (result["verdict"], [finding["kind"] for finding in result["findings"]]) == ("same", ["not finite"])
    assert "NaN in both" in result["findings"][0]["text"]


def llama_layer(number: int) -> Arrays:
    layer = f"model.layers.{number}"
    names = [f"self_attn.{word}_proj" for word in "qkvo"] + ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
    names += ["input_layernorm", "post_attention_layernorm"]
    entries: Arrays = {}
    for at, name in enumerate(names):
        shape = (8,) if "norm" in name else (8, 16) if "down" in name else (16, 8) if "mlp" in name else (8, 8)
        entries[f"{layer}.{name}.weight"] = noise(*shape, seed=100 * number + at)
    return entries


OTHER_WORDS = {
    "model.layers.": "blocks.", "self_attn.q_proj": "attn.wq", "self_attn.k_proj": "attn.wk",
    "self_attn.v_proj": "attn.wv", "self_attn.o_proj": "attn.wo", "gate_proj": "gate", "up_proj": "up",
    "down_proj": "down", "input_layernorm": "norm1", "post_attention_layernorm": "norm2",
}  # fmt: skip


@pytest.mark.parametrize("attention", ["attn.", ""])
def test_fused_and_renamed_layers_are_paired_by_their_numbers_and_usual_names_whatever_the_values(
    tensight: Run, tmp_path: Path, attention: str
) -> None:
    """Trained on, so that no value helps, and in another order, so that no order helps."""
    b = llama_layer(0) | llama_layer(1)
    expected = {}
    a: Arrays = {}
    for name in sorted(b, reverse=True):
        other = name
        for word, replacement in OTHER_WORDS.items():
            other = other.replace(word, replacement)
        if not any(f".{word}_proj" in name for word in "qkv"):
            a[other] = b[name] + np.float32(0.1) * noise(*b[name].shape, seed=9)
            expected[other] = name
    for number in (0, 1):
        parts = [b[f"model.layers.{number}.self_attn.{word}_proj.weight"] for word in "qkv"]
        a[f"blocks.{number}.{attention}qkv.weight"] = np.concatenate(parts) * np.float32(1.1)
    result = compared(tensight, tmp_path, a, b)
    assert (result["only_a"], result["only_b"], len(result["pairs"])) == ([], [], len(b))
    fused = {pair["a"].partition("[")[0]: pair["b"] for pair in result["pairs"] if pair["rule"] == "fused"}
    assert set(fused) == {f"blocks.{number}.{attention}qkv.weight" for number in (0, 1)}
    assert all(pair["relative_norm"] < 0.2 for pair in result["pairs"])
    assert {pair["a"]: pair["b"] for pair in result["pairs"] if pair["rule"] != "fused"} == expected


def test_a_pair_that_only_its_shape_suggests_is_not_sure_if_the_values_have_nothing_in_common(
    tensight: Run, tmp_path: Path
) -> None:
    result = compared(tensight, tmp_path, {"one": noise(30, 4)}, {"eins": noise(30, 4, seed=1)})
    assert [(finding["kind"], finding["note"]) for finding in result["findings"]] == [("unsure pair", True)]
    result = compared(tensight, tmp_path, {"one": noise(30, 4)}, {"eins": noise(30, 4) * np.float32(1.1)})
    assert result["findings"] == []
