"""Every number of the protocol at its extremes: the server answers soon, and stays small and free of errors.

The numbers are those in the descriptors of the messages, so that a new one is among them. The script of the benchmark,
`benchmarks/hostile_numbers.py`, draws 100,000 messages.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "hostile_numbers.py"
ADDRESS_SPACE_MB = 8192
MOST_MB = 512
PROCESSOR_S = 0.5


@pytest.fixture(scope="module")
def hostile() -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[SCRIPT.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_call_and_every_number_of_the_protocol_is_tried(hostile: Any) -> None:
    assert set(hostile.MESSAGES) == set(hostile.methods())
    numbers = {name: set(map(str, hostile.numbers_of(method.input_type))) for name, method in hostile.methods().items()}
    assert "step" in numbers["Poll"]
    assert {"cur_step", "device_name", "hashes.slot", "process.rank", "oldest_iteration"} <= numbers["WaitCMD"]
    assert {"block.dims", "block.counts", "rows.summary.statistics.count"} <= numbers["SendStatistics"]
    assert {"buffer.node.output_type.tensor_type.shape.dim.size", "finished"} <= numbers["SendGraph"]


def test_numbers_at_their_extremes_cost_no_more_than_others(hostile: Any, tmp_path: Path) -> None:
    server = hostile.Server(tmp_path, ADDRESS_SPACE_MB)
    try:
        result = hostile.attack(server, messages=None, seed=0, minutes=5)
        log = server.log
    finally:
        server.stop()
    assert result.problems == []
    assert "Traceback" not in log
    assert result.messages > 500
    # Other tests share the processors: seconds of the server's own count.
    assert result.busiest[0] < PROCESSOR_S, result.busiest
    assert result.peak_mb < MOST_MB
    assert result.disk_mb < 100
