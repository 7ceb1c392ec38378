"""What a process says of itself, and what follows from it."""

from __future__ import annotations

import pytest

from tensight.sessions.live.identity import closer_command


@pytest.mark.parametrize(
    ("started", "again"),
    [
        ("tensight run train.py --lr 1", "tensight run --capture ops train.py --lr 1"),
        (
            "tensight run --port 5 --capture modules --job 'a b' train.py",
            "tensight run --capture ops --port 5 --job 'a b' train.py",
        ),
        (
            "tensight run --capture=modules torchrun --nproc-per-node 2 t.py",
            "tensight run --capture ops torchrun --nproc-per-node 2 t.py",
        ),
        ("tensight run train.py --capture modules", "tensight run --capture ops train.py --capture modules"),
        ("python -u train.py", "TENSIGHT_CAPTURE=ops python -u train.py"),
        ("python 'unclosed", ""),
        ("", ""),
    ],
)
def test_the_command_of_another_run_captures_every_operator(started: str, again: str) -> None:
    assert closer_command(started) == again
