"""All ways of scanning, with each set of instructions of this processor and in NumPy, must pass the same tests."""

from __future__ import annotations

import pytest

from tensight.tensors import native


@pytest.fixture(params=[*native.instruction_sets(), "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Scan in one of the ways."""
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return str(request.param)
