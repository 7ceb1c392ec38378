"""Every code block of the how-tos, run as it is printed."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tensight.watchpoints import condition, recommended_watchpoints
from tests.docs.blocks import ROOT
from tests.docs.readers import (
    A_CONFIGURATION_OF_MINDSPORE_INSIGHT,
    A_SEARCHED_TRAINING,
    A_TRAINING_OF_MINDSPORE_INSIGHT,
    BATCHES,
    CELLS,
    RANKS_WITH_A_BAD_BATCH,
    use_mindspore,
    write_lenet,
)

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Follow

A_HEALTHY_MODEL = "model = torch.nn.Linear(8, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"


@pytest.mark.long
def test_debug_pytorch(follow: Follow) -> None:
    with follow("docs/how-to/debug-pytorch.md") as walk:
        (walk.folder / "package").mkdir()
        shutil.copy(walk.folder / "train.py", walk.folder / "package")
        walk.terminal()
        walk.terminal()
        walk.run("tensight run --recommended train.py --fault-at 4")
        walk.assert_said()
        walk.terminal()
        walk.script(before=BATCHES)
        walk.script(before=BATCHES)
        walk.begin_cell()
        walk.run("tensight run --break-at-start train.py --fault-at 5", leave=True)
        assert "came in at step 5" in walk.end_cell()
        assert "No anomaly found" in walk.terminal()
        walk.terminal()
        assert "torch" in walk.cell("of the recording")
        assert "Bit-identical" in walk.terminal()


@pytest.mark.long
def test_debug_mindspore(follow: Follow) -> None:
    with follow("docs/how-to/debug-mindspore.md") as walk:
        use_mindspore(walk)
        walk.terminal()
        walk.assert_said()
        walk.terminal()
        walk.terminal()
        walk.script(before=CELLS)
        walk.script(before="import tensight\n" + CELLS)
        walk.begin_cell()
        write_lenet(walk, "log-of-zero")
        walk.run("tensight run --break-at-start train.py", leave=True)
        assert "began at step 6" in walk.end_cell()
        write_lenet(walk)
        assert "Bit-identical" in walk.terminal()


@pytest.mark.long
def test_debug_a_training_with_the_client_that_mindspore_carried(follow: Follow) -> None:
    with follow("docs/how-to/debug-a-running-training.md") as walk:
        use_mindspore(walk)
        walk.terminal()
        write_lenet(walk, "log-of-zero")
        walk.terminal(leave="train.py")
        walk.wait_until_paused()
        assert "Log" in walk.cell()


@pytest.mark.long
def test_drive_from_python(follow: Follow, dump_210: Path) -> None:
    with follow("docs/how-to/drive-from-python.md") as walk:
        shutil.copytree(dump_210, walk.folder / "jobs" / "nightly")
        walk.terminal()
        walk.cell()
        walk.cell()
        walk.cell()
        assert (walk.folder / "weight.npy").exists()
        assert "sick_network.py:31" in walk.script(code=1)
        walk.begin_cell()
        walk.run("tensight run --break-at-start train.py --fault-at 5", leave=True)
        walk.end_cell()
        walk.begin_cell()
        walk.run(
            "tensight run --break-at-start --job nightly --record ring:20 --capture ops train.py --fault-at 5",
            leave=True,
        )
        assert "began at step 5" in walk.end_cell()


@pytest.mark.long
def test_debug_in_a_notebook(follow: Follow) -> None:
    with follow("docs/how-to/debug-in-a-notebook.md") as walk:
        walk.terminal()
        walk.cell()
        walk.begin_cell()
        walk.wait_until_paused()
        shown = walk.cell("another")
        assert shown.startswith("12 ")
        walk.cell("another")
        walk.end_cell()
        walk.cell(before=f"debugger.close()\n{A_HEALTHY_MODEL}")


@pytest.mark.long
def test_debug_on_another_machine(follow: Follow) -> None:
    with follow("docs/how-to/debug-on-another-machine.md", SERVER="127.0.0.1") as walk:
        walk.terminal()
        walk.set(TOKEN=(walk.folder / "home" / "tensight" / "token").read_text().strip())
        walk.terminal()
        walk.terminal()
        assert re.findall(r"^(\S+) finished 55$", walk.cell(), re.MULTILINE)


@pytest.mark.long
def test_search_hyper_parameters(follow: Follow) -> None:
    with follow("docs/how-to/search-hyper-parameters.md") as walk:
        (walk.folder / "train.py").write_text(A_SEARCHED_TRAINING)
        walk.file("search.yaml", "yaml")
        shown = walk.terminal()
        assert "20 of 20; best accuracy" in walk.errors
        assert "Best: trial" in shown
        assert "python train.py --lr " in shown
        assert walk.terminal() == shown
        walk.file("train.py", "python")
        with (walk.folder / "train.py").open("a") as script:
            script.write(A_TRAINING_OF_MINDSPORE_INSIGHT)
        (walk.folder / "config.yaml").write_text(A_CONFIGURATION_OF_MINDSPORE_INSIGHT)
        shown = walk.terminal()
        assert "20 of 20; best loss 0.5 in trial 0" in walk.errors
        *_, best_command = shown.splitlines()
        assert f"learning_rate: {walk.run(best_command).strip()}\n" in shown


@pytest.mark.long
def test_check_in_ci(follow: Follow) -> None:
    with follow("docs/how-to/check-in-ci.md") as walk:
        walk.terminal()
        assert "steps looked at" in walk.terminal()
        assert all((walk.folder / name).exists() for name in ("diagnosis.html", "diagnosis.xml", "diagnosis.sarif"))
        walk.blocks.reverse()  # the script is shown after the command that needs it
        walk.file("check.py", "python")
        assert "finished at step 55, 0 tensors hit" in walk.terminal()


@pytest.mark.long
def test_write_your_own_rules(follow: Follow) -> None:
    with follow("docs/how-to/write-your-own-rules.md") as walk:
        walk.file("rules.py", "python")
        with (walk.folder / "rules.py").open("a") as rules:
            rules.write(walk.next("python").text)
        shown = walk.terminal(finds="diagnose")
        for rule in ("loss-too-good", "weights-grow", "rate-too-large"):
            assert f"· {rule}\n" in shown
            assert f"title={rule} " in shown
        assert "could not judge, rules.py" not in shown
        assert "Find" in walk.terminal()
        assert "· rate-too-large\n" in walk.terminal(finds="diagnose run")


def test_diagnose_from_logs(follow: Follow) -> None:
    with follow("docs/how-to/diagnose-from-logs.md") as walk:
        lines = [f"step {10 * at} loss {1 + 4 * 0.9**at if at < 41 else float('nan'):.3f}\n" for at in range(1, 60)]
        (walk.folder / "train.log").write_text("".join(lines))
        _, *printed = walk.blocks[0].text.splitlines()
        shown = walk.terminal(finds="diagnose", language="console")
        assert [line.rstrip() for line in shown.splitlines()][: len(printed)] == printed
        walk.terminal(finds="diagnose")
        assert (walk.folder / "report.html").exists()


@pytest.mark.long
def test_my_port_does_not_converge(follow: Follow) -> None:
    with follow("docs/how-to/my-port-does-not-converge.md") as walk:
        walk.file("reference.py", "python")
        walk.file("port.py", "python")
        assert "repeatable" in walk.terminal()
        assert "from the first step" in walk.terminal(finds="compare")
        assert "eps of 2 layers" in walk.terminal(finds="compare")
        for _ in range(2):
            named = walk.terminal(finds="compare")
            assert "1/norm/LayerNorm-op0" in named
            assert "layers/0/ln/LayerNorm-op0" in named
        assert "native_layer_norm-op0" in walk.terminal(finds="compare")
        walk.terminal()
        with walk.server() as server:
            assert "native_layer_norm-op0" in server.compare("reference", "port").sentence
        assert "layers.0.ln.weight" in walk.terminal(finds="compare")
        walk.terminal()


@pytest.mark.long
def test_when_something_is_unexpected(follow: Follow) -> None:
    with follow("docs/how-to/when-something-is-unexpected.md") as walk:
        walk.run("tensight start")
        walk.run("tensight run --recommended train.py --fault-at 5", leave=True)
        walk.wait_until_paused()
        walk.cell()


@pytest.mark.long
def test_choose_a_watchpoint(follow: Follow) -> None:
    with follow("docs/how-to/choose-a-watchpoint.md") as walk:
        walk.run("tensight start")
        walk.run("tensight run --break-at-start train.py", leave=True)
        walk.wait_until_paused()
        walk.cell()


def test_each_symptom_leads_to_conditions_that_there_are() -> None:
    page = (ROOT / "docs/how-to/choose-a-watchpoint.md").read_text()
    rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("| ")][1:]
    named = [each for row in rows for each in re.findall(r"`(\w+)`( \*)?", row)]
    recommended = {point.check.condition.id for point in recommended_watchpoints(live=True, initial=True)}
    assert len(named) > 15
    for name, mark in named:
        assert condition(name).id == name
        assert bool(mark) == (name in recommended), name


def test_analyse_from_python(follow: Follow, dump_210: Path) -> None:
    with follow("docs/how-to/analyse-from-python.md") as walk:
        (walk.folder / "dump").symlink_to(dump_210)
        shown = walk.cell()
        assert "Inf began at step 3" in shown
        assert "tensor_too_large(max_gt=1000)" in shown
        walk.cell()


@pytest.mark.long
def test_debug_a_dump(follow: Follow, dump_210: Path) -> None:
    with follow("docs/how-to/debug-a-dump.md") as walk:
        shutil.copytree(dump_210, walk.folder / "dumps" / "lenet" / "monday")
        walk.terminal()
        assert "lenet/monday" in walk.cell()


@pytest.mark.long
def test_debug_a_thousand_ranks(follow: Follow) -> None:
    with follow("docs/how-to/debug-a-thousand-ranks.md") as walk:
        (walk.folder / "train.py").write_text(RANKS_WITH_A_BAD_BATCH)
        walk.terminal()
        walk.terminal()
        shown = walk.terminal(finds="check")
        printed = walk.next("text").text
        assert [line for line in printed.splitlines() if line.startswith(("8 ranks", "●"))] == [
            line for line in shown.splitlines() if line.startswith(("8 ranks", "●"))
        ]
        assert re.search(r"step 30 +0_input_0 +0 .*on rank 5", shown)
        shown = walk.terminal(finds="check")
        assert '"ranks": 8' in shown
        walk.terminal()
        shown = walk.terminal(finds="check")
        came_in = "NaN came in at step 30 in 0_input_0, which nothing observed in this step computed – on rank 5"
        assert came_in in shown
        without_hits = shutil.ignore_patterns("hits-*")
        shutil.copytree(walk.folder / "runs" / "wednesday", walk.folder / "dumps" / "monday", ignore=without_hits)
        assert came_in in walk.terminal(finds="check")
        # Clusters are not there; tests of engines start some.
        walk.next("text")
