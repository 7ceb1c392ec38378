"""Both ways of scanning, compiled and in NumPy, must pass the same tests."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Scan in one of the two ways."""
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return str(request.param)
