"""Functions that a PyNative training has compiled are seen through the dump; those of MindSpore are not shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.agents.mindspore.mindspore_stage import PATIENCE_S, address, attached, name_of_job, rings
from tests.agents.mindspore.mindspore_stage import Run as Training

if TYPE_CHECKING:
    from tests.server.running import RunningServer


SCRIPT = Path(__file__).with_name("pynative_training.py")


def training(version: str, server: RunningServer, name: str, folder: Path, *options: str) -> Training:
    host, port = address(server)
    arguments = (str(folder), "--server", f"{host}:{port}", "--job", name, *options)
    return Training(version, *arguments, folder=folder, script=SCRIPT)


def equal(one: Any, other: Any) -> bool:
    """Whether two arrays have the same bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.long
def test_a_compiled_function_is_debugged_in_an_eager_training(
    mindspore_server: RunningServer, version: str, tmp_path: Path
) -> None:
    name = name_of_job()
    with (
        training(version, mindspore_server, name, tmp_path, "--jit", "--sick-in-jit-from", "3") as process,
        attached(mindspore_server, name) as session,
    ):
        session.wait(PATIENCE_S)
        session.step(2).wait(PATIENCE_S)
        kinds = {found.entry.path: found.entry.type for found in session.nodes()}
        of = {kind: path for path, kind in kinds.items()}
        seen = {kind: session.tensor(of[kind]).numpy() for kind in ("Tanh", "Log", "TanhGrad")}
        gradient = session.tensor("Gradients/Default/squashedGrad-op0").numpy()
        call, logarithm, backward = (session.node(path) for path in ("Default/squashed-op0", of["Log"], of["TanhGrad"]))
        session.watch_recommended()
        record = session.continue_().wait(PATIENCE_S)
        origin = session.origins()[0]
        hits = [hit.node for hit in session.hits()]
        sick = session.tensor(of["Log"]).numpy()
        assert len(rings(process.process.pid)) == 1
        session.terminate()
        outcome = process.outcome()
    with np.load(tmp_path / "kept.npz") as kept:
        theirs = {"Tanh": kept["1/bounded"], "Log": kept["1/logarithm"], "sick": kept["3/logarithm"]}
    # What ran within, each operator once, linked to what ran around it.
    assert sorted(kinds.values()).count("Log") == 1
    assert not {"ApplyMomentum", "AssignAdd"} & {kind for path, kind in kinds.items() if path.startswith("Default/")}
    given = {"Default/blocks/1/relu/ReLU-op0", "Default/Network-op0"}
    assert {entry.peer for entry in call.inputs} == {*given, of["Log"], of["Tanh"]}
    assert of["Tanh"] in {entry.peer for entry in backward.inputs}
    assert logarithm.stack[0].code == "return ops.log(bounded + least), bounded"
    assert {kind: equal(seen[kind], theirs[kind]) for kind in ("Tanh", "Log")} == {"Tanh": True, "Log": True}
    assert equal(seen["TanhGrad"], gradient)
    # The fault within stops the training there.
    assert record.step == 4
    assert (hits[0], origin.node, origin.stack[0].line) == (of["Log"], of["Log"], logarithm.stack[0].line)
    assert np.isnan(sick).any()
    assert equal(sick, theirs["sick"])
    assert (outcome.code, outcome.errors) == (0, [])
    assert not [notice for notice in outcome.notices if "jit" in notice]
