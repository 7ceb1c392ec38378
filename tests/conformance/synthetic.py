"""Dumps made by hand from a real one, for rules that no network shows: missing history, odd dtypes, several ranks …

`build(name, real, target)` writes one of `SYNTHETIC` into `target`. Values are plain arithmetic, so both sides of the
comparison build the same dump, whenever and with whatever NumPy. Runs on Python 3.9 too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAME = re.compile(r"^(?P<op>.+)\.0\.0\.(?P<time>\d+)\.(?P<io>input|output)\.(?P<slot>\d+)\.DefaultFormat\.npy$")
NET = "Sick"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


def outputs(rank_folder: str, iteration: int) -> list[str]:
    """Paths of an iteration's output files by operator name."""
    folder = os.path.join(rank_folder, NET, "0", str(iteration))
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if ".output." in name)


def copy_rank(real: str, target: str, rank: int) -> str:
    """Copy rank 0 of a real dump without the operators' inputs, with the files of every iteration."""

    def inputs(_: str, names: list[str]) -> set[str]:
        return {name for name in names if ".input." in name}

    folder = os.path.join(target, f"rank_{rank}")
    shutil.copytree(os.path.join(real, "rank_0"), folder, ignore=inputs)
    return folder


def history(rank_folder: str, iterations: list[int] | None) -> None:
    path = os.path.join(rank_folder, "execution_order", "ms_global_execution_order_graph_0.csv")
    os.remove(path)
    if iterations is not None:
        with open(path, "w") as file:
            file.write("".join(f"{iteration}\n" for iteration in iterations))


def remove(rank_folder: str, iteration: int, pattern: str) -> None:
    """Remove output files by a regular expression over their names; it must match something."""
    found = [path for path in outputs(rank_folder, iteration) if re.search(pattern, os.path.basename(path))]
    assert found, pattern
    for path in found:
        os.remove(path)


# --- arrays of every kind, by iteration -----------------------------------------------------------


def ramp(dtype: str, iteration: int) -> Any:
    """0, 1, 2, … shifted and scaled by the iteration; unsigned kinds start at 0."""
    values = np.arange(24) - (0 if dtype.startswith("u") else 11)
    return (values * (iteration + 1)).astype(dtype).reshape(2, 3, 4)


def constant(dtype: str, _: int) -> Any:
    return (np.arange(6) % 3).astype(dtype)


def extreme(dtype: str, iteration: int, end: str) -> Any:
    """The largest or the smallest number of a dtype, and small ones (of both, the mean would be mere rounding)."""
    info: Any = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(dtype)
    return np.array([getattr(info, end), 0, iteration], dtype=dtype)


def with_values(base: Callable[[int], Any], **values_of: Any) -> Callable[[int], Any]:
    """The base array with some elements replaced in the named iterations: `i2={0: nan}`."""

    def array(iteration: int) -> Any:
        found = base(iteration).copy()
        for index, value in values_of.get(f"i{iteration}", {}).items():
            found.reshape(-1)[index] = value
        return found

    return array


def kinds() -> Iterator[Callable[[int], Any]]:
    """One function of the iteration for every kind of tensor.

    A dtype that changes between iterations is left out: the original reads the previous value beyond its end then.
    """
    nan, inf = float("nan"), float("inf")
    for dtype in (*INTEGERS, *FLOATS):
        yield lambda i, d=dtype: ramp(d, i)
        yield lambda i, d=dtype: constant(d, i)
        yield lambda i, d=dtype: extreme(d, i, "max")
        yield lambda i, d=dtype: extreme(d, i, "min")
    for dtype in FLOATS:

        def base(iteration: int, d: str = dtype) -> Any:
            return ramp(d, iteration)

        yield with_values(base, i2={3: nan})
        yield with_values(base, i1={5: inf}, i3={5: -inf})
        yield with_values(base, i0={0: -inf}, i1={0: nan, 1: inf}, i2={0: inf, 1: -inf})
        yield lambda _, d=dtype: np.full((3, 2), nan, d)
        yield lambda _, d=dtype: np.array([0.0, -0.0, 0.0, -0.0], d)
        yield lambda i, d=dtype: np.array(0.5 * i - 0.5, d)
        yield lambda i, d=dtype: np.array([np.finfo(d).tiny, 0, -np.finfo(d).tiny * (i + 1)], d)
        yield lambda i, d=dtype: np.array([[1.5 + i]], d)
    yield lambda i: (np.arange(10) + i) % 3 == 0
    yield lambda _: np.ones((2, 2), bool)
    yield lambda i: np.array(i % 2 == 0)
    yield lambda i: np.array(i, np.int32)
    yield lambda i: np.array(7, np.int64) if i else np.array(8, np.int64)
    yield lambda i: np.arange(6 + 2 * i, dtype=np.float32)  # another size in every iteration
    yield lambda i: np.arange(12, dtype=np.float32).reshape((3, 4) if i % 2 else (4, 3))  # another shape, the same size
    yield lambda _: np.zeros((0,), np.float32)
    yield lambda i: np.zeros((i, 3), np.float32)  # empty in iteration 0 only
    yield lambda i: np.arange(30_000, dtype=np.float32) % 1000 - 100 * i  # larger than the original's chunks
    yield lambda i: (np.arange(25_000, dtype=np.int64) % 7 == i).astype(np.int16)
    yield lambda i: np.where(np.arange(1000) < 10**i, 0, 1).astype(np.float32)  # 0.1, 1, 10, 100 per cent of zeros
    yield lambda i: np.full(1000, 16777217 + i, np.float64) + np.arange(1000) * 2.0**-20  # large mean, small spread
    # Changes that sit exactly on atol + rtol * |previous| (0.5 + 0.25 * 2) and one step of float64 beyond.
    yield lambda i: np.full(4, (2.0, 3.0, 3.0 + 1.25, 3.0)[i], np.float64)


def write_kinds(rank_folder: str) -> None:
    """Give each operator's output (and parameter) the next kind of tensor, over again when there are more operators."""
    makers = list(kinds())
    for iteration in range(4):
        for number, path in enumerate(outputs(rank_folder, iteration)):
            np.save(path, makers[number % len(makers)](iteration), allow_pickle=False)


# --- the dumps ------------------------------------------------------------------------------------


def dtypes(real: str, target: str) -> None:
    """Every dtype and kind of content."""
    write_kinds(copy_rank(real, target, 0))


def no_history(real: str, target: str) -> None:
    """The file that says which iterations ran is missing."""
    history(copy_rank(real, target, 0), None)


def gap(real: str, target: str) -> None:
    """Iteration 1 ran but was not dumped; in iteration 2 some tensors are missing.

    The parameter is one without moments: looking for missing values, the original
    takes a file of `moments.network.x` for one of `network.x`.
    """
    rank = copy_rank(real, target, 0)
    shutil.rmtree(os.path.join(rank, NET, "0", "1"))
    remove(rank, 2, r"^(Log|Concat)\.|^Parameter\.network\.gate\.weight")


def rare_history(real: str, target: str) -> None:
    """Iterations 0, 2 and 3 ran (training skipped a number): the one before 2 is 0."""
    rank = copy_rank(real, target, 0)
    shutil.rmtree(os.path.join(rank, NET, "0", "1"))
    history(rank, [0, 2, 3])


def trailing(real: str, target: str) -> None:
    """One iteration more on disk than in the history, as in sink mode."""
    history(copy_rank(real, target, 0), [0, 1, 2])


def contradicting_history(real: str, target: str) -> None:
    """Iterations on disk that the history does not know."""
    history(copy_rank(real, target, 0), [0, 3])


def ranks(real: str, target: str) -> None:
    """Ranks 0, 2 and 10 with other values, other iterations and missing files."""
    copy_rank(real, target, 0)
    for rank in (2, 10):
        folder = copy_rank(real, target, rank)
        for iteration in range(4):
            for path in outputs(folder, iteration):
                values = np.load(path, allow_pickle=False)
                if values.dtype.kind == "f":
                    np.save(path, values * np.asarray(rank, values.dtype), allow_pickle=False)
    shutil.rmtree(os.path.join(target, "rank_2", NET, "0", "3"))
    remove(os.path.join(target, "rank_10"), 1, r"^Log\.")
    for name in os.listdir(os.path.join(target, "rank_10", NET, "0", "constants")):
        os.remove(os.path.join(target, "rank_10", NET, "0", "constants", name))


def repeats(real: str, target: str) -> None:
    """Two tensors dumped three times in one iteration, with other values and sizes, the newest in the middle."""
    rank = copy_rank(real, target, 0)
    for iteration in (1, 2):
        for path in outputs(rank, iteration):
            match = NAME.match(os.path.basename(path))
            assert match
            if not match["op"].startswith(("ReLU.ReLU-op126", "Conv2D.Conv2D-op125")):
                continue
            values = np.load(path, allow_pickle=False)
            for later, factor in ((900, 3), (-5000, 50)):
                name = os.path.basename(path).replace(match["time"], str(int(match["time"]) + later))
                kept = 4 if factor == 3 else 2
                np.save(os.path.join(os.path.dirname(path), name), (values * factor)[:kept], allow_pickle=False)


def inputs_only(real: str, target: str) -> None:
    """Inputs only were dumped (input_output 1): MindSpore then writes no outputs, parameters or constants."""
    rank = os.path.join(target, "rank_0")
    shutil.copytree(os.path.join(real, "rank_0"), rank)
    shutil.rmtree(os.path.join(rank, NET, "0", "constants"))
    for iteration in range(4):
        remove(rank, iteration, "output")
    path = os.path.join(rank, ".dump_metadata", "data_dump.json")
    with open(path) as file:
        config = json.load(file)
    config["common_dump_settings"]["input_output"] = 1
    with open(path, "w") as file:
        json.dump(config, file)


STATISTIC_TITLES = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,Count,"
    "Negative Zero Count,Positive Zero Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)


def statistics(real: str, target: str) -> None:
    """Ranks 0 and 2 with statistic.csv, as Ascend writes it up to MindSpore 2.2; iteration 3 of rank 2 has none."""
    for rank in (0, 2):
        folder = copy_rank(real, target, rank)
        for iteration in range(4):
            if (rank, iteration) != (2, 3):
                path = os.path.join(folder, NET, "0", str(iteration), "statistic.csv")
                with open(path, "w") as file:
                    file.write("\n".join([STATISTIC_TITLES, *statistic_lines(rank, iteration)]) + "\n")


def statistic_lines(rank: int, iteration: int) -> Iterator[str]:
    """Rows around the limits: the overflow value, NaN and Inf counts, one tensor twice, one in one iteration only."""
    operators = ("Conv2D-op125", "ReLU-op126", "Log-op144", "MatMul-op141")
    for number, name in enumerate(operators):
        kind = name.split("-")[0]
        for io, slot in (("input", 0), ("input", 1), ("output", 0)):
            top = (65500.0, 65500.5, 1e30, 12.5)[(number + iteration) % 4]
            low = (-3.25, -65500.0, -70000.0, 0.0)[(number + slot + rank) % 4]
            counts = (
                24,
                1,
                2,
                iteration if number == 2 else 0,
                rank if number == 1 else 0,
                int(number == 3 and iteration == 1),
                3,
            )
            cells = ",".join(str(count) for count in counts)
            yield f'{kind},{name},0,{number},16899{iteration},{io},{slot},96,float32,"(2,3,4,)",{top},{low},0.5,{cells}'
    if iteration == 1:
        yield 'Log,Log-op144,0,2,168991,output,0,4,float32,"()",inf,-inf,nan,1,0,0,0,1,0,0'
        yield 'Cast,Cast-op130,7,1,168991,output,0,64,float16,"(4,8,)",3.402823e+38,1e-05,-0.0,32,5,27,0,0,0,0'


SYNTHETIC: dict[str, Callable[[str, str], None]] = {
    "dtypes": dtypes,
    "no-history": no_history,
    "gap": gap,
    "rare-history": rare_history,
    "trailing": trailing,
    "contradicting-history": contradicting_history,
    "ranks": ranks,
    "repeats": repeats,
    "inputs-only": inputs_only,
    "statistics": statistics,
}


def build(name: str, real: str, target: str) -> None:
    os.makedirs(target)
    SYNTHETIC[name](real, target)
