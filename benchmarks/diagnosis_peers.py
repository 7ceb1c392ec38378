"""What other tools find in the programs of diagnosis.py, counted in their favour.

Each program runs once with all of them attached (peers/attaching.py), in the environment that `make peers` builds:
torch-audit and torchmortem for the whole training, torchtest2 and guardtower on its first step, `detect_anomaly` in its
backward passes, and trainproof and losslint on a log of the loss, the learning rate and the norm of the gradients, of
about fifty lines as trainers print it.

A program with a fault counts as raised if a tool has any finding, a hint included, whose rule may mean the category of
the fault (`RULES`); findings that only say that the loss does not fall, rises, or is not finite fit every fault. The
category counts if such a finding names more than that, and the place if it contains one of the words that are accepted
from ours. A healthy program counts as accused by a warning, but not by a hint; what concerns only speed and style is
taken for a hint. A tool that raises an exception, or makes the program fail, is silent there, and this is counted.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

HERE = Path(__file__).resolve().parent
START = HERE / "peers"
PACKAGES = HERE.parent / ".venvs" / "peers"
ANY = "any"
"""Fits every fault."""
_LOG_LINES = 50
_IN_PROCESS = ("torchtest2", "torch-audit", "torchmortem", "guardtower", "detect_anomaly")
NAMES = ("torchtest2", "torch-audit", "torchmortem", "guardtower", "trainproof", "losslint", "detect_anomaly")

_NOT_FINITE = ("precision", "loss", "learning-rate", "initialization", "scaling", "data", ANY)
_NOT_TRAINED = ("not-in-optimizer", "optimizer", "frozen", "undone", "gradient-cut", "gradient-zero", "learning-rate",
                "precision", "clipping", "averages", "scaling")  # fmt: skip
_NO_GRADIENT = ("gradient-cut", "gradient-zero", "frozen", "not-in-optimizer")
_DEAD = ("gradient-zero", "initialization", "normalisation", "data", "mode", "learning-rate")
_EXPLODING = ("clipping", "learning-rate", "scaling", "accumulated-gradients", "initialization", "loss",
              "normalisation", "precision")  # fmt: skip
_NORM_OF_STEP = ("learning-rate", "scaling", "initialization", "accumulated-gradients", "optimizer", "clipping")

RULES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "torchtest2": {
        "output_finite": _NOT_FINITE,
        "output_varies": ("data", "initialization", "mode", "normalisation", "output-and-loss", "gradient-zero"),
        "eval_determinism": ("mode", "normalisation"),
        "loss": ("loss", "output-and-loss", "broadcasting", "targets", "gradient-cut"),
        "initial_loss": ("output-and-loss", "targets", "initialization", "loss", "scaling", "data"),
        "optimizer_coverage": ("not-in-optimizer", "optimizer", "frozen"),
        "gradient_flow": _NO_GRADIENT,
        "gradient_magnitude": _EXPLODING,
        "params_change": _NOT_TRAINED,
        "frozen_params": ("frozen", "optimizer"),
        "input_dependency": ("data", "backward", "gradient-cut", "gradient-zero", "mode"),
        "batch_independence": ("data", "normalisation", "broadcasting", "loss", "mode"),
        "overfit_batch": (ANY,),
        "gradcheck": ("backward", "gradient-cut"),
    },
    "torch-audit": {
        "TA100": _NOT_FINITE,
        "TA102": _EXPLODING,
        "TA103": (*_NO_GRADIENT, "targets", "initialization"),
        "TA104": _NO_GRADIENT,
        "TA105": _DEAD,
        "TA301": ("data", "normalisation"),
        "TA302": ("data", "targets"),
        "TA303": ("data",),
        "TA304": ("data", "normalisation"),
        "TA305": ("data",),
        "TA400": ("normalisation",),
        "TA401": ("optimizer",),
        "TA402": ("optimizer", "normalisation"),
        "TA403": ("optimizer",),
        "TA405": _DEAD,
        "TA500": ("not-in-optimizer", "gradient-cut", "frozen", "tied-weights", "data"),
        "TA501": ("normalisation", "mode"),
    },
    "torchmortem": {
        "Dead units": _DEAD,
        "Activation saturation": ("initialization", "normalisation", "data", "output-and-loss", "scaling"),
        "Update ratio too low": _NOT_TRAINED,
        "Update ratio too high": _NORM_OF_STEP,
        "Vanishing gradients detected": (*_NO_GRADIENT, "initialization", "normalisation"),
        "Exploding gradients detected": _EXPLODING,
        "Gradient stalling": (*_NO_GRADIENT, "initialization"),
        "Weight norm explosion": _NORM_OF_STEP,
        "Stagnant weight norms": _NOT_TRAINED,
        "Inter-layer weight norm imbalance": ("initialization", "normalisation"),
        "High gradient noise (low SNR)": ("data", "learning-rate", "targets"),
        "Rank collapse": ("normalisation", "initialization", "loss", "data", "broadcasting"),
        "Training divergence detected": (ANY,),
        "Loss plateau detected": (ANY,),
        "Catapult phase detected": ("learning-rate",),
        "Edge of stability regime detected": ("learning-rate",),
    },
    "guardtower": {
        "LOSS-001": ("gradient-cut", "loss"),
        "loss": ("loss", "output-and-loss"),
        "INPUT-001": ("data", "gradient-cut"),
        "GRAD-001": _NO_GRADIENT,
        "grad_connectivity": (*_NO_GRADIENT, "initialization", "targets"),
        "grad_norms": (*_EXPLODING, "gradient-zero"),
        "OPT-001": ("not-in-optimizer", "optimizer"),
        "optimizer_coverage": ("frozen", "optimizer"),
        "nonfinite": _NOT_FINITE,
        "NAN-001": _NOT_FINITE,
        "dead_relu": _DEAD,
        "train_mode": ("mode", "normalisation"),
        "device_dtype": ("precision",),
        "LORA-001": ("frozen", "not-in-optimizer"),
        "LORA-002": ("frozen",),
        "LORA-003": ("not-in-optimizer", "optimizer"),
        "lora_trainable_pct": ("frozen",),
        "DDP-001": ("ranks", "gradient-cut"),
        "DDP-002": ("ranks", "normalisation"),
        "DDP-003": ("ranks",),
    },
    "trainproof": {
        "TP-NAN": _NOT_FINITE,
        "TP-NAN-GRAD": _NOT_FINITE,
        "TP-ZERO-LOSS": ("targets", "loss", ANY),
        "TP-ZERO-LOSS-ONSET": ("targets", "loss", ANY),
        "TP-FLAT": (ANY,),
        "TP-DIVERGE": (ANY,),
        "TP-DEAD-RUN": (ANY,),
        "TP-ZERO-GRAD": (*_NO_GRADIENT, ANY),
        "TP-GRAD-SPIKE": ("clipping", "learning-rate", "data", "scaling"),
        "TP-ZERO-LR": ("learning-rate",),
        "TP-ZERO-LR-PARTIAL": ("learning-rate",),
    },
    "losslint": {
        "nan_inf": _NOT_FINITE,
        "divergence": (ANY,),
        "loss_spike": ("learning-rate", "data", "clipping"),
        "stagnation": (ANY,),
    },
    "detect_anomaly": {"nan": _NOT_FINITE},
}
"""By tool and rule, which categories of ours it may mean."""

_STYLE = ("TA200", "TA201", "TA203", "TA400", "TA401", "TA402", "TA403", "TA404")
_NAMES_LINE = ("detect_anomaly",)
"""Tools whose finding is the line of the operator, which counts as the right place without a check."""


@dataclass(frozen=True)
class PeerFinding:
    """A finding of another tool.

    Attributes
    ----------
    peer, rule : str
    is_hint : bool
    text : str
        In lower case.
    """

    peer: str
    rule: str
    is_hint: bool
    text: str

    def fits(self, categories: Iterable[str]) -> bool:
        meant = RULES[self.peer].get(self.rule, ())
        return ANY in meant or self.names(categories)

    def names(self, categories: Iterable[str]) -> bool:
        """Whether it may mean one of some categories in particular."""
        return bool(set(RULES[self.peer].get(self.rule, ())) & set(categories))

    def has_place(self, words: Iterable[str]) -> bool:
        return self.peer in _NAMES_LINE or any(word in self.text for word in words)


@dataclass
class PeerRun:
    """What all peers found in a program.

    Attributes
    ----------
    wall_s : float
    findings : list of PeerFinding
    crashes : dict of str to str
        By peer, why it is silent.
    """

    wall_s: float
    findings: list[PeerFinding] = field(default_factory=list)
    crashes: dict[str, str] = field(default_factory=dict)


def run_with_peers(
    command: Sequence[str],
    packages: Sequence[Path],
    run: Callable[[Sequence[str], Sequence[Path], Mapping[str, str]], Any],
    kept: Path,
) -> PeerRun:
    """Run a program with all peers attached; without one that makes it fail.

    Parameters
    ----------
    command : sequence of str
    packages : sequence of Path
        Folders that the program imports from.
    run : callable (command, packages, variables) -> Run
    kept : Path
        A file with what they found; written if it does not exist.
    """
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(_collected(command, packages, run)))
    content = json.loads(kept.read_text())
    findings = [_finding(each) for each in content["findings"]]
    findings += _of_log(content["log"])
    return PeerRun(content["wall_s"], findings, content["crashes"])


def _collected(command: Sequence[str], packages: Sequence[Path], run: Callable[..., Any]) -> dict[str, Any]:
    peers = list(_IN_PROCESS)
    crashes: dict[str, str] = {}
    for leaving_out in ("torchmortem", "torch-audit", ""):
        with tempfile.TemporaryDirectory(prefix="tensight-peers-") as folder:
            variables = {"PEERS_FOLDER": folder, "PEERS": ",".join(peers)}
            done = run(command, (START, PACKAGES, *packages), variables)
            parts = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("peers-*.json"))]
        if done.exit_code == 0 or not leaving_out:
            break
        crashes[leaving_out] = f"the program fails with it: {(done.errors.strip().splitlines() or [''])[-1][:200]}"
        peers.remove(leaving_out)
    for part in parts:
        crashes |= part["crashes"]
    if done.exit_code:
        crashes |= dict.fromkeys(NAMES, f"exit code {done.exit_code}")
    return {
        "wall_s": done.wall_s,
        "findings": [each for part in parts for each in part["findings"]],
        "crashes": crashes,
        "log": max((part.get("log", []) for part in parts), key=len, default=[]),
    }


def _finding(content: Mapping[str, str]) -> PeerFinding:
    rule = content["rule"]
    is_hint = content["level"] == "hint" or rule in _STYLE
    return PeerFinding(content["peer"], rule, is_hint, content["text"].lower())


def _of_log(rows: Sequence[Mapping[str, float]]) -> list[PeerFinding]:
    """Return what the tools for logs find in one."""
    if not rows:
        return []
    if str(PACKAGES) not in sys.path:
        sys.path.append(str(PACKAGES))
    from losslint.checks import run_all_checks
    from losslint.parsing import load_run
    from trainproof.epoch import check_epoch

    findings = []
    with tempfile.TemporaryDirectory(prefix="tensight-log-") as folder:
        log = Path(folder, "log.jsonl")
        log.write_text("".join(json.dumps(line) + "\n" for line in _printed(rows)))
        for each in check_epoch(log)["findings"]:
            if each["level"] in ("FAIL", "WARN"):
                text = f"{each['message']} {each['evidence']}".lower()
                findings.append(PeerFinding("trainproof", each["id"], False, text))
        findings += [
            PeerFinding("losslint", each.check, each.severity == "info", each.message.lower())
            for each in run_all_checks(load_run(log))
        ]
    return findings


def _printed(rows: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Return about fifty lines of a log, with the mean loss of their steps."""
    width = max(len(rows) // _LOG_LINES, 1)
    lines = []
    for begin in range(0, len(rows) - width + 1, width):
        steps = rows[begin : begin + width]
        lines.append({**steps[-1], "loss": sum(row["loss"] for row in steps) / len(steps)})
    return lines


def peers_table(rows: Sequence[Any]) -> Table:
    """Return a table of all tools over the same programs, ours in the first row.

    Parameters
    ----------
    rows : sequence of Row
        Of diagnosis.py; those that were run with peers.
    """
    rows = [row for row in rows if row.peers is not None]
    faulty = [row for row in rows if row.is_faulty]
    healthy = [row for row in rows if not row.is_faulty]
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{len(faulty)} faulty, {len(healthy)} healthy")
    for name in ("raised", "category", "place", "healthy accused", "with hints", "silent by an exception"):
        table.add_column(name, justify="right")
    diagnosed = [row for row in rows if row.diagnosed]
    if diagnosed:
        columns = ("raised", "first_category_right", "first_right")
        table.add_row(
            "tensight diagnose (the first finding)",
            *(str(sum(getattr(row, name) for row in faulty)) for name in columns),
            str(sum(bool(row.findings) for row in healthy)),
            "",
            str(sum(bool(row.trouble) for row in rows)),
            style="bold",
        )
    for peer in NAMES:
        counts = [0] * 6
        for row in rows:
            findings = [finding for finding in row.peers.findings if finding.peer == peer]
            counts[5] += peer in row.peers.crashes
            if not row.is_faulty:
                counts[3] += any(not finding.is_hint for finding in findings)
                counts[4] += bool(findings)
                continue
            fitting = [finding for finding in findings if finding.fits(row.program.categories)]
            counts[0] += bool(fitting)
            counts[1] += any(finding.names(row.program.categories) for finding in fitting)
            counts[2] += any(finding.has_place(row.program.places) for finding in fitting)
        table.add_row(peer, *map(str, counts))
    return table
