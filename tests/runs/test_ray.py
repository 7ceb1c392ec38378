"""Ranks on a Ray cluster of two nodes, both on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tensight.runs.checking import CheckQuery
from tensight.runs.run import Run
from tensight.watchpoints import recommended_watchpoints

RANKS = 24
QUERY = CheckQuery(tuple(recommended_watchpoints()))

pytestmark = [
    pytest.mark.long,  # a cluster takes a quarter of a minute to start
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # stay on 127.0.0.1
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "120")
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 200 * 2**20}
    started = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    started.second = started.add_node(**node)
    monkeypatch.setenv("RAY_ADDRESS", started.address)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture
def many_ranks(dump_copy: Callable[[str], Path]) -> Path:
    dump = dump_copy("sick-2.10.0")
    for rank in range(1, RANKS):
        shutil.copytree(dump / "rank_0", dump / f"rank_{rank}", copy_function=os.link)
    return dump


def rows(run: Run) -> str:
    (results,) = run.query(QUERY)
    assert sorted(results.about) == list(range(RANKS))
    order = [("rank", "ascending"), ("row", "ascending")]
    return str(pq.read_table(results.path).sort_by(order).to_pylist())


def test_a_cluster_gives_the_same_rows_though_a_node_is_killed(many_ranks: Path, tmp_path: Path, cluster: Any) -> None:
    run = Run(many_ranks, cache_dir=tmp_path / "ray", engine="ray")
    killed: list[int] = []

    def kill(_: str, done: int, total: int) -> None:
        if not killed and done < total:
            killed.append(done)
            cluster.remove_node(cluster.second, allow_graceful=False)

    run.progress = kill
    by_ray = rows(run)
    assert killed
    assert by_ray == rows(Run(many_ranks, cache_dir=tmp_path / "threads", engine="threads"))
