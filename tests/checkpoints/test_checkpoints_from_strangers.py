"""Checkpoints that hold code, are damaged, or lie about their sizes: one clear error, and nothing is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.checkpoints import open_checkpoint
from tensight.compare.checkpoint_health import check_checkpoint
from tensight.errors import CheckpointError, TensightError

Run = Callable[..., Any]


def refused(path: Path) -> str:
    """Return why a checkpoint is refused."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(path))
    return str(caught.value)


class Command:
    """What would run a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def zipped(path: Path, pickled: bytes, *, compression: int = zipfile.ZIP_STORED, **more: bytes) -> Path:
    """Write a file as torch.save does, with a pickle of our own."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        for name, data in more.items():
            archive.writestr(f"archive/data/{name}", data)
    return path


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_that_would_run_a_command_is_refused_by_name_and_runs_nothing(
    tensight: Run, tmp_path: Path, is_zip: bool
) -> None:
    ran = tmp_path / "ran"
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(2), "more": Command(f"touch {ran}")}, path, _use_new_zipfile_serialization=is_zip)
    for command in (("check", "checkpoint", path), ("compare", "checkpoints", path, path)):
        outcome = tensight(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert "'posix.system'" in outcome.err
        assert outcome.err.count("\n") == 1
    assert not ran.exists()
    torch.load(path, weights_only=False)  # it is what it is said to be
    assert ran.exists()


def test_a_plain_pickle_and_the_metadata_of_a_folder_run_nothing_either(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "model.bin").write_bytes(pickle.dumps(Command(f"touch {ran}")))
    assert "'posix.system'" in refused(tmp_path / "model.bin")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Command(f"touch {ran}")))
    assert "'posix.system'" in refused(folder)
    assert not ran.exists()


PICKLES: dict[str, bytes] = {
    "a class by INST": b"(ios\nsystem\n.",
    "a class by OBJ": b"(cos\nsystem\no.",
    "an extension": b"\x80\x02\x82\x01.",
    "memory from outside": b"\x80\x05\x97.",
    "getattr": b"c__builtin__\ngetattr\n.",
    "eval": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
    "import": b"cbuiltins\n__import__\n.",
    "a method of a class that is allowed": b"ccollections\nOrderedDict.fromkeys\n.",
    "a function of PyTorch that loads": b"ctorch\nload\n.",
    "a call of a name that is no function": b"ctorch\nfloat32\n)R.",
    "a call of a number": b"K\x01)R.",
    "a state for a function": b"ccollections\nOrderedDict\n}b.",
    "a list as a key": b"}]K\x01s.",
    "nested tuples as a key": b"}(" + b")" + b"\x85" * 100_000 + b"K\x01u.",
    "no end": b"}",
    "nothing on the stack": b".",
    "a memo that is not there": b"h\x07.",
    "a number of 2 GB": b"\x8b\xff\xff\xff\x7f.",
    "a text of 4 GB": b"X\xff\xff\xff\xff.",
    "a list in itself": b"]q\x00h\x00a.",
    "lists that double": b"]q\x00" + b"".join(b"]q%c(h%ch%ce" % (n + 1, n, n) for n in range(60)) + b".",
    "a long list in a long list, many times": b"]q\x00(" + b"N" * 50_000 + b"e](" + b"h\x00" * 50_000 + b"e.",
    "deep lists": b"]" * 5_000 + b"a" * 4_999 + b".",
    "a tensor without a storage": b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00(K\x02t(K\x01tI00\nNtR.",
    "a set of lists": b"\x8f(]\x90.",
    "a device of parts": b"ctorch\ndevice\n(]tR)R.",
}


@pytest.mark.parametrize("pickled", PICKLES.values(), ids=PICKLES)
def test_a_pickle_that_is_no_data_is_refused(tmp_path: Path, pickled: bytes) -> None:
    assert refused(zipped(tmp_path / "model.pt", pickled))


def tensor(size: int, stride: int, offset: int = 0, storage: int = 4) -> bytes:
    """Return a pickle of ``{"w": tensor}``."""
    return (
        b"}X\x01\x00\x00\x00w"
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
        + b"X\x03\x00\x00\x00cpu"
        + b"J"
        + struct.pack("<i", storage)
        + b"tQJ"
        + struct.pack("<i", offset)
        + b"(J"
        + struct.pack("<i", size)
        + b"t(J"
        + struct.pack("<i", stride)
        + b"t\x89}tRs."
    )


@pytest.mark.parametrize(
    ("size", "stride", "offset"),
    [(5, 1, 0), (4, 1, 1), (2, 4, 0), (2**30, 0, 0), (2**31 - 1, 2**31 - 1, 2**31 - 1), (4, -1, 3), (-1, 1, 0)],
)
def test_a_tensor_that_reaches_out_of_its_storage_is_not_read(
    tmp_path: Path, size: int, stride: int, offset: int
) -> None:
    good = zipped(tmp_path / "good.pt", tensor(4, 1), **{"0": np.arange(4, dtype=np.float32).tobytes()})
    with open_checkpoint(str(good)) as checkpoint:
        assert checkpoint.entries["w"].read().tolist() == [0, 1, 2, 3]
    bad = tensor(size, stride, offset)
    assert refused(zipped(tmp_path / "bad.pt", bad, **{"0": np.arange(4, dtype=np.float32).tobytes()}))


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "bomb.pt", b"}.", compression=zipfile.ZIP_DEFLATED, zeros=bytes(10_000_000))
    assert "compressed" in refused(bomb)
    arrays = tmp_path / "bomb.npz"
    np.savez_compressed(arrays, zeros=np.zeros(1000))
    data = bytearray(arrays.read_bytes())
    for mark, at in ((b"PK\1\2", 24), (b"PK\3\4", 22)):  # a size that it never has
        place = data.rindex(mark) + at
        data[place : place + 4] = struct.pack("<I", 2**32 - 2)
    arrays.write_bytes(data)
    assert "is refused" in refused(arrays)


def test_two_members_of_one_name_and_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3.0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", buffer.getvalue())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("w.npy", buffer.getvalue())
    assert "two files" in refused(path)
    np.savez(path, a=np.arange(3.0), b=np.arange(3.0))
    data = bytearray(path.read_bytes())
    first, second = data.index(b"PK\1\2"), data.rindex(b"PK\1\2")
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    path.write_bytes(data)
    assert "overlaps another" in refused(path)


def safetensors(header: object, data: bytes = bytes(64)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(begin: int, end: int, shape: object = None, dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


SAFETENSORS: dict[str, bytes] = {
    "empty": b"",
    "a header larger than the file": struct.pack("<Q", 2**40) + b"{}",
    "a header larger than the format allows": struct.pack("<Q", 100_000_001) + bytes(100_000_001),
    "a list": safetensors([]),
    "nested": safetensors(b"[" * 100_000),
    "no JSON": safetensors(b"{'a': 1}"),
    "a name twice": safetensors(b'{"a":%b,"a":%b}' % ((json.dumps(entry(0, 4)).encode(),) * 2)),
    "overlapping": safetensors({"a": entry(0, 8), "b": entry(4, 12)}),
    "out of the file": safetensors({"a": entry(0, 68)}),
    "backwards": safetensors({"a": entry(8, 4, [1])}),
    "negative": safetensors({"a": entry(-4, 4)}),
    "another size": safetensors({"a": entry(0, 8, [3])}),
    "a shape beyond 64 bits": safetensors({"a": entry(0, 8, [2**63, 2**63])}),
    "a negative shape": safetensors({"a": entry(0, 4, [-1, -1])}),
    "no shape": safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}),
    "a number": safetensors({"a": 5}),
    "too many brackets": safetensors(b'{"a":[' + b"[]," * 3_000_000 + b"[]]}"),
}


@pytest.mark.parametrize("data", SAFETENSORS.values(), ids=SAFETENSORS)
def test_safetensors_that_lie_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    assert refused(path)


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + struct.pack("B", len(content)) + content


def parameter(tag: bytes, size: int = 4, dims: bytes = b"\x08\x01") -> bytes:
    tensor = dims + message(2, b"Float32") + message(3, bytes(size))
    return message(1, message(1, tag) + message(2, tensor))


MINDSPORE: dict[str, bytes] = {
    "nothing": b"",
    "noise": bytes(range(256)),
    "a name twice": parameter(b"a") + parameter(b"b") + parameter(b"a"),
    "another size": parameter(b"a", size=8),
    "a shape beyond 64 bits": parameter(b"a", dims=b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    "cut off": parameter(b"a")[:-1],
    "no tensor": message(1, message(1, b"a")),
}


@pytest.mark.parametrize("data", MINDSPORE.values(), ids=MINDSPORE)
def test_checkpoints_of_mindspore_that_lie_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.ckpt"
    path.write_bytes(data)
    assert refused(path)


@pytest.fixture(scope="module")
def real_files(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> dict[str, bytes]:
    """Real files of each format by their names."""
    from safetensors.numpy import save

    folder = tmp_path_factory.mktemp("real")
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    content = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "part": torch.arange(12.0)[::2]}
    torch.save(content, folder / "new.pt")
    torch.save(content, folder / "old.pt", _use_new_zipfile_serialization=False)
    np.savez(folder / "plain.npz", a=np.arange(6.0).reshape(2, 3), b=np.asfortranarray(np.ones((2, 2))))
    np.savez_compressed(folder / "packed.npz", a=np.arange(600.0))
    (folder / "some.safetensors").write_bytes(save({"a": np.arange(6.0), "b": np.ones((2, 2), np.float32)}))
    real = unpacked("checkpoints")
    paths = [*folder.iterdir(), real / "mindspore" / "net.ckpt", *(real / "sharded").iterdir()]
    return {path.name: path.read_bytes() for path in sorted(paths)}


SHARDED = (".metadata", "__0_0.distcp", "__1_0.distcp")
EDITS = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8), st.integers(0, 40)), min_size=1, max_size=4)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_whatever_happens_to_a_checkpoint_it_is_read_or_refused(
    real_files: dict[str, bytes], data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(real_files)))
    content = real_files[name]
    for place, new, removed in data.draw(EDITS):
        start = int(place * len(content))
        content = content[:start] + new + content[start + removed :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        if name in SHARDED:
            for other in SHARDED:
                (Path(folder) / other).write_bytes(real_files[other])
        path.write_bytes(content)
        try:
            with open_checkpoint(str(path.parent if name in SHARDED else path)) as checkpoint:
                if checkpoint.size_bytes < 10_000_000:
                    check_checkpoint(checkpoint, threads=1)
        except TensightError:
            pass
