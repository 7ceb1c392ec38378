"""One tensor at one step: its values, as much of them as one asks for, and what is known about them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel

from tensight.client.download import fetch_to_file, fetch_to_memory
from tensight.client.errors import ServerError
from tensight.client.formatting import STATISTICS, statistics_html
from tensight.client.rows import Rows
from tensight.errors import InputError
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records import ElementRecord, HistogramRecord, Statistics, StatisticsRow, TensorRecord

if TYPE_CHECKING:
    import os

    import httpx
    from numpy.typing import DTypeLike, NDArray

    from tensight.client.connection import Connection
    from tensight.graph.addresses import TensorAddress
    from tensight.sessions.records import Which

MOST_ELEMENTS = 1_000_000
"""Of a slice; the server's limit."""
_MOST_HEADER_BYTES = 2**16

T = TypeVar("T")


class StatisticsAnswer(BaseModel):
    """What the server answers when asked for statistics."""

    statistics: Statistics


class Values:
    """Values on the server: of a tensor, or what changed in it since the step before.

    Parameters
    ----------
    connection : Connection
        The way to the server.
    path : str
        Path of the session on the server.
        Of the session.
    address : TensorAddress
        Which tensor, at which step.
    which : {"current", "difference"}
        The tensor, the same one a step before, or the first minus the second.
    tolerance : float
        For a difference: changes below this share of the largest count as none, 0 to 1.
        For differences.
    """

    def __init__(
        self, connection: Connection, path: str, address: TensorAddress, which: Which, tolerance: float | None = None
    ) -> None:
        self._connection = connection
        self._path = path
        self._where = address
        self._parameters: dict[str, Any] = {"address": str(address), "which": which, "tolerance": tolerance}

    @property
    def address(self) -> str:
        """Where the tensor is: ``rank/graph/node:slot@step``.

        Examples
        --------
        >>> tensor.address
        '0/kernel_graph0/network.fc2.weight:0@2'
        """
        return str(self._where)

    def slice(self, text: str = "") -> NDArray[Any]:
        """Return a part of the values.

        Parameters
        ----------
        text : str
            As in NumPy: ``"[0, 3:5, :]"``, at most 1,000,000 elements. By default the last two dimensions whole, and
            index 0 of those before.

        Returns
        -------
        ndarray
            With the dtype of the tensor.

        Raises
        ------
        InputError
            The slice does not fit the tensor, or selects too much.
        StateError, UnavailableError
            The value has to come from the training process, and that runs or does not answer; or it was not kept.

        Examples
        --------
        >>> tensor.slice("[0, :3]").shape
        (3,)
        """
        return self._array("values", slice=text or None, limit=MOST_ELEMENTS)

    def heat_map(self, text: str = "", *, rows: int = 256, columns: int = 256) -> NDArray[np.float32]:
        """Return a picture of two dimensions: in each cell the value that stands out most among those it covers.

        Parameters
        ----------
        text : str
            Which part, as for `slice`; it may have any number of elements.
        rows, columns : int
            At most so many cells.

        Returns
        -------
        ndarray
            float32, shape (rows, columns) or smaller.

        Examples
        --------
        >>> tensor.heat_map(rows=4, columns=4).dtype
        dtype('float32')
        """
        return self._array("heat-map", slice=text or None, rows=rows, columns=columns)

    def slice_map(self, text: str = "", *, rows: int = 128, columns: int = 128) -> NDArray[np.float64]:
        """Return a map of all slices that differ in the leading dimensions: where among them NaN, or what is large, is.

        Parameters
        ----------
        text : str
            As for `slice`: the dimensions to which it gives an index, whichever, choose the slice. By default all but
            the last two. The last of them goes across, those before it go down.
        rows, columns : int
            At most so many cells.

        Returns
        -------
        ndarray
            float64, shape (3, rows, columns) or smaller: the element that stands out most in a cell's slices; the
            number of NaN and infinities in them; the number of the first slice that has the element, in C order.

        Examples
        --------
        >>> tensor.slice_map("[0, :]").shape
        (3, 1, 3)
        """
        return self._array("slices", slice=text or None, rows=rows, columns=columns)

    def locate(self, find: Literal["first", "largest", "next", "previous"] = "first", text: str = "") -> ElementRecord:
        """Return where an element is: the first NaN or infinity, if there is no such the element of largest magnitude.

        Parameters
        ----------
        find : {"first", "largest", "next", "previous"}
            "largest" is the finite element of largest magnitude; "next" and "previous" are the nearest NaN or infinity
            behind and before an element, beginning anew at the other end of the tensor.
        text : str
            For "first" and "largest" the part to search, as for `slice`; for the others the element to go on from.

        Examples
        --------
        >>> tensor.locate("largest").index is not None
        True
        """
        return self._get(ElementRecord, "element", **self._parameters, find=find, slice=text or None)

    def histogram(self, bins: int = 40) -> HistogramRecord:
        """Return how the finite values are distributed.

        Parameters
        ----------
        bins : int
            Number of bins of equal width.

        Examples
        --------
        >>> histogram = tensor.histogram(bins=10)
        >>> len(histogram.counts), len(histogram.edges)
        (10, 11)
        """
        return self._get(HistogramRecord, "histogram", **self._parameters, bins=bins)

    def statistics(self) -> Statistics:
        """Return minimum, maximum, mean, counts of NaN and so on, of all elements.

        Examples
        --------
        >>> tensor.statistics().nan_count
        0
        """
        return self._get(StatisticsAnswer, "statistics", **self._parameters).statistics

    def _repr_html_(self) -> str:
        return statistics_html(self.statistics())

    def _get(self, kind: type[T], name: str, **parameters: Any) -> T:
        return self._connection.get(kind, f"{self._path}/tensor/{name}", **parameters)

    def _array(self, name: str, **parameters: Any) -> NDArray[Any]:
        path = f"{self._path}/tensor/{name}"
        return raw_array(self._connection.answer(path, **self._parameters, **parameters, format="raw"))


class Difference(Values):
    """What changed in a tensor since the step before: current minus previous values.

    Changes that are smaller than the tolerance times the largest change count as 0.

    Examples
    --------
    >>> difference = tensor.difference(tolerance=0.1)
    >>> difference.statistics().count == tensor.statistics().count
    True
    """

    def __repr__(self) -> str:
        """Return what it is the difference of."""
        return f"<difference of {self.address} to the step before>"


class Tensor(Values):
    """One tensor at one step; obtain it from `Session.tensor`.

    It stays the same when the session goes on. NumPy takes it as an array: ``np.asarray(tensor)``.
    """

    def numpy(self) -> NDArray[Any]:
        """Return all values; a large tensor takes as much memory here.

        They travel as an npy file, which has no bfloat16 and its like: such values come as float32.

        Raises
        ------
        StateError, UnavailableError
            As for `slice`.

        Examples
        --------
        >>> tensor.numpy().shape
        (3, 10)
        """
        return npy_array(fetch_to_memory(self._connection, f"{self._path}/tensor/file", address=self.address))

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the values of a tensor on the server cannot be had without copying them here")
        return np.asarray(self.numpy(), dtype=dtype)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Download the values as a ``.npy`` file.

        The file appears when it is whole. If the connection breaks or this process ends before, the next call goes on
        where the last one stopped.

        Parameters
        ----------
        path : path-like
            The file; or a folder, in which it is named after the tensor.

        Returns
        -------
        Path
            Of the file.

        Raises
        ------
        OSError
            The file cannot be written.

        Examples
        --------
        >>> tensor.save(folder / "weight.npy").name
        'weight.npy'
        """
        target = Path(path)
        if target.is_dir():
            target = target / f"{_file_name(self._where)}.npy"
        fetch_to_file(self._connection, f"{self._path}/tensor/file", target, address=self.address)
        return target

    @property
    def record(self) -> TensorRecord:
        """What the server knows of it: dtype, shape, whether its value is there, statistics, hits.

        Raises
        ------
        NotFoundError
            The node has no such input or output.

        Examples
        --------
        >>> tensor.record.dtype, tensor.record.shape
        ('float32', (3, 10))
        """
        where = self._where
        records = self._connection.get(
            list[TensorRecord],
            f"{self._path}/tensors",
            rank=where.rank,
            graph=where.graph,
            node=where.node,
            step=where.step,
        )
        for record in records:
            if (record.slot, record.io) == (where.slot, where.io):
                return record
        there = ", ".join(f"{record.io} {record.slot}" for record in records[:20]) or "none"
        raise NotFoundError(f"{where.node} has no {where.io} {where.slot}; there are: {there}")

    def history(self) -> Rows[StatisticsRow]:
        """Return the statistics of this tensor in all steps where they are known.

        Examples
        --------
        >>> [row.step for row in tensor.history()]
        [0, 1, 2, 3, 4]
        """
        rows = self._get(list[StatisticsRow], "history", address=self.address)
        return Rows.of(rows, STATISTICS)

    @property
    def previous(self) -> Tensor:
        """The same tensor one step before.

        Examples
        --------
        >>> tensor.previous.address
        '0/kernel_graph0/network.fc2.weight:0@1'
        """
        where = self._where
        if where.step <= 0:
            raise InputError(f"{self.address} is from before the first step; there is nothing before it")
        before = replace(where, iteration=where.iteration - 1)
        return Tensor(self._connection, self._path, before, "current")

    def difference(self, tolerance: float = 0.0) -> Difference:
        """Return what changed since the step before, to be looked at like a tensor.

        Parameters
        ----------
        tolerance : float
            From 0 to 1: changes smaller than this part of the largest change count as 0.

        Examples
        --------
        >>> float(tensor.difference().slice("[0, 0]")) == float(tensor.numpy()[0, 0] - tensor.previous.numpy()[0, 0])
        True
        """
        if not 0 <= tolerance <= 1:
            raise InputError(f"a tolerance is from 0 to 1, and {tolerance!r} was given")
        return Difference(self._connection, self._path, self._where, "difference", tolerance)

    def __repr__(self) -> str:
        """Return the address."""
        return f"<tensor {self.address}>"


def raw_array(response: httpx.Response) -> NDArray[Any]:
    """Return the elements of a raw body, whose headers say what they are."""
    try:
        dtype = _dtype(response.headers["x-tensight-dtype"])
        shape = tuple(int(size) for size in response.headers["x-tensight-shape"].strip("[]()").split(",") if size)
        return np.frombuffer(response.content, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(
            f"{response.request.url} sent values that cannot be read: {error}", code="answer-unreadable"
        ) from error


def npy_array(content: memoryview) -> NDArray[Any]:
    """Return the array of an npy file in memory, without copying it."""
    header = io.BytesIO(content[:_MOST_HEADER_BYTES])
    try:
        version = np.lib.format.read_magic(header)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(header)
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        flat = np.frombuffer(content, dtype, offset=header.tell())
        return flat.reshape(shape, order="F" if fortran_order else "C")
    except ValueError as error:
        raise ServerError(f"the server sent a file that is no npy file: {error}", code="answer-unreadable") from error


def _dtype(name: str) -> np.dtype[Any]:
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extension
    return np.dtype(name)


def _file_name(where: TensorAddress) -> str:
    """Return a name for a file: the last part of the node's name, without what file systems or shells mind."""
    node = "".join(each if each.isalnum() or each in "-_." else "_" for each in where.node.rsplit("/", 1)[-1])
    return f"{node.lstrip('.')[-150:] or 'tensor'}.{where.io}.{where.slot}.rank{where.rank}.step{where.step}"
