"""Each format, as its own framework writes it, is read as the data that it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tensight.checkpoints import Checkpoint, open_checkpoint
from tensight.checkpoints.content import Box
from tensight.errors import CheckpointError

Run = Callable[..., Any]
BASE = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
TENSORS: dict[str, torch.Tensor] = {
    "float32": BASE,
    "float64": BASE.double() / 3,
    "half": (BASE / 7).half(),
    "bfloat16": (BASE / 7).bfloat16(),
    "float8": (BASE / 7).to(torch.float8_e4m3fn),
    "integers": BASE.long(),
    "bytes": BASE.to(torch.uint8),
    "truth": BASE > 20,
    "complex": torch.complex(BASE, -BASE),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
    "not finite": torch.tensor([float("nan"), float("inf"), -float("inf")]),
}
VIEWS: dict[str, torch.Tensor] = {
    "transposed": BASE[0].t(),
    "part": BASE[1:, ::2],
    "tail": BASE.flatten()[7:],
    "channels last": torch.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "parameter": torch.nn.Parameter(BASE[0, 0].clone()),
}


def values_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the elements of a tensor in C order as bytes."""
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)


def assert_holds(checkpoint: Checkpoint, tensors: dict[str, torch.Tensor], prefix: str = "") -> None:
    for name, tensor in tensors.items():
        entry = checkpoint.entries[prefix + name]
        assert entry.shape == tuple(tensor.shape), name
        assert entry.dtype.name == str(tensor.dtype).removeprefix("torch."), name
        assert entry.read().view(np.uint8).tobytes() == values_of(tensor).tobytes(), name
        # also from the middle
        half = entry.size // 2
        assert entry.read(half).tobytes() == entry.read()[half:].tobytes(), name


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "before 1.6"])
def test_what_pytorch_saves_is_read_as_data(tmp_path: Path, is_zip: bool) -> None:
    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.25)
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    content = {
        "model": TENSORS | VIEWS | {"again": BASE},
        "optimizer": optimizer.state_dict(),
        "numpy": {"array": np.arange(6.0).reshape(2, 3), "number": np.float32(1.5)},
        "others": {"step": 7, "name": "run", "flags": (True, None), "dtype": torch.float16, "size": torch.Size([2, 3])},
    }
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    with open_checkpoint(str(path)) as checkpoint:
        assert_holds(checkpoint, TENSORS | VIEWS, "model.")
        state = optimizer.state_dict()["state"][0]
        assert_holds(
            checkpoint, {name: state[name] for name in ("exp_avg", "exp_avg_sq", "step")}, "optimizer.state.0."
        )
        assert checkpoint.values["optimizer.param_groups.0.lr"] == 0.25
        assert checkpoint.entries["numpy.array"].read().tolist() == [0, 1, 2, 3, 4, 5]
        assert checkpoint.entries["numpy.number"].read().tolist() == [1.5]
        others = {name: checkpoint.values[f"others.{name}"] for name in ("step", "name", "flags.0", "dtype", "size.1")}
        assert others == {"step": 7, "name": "run", "flags.0": True, "dtype": "torch.float16", "size.1": 3}
        assert ("model.float32", "model.again") in checkpoint.tied
        assert checkpoint.problems == []


def test_a_file_of_one_tensor_is_a_checkpoint(tmp_path: Path) -> None:
    torch.save(BASE, tmp_path / "weights.bin")
    with open_checkpoint(str(tmp_path / "weights.bin")) as checkpoint:
        assert_holds(checkpoint, {"tensor": BASE})


def test_safetensors_are_read_whole_in_shards_and_as_a_folder(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    tensors = {name: tensor.contiguous() for name, tensor in TENSORS.items()}
    save_file(tensors, tmp_path / "one.safetensors", metadata={"format": "pt", "note": "a text"})
    with open_checkpoint(str(tmp_path / "one.safetensors")) as checkpoint:
        assert_holds(checkpoint, tensors)
        assert checkpoint.values["__metadata__.note"] == "a text"
    folder = tmp_path / "model"
    folder.mkdir()
    where = {name: f"model-{index % 2}.safetensors" for index, name in enumerate(tensors)}
    for shard in set(where.values()):
        save_file({name: tensors[name] for name in tensors if where[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    for path in (folder, folder / "model.safetensors.index.json"):
        with open_checkpoint(str(path)) as checkpoint:
            assert_holds(checkpoint, tensors)
            assert checkpoint.files == ("model-0.safetensors", "model-1.safetensors")
    (folder / "model-1.safetensors").unlink()
    with open_checkpoint(str(folder)) as checkpoint:
        missing = {problem.where for problem in checkpoint.problems}
        assert missing == {
            "model-1.safetensors",
            *(name for name, shard in where.items() if shard.startswith("model-1")),
        }


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_numpy_are_read(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays = {
        "matrix": np.arange(12.0).reshape(3, 4),
        "many": np.tile(np.arange(999, dtype=np.int16), 900),
        "big-endian": np.arange(5, dtype=">f4"),
        "scalar": np.float64(3),
    }
    if save is np.savez:
        arrays["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save(tmp_path / "arrays.npz", **arrays)
    with open_checkpoint(str(tmp_path / "arrays.npz")) as checkpoint:
        for name, array in arrays.items():
            assert np.array_equal(checkpoint.entries[name].read(), array.ravel()), name
        assert np.array_equal(checkpoint.entries["many"].read(500_000, 9), arrays["many"][500_000:500_009])
        assert checkpoint.entries["many"].read(3, 1) == 3  # backwards, too


@pytest.fixture
def sharded(unpacked: Callable[[str], Path]) -> Path:
    """A checkpoint that two processes wrote with torch.distributed.checkpoint."""
    return unpacked("checkpoints") / "sharded"


def test_a_sharded_checkpoint_of_two_processes_is_put_together(sharded: Path) -> None:
    with open_checkpoint(str(sharded)) as checkpoint:
        assert (checkpoint.format, checkpoint.files) == ("PyTorch, distributed", ("__0_0.distcp", "__1_0.distcp"))
        assert_holds(
            checkpoint,
            {
                "rows": torch.arange(70.0).reshape(7, 10),
                "columns": torch.arange(48.0).reshape(2, 4, 6).bfloat16(),
                "whole": torch.arange(70.0).reshape(7, 10),
            },
            "model.",
        )
        rows = checkpoint.entries["model.rows"]
        assert all(rows.read(start, 13).tolist() == list(range(start, start + 13)) for start in range(57))
        columns = checkpoint.entries["model.columns"]
        assert all(columns.read(start, 11).tolist() == list(range(start, start + 11)) for start in range(37))
        assert checkpoint.values["step"] == 12


def test_a_sharded_checkpoint_is_compared_with_one_that_is_not_and_file_by_file(
    tensight: Run, sharded: Path, tmp_path: Path
) -> None:
    whole = {
        "model": {
            "rows": torch.arange(70.0).reshape(7, 10),
            "columns": torch.arange(48.0).reshape(2, 4, 6).bfloat16(),
            "whole": torch.arange(70.0).reshape(7, 10),
        },
        "step": 12,
    }
    torch.save(whole, tmp_path / "whole.pt")
    outcome = tensight("compare", "checkpoints", sharded, tmp_path / "whole.pt", "--json")
    assert (outcome.code, json.loads(outcome.out)["verdict"]) == (0, "same")
    # All that the second process wrote moves, and nothing that the first wrote.
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in sharded.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    with open_checkpoint(str(sharded)) as checkpoint:
        boxes = [box for name in ("model.rows", "model.columns") for box in checkpoint.entries[name].content.boxes]
        boxes.append(Box((), (), checkpoint.entries["model.whole"].content))
    data = bytearray((moved / "__1_0.distcp").read_bytes())
    for box in boxes:
        if box.content.file.path.endswith("__1_0.distcp"):
            start = box.content.offset
            data[start : start + box.content.size_bytes] = bytes(box.content.size_bytes)
    (moved / "__1_0.distcp").write_bytes(data)
    outcome = tensight("compare", "checkpoints", sharded, moved, "--json")
    findings = {finding["kind"]: finding["text"] for finding in json.loads(outcome.out)["findings"]}
    assert outcome.code == 1
    assert "__1_0.distcp" in findings["differing shard"]
    assert "__0_0.distcp" in findings["stale shard"]


def test_a_missing_shard_of_a_sharded_checkpoint_is_told(sharded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    copy.mkdir()
    for name in (".metadata", "__0_0.distcp"):
        (copy / name).write_bytes((sharded / name).read_bytes())
    with pytest.raises(CheckpointError, match=r"__1_0\.distcp"):
        open_checkpoint(str(copy))
    data = (sharded / "__1_0.distcp").read_bytes()
    (copy / "__1_0.distcp").write_bytes(data[:-1])
    with open_checkpoint(str(copy)) as checkpoint:
        (problem,) = checkpoint.problems
        assert "cut off" in problem.what
        assert problem.where not in checkpoint.entries


@pytest.fixture
def mindspore(unpacked: Callable[[str], Path]) -> Path:
    """A folder of checkpoints that MindSpore wrote."""
    return unpacked("checkpoints") / "mindspore"


def test_checkpoints_of_mindspore_are_read(mindspore: Path) -> None:
    truth = np.load(mindspore / "net.npz")
    with open_checkpoint(str(mindspore / "net.ckpt")) as checkpoint:
        assert set(truth) <= set(checkpoint.entries)
        for name in truth:
            assert np.array_equal(checkpoint.entries[name].read(), truth[name].ravel()), name
        assert max(truth[name].nbytes for name in truth) > 2048  # in several parts
        assert checkpoint.values["note"] == "a text"
        assert checkpoint.entries["epoch_num"].read() == 3
    with open_checkpoint(str(mindspore / "few.ckpt")) as checkpoint:
        bfloat16 = checkpoint.entries["bfloat16"]
        assert (bfloat16.dtype, bfloat16.shape) == (np.dtype(ml_dtypes.bfloat16), (2, 3))
        assert bfloat16.read().tolist() == [0, 1, 2, 3, 4, 5]
        assert (checkpoint.entries["scalar"].shape, checkpoint.entries["truth"].read().tolist()) == ((), [True, False])


def test_a_folder_of_a_trainer_is_read_with_what_lies_beside_the_weights(tmp_path: Path) -> None:
    import random

    from safetensors.torch import save_file

    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.25)
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    save_file(layer.state_dict(), tmp_path / "model.safetensors")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}  # noqa: NPY002
    torch.save(states, tmp_path / "rng_state.pth")
    torch.save(layer, tmp_path / "training_args.bin")  # an object, as the trainer's is
    with open_checkpoint(str(tmp_path)) as checkpoint:
        assert checkpoint.files == ("model.safetensors", "optimizer.pt", "rng_state.pth")
        assert_holds(checkpoint, dict(layer.state_dict()))
        assert_holds(checkpoint, {"exp_avg": optimizer.state_dict()["state"][0]["exp_avg"]}, "optimizer.state.0.")
        assert checkpoint.values["optimizer.param_groups.0.lr"] == 0.25
        assert checkpoint.values["rng_state.python.1.length"] == 625
        assert checkpoint.entries["rng_state.numpy.1"].shape == (624,)
        assert checkpoint.problems == []


def test_the_cache_of_hugging_face_is_read_through_its_links(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    save_file({"weight": BASE}, blobs / "abc")
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    with open_checkpoint(str(snapshot)) as checkpoint:
        assert_holds(checkpoint, {"weight": BASE})


def test_a_link_that_leaves_the_folder_is_not_followed(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": BASE}, tmp_path / "secret.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").symlink_to("../secret.safetensors")
    with pytest.raises(CheckpointError):
        open_checkpoint(str(folder))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"weight": "../secret.safetensors"}})
    )
    with pytest.raises(CheckpointError, match="not the name of a file in this folder"):
        open_checkpoint(str(folder))
