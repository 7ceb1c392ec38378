"""A PyTorch training looks the same at the original's server (recorded by with_original_server.py) and at ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytorch_conversation import TensightPerson, converse

from tests.server.running import running_server

HERE = Path(__file__).parent


@pytest.mark.long
def test_a_pytorch_training_looks_as_it_does_at_the_original_server(tmp_path: Path) -> None:
    golden = json.loads((HERE / "golden" / "pytorch.json").read_text())
    with running_server(tmp_path / "workspace") as server:
        assert converse(TensightPerson(server.url), str(server.debugger)) == golden
