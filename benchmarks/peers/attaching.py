"""The peers of benchmarks/diagnosis.py, attached to a running training as their descriptions have it.

torch-audit, torchmortem and the monitor of guardtower stay with the training; torchtest2 and the audit of guardtower
try its first step in a fork of the process, so that nothing of the training changes. The loss, the learning rate and
the norm of the gradients of each step are kept for those that read logs. ``detect_anomaly`` is switched on in backward
passes. All write what they find to the folder that PEERS_FOLDER names, a file for each process; PEERS names those that
are attached.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import multiprocessing.util
import os
import resource
import signal
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import guardtower
import torch
import torch_audit
import torchmortem
import torchtest2
from step_replay import Recorder, Step
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import _get_current_function_mode

if TYPE_CHECKING:
    from collections.abc import Callable

HINT, WARNING = "hint", "warning"
_MOST_MODELS = 6
_MOST_FORKS = 3
_FIRST_BACKWARDS = 12
"""In how many backward passes models and losses that were not seen before are looked for."""
_FORK_LIMIT_S = 30
"""Of processor time."""
_WAITED_S = 200
_RANK_LIMIT_S = 10
"""Where a model waits for other ranks, nothing comes of it."""
_SCALES: dict[int, torch.Tensor] = {}
"""Losses by the identity of what a scaler made of them."""


class Attached:
    """A model with what watches it."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None, peers: set[str]) -> None:
        self.model = model
        self.parameters = {id(parameter) for parameter in model.parameters()}
        self.auditor: Any = None
        self.autopsy: Any = None
        self.monitor: Any = None
        if "torch-audit" in peers:
            self.auditor = torch_audit.autopatch(model, optimizer=optimizer, every_n_steps=1)
        if "torchmortem" in peers:
            self.autopsy = torchmortem.Autopsy(model, optimizer=optimizer)
            self.autopsy._atexit_registered = True  # it would write a page at the end, even if nothing had failed
            self.autopsy.attach()
        if "guardtower" in peers:
            self.monitor = guardtower.monitor(model, on_nonfinite="warn")
            self.monitor.__enter__()

    def detach(self) -> None:
        if self.auditor:
            self.auditor.unpatch()
        if self.autopsy:
            for collector in self.autopsy._collectors:
                collector.detach()
            self.autopsy = None
        if self.monitor:
            self.monitor.__exit__(None, None, None)


class Peers:
    """All peers in this process."""

    def __init__(self, folder: Path, peers: set[str]) -> None:
        self.folder = folder
        self.peers = peers
        self.findings: dict[tuple[str, str, str], dict[str, str]] = {}
        self.crashes: dict[str, str] = {}
        self.logs: dict[int, list[dict[str, float]]] = {}
        self.optimizers: list[torch.optim.Optimizer] = []
        self.attached: list[Attached] = []
        self.recorder: Recorder | None = Recorder()
        self.recorder_is_on = False
        self.depth = 0
        self.losses: list[torch.Tensor] = []
        self.last_loss = math.nan
        self.backwards = 0
        self.in_backward = False
        self.children: list[int] = []
        self.tried: set[frozenset[int]] = set()
        self.called: set[int] = set()
        self.has_anomaly = "detect_anomaly" not in peers
        self.has_functions = False
        self.is_written = False

    def add(self, peer: str, rule: str, level: str, text: str) -> None:
        self.findings.setdefault((peer, rule, text[:200]), {"peer": peer, "rule": rule, "level": level, "text": text})

    def guarded(self, peer: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function of a peer; an exception is one of the peer's."""
        try:
            return function(*arguments, **named)
        except Exception as error:
            self.crashes.setdefault(peer, f"{type(error).__name__}: {error}"[:300])
            return None

    # --- calls of modules ---

    def before_call(self, module: nn.Module) -> None:
        if not torch.is_grad_enabled() or id(module) in self.called or len(self.attached) >= _MOST_MODELS:
            return
        self.called.add(id(module))
        if not self.is_trained(module):
            return
        whole = containing(module)
        if any(each.model is whole for each in self.attached):
            return
        self.recorder_starts()
        self.depth += 1
        try:
            self.attached.append(Attached(whole, self.optimizer_of(whole), self.peers))
        except Exception as error:
            self.crashes.setdefault("attaching", f"{type(error).__name__}: {error}"[:300])
        finally:
            self.depth -= 1

    def is_trained(self, module: nn.Module) -> bool:
        held = set[int]().union(*map(_held_by, self.optimizers))
        return any(parameter.requires_grad or id(parameter) in held for parameter in module.parameters())

    def recorder_starts(self) -> None:
        if self.recorder is not None and not self.recorder_is_on:
            self.recorder.__enter__()
            self.recorder_is_on = True

    def recorder_ends(self) -> None:
        """Record no more. Within a function, as a backward pass is one, the recorder cannot be taken away."""
        if self.recorder is not None:
            self.recorder.calls.clear()
            self.recorder.depth = 1 << 20
            if _get_current_function_mode() is self.recorder:
                self.recorder.__exit__(None, None, None)
                self.recorder = None

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer | None:
        """Return the optimizer that has most of the parameters of a model, or else the only one."""
        held = {id(parameter) for parameter in model.parameters()}
        shares = [len(held & _held_by(each)) for each in self.optimizers]
        if shares and max(shares):
            return self.optimizers[shares.index(max(shares))]
        return self.optimizers[0] if len(self.optimizers) == 1 else None

    # --- backward passes ---

    def before_backward(self, root: torch.Tensor) -> None:
        if root.numel() == 1:
            self.losses.append(_SCALES.pop(id(root), root).detach())
        self.backwards += 1
        if self.recorder is None or self.recorder.depth:
            return
        if self.backwards > _FIRST_BACKWARDS or len(self.tried) >= _MOST_FORKS:
            self.recorder_ends()
            return
        models = frozenset(id(call.function) for call in self.recorder.calls if call.is_model)
        if root.numel() != 1 or not models or models in self.tried:
            return
        self.tried.add(models)
        self.fork(root)

    def fork(self, loss: torch.Tensor) -> None:
        """Let a copy of this process try the step that was recorded."""
        child = os.fork()
        if child:
            self.children.append(child)
            return
        resource.setrlimit(resource.RLIMIT_CPU, (_FORK_LIMIT_S, _FORK_LIMIT_S))
        if torch.distributed.is_initialized():
            signal.alarm(_RANK_LIMIT_S)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            calls = list(self.recorder.calls) if self.recorder else []
            self.depth = 1 << 20
            self.in_backward = True
            self.crashes, self.findings = {}, {}
            for each in self.attached:
                each.detach()
            torch.manual_seed(0)
            self.try_step(calls, loss)
            self.write({"is_whole": True})
        except BaseException:
            (self.folder / f"failed-{os.getpid()}.txt").write_text(traceback.format_exc())
        finally:
            os._exit(0)

    def try_step(self, calls: list[Any], loss: torch.Tensor) -> None:
        calls = [
            call._replace(function=call.function.module) if isinstance(call.function, DistributedDataParallel) else call
            for call in calls
        ]
        try:
            step = Step(calls, loss, containing)
        except ValueError as error:
            self.crashes |= dict.fromkeys(("torchtest2", "guardtower"), f"not attached: {error}")
            return
        concerned = {id(parameter) for parameter in step.parameters()}
        optimizers = [each for each in self.optimizers if concerned & _held_by(each)] or self.optimizers[-1:]
        # Several optimizers share the parameters of a step on purpose, and a peer takes one.
        optimizer = optimizers[0] if len(optimizers) == 1 else None
        for group in [group for each in optimizers for group in each.param_groups]:
            group["lr"] = group.get("initial_lr", group["lr"])  # a schedule is no part of what they try
        copies = [tensor.detach().clone() for tensor in step.inputs]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "guardtower" in self.peers:
                self.guarded("guardtower", self.audit, step, copies, optimizer)
            for parameter in step.parameters():
                parameter.grad = None
            if "torchtest2" in self.peers:
                self.write({})  # what there is so far, should the time not suffice
                self.guarded("torchtest2", self.battery, step, copies, optimizer)

    def audit(self, step: Step, inputs: list[torch.Tensor], optimizer: torch.optim.Optimizer | None) -> None:
        floats = [tensor for tensor in inputs if tensor.is_floating_point()]
        report = guardtower.audit(step, lambda: step.loss_of(step(*inputs)), optimizer=optimizer, inputs=floats or None)
        for finding in [*report.errors, *report.warnings]:
            details = json.dumps(finding.details, default=str)[:4000]
            self.add("guardtower", finding.catalog_id or finding.check, WARNING, f"{finding.message} {details}")

    def battery(self, step: Step, inputs: list[torch.Tensor], optimizer: torch.optim.Optimizer | None) -> None:
        report = torchtest2.check_model(
            step,
            tuple(tensor.detach() for tensor in inputs),
            loss_fn=step.loss_of,
            optimizer=optimizer,
        )
        models = [call for call in step._calls if call.is_model]
        results = list(report)
        if self.has_functions and len(models) == 1 and not models[0].named:
            # The check of custom functions copies the model, which must be the module itself.
            others = [name for name in torchtest2.CHECKS if name not in ("forward", "gradcheck")]
            arguments = tuple(each.detach() if isinstance(each, torch.Tensor) else each for each in models[0].arguments)
            results += torchtest2.check_model(models[0].function, arguments, gradcheck=True, skip=others)
        for result in results:
            if result.status.value in ("FAIL", "WARN"):
                # A loss that falls, though not to a tenth in its 200 steps, it calls possible by itself.
                level = HINT if result.name == "overfit_batch" and result.status.value == "WARN" else WARNING
                self.add("torchtest2", result.name, level, f"{result.message} {dict(result.details)}"[:4000])

    def backward(self, original: Callable[..., Any], tensors: Any, *arguments: Any, **named: Any) -> None:
        """Run a backward pass, the first time with ``detect_anomaly``, and again without it if that raises."""
        roots = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
        if self.in_backward:
            original(tensors, *arguments, **named)
            return
        self.in_backward = True
        self.depth += 1
        try:
            if len(roots) == 1 and isinstance(roots[0], torch.Tensor):
                self.before_backward(roots[0])
            if self.has_anomaly or len(arguments) > 1 or named.get("create_graph"):
                original(tensors, *arguments, **named)
                return
            kept = [
                (parameter, None if parameter.grad is None else parameter.grad.clone())
                for each in self.attached
                for parameter in each.model.parameters()
            ]
            try:
                with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
                    warnings.simplefilter("ignore")
                    original(tensors, *arguments, **{**named, "retain_graph": True})
            except RuntimeError as error:
                if "nan values" not in str(error):
                    raise
                self.has_anomaly = True
                self.add("detect_anomaly", "nan", WARNING, str(error))
                for parameter, gradient in kept:
                    parameter.grad = gradient
                original(tensors, *arguments, **named)
        finally:
            self.depth -= 1
            self.in_backward = False

    # --- steps of optimizers ---

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer not in self.optimizers:
            self.optimizers.append(optimizer)
        if self.recorder is not None and self.recorder.depth >= 1 << 20:
            self.recorder_ends()

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        norms = [
            torch.linalg.vector_norm(p.grad.detach().float())
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None and p.grad.layout == torch.strided
        ]
        if self.losses:
            self.last_loss = float(torch.stack([loss.float().reshape(()) for loss in self.losses]).mean())
            self.losses.clear()
        rows = self.logs.setdefault(id(optimizer), [])
        rows.append(
            {
                "step": len(rows) + 1,
                "loss": self.last_loss,
                "learning_rate": float(optimizer.param_groups[0].get("lr", math.nan)),
                "grad_norm": float(torch.stack(norms).norm()) if norms else 0.0,
            }
        )
        held = _held_by(optimizer)
        for each in self.attached:
            if not (each.parameters & held) and len(self.optimizers) > 1:
                continue
            if each.auditor and each.auditor.optimizer is None:
                each.auditor._patch_optimizer_step(optimizer)
                each.auditor.optimizer = optimizer
            if each.autopsy:
                self.guarded("torchmortem", each.autopsy.step, loss=self.last_loss)

    # --- the end ---

    def end(self) -> None:
        if self.is_written:
            return
        self.is_written = True
        self.recorder_ends()
        self.depth = 1 << 20
        for each in self.attached:
            if each.auditor:
                result = self.guarded("torch-audit", each.auditor.finish)
                for finding in result.findings if result else ():
                    level = HINT if finding.severity.value == "INFO" else WARNING
                    where = f"{finding.module_path or ''} {finding.entity or ''}"
                    if finding.rule_id == "TA000":
                        self.crashes.setdefault("torch-audit", finding.message[:300])
                    else:
                        text = where if finding.rule_id != "TA102" else ""
                        self.findings.setdefault(
                            ("torch-audit", finding.rule_id, text),
                            {
                                "peer": "torch-audit",
                                "rule": finding.rule_id,
                                "level": level,
                                "text": f"{where} {finding.message}",
                            },
                        )
            if each.autopsy:
                self.guarded("torchmortem", each.autopsy.detach)
                report = each.autopsy.get_report()
                for finding in report.findings if report else ():
                    level = HINT if finding.severity.name == "INFO" else WARNING
                    text = f"{finding.title}: {finding.summary} {' '.join(finding.affected_layers)}"
                    self.add("torchmortem", finding.title.partition(" in ")[0], level, text)
            if each.monitor:
                for hit in dict.fromkeys(each.monitor.hits):
                    self.add("guardtower", "NAN-001", WARNING, f"non-finite activation in {hit}")
        deadline = time.monotonic() + _WAITED_S
        for child in self.children:
            wait_for(child, deadline)
            part = self.folder / f"peers-{child}.json"
            if not part.exists() or "is_whole" not in json.loads(part.read_text()):
                self.crashes.setdefault("torchtest2", "not done in time, or ended by itself")
        log = max(self.logs.values(), key=len, default=[])
        self.write({"log": log} if log else {})

    def write(self, more: dict[str, Any]) -> None:
        content = {"findings": list(self.findings.values()), "crashes": self.crashes, **more}
        (self.folder / f"peers-{os.getpid()}.json").write_text(json.dumps(content))


def wait_for(child: int, deadline: float) -> None:
    """Wait for a process of ours to end, and end it when it is late."""
    while True:
        try:
            if os.waitpid(child, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = math.inf
        time.sleep(0.02)


def containing(module: nn.Module) -> nn.Module:
    """Return the module of the script that contains another one, and is contained in none."""
    parents: dict[int, list[nn.Module]] = {}
    for each in gc.get_objects():
        if issubclass(type(each), nn.Module) and not isinstance(each, Step):
            for child in each.__dict__.get("_modules", {}).values():
                if child is not None:
                    parents.setdefault(id(child), []).append(each)
    seen = {id(module)}
    while above := [each for each in parents.get(id(module), ()) if id(each) not in seen]:
        module = max(above, key=lambda each: sum(1 for _ in each.parameters()))
        seen.add(id(module))
    return module.module if isinstance(module, DistributedDataParallel) else module


def _held_by(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


def attach() -> None:
    """Attach the peers to all trainings of this process."""
    peers = Peers(Path(os.environ["PEERS_FOLDER"]), set(os.environ["PEERS"].split(",")))
    call_module, backward = nn.Module.__call__, torch.autograd.backward
    apply = torch.autograd.Function.apply.__func__
    begin_optimizer, scale = torch.optim.Optimizer.__init__, torch.amp.GradScaler.scale

    def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
        if peers.depth:
            return call_module(module, *arguments, **named)
        peers.before_call(module)
        recorder = peers.recorder
        if next(module.parameters(), None) is None:
            return call_module(module, *arguments, **named)
        peers.depth += 1
        if recorder is not None:
            recorder.depth += 1
        try:
            output = call_module(module, *arguments, **named)
        finally:
            peers.depth -= 1
            if recorder is not None:
                recorder.depth -= 1
        if peers.recorder_is_on and recorder is not None and not peers.depth:
            is_model = id(module) in peers.called and peers.is_trained(module)
            recorder.add(module, arguments, named, output, is_model=is_model)
        return output

    def applied(function: Any, *arguments: Any, **named: Any) -> Any:
        output = apply(function, *arguments, **named)
        peers.has_functions |= not function.__module__.startswith("torch.")
        if peers.recorder_is_on and peers.recorder is not None and not peers.recorder.depth:
            peers.recorder.add(function.apply, arguments, named, output, is_model=False)
        return output

    def begin(optimizer: torch.optim.Optimizer, *arguments: Any, **named: Any) -> None:
        begin_optimizer(optimizer, *arguments, **named)
        peers.optimizers.append(optimizer)

    def scaled(scaler: Any, outputs: Any) -> Any:
        result = scale(scaler, outputs)
        if isinstance(result, torch.Tensor):
            _SCALES[id(result)] = outputs
        return result

    def step_begins(optimizer: Any, arguments: Any, named: Any) -> None:
        peers.before_step(optimizer)
        # A closure computes the loss within the step.
        if peers.recorder is not None and not (arguments[1:] or named.get("closure")):
            peers.recorder.depth += 1

    def step_ends(optimizer: Any, arguments: Any, named: Any) -> None:
        if peers.recorder is not None and peers.recorder.depth and not (arguments[1:] or named.get("closure")):
            peers.recorder.depth -= 1
        peers.after_step(optimizer)

    nn.Module.__call__ = call
    torch.autograd.Function.apply = classmethod(applied)
    torch.autograd.backward = lambda *arguments, **named: peers.backward(backward, *arguments, **named)
    torch.optim.Optimizer.__init__ = begin
    torch.amp.GradScaler.scale = scaled
    register_optimizer_step_pre_hook(step_begins)
    register_optimizer_step_post_hook(step_ends)
    atexit.register(peers.end)
    # A process that multiprocessing forks ends without what is registered above.
    multiprocessing.util.Finalize(None, peers.end, exitpriority=100)
