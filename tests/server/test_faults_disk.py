"""The disk is full: what cannot be written fails in words, and the session goes on."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from mindspore_network import replay
from nodes import DENSE, address
from person import Person
from running import running_server
from training import Training

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_FILE = 8 * 2**20


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="prlimit, which limits the size of files, is not there")
def test_a_tensor_that_cannot_be_written_fails_in_words_and_the_session_goes_on(tmp_path: Path) -> None:
    with (
        running_server(tmp_path / "workspace", command=("prlimit", f"--fsize={LARGEST_FILE}")) as server,
        Training(server.debugger, "big-tensor", steps=5) as training,
        Person(server.url) as person,
    ):
        session = person.session_of(0)
        session.wait("paused")
        session.proceed(steps=1)
        answer = session.try_values(address("embedding.weight", step=1), slice="[0, :5]")
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage")
        assert str(tmp_path) in answer.json()["error"]["message"]
        assert session.record()["state"] == "paused"
        assert training.wait_for("> SendTensors")["tensors"][0]["bytes"] > LARGEST_FILE
        np.testing.assert_array_equal(session.values(address(DENSE, step=1)), replay(1)[f"{DENSE}:0"])
        assert session.proceed(steps=1)["step"] == 2
        assert not list((tmp_path / "workspace" / "tempdata").glob("*"))
        session.command("terminate")
        assert training.finish() == 0
