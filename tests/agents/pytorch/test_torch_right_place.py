"""Planted mistakes are found: the recommended set stops the training, at the operator and the line of the mistake."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.agents.pytorch import dead_faults, gradient_faults, overflow_faults
from tests.agents.pytorch.overflow_faults import OVERFLOW
from tests.agents.pytorch.planting import Fault
from tests.agents.pytorch.watched_training import Finding, debug

if TYPE_CHECKING:
    from tensight.sessions.records import Frame
    from tests.server.running import RunningServer

FAULTS = (*overflow_faults.FAULTS, *gradient_faults.FAULTS, *dead_faults.FAULTS)


def place_of(finding: Finding) -> tuple[str, str, Frame | None]:
    """Return condition, node and line of what stopped the training: where it began, if that can be told.

    Errors go before warnings: one weight that jumps makes the gradients of others surge.
    """
    first = next((node for node in finding.hits if node.tensors[0].hits[0].severity == "error"), finding.hits[0])
    condition = first.tensors[0].hits[0].condition
    if condition in OVERFLOW and finding.origins:
        origin = finding.origins[0]
        return condition, origin.address.split("/", 2)[2].partition(":")[0], origin.line
    return condition, first.node, first.line or finding.reader


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_hit_the_operator_and_the_line_are_those_of_the_mistake(torch_server: RunningServer, fault: Fault) -> None:
    finding = debug(torch_server, fault.build(), fault.within, capture="ops")
    assert not finding.ended, "nothing hit"
    assert finding.hits, finding.summary()
    condition, node, line = place_of(finding)
    assert condition in fault.conditions, finding.summary()
    assert re.search(fault.node, node), f"{node}; {finding.summary()}"
    assert line is not None, finding.summary()
    assert (line.file, line.line) == fault.line, f"line {line.line} of {node}; {finding.summary()}"
    assert fault.step in (None, finding.step), finding.summary()
    if condition in OVERFLOW and fault.step is not None:
        assert finding.origins[0].step == fault.step, finding.summary()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.module], ids=lambda fault: fault.name)
def test_what_calls_of_modules_can_tell_is_found_at_the_module(torch_server: RunningServer, fault: Fault) -> None:
    finding = debug(torch_server, fault.build(), fault.within, capture="modules")
    assert not finding.ended, "nothing hit"
    condition, node, _ = place_of(finding)
    assert condition in fault.conditions, finding.summary()
    assert re.search(fault.module, node), f"{node}; {finding.summary()}"
