"""Both ways of scanning, compiled and in NumPy, must pass the same tests."""

from __future__ import annotations

import pytest

from tensight.tensors import warm


@pytest.fixture(scope="session")
def _compiled_kernels() -> None:
    warm.warm_up()


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _compiled_kernels: None) -> str:
    """Scan in one of the two ways."""
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    if request.param == "numpy":
        monkeypatch.setattr(warm._state, "loaded", {})
    return str(request.param)
