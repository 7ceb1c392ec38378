"""The parser of the drop-in API: finds files of operators by their code, converts device files, exports graphs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tensight.debugger.analyzer import Path, match_text, open_dump_folder
from tensight.debugger.nodes import DumpNodes

if TYPE_CHECKING:
    from collections.abc import Container

    from tensight.debugger.nodes import Node


class OpPath:
    """The files of an operator in one iteration.

    Parameters
    ----------
    iteration : int
        The iteration.
    """

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration
        self.inputs: list[str] = []
        self.outputs: list[str] = []

    def to_dict(self) -> dict[str, list[str]]:
        """Return ``{"input": [path, …], "output": [path, …]}``."""
        return {"input": self.inputs, "output": self.outputs}


class OpDevicePath:
    """The files of an operator in one rank.

    Parameters
    ----------
    rank_id : int
        The rank.
    """

    def __init__(self, rank_id: int) -> None:
        self.rank_id = rank_id
        self._paths: dict[int, OpPath] = {}

    @property
    def iterations(self) -> list[int]:
        """The iterations, ascending."""
        return list(self._paths)

    def add(self, path: OpPath) -> None:
        """Add the files of an iteration.

        Parameters
        ----------
        path : OpPath
            Replace those of the same iteration.
        """
        self._paths[path.iteration] = path

    def iteration(self, iteration: int) -> OpPath | None:
        """Return the files of an iteration, None if it was not dumped or not requested.

        Parameters
        ----------
        iteration : int
            From 0.
        """
        return self._paths.get(iteration)

    def to_dict(self) -> dict[int, dict[str, list[str]]]:
        """Return ``{iteration: {"input": [path, …], "output": [path, …]}}``."""
        return {iteration: path.to_dict() for iteration, path in self._paths.items()}


class OpPathManager:
    """The files of an operator, by rank and iteration.

    Parameters
    ----------
    op_full_name : str
        The operator's full name.
    """

    def __init__(self, op_full_name: str) -> None:
        self.op_full_name = op_full_name
        self._paths: dict[int, OpDevicePath] = {}

    @property
    def devices(self) -> list[int]:
        """The ranks, ascending."""
        return list(self._paths)

    def add(self, path: OpDevicePath) -> None:
        """Add the files of a rank.

        Parameters
        ----------
        path : OpDevicePath
            Replace those of the same rank.
        """
        self._paths[path.rank_id] = path

    def rank(self, rank_id: int) -> OpDevicePath | None:
        """Return the files of a rank, None if it does not exist or was not requested.

        Parameters
        ----------
        rank_id : int
            From 0.
        """
        return self._paths.get(rank_id)

    def to_dict(self) -> dict[str, dict[int, dict[str, list[str]]]]:
        """Return ``{"rank_0": {iteration: {"input": [path, …], "output": [path, …]}}}``."""
        return {f"rank_{rank}": path.to_dict() for rank, path in self._paths.items()}


class DumpParser:
    """A dump whose files can be found, converted and exported.

    Parameters
    ----------
    dump_dir : str or path-like
        The folder that contains ``rank_0``, ``rank_1``, …

    Raises
    ------
    RankDirNotFound
        The folder is not a dump.
    """

    def __init__(self, dump_dir: Path) -> None:
        self._dump = open_dump_folder(dump_dir)
        self._nodes = DumpNodes(self._dump)

    def convert_all_data_to_host(self) -> list[str]:
        """Convert the files of an asynchronous Ascend dump to npy files beside them; no vendor toolkit is needed.

        Files of an earlier conversion are replaced. Failures are also listed in ``convert_failed_files_summary.txt`` in
        the dump.

        Returns
        -------
        list of str
            A line for each tensor that could not be converted.

        Raises
        ------
        ValueError
            The dump is synchronous; its files need no conversion.
        """
        from tensight.dumps.convert import convert_in_place

        if self._dump.metadata.synchronous:
            raise ValueError(f"{self._dump.path} is a synchronous dump; its files need no conversion.")
        return convert_in_place(self._dump.path)

    def get_tensor_files(
        self,
        qs: str,
        use_regex: bool = False,
        rank_ids: Container[int] | None = None,
        iterations: Container[int] | None = None,
    ) -> dict[str, OpPathManager]:
        """Find the files of operators by their lines of code.

        Parameters
        ----------
        qs : str
            Text to find in the lines of `Node.stack`, case-insensitive.
        use_regex : bool
            Whether it is a regular expression.
        rank_ids : list of int, optional
            The ranks; by default all.
        iterations : list of int, optional
            The iterations; by default all.

        Returns
        -------
        dict of str to OpPathManager
            By full name of the operator.
        """
        matches = match_text(qs, use_regex, case_sensitive=False)
        managers: dict[str, OpPathManager] = {}
        for rank in self._dump.ranks:
            if rank_ids is not None and rank not in rank_ids:
                continue
            for node in self._nodes.of_rank(rank):
                if any(matches(str(line)) for line in node.stack):
                    manager = managers.setdefault(node.source.full_name, OpPathManager(node.source.full_name))
                    manager.add(self._files_of(node, iterations))
        return managers

    def export_xlsx(self, output_dir: Path | None = None) -> str:
        """Write the graphs of all ranks to a workbook; see `DumpAnalyzer.export_graphs`.

        Parameters
        ----------
        output_dir : str or path-like, optional
            Target folder, created if missing; by default the current folder.
        """
        from tensight.analysis.workbook import export_workbook

        return export_workbook(self._dump, output_dir)

    def _files_of(self, node: Node, iterations: Container[int] | None) -> OpDevicePath:
        """Return all files of a node in the selected iterations, including those of repeated executions."""
        paths = OpDevicePath(node.rank)
        for iteration in self._nodes.iterations(node.rank):
            if iterations is None or iteration in iterations:
                paths.add(OpPath(iteration))
        for file in self._nodes.files_of(node):
            path = paths.iteration(file.iteration)
            if path is not None:
                listed = path.inputs if file.io == "input" else path.outputs
                listed.extend(os.fspath(version.path) for version in (*reversed(file.older), file))
        return paths
