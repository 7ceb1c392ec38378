"""What a session of a training said of each step is what the session of its recorded run says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tensight.sessions.records import (
    Curves,
    Execution,
    HitPage,
    NodeHits,
    NodeRecord,
    OriginRecord,
    Overview,
    StatisticsRow,
    TensorRecord,
    Timeline,
    TreePage,
    WatchpointRecord,
)
from tests.sessions.session_kinds import (
    PATIENCE_S,
    Stage,
    parameters_of,
    stage,
    train_with_mindspore,
    train_with_protocol,
    train_with_torch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tensight.client import Session

STEPS = 4

TRAININGS: dict[str, Callable[[Stage], AbstractContextManager[Session]]] = {
    "torch": partial(train_with_torch, steps=STEPS + 1, arguments=("--inf-at", "3")),
    "mindspore-graph": partial(train_with_mindspore, steps=STEPS + 1, arguments=("--inf-at", "3")),
    "mindspore-protocol": partial(train_with_protocol, steps=STEPS + 1),
}

NOT_RECORDED = {"content_hash": "", "partial": True}
"""What a recording does not have of statistics."""

NOT_TOLD = {"abs_mean": None, "std": None, "l2_norm": None}
"""What MindSpore's own client does not tell of statistics, and a recording may derive."""


class Told:
    """What a session says, each a record or a list of them, by the step that was shown.

    Parameters
    ----------
    unknown : mapping of str to object
        In place of statistics that are not the same.
    """

    def __init__(self, unknown: Mapping[str, object]) -> None:
        self._unknown = unknown
        self.hits: dict[int, list[NodeHits]] = {}
        self.statistics: dict[int, list[StatisticsRow]] = {}
        self.tensors: dict[int, dict[str, TensorRecord]] = {}
        self.histories: dict[str, list[StatisticsRow]] = {}
        self.nodes: list[NodeRecord] = []
        self.tree: list[Any] = []
        self.executions: list[Execution] = []
        self.watchpoints: list[WatchpointRecord] = []
        self.origins: list[OriginRecord] = []
        self.curves: Curves | None = None
        self.overview: Overview | None = None
        self.timeline: Timeline | None = None

    def look(self, session: Session, step: int) -> None:
        """Note what a session says of the step that it shows."""
        found = [(one.rank, one.graph, one.entry.path) for one in session.nodes()]
        tensors = [
            tensor
            for rank, graph, node in found
            for tensor in session._get(list[TensorRecord], "tensors", rank=rank, graph=graph, node=node)
        ]
        outputs = [tensor for tensor in tensors if tensor.io == "output"]
        self.tensors[step] = {tensor.address: self._as_recorded(tensor) for tensor in outputs}
        self.hits[step] = list(session._get(HitPage, "hits", limit=1000).nodes)
        self.statistics[step] = list(map(self._as_recorded, session.statistics()))

    def look_at_all(self, session: Session) -> None:
        """Note what a session says of the whole run, when it shows the last step."""
        self.nodes = [session.node(one.entry.path, rank=one.rank, graph=one.graph) for one in session.nodes()]
        self.tree = list(session._get(TreePage, "tree", limit=1000).entries)
        self.executions = [one.model_copy(update={"has_data": True}) for one in session.executions()]
        self.watchpoints = list(session.watchpoints())
        self.origins = list(session.origins())
        self.curves = session.curves()
        self.overview = session._get(Overview, "overview", statistic="max", first_step=1, read=True)
        self.timeline = session._get(Timeline, "timeline")
        for row in self.statistics[STEPS]:
            history = session.tensor(row.address).history()
            self.histories[row.address] = [self._as_recorded(one) for one in history if one.step]

    def _as_recorded(self, record: Any) -> Any:
        """Return a record of a tensor as far as a run is recorded, which has no values here."""
        update: dict[str, Any] = {}
        if isinstance(record, TensorRecord):
            update = {"status": "statistics_only", "has_previous": False}
        if record.statistics is not None:
            update["statistics"] = record.statistics.model_copy(update=self._unknown)
        return record.model_copy(update=update)


@pytest.fixture(scope="module")
def on(tmp_path_factory: pytest.TempPathFactory, unpacked: Callable[[str], Path]) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("recorded"), unpacked) as running:
        yield running


@pytest.fixture(scope="module", params=parameters_of(TRAININGS))
def told(request: pytest.FixtureRequest, on: Stage) -> tuple[Told, Told]:
    """What the session of a training said, and what the session of its recorded run says."""
    unknown = {**NOT_RECORDED, **(NOT_TOLD if request.param == "mindspore-protocol" else {})}
    live, recorded = Told(unknown), Told(unknown)
    with TRAININGS[request.param](on) as session:
        session.watch("tensor_too_large", max_gt=1, name="large", on="all")
        session.watch("tensor_overflow", name="overflow")
        for step in range(1, STEPS + 1):
            assert session.step().wait(PATIENCE_S).step == step
            live.look(session, step)
        live.look_at_all(session)
        dump = session.terminate().wait(PATIENCE_S).dump
    session = on.server.open(dump, PATIENCE_S, resume=True)
    for step in range(1, STEPS + 1):
        assert session.go_to(step).wait(PATIENCE_S).step == step
        recorded.look(session, step)
    recorded.look_at_all(session)
    session.close()
    return live, recorded


def test_hits_and_watchpoints_are_the_same(told: tuple[Told, Told]) -> None:
    live, recorded = told
    assert any(live.hits.values())
    assert recorded.hits == live.hits
    assert recorded.watchpoints == live.watchpoints


def test_statistics_are_the_same_in_the_same_order(told: tuple[Told, Told]) -> None:
    live, recorded = told
    assert all(live.statistics.values())
    assert recorded.statistics == live.statistics
    assert recorded.histories == live.histories


def test_every_output_is_the_same(told: tuple[Told, Told]) -> None:
    live, recorded = told
    for step, tensors in live.tensors.items():
        # Statistics of a step before the first have no place in MindSpore's layout.
        of_step = {address: tensor for address, tensor in tensors.items() if tensor.step == step}
        assert {address: recorded.tensors[step][address] for address in of_step} == of_step


def test_graphs_are_the_same(told: tuple[Told, Told]) -> None:
    live, recorded = told
    assert recorded.nodes == live.nodes
    assert recorded.tree == live.tree
    assert recorded.executions == live.executions


def test_pictures_and_curves_are_the_same(told: tuple[Told, Told]) -> None:
    live, recorded = told
    assert live.overview is not None
    assert recorded.overview is not None
    assert live.overview.scale is not None
    # Its scale is that of all steps, also of the one before the first, which is not recorded.
    assert recorded.overview == live.overview.model_copy(update={"scale": recorded.overview.scale})
    assert recorded.curves == live.curves
    assert live.timeline is not None
    assert recorded.timeline is not None
    for of_recording, of_training in zip(recorded.timeline.steps[1:], live.timeline.steps[1:], strict=True):
        # Values of the step at which a training stands are in its process.
        assert of_recording == of_training.model_copy(update={"values": of_recording.values})
    assert recorded.timeline.loss == live.timeline.loss


def test_origins_are_the_same(told: tuple[Told, Told]) -> None:
    live, recorded = told
    # Of MindSpore's own client too little is known while it runs.
    if live.origins:
        assert recorded.origins == live.origins
