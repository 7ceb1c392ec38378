"""The modes, running statistics and ties of MindSpore's cells, and the data sets of a training."""

from __future__ import annotations

import math
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from mindspore import nn

from tensight.agents.core.live_instances import live_instances
from tensight.agents.facts.samples import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tensight.agents.mindspore.facts.reading import Reading

MOST_MODULES = 5000
_MOST_TIES = 20
_STATISTICS = ("moving_mean", "running_mean")
_TABLES = ("embedding_table", "weight")


def module_rows(networks: Iterable[tuple[str, nn.Cell]], held: set[int], reading: Reading) -> list[dict[str, Any]]:
    """Return the rows of ``modules``: those with a mode that matters.

    Parameters
    ----------
    networks : iterable of (str, Cell)
        With their names.
    held : set of int
        Identities of the parameters that optimizers update.
    reading : Reading
    """
    rows: list[dict[str, Any]] = []
    for label, network in networks:
        cells = {path: cell for path, cell in network.cells_and_names() if not isinstance(cell, nn.Optimizer)}
        for path, cell in cells.items():
            rate, statistics = _rate(cell), _statistics(cell)
            if rate is None and statistics is None:
                continue
            parent_path = path.rpartition(".")[0]
            parent = cells.get(parent_path, network)
            trained = [weight for weight in cell.get_parameters() if weight is not statistics]
            trained = [weight for weight in trained if not weight.name.endswith(("_mean", "_variance", "_var"))]
            row: dict[str, Any] = {
                "name": path or label,
                "type": type(cell).__name__,
                "is_training": acts_in_training(cell),
                "parent_is_training": bool(parent.training),
                "is_trained": any(id(weight) in held for weight in trained or parent.get_parameters()),
                "rate": math.nan if rate is None else rate,
                "has_weights": bool(trained),
                "is_fixed": not any(weight.requires_grad for weight in trained),
            }
            if statistics is not None:
                momentum = getattr(cell, "momentum", None)
                row |= {
                    "has_statistics": True,
                    "statistics": fingerprint([reading.sample(statistics)]),
                    "momentum": float(momentum) if isinstance(momentum, (int, float)) else math.nan,
                }
            rows.append(row)
            if len(rows) >= MOST_MODULES:
                return rows
    return rows


def acts_in_training(cell: nn.Cell) -> bool:
    """Whether a cell itself computes as in training."""
    fixed = getattr(cell, "use_batch_statistics", None)
    return bool(cell.training) if fixed is None else bool(fixed)


def changes_in_training(network: nn.Cell) -> bool:
    """Whether a call of a network drops elements, or moves statistics."""
    return any(
        acts_in_training(cell) and (bool(_rate(cell)) or _statistics(cell) is not None)
        for _, cell in network.cells_and_names()
    )


def _rate(cell: nn.Cell) -> float | None:
    """Return the probability with which a cell drops elements; None if it never does."""
    if "drop" not in type(cell).__name__.lower():
        return None
    probability, kept = getattr(cell, "p", None), getattr(cell, "keep_prob", None)
    if isinstance(probability, (int, float)):
        return float(probability)
    return 1 - float(kept) if isinstance(kept, (int, float)) else None


def _statistics(cell: nn.Cell) -> Any:
    """Return the running mean of a cell; None if it has none."""
    parameters = cell._params
    return next((parameters[name] for name in _STATISTICS if parameters.get(name) is not None), None)


# --- ties ---


class Ties:
    """Pairs of an embedding and an output layer that begin equal.

    Parameters
    ----------
    networks : iterable of Cell
    reading : Reading
    """

    def __init__(self, networks: Iterable[nn.Cell], reading: Reading) -> None:
        self._reading = reading
        self._pairs: list[tuple[str, weakref.ref[Any], weakref.ref[Any]]] = []
        for network in networks:
            embeddings, outputs = [], []
            for _, cell in network.cells_and_names():
                kind = type(cell).__name__
                weight = next((cell._params[name] for name in _TABLES if cell._params.get(name) is not None), None)
                if weight is None or len(weight.shape) != 2:
                    continue
                if "Embedding" in kind:
                    embeddings.append(weight)
                elif kind in ("Dense", "Linear"):
                    outputs.append(weight)
            self._compare(embeddings, outputs)

    def _compare(self, embeddings: Sequence[Any], outputs: Sequence[Any]) -> None:
        for weight in embeddings:
            for other in outputs:
                if other is not weight and tuple(other.shape) == tuple(weight.shape) and self._equal(weight, other):
                    self._add("equal", weight, other)
        for at, weight in enumerate(outputs):
            for other in outputs[at + 1 :]:
                is_swapped = tuple(weight.shape) == tuple(other.shape)[::-1] and weight.shape[0] != weight.shape[1]
                if is_swapped and self._equal(weight, other, is_transposed=True):
                    self._add("transposed", weight, other)

    def _add(self, kind: str, first: Any, second: Any) -> None:
        if len(self._pairs) < _MOST_TIES:
            self._pairs.append((kind, weakref.ref(first), weakref.ref(second)))

    def _equal(self, first: Any, second: Any, *, is_transposed: bool = False) -> bool:
        a, b = self._reading.array(first), self._reading.array(second)
        if a is None or b is None or not a.any():
            return False
        return bool(np.array_equal(a, b.T if is_transposed else b))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of ``ties``."""
        for kind, first_reference, second_reference in self._pairs:
            first, second = first_reference(), second_reference()
            if first is None or second is None:
                continue
            yield {
                "name": f"{first.name} = {second.name}",
                "first": first.name,
                "second": second.name,
                "kind": kind,
                "is_tied": False,
                "is_equal": self._equal(first, second, is_transposed=kind == "transposed"),
                "is_trained": bool(first.requires_grad and second.requires_grad),
            }


# --- data sets ---


def longest_data_set() -> tuple[int, int]:
    """Return number and size of the batches of the longest data set that is alive; -1 if there is none.

    Only lengths that are known without reading data count.
    """
    module = sys.modules.get("mindspore.dataset.engine.datasets")
    if module is None:
        return -1, -1
    return max((_batches_of(each) for each in live_instances(module.BatchDataset)), default=(-1, -1))


def _batches_of(data: Any) -> tuple[int, int]:
    size = data.batch_size
    length = _length(data.children[0]) if len(data.children) == 1 else -1
    if length < 0 or not isinstance(size, int) or size < 1:
        return -1, -1
    return (length // size if data.drop_remainder else -(-length // size)), size


def _length(data: Any) -> int:
    """Return the number of samples of a data set; -1 if it is unknown."""
    kind = type(data).__name__
    length = getattr(data, "source_len", None)
    if isinstance(length, int):
        return length
    if kind in ("ShuffleDataset", "MapDataset", "ProjectDataset", "RenameDataset") and len(data.children) == 1:
        return _length(data.children[0])
    return -1
