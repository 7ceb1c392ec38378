"""Where an anomaly began, in a graph of MindSpore of which nothing but overflows is watched, and in its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.mindspore.mindspore_stage import PATIENCE_S, Run, attached, name_of_job, origins_at_stop

if TYPE_CHECKING:
    from tensight.sessions.records import OriginRecord
    from tests.server.running import RunningServer


SCRIPT = Path(__file__).with_name("raising_training.py")
JUMPING = Path(__file__).with_name("jumping_training.py")
TWO_NETWORKS = Path(__file__).with_name("two_networks_training.py")
FAULTY_STEP = 3


def test_an_operator_that_takes_a_constant_is_certain(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    job = name_of_job()
    options = ("--job", job, "--break-at-start")
    with (
        Run(version, "4", folder=tmp_path, server=mindspore_server, options=options, script=SCRIPT) as run,
        attached(mindspore_server, job) as session,
    ):
        session.wait(PATIENCE_S)
        session.watch("tensor_overflow", on="all")
        assert session.continue_().wait(PATIENCE_S).step == 4
        origin = next(one for one in session.origins() if one.anomaly == "inf")
        assert (origin.type, origin.step, origin.certain, origin.arrived) == ("Pow", 4, True, False)
        assert origin.candidates == ()
        assert origin.line is not None
        assert "# FAULT" in origin.line.code
        _, constant = (one.peer for one in session.node(origin.node).inputs)
        assert session.node(constant).value == "Tensor(shape=[], dtype=Float32, value=-2.5)"
        session.terminate()
        assert run.outcome().code == 0


def first_origin(server: RunningServer, version: str, folder: Path, mode: str, kind: str) -> OriginRecord:
    """Return what is told first where a training stops with the recommended watchpoints."""
    arguments = (mode, kind, str(FAULTY_STEP))
    return origins_at_stop(server, version, folder, JUMPING, *arguments, step=FAULTY_STEP)[0]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("version", "mode", "kind", "anomaly"),
    [
        *(("2.10", "pynative", kind, anomaly) for kind, anomaly in (("weight", "explosion"), ("nan", "nan"))),
        *(("2.10", "graph", kind, "explosion") for kind in ("loaded", "assigned")),
        ("2.10", "graph", "nan", "nan"),
        ("2.7", "pynative", "nan", "nan"),
        ("2.7", "graph", "loaded", "explosion"),
    ],
    indirect=["version"],
)
def test_a_weight_that_somebody_wrote_to_is_the_origin(
    mindspore_server: RunningServer, version: str, mode: str, kind: str, anomaly: str, tmp_path: Path
) -> None:
    origin = first_origin(mindspore_server, version, tmp_path, mode, kind)
    assert (origin.anomaly, origin.node, origin.certain, origin.arrived) == (anomaly, "second.weight", True, True)
    assert "changed since the last update, outside of the optimizer" in origin.sentence


@pytest.mark.long
def test_a_graph_of_which_nobody_knows_what_its_weight_was_is_not_certain(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    origin = first_origin(mindspore_server, version, tmp_path, "graph", "memory")
    assert (origin.anomaly, origin.type, origin.certain) == ("nan", "MatMul", False)
    assert "second.weight" in origin.candidates


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("version", "mode"), [("2.10", "graph"), ("2.10", "pynative"), ("2.7", "graph")], indirect=["version"]
)
def test_data_that_are_no_numbers_are_the_origin(
    mindspore_server: RunningServer, version: str, mode: str, tmp_path: Path
) -> None:
    origin = first_origin(mindspore_server, version, tmp_path, mode, "data")
    assert (origin.anomaly, origin.arrived, origin.certain) == ("nan", True, True)
    assert "." not in origin.node


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "style", "network"), [("2.10", "functional", "2"), ("2.7", "wrapped", "1"), ("2.10", "graph", "2")]
)
def test_the_step_is_right_where_a_network_is_trained_before_another_one_is_called(
    mindspore_server: RunningServer, version: str, style: str, network: str, tmp_path: Path
) -> None:
    arguments = (style, network, str(FAULTY_STEP))
    origin = origins_at_stop(mindspore_server, version, tmp_path, TWO_NETWORKS, *arguments, step=FAULTY_STEP)[0]
    assert (origin.anomaly, origin.arrived, origin.certain, origin.step) == ("nan", True, True, FAULTY_STEP)
