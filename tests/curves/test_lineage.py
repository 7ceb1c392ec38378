"""What SummaryCollector of MindSpore 2.10 notes of a training, out of files that it wrote."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tensight.curves.lineage import read_lineage

OF_THE_TRAINING = base64.b64decode(
    "zQAAAAAAAAA++xvLCXmLFL0xwdpBSsEBClMSUQobCgdvcF90eXBlEhBHZW5lcmF0b3JEYXRhc2V0IhgKFGNvbm5lY3Rvcl9xdWV1"
    "ZV9zaXplEBAiGAoUbnVtX3BhcmFsbGVsX3dvcmtlcnMQARJqChAKB29wX3R5cGUSBUJhdGNoGhIKDmRyb3BfcmVtYWluZGVyEAAi"
    "DgoKYmF0Y2hfc2l6ZRAQIhgKFGNvbm5lY3Rvcl9xdWV1ZV9zaXplEBAiGAoUbnVtX3BhcmFsbGVsX3dvcmtlcnMQApJ33aF4AAAA"
    "AAAAAKKlIcUJkxgYvTHB2kEybQo8CgNTR0QVvst5PRodU29mdG1heENyb3NzRW50cm9weVdpdGhMb2dpdHMgASoLc3RhbmRfYWxv"
    "bmUwAUAQEgIQQBoVCg5TZXF1ZW50aWFsQ2VsbBWhhAxAIhIaDnsiY2twdCI6IG51bGx9IAAcunCt"
)
OF_THE_EVALUATION = base64.b64decode("JQAAAAAAAADqvDbzCc9cNL0xwdpBOhoSFHsiQWNjdXJhY3kiOiAwLjE4NzV9GgIQQFXRWA8=")


def test_the_loss_and_the_metrics_are_read(tmp_path: Path) -> None:
    path = tmp_path / "events.out.events.summary.1.host_lineage"
    path.write_bytes(OF_THE_TRAINING)
    assert read_lineage(path) == {"loss": pytest.approx(2.195595)}
    path.write_bytes(OF_THE_EVALUATION)
    assert read_lineage(path) == {"Accuracy": 0.1875}


def test_a_file_that_is_damaged_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "events.out.events.summary.1.host_lineage"
    path.write_bytes(OF_THE_EVALUATION + OF_THE_TRAINING[:50])
    assert read_lineage(path) == {"Accuracy": 0.1875}
    path.write_bytes(b"no lineage")
    assert read_lineage(path) == {}
