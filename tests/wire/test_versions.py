"""Which processes are understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.wire import PROTOCOL, check_metadata, check_version
from tensight.wire.debugger_pb2 import Metadata, Process


@pytest.mark.parametrize("version", ["1.1.0", "1.1", "1.9.0", "1.10.1", "2.0.0-alpha", "2.0.0rc1", "2.1.0", "2.3.1"])
def test_mindspore_from_1_1_to_2_3_is_understood(version: str) -> None:
    assert check_version(version).matched
    assert check_version(version).message == ""


@pytest.mark.parametrize("version", ["2.4.0", "2.10.0", "2.99"])
def test_a_newer_mindspore_2_is_tried_with_a_word_of_warning(version: str) -> None:
    found = check_version(version)
    assert found.matched
    assert version in found.message


@pytest.mark.parametrize("version", ["", "1.0.1", "0.7.0", "3.0.0", "1.", "one", "12", "\u0661.5", "1.11111"])
def test_everything_else_is_a_mismatch_that_says_what_is_understood(version: str) -> None:
    found = check_version(version)
    assert not found.matched
    assert "understands MindSpore 1.1 to 2.3" in found.message


@given(version=st.text())
def test_any_text_is_checked(version: str) -> None:
    assert len(check_version(version).message) < 200


def test_an_agent_is_checked_by_its_protocol_and_the_original_client_by_its_version() -> None:
    assert check_metadata(Metadata(ms_version=b"2.0.0")).matched
    assert not check_metadata(Metadata(ms_version=b"\xff")).matched
    assert check_metadata(Metadata(process=Process(protocol=PROTOCOL))).matched
    newer = check_metadata(Metadata(ms_version=b"2.0.0", process=Process(protocol=PROTOCOL + 1, agent_version=b"9")))
    assert not newer.matched
    assert "update Tensight in the debug server" in newer.message
    older = check_metadata(Metadata(process=Process(protocol=0)))
    assert "update Tensight in the training process" in older.message
