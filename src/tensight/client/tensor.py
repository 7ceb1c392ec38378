"""A tensor at a step: its values, fetched in parts, and facts about it."""

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
"""Maximum number of elements of a slice; the server's limit."""
_MOST_HEADER_BYTES = 2**16

T = TypeVar("T")


class StatisticsAnswer(BaseModel):
    """The server's response with statistics."""

    statistics: Statistics


class Values:
    """Values on the server: of a tensor, or of its change since the previous step.

    Parameters
    ----------
    connection : Connection
        Connection to the server.
    path : str
        Path of the session on the server.
    address : TensorAddress
        The tensor, at its step.
    which : {"current", "difference"}
        The tensor, or the tensor minus its value one step before.
    tolerance : float
        For a difference: changes below this share of the largest count as 0, from 0 to 1.
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
        """The address of the tensor: ``rank/graph/node:slot@step``.

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
            As in NumPy: ``"[0, 3:5, :]"``, at most 1,000,000 elements. By default the whole last two dimensions, and
            index 0 of the others.

        Returns
        -------
        ndarray
            With the dtype of the tensor.

        Raises
        ------
        InputError
            The slice does not fit the tensor, or selects too much.
        StateError, UnavailableError
            The value must come from the training process, which runs or does not respond; or it was not kept.

        Examples
        --------
        >>> tensor.slice("[0, :3]").shape
        (3,)
        """
        return self._array("values", slice=text or None, limit=MOST_ELEMENTS)

    def heat_map(self, text: str = "", *, rows: int = 256, columns: int = 256) -> NDArray[np.float32]:
        """Return a picture of two dimensions: each cell is the most extreme value among those it covers.

        Parameters
        ----------
        text : str
            The part, as for `slice`; with any number of elements.
        rows, columns : int
            Maximum number of cells.

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
        """Return a map of all slices that differ in the leading dimensions, to find those with NaN or large values.

        Parameters
        ----------
        text : str
            As for `slice`: the dimensions with an index select the slice. By default these are all except the last two.
            The last of them is horizontal, the others are vertical.
        rows, columns : int
            Maximum number of cells.

        Returns
        -------
        ndarray
            float64, shape (3, rows, columns) or smaller: the most extreme element in a cell's slices; the number of
            NaN and infinities in them; the index of the first slice that contains the element, in C order.

        Examples
        --------
        >>> tensor.slice_map("[0, :]").shape
        (3, 1, 3)
        """
        return self._array("slices", slice=text or None, rows=rows, columns=columns)

    def locate(self, find: Literal["first", "largest", "next", "previous"] = "first", text: str = "") -> ElementRecord:
        """Return the position of an element: by default of the first NaN or infinity, or else of the largest element.

        Parameters
        ----------
        find : {"first", "largest", "next", "previous"}
            "largest" is the finite element of largest magnitude; "next" and "previous" are the nearest NaN or infinity
            after and before an element, continued at the other end of the tensor.
        text : str
            For "first" and "largest" the part to search, as for `slice`; for the others the element to start from.

        Examples
        --------
        >>> tensor.locate("largest").index is not None
        True
        """
        return self._get(ElementRecord, "element", **self._parameters, find=find, slice=text or None)

    def histogram(self, bins: int = 40) -> HistogramRecord:
        """Return the distribution of the finite values.

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
        """Return minimum, maximum, mean, counts of NaN and so on, over all elements.

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
    """The change of a tensor since the previous step: current minus previous values.

    Changes that are smaller than the tolerance times the largest change count as 0.

    Examples
    --------
    >>> difference = tensor.difference(tolerance=0.1)
    >>> difference.statistics().count == tensor.statistics().count
    True
    """

    def __repr__(self) -> str:
        """Return the address of the tensor."""
        return f"<difference of {self.address} to the step before>"


class Tensor(Values):
    """A tensor at one step; obtain it from `Session.tensor`.

    It stays at its step when the session continues. NumPy converts it to an array: ``np.asarray(tensor)``.
    """

    def numpy(self) -> NDArray[Any]:
        """Return all values; a large tensor takes as much memory here.

        They are sent as an npy file, which does not support bfloat16 and similar types: such values become float32.

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
            raise ValueError("the values of a tensor on the server cannot be used without copying them here")
        return np.asarray(self.numpy(), dtype=dtype)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Download the values as a ``.npy`` file.

        The file appears when it is complete. If the connection breaks or this process ends before, the next call
        resumes the download.

        Parameters
        ----------
        path : path-like
            The file; or a folder, for a file named after the tensor.

        Returns
        -------
        Path
            Path of the file.

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
        """Facts about the tensor: dtype, shape, whether its value is available, statistics, hits.

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
        """Return the change since the previous step, with the methods of a tensor.

        Parameters
        ----------
        tolerance : float
            From 0 to 1: changes smaller than this share of the largest change count as 0.

        Examples
        --------
        >>> float(tensor.difference().slice("[0, 0]")) == float(tensor.numpy()[0, 0] - tensor.previous.numpy()[0, 0])
        True
        """
        if not 0 <= tolerance <= 1:
            raise InputError(f"a tolerance is from 0 to 1; got {tolerance!r}")
        return Difference(self._connection, self._path, self._where, "difference", tolerance)

    def __repr__(self) -> str:
        """Return the address."""
        return f"<tensor {self.address}>"


def raw_array(response: httpx.Response) -> NDArray[Any]:
    """Return the array of a raw body, described by its headers."""
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
            raise ValueError("it contains Python objects")
        flat = np.frombuffer(content, dtype, offset=header.tell())
        return flat.reshape(shape, order="F" if fortran_order else "C")
    except ValueError as error:
        raise ServerError(
            f"the server sent something other than an npy file: {error}", code="answer-unreadable"
        ) from error


def _dtype(name: str) -> np.dtype[Any]:
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extension
    return np.dtype(name)


def _file_name(where: TensorAddress) -> str:
    """Return a file name: the last part of the node's name, without characters that are special to file systems."""
    node = "".join(each if each.isalnum() or each in "-_." else "_" for each in where.node.rsplit("/", 1)[-1])
    return f"{node.lstrip('.')[-150:] or 'tensor'}.{where.io}.{where.slot}.rank{where.rank}.step{where.step}"
