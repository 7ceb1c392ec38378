"""Every code block of README, of the page to start with and of the tutorials, run as it is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT, Block
from tests.docs.readers import A_MINDSPORE_TRAINING, A_TRAINING, use_mindspore, write_lenet
from tests.docs.walk import SCRIPTS
from tests.processes.forking_interpreter import forking_interpreter

if TYPE_CHECKING:
    from conftest import Follow


def assert_shown(block: Block, output: str) -> None:
    """Every line that a block shows under its commands is printed, in this order; ports are free ones."""
    shown = [line for line in block.text.splitlines() if line.strip() and not line.startswith("$")]
    lines = iter(_comparable(output))
    for line in map(_comparable_line, shown):
        assert any(line == other for other in lines), f"{block}: not printed, or not here: {line}\n{output}"


def _comparable(text: str) -> list[str]:
    return [_comparable_line(line) for line in text.splitlines()]


def _comparable_line(line: str) -> str:
    line = re.sub("─+", "─", line)
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", re.sub(r"\S*/(\w+\.py)", r"…/\1", line)).strip()


def test_readme(follow: Follow) -> None:
    with follow("README.md") as walk:
        make, tests = walk.next("sh").commands
        assert tests.startswith("make test")  # what runs this
        shown = walk.run(f"{make.partition('#')[0]} -C {ROOT}")

        demo = walk.next("console")
        assert demo.commands == ["tensight demo"]  # what `make demo` runs
        assert_shown(demo, shown)

        walk.terminal()
        assert "Nothing found" in walk.terminal()
        walk.run("tensight run --record full --record-folder dump train.py --fault-at 40")
        walk.terminal(finds="check")
        shutil.copy(SCRIPTS / "train.py", walk.folder / "reference.py")
        port = (SCRIPTS / "train.py").read_text().replace("torch.tanh(", "torch.relu(")
        (walk.folder / "port.py").write_text(port)
        assert "Default/Network-op0 (Network, reference.py:22) is the first operator" in walk.terminal(finds="compare")


@pytest.mark.long
def test_start(follow: Follow, dump_210: Path) -> None:
    with follow("docs/start.md") as walk:
        demo = walk.next("console")
        install, command = demo.commands
        assert install == "pip install . torch"  # tests/installed does that
        assert_shown(demo, walk.run(command))

        walk.terminal()
        walk.script(before=A_TRAINING)
        use_mindspore(walk)
        walk.script(before=A_MINDSPORE_TRAINING)

        walk.activate(forking_interpreter().python)
        shutil.copy(SCRIPTS / "train.py", walk.folder)
        walk.run("tensight run --record full --record-folder dump train.py --fault-at 40")
        walk.terminal(finds="check")
        walk.cell()
        shutil.copytree(dump_210, walk.folder / "dumps" / "resnet-nightly")
        walk.terminal()
        walk.cell()


@pytest.mark.long
def test_tutorial_on_a_training_that_runs(follow: Follow) -> None:
    with follow("docs/tutorials/a-running-training.md") as walk:
        demo = walk.next("console")
        assert_shown(demo, walk.run(demo.commands[0]))
        walk.run("sed -i 's/--fault-at\", type=int/&, default=30/' train.py")
        start, training = walk.next("sh").commands
        walk.run(start)
        walk.run(training, leave=True)
        walk.wait_until_paused()
        walk.cell()
        walk.cell()


@pytest.mark.long
def test_tutorial_on_a_dump(follow: Follow) -> None:
    with follow("docs/tutorials/a-dump.md") as walk:
        walk.terminal()
        assert "MindSpore 2.10.0" in walk.terminal()
        walk.terminal(finds="check")
        assert "sick_network.py" in walk.terminal()
        walk.terminal()
        assert "TensorOverflow" in walk.cell()
        use_mindspore(walk)
        write_lenet(walk, "log-of-zero")
        assert "train.py" in walk.terminal()
