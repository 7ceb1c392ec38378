"""Objects that nobody handed over are found by their class, and by nothing else."""

from __future__ import annotations

import sys

import pytest

from tensight.agents.core.live_instances import live_instances
from tensight.tensors.native import kernels


@pytest.fixture(params=["compiled", "numpy"])
def _finder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)


class Model:
    pass


class Optimizer:
    pass


@pytest.mark.usefixtures("_finder")
def test_objects_of_a_class_and_of_those_derived_from_it_are_found() -> None:
    class Larger(Model):
        pass

    plain, larger, optimizer, other = Model(), Larger(), Optimizer(), [1]

    assert {id(one) for one in live_instances(Model)} == {id(plain), id(larger)}
    assert {id(one) for one in live_instances((Model, Optimizer))} == {id(plain), id(larger), id(optimizer)}
    assert id(other) in {id(one) for one in live_instances(list)}


@pytest.mark.usefixtures("_finder")
def test_an_object_is_not_asked_what_it_is() -> None:
    class Pretends:
        asked = 0

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            Pretends.asked += 1
            return Model

    pretends = Pretends()

    assert id(pretends) not in {id(one) for one in live_instances(Model)}
    assert Pretends.asked == 0


@pytest.mark.usefixtures("_finder")
def test_objects_are_found_among_those_of_thousands_of_classes() -> None:
    kinds = [type(f"Kind{number}", (Model,) if number % 3 else (), {}) for number in range(4000)]
    objects = [kind() for kind in kinds]

    found = {id(one) for one in live_instances(Model)}

    assert found == {id(one) for number, one in enumerate(objects) if number % 3}


def test_finding_keeps_no_object() -> None:
    model = Model()
    before = sys.getrefcount(model)

    found = live_instances(Model)
    assert found == [model]
    del found

    assert sys.getrefcount(model) == before


def test_the_kernels_refuse_what_is_no_class() -> None:
    compiled = kernels()
    assert compiled is not None

    with pytest.raises(TypeError, match="is no class"):
        compiled.instances([], ("Model",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tuple of classes"):
        compiled.instances([], [Model])  # type: ignore[arg-type]
