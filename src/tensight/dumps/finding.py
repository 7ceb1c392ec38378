"""Find a tensor of a dump by what the user types: a name or the end of a name, optionally with slot and step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from tensight.errors import InputError
from tensight.graph.addresses import TensorAddress
from tensight.graph.naming import the_one_meant

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tensight.dumps.metadata import DumpMetadata
    from tensight.dumps.tensor_file import TensorFile

_TENSOR = re.compile(r"(?P<name>.+?)(?::(?P<io>input|output)?\.?(?P<slot>\d{1,9}))?(?:@(?P<step>\d{1,18}))?", re.DOTALL)
_RANK = re.compile(r"(?P<rank>\d{1,9})/[^/]+/.")
_MOST_STEPS = 20


class Searched(Protocol):
    """The part of a dump that the search for a tensor needs."""

    @property
    def metadata(self) -> DumpMetadata:
        """How the dump was made."""

    @property
    def ranks(self) -> Collection[int]:
        """Its ranks."""

    def tensors(self) -> Iterable[TensorFile]:
        """Return the tensors with values."""

    def recorded_tensors(self) -> Iterable[TensorFile]:
        """Return the tensors with statistics only."""

    def unwritten_tensors(self) -> Iterable[TensorFile]:
        """Return the unwritten outputs."""

    def tensor(self, address: TensorAddress) -> TensorFile | None:
        """Return the tensor at an address."""


def find_tensor(dump: Searched, text: str, rank: int | None = None) -> TensorFile:
    """Return the tensor that the user named; see `Dump.find`."""
    tensor = _at_address(dump, text)
    if tensor is not None and rank in (None, tensor.rank):
        return tensor
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise InputError(f"{text!r} does not name a tensor; write for example conv1.weight:0@2")
    rank = _rank_of(text, dump) if rank is None else rank
    unwritten = set(dump.unwritten_tensors())
    every = (*dump.tensors(), *dump.recorded_tensors(), *unwritten)
    files = [file for file in every if rank is None or file.rank == rank]
    # Like names of weights, a tool's names of calls contain dots.
    called = {file.op_name: _name(file) for file in files} if dump.metadata.tool else {}
    node = called.get(match["name"]) or the_one_meant(map(_name, files), match["name"])
    side, slot = match["io"] or "output", int(match["slot"] or 0)
    mine = [file for file in files if _name(file) == node]
    step = int(match["step"]) if match["step"] else max(file.step for file in mine)
    for file in mine:
        if (file.io, file.slot, file.step) == (side, slot, step):
            if file in unwritten:
                raise InputError(
                    f"{node} leaves output {slot} as memory was, and writes to others, or to parameters only"
                )
            return file
    there = sorted({f"{'' if file.io == 'output' else 'input.'}{file.slot}" for file in mine if file.step == step})
    steps = sorted({file.step for file in mine})
    has = f"slots {', '.join(there)}" if there else f"steps {', '.join(map(str, steps[:_MOST_STEPS]))}"
    raise InputError(f"{node} has no {side} {slot} at step {step} in this dump; it has {has}")


def _at_address(dump: Searched, text: str) -> TensorFile | None:
    try:
        address = TensorAddress.parse(text)
    except InputError:
        return None
    return dump.tensor(address) if address.rank in dump.ranks else None


def _rank_of(text: str, dump: Searched) -> int | None:
    """Return the rank that an address begins with; None if the text is not an address of a rank in the dump."""
    match = _RANK.match(text)
    return int(match["rank"]) if match and int(match["rank"]) in dump.ranks else None


def _name(file: TensorFile) -> str:
    return file.node if file.node is not None else file.op_name
