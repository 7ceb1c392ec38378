"""The state of a model that its calls may change, and experiments that leave it as it was."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.torch.inner_modules import inner_modules
from tensight.agents.torch.kept_states import Generators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

_OF_MODULES = ("_parameters", "_buffers", "_modules")
_DEEPEST = 4
Rows = list[dict[str, Any]]


class State:
    """The tensors, modes and plain attributes of a model, and the random generators.

    Parameters
    ----------
    model : Module
    """

    def __init__(self, model: nn.Module) -> None:
        self._generators = Generators()
        self._attributes = [(module, dict(vars(module))) for _, module in inner_modules(model)]
        self._contents: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for _, attributes in self._attributes:
            for name, value in attributes.items():
                if name != "_modules":
                    self._note(value, 0)

    def _note(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._tensors[id(value)] = value, value.detach().clone()
            return
        if depth > _DEEPEST or id(value) in self._contents or not isinstance(value, (dict, list, set, deque)):
            return
        self._contents[id(value)] = value, value.copy()
        for inner in value.values() if isinstance(value, dict) else value:
            self._note(inner, depth + 1)

    def put_back(self) -> None:
        """Restore everything, with the same objects; values that were not changed are not written."""
        self._generators.put_back()
        for module, attributes in self._attributes:
            held = vars(module)
            if held.keys() != attributes.keys() or any(held[name] is not value for name, value in attributes.items()):
                held.clear()
                held.update(attributes)
        for value, content in self._contents.values():
            if isinstance(value, (dict, set)):
                value.clear()
                value.update(content)
            elif len(value) != len(content) or any(
                now is not before for now, before in zip(value, content, strict=True)
            ):
                value.clear()
                value.extend(content)
        changed = [(tensor, first) for tensor, first in self._tensors.values() if not _is_same(tensor, first)]
        if changed:
            keep = torch.autograd._unsafe_preserve_version_counter(tuple(tensor for tensor, _ in changed))
            with torch.no_grad(), keep:
                for tensor, first in changed:
                    if tensor.shape != first.shape:
                        tensor.resize_(first.shape)
                    tensor.copy_(first)

    def put_back_numbers(self) -> None:
        """Restore the random generators only."""
        self._generators.put_back()


def _is_same(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    if tensor.shape != first.shape:
        return False
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return bool(torch.equal(tensor, first))
    # NaN is equal to no number, and 0 to -0.
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return bool(torch.equal(tensor.detach().contiguous().view(integers), first.contiguous().view(integers)))


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without calling its methods, which a script may override."""
    for _, module in inner_modules(model):
        with contextlib.suppress(Exception):
            module.training = False
    yield


class Clock:
    """The time that is left for probes.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return max(self._until - time.monotonic(), 0.0)


def in_child(experiments: Callable[[], Rows], clock: Clock) -> Rows | str:
    """Run experiments in a child of this process, which has a copy of all its memory; return their results.

    So nothing of the training can change, whatever its model does when it is called: it may count its calls, keep what
    it is given, or print. A child has one thread of PyTorch, as a worker of a data loader.

    Parameters
    ----------
    experiments : callable () -> list of dict
    clock : Clock

    Returns
    -------
    list of dict or str
        The results, or why there are none.
    """
    child, pipe = fork()
    if not child:
        try:
            _quieten()
            try:
                results: Rows | str = experiments()
            except GoingOn:
                raise
            except Exception as error:
                results = f"{type(error).__name__}: {error}"
            content = json.dumps(results).encode() + b"\n"
            while content:
                content = content[os.write(pipe, content) :]
        except GoingOn:
            raise
        except BaseException:
            os._exit(1)
        os._exit(0)
    content = wait_for(child, pipe, clock)
    if not content.endswith(b"\n"):
        return "they took too long" if not clock.left_s else "the process that tried them has crashed"
    read: Rows | str = json.loads(content)
    return read


class GoingOn(BaseException):
    """Raised in a child that is to go on with the training."""


def fork() -> tuple[int, int]:
    """Fork; return the id of the child, and the end of a pipe from it. In the child they are 0 and its end."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Of threads that hold locks. The child is ended if it waits for one.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    os.close(writing if child else reading)
    return child, reading if child else writing


def wait_for(child: int, pipe: int, clock: Clock) -> bytes:
    """Return what a child has written to a pipe, to the end of a line or its own end; it is ended then."""
    content = b""
    with open(pipe, "rb", buffering=0) as reading:
        while not content.endswith(b"\n") and select.select([reading], [], [], clock.left_s)[0]:
            piece = reading.read(1 << 16)
            if not piece:
                break
            content += piece
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return content


def _quieten() -> None:
    """Let this process, a child, print nothing, write no file, and compute with one thread."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    # A write then fails, instead of ending the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    torch.set_num_threads(1)
